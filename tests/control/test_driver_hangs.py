"""Drivers that hang: what goes on meanwhile, who hears of it, and what becomes of the call."""

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, RequestMaintenance, Retry
from forewarn_core.fleet.topology import Host
from forewarn_core.requests import ApprovalRequest
from tests.control.gated import MINUTE_MS, gated, reason_of, started_on
from tests.control.rig import cut_once
from tests.waiting import LIMIT_S, wait_until


@pytest.mark.parametrize("verb", ["begin", "progress", "abort"])
def test_hanging_driver_delays_only_its_own_operation(verb: str) -> None:
    """Approvals, polls, starts and ends of others go on while a call never returns. Source: R-1."""
    with gated(verb) as (running, _, _):
        other = running.announce()
        running.settle()
        running.ask(ApprovalRequest("v", other.events, ""))
        wait_until(lambda: "operation.begun" in running.history(other))
        running.ask(Complete(other.number))
        wait_until(lambda: running.history(other)[-1] == "operation.aborted")


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_call_that_hangs_is_told_to_people(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """After its time the operation is stuck, with the call and since when. Source: R-1, L-8."""
    with gated(verb) as (running, _, operation):
        running.pass_time(MINUTE_MS)
        reason = reason_of(running, operation)
        assert f"has not answered {verb} of op-1/1 since 2027-01-15T08:00:00Z" in reason
        [waiting] = running.loop.why(operation.number).result(LIMIT_S)
        assert "since 2027" in waiting.text
        said = [getattr(each, "action", "") for each in caplog.records]
        assert (said.count("driver.hung"), said.count("driver-exhausted")) == (1, 0)


def test_call_that_returns_late_counts_still() -> None:
    """An operation that was given up for hung goes on once its driver answers. Source: R-1."""
    with gated("begin") as (running, driver, operation):
        running.pass_time(MINUTE_MS)
        driver.gate.set()
        wait_until(lambda: running.history(operation)[-1] == "operation.succeeded")
        assert driver.calls == [("begin", "op-1/1"), ("progress", "op-1/1")]


def test_abort_that_hangs_is_left_to_people() -> None:
    """A driver that does not return from an abort is not told again. Source: R-1, L-8."""
    with gated("abort") as (running, driver, operation):
        running.pass_time(MINUTE_MS)
        assert running.history(operation)[-1] == "operation.abort-failed"
        running.pass_time(10 * MINUTE_MS)
        assert driver.calls.count(("abort", "op-1/1")) == 1


def test_abort_that_fails_after_it_was_left_to_people_is_not_made_again() -> None:
    """They may have seen to it meanwhile. Source: R-1, L-8."""
    with gated("abort", calls=1) as (running, driver, operation):
        running.pass_time(MINUTE_MS)
        started_on(running, "second")
        driver.fails = True
        driver.gate.set()
        wait_until(lambda: ("begin", "op-2/1") in driver.calls)  # its place is free again
        running.pass_time(10 * MINUTE_MS)
        running.pass_time(10 * MINUTE_MS)
        assert driver.calls.count(("abort", "op-1/1")) == 1
        assert running.history(operation)[-1] == "operation.abort-failed"


def test_driver_is_aborted_only_after_its_call_has_ended() -> None:
    """One call at a time is made for an operation, in their order. Source: R-1."""
    with gated("begin") as (running, driver, operation):
        running.ask(Complete(operation.number, failed=True))
        running.settle()
        assert driver.calls == [("begin", "op-1/1")]
        driver.gate.set()
        wait_until(lambda: running.history(operation)[-1] == "operation.aborted")
        assert driver.calls == [("begin", "op-1/1"), ("abort", "op-1/1")]


def test_driver_that_failed_to_begin_is_not_told_twice() -> None:
    """Several publications may have a beginning follow, one during its call. Source: L-7."""
    with gated("begin") as (running, driver, operation):
        live = running.loop.read(lambda plane: plane.state.operations[operation.number])
        running.loop._inbox.put(StepResult(begin=(live.result(LIMIT_S),)))
        running.settle()
        driver.fails = True
        driver.gate.set()
        wait_until(lambda: reason_of(running, operation))
        running.settle()
        assert driver.calls == [("begin", "op-1/1")]


def test_driver_whose_calls_all_hang_is_told_to_people(caplog: pytest.LogCaptureFixture) -> None:
    """What needs one more call waits and says for what, until one returns. Source: R-1."""
    with gated("begin", calls=1) as (running, driver, _):
        second = started_on(running, "second")
        running.pass_time(MINUTE_MS)
        [waiting] = running.loop.why(second.number).result(LIMIT_S)
        assert "All 1 calls that driver gated may run at a time hang" in waiting.text
        assert [r for r in caplog.records if getattr(r, "action", "") == "driver-exhausted"]
        driver.gate.set()
        wait_until(lambda: running.history(second)[-1] == "operation.succeeded")


def test_what_changes_while_a_beginning_waits_for_its_driver_is_shown_before_it() -> None:
    """A VM that arrives on a host that has failed sees it before its driver begins. L-5, L-7."""
    with gated("begin", calls=1) as (running, driver, first):
        running.ask(ChangeTopology((Host("second", driver="gated"),)))
        lose = RequestMaintenance(cause=Cause.HOST_LOST, targets=("h",), destination="second")
        [moved] = running.ask(lose).operations
        failure = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("second",))
        [failed] = running.ask(failure).operations
        running.settle()
        running.publisher.late = True
        running.ask(Complete(moved.number))
        driver.gate.set()
        wait_until(lambda: running.history(first)[-1] == "operation.succeeded")
        running.settle()
        assert ("begin", f"{failed.id}/1") not in driver.calls
        running.publisher.catch_up()
        wait_until(lambda: running.history(failed)[-1] == "operation.succeeded")


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_call_that_hangs_is_told_to_people_though_the_store_lost_it(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call hangs still, and is not made again; people hear of it. Source: R-1, L-7, L-8."""
    with gated(verb) as (running, driver, operation):
        monkeypatch.setattr(running.store, "commit", cut_once(running))
        running.pass_time(MINUTE_MS)
        assert f"has not answered {verb} of op-1/1" in reason_of(running, operation)
        running.pass_time(0)
        assert running.history(operation).count("operation.stuck") == 1
        assert driver.calls.count((verb, "op-1/1")) == 1


def test_retry_takes_the_place_of_a_call_that_hangs() -> None:
    """People may try again although the last attempt never returned. Source: R-1, L-8."""
    with gated("begin") as (running, driver, operation):
        running.pass_time(MINUTE_MS)
        running.ask(Retry(operation.number))
        assert driver.called.acquire(timeout=LIMIT_S)
        driver.gate.set()
        wait_until(lambda: running.history(operation)[-1] == "operation.succeeded")
        assert {call for call in driver.calls if call[0] == "begin"} == {
            ("begin", "op-1/1"),
            ("begin", "op-1/2"),
        }
