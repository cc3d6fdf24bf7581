"""The run loop by itself: steps of the system's clock, drivers nobody has, bugs that end it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from forewarn.control.driver_host import ABORT_TRIES
from forewarn.control.driver_setup import DriverUnknown
from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance.stimuli import CreateMaintenance, StartMaintenance
from forewarn.core.stimulus import (
    Approve,
    ChangeTopology,
    ClockMarked,
    GroupsPolled,
    RequestMaintenance,
    Retry,
)
from forewarn.core.topology import Group, Host, Vm
from forewarn.errors import OurError
from forewarn.store.errors import StoreFull
from tests.control.rig import WAIT_S, Running, refuses

if TYPE_CHECKING:
    from collections.abc import Iterator


MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture
def running() -> Iterator[Running]:
    """A run loop."""
    made = Running()
    yield made
    made.loop.stop()
    made.store.close()


@pytest.mark.parametrize("step_ms", [HOUR_MS, 10 * 24 * HOUR_MS], ids=["hour", "days"])
def test_step_ahead_is_followed_when_no_notice_runs(running: Running, step_ms: int) -> None:
    """The service's clock follows within a minute, and no group is silent for it.

    Source: N-4, B-2.
    """
    assert running.pass_time(step_ms=step_ms) == running.wall_ms
    assert running.loop.read(lambda plane: set(plane.state.enrolments)).result(WAIT_S) == {"g"}


def test_step_back_is_followed_when_no_notice_runs(running: Running) -> None:
    """The service's clock goes back with the system's, so that the next NotBefore is right. N-4."""
    running.pass_time()
    assert running.pass_time(step_ms=-HOUR_MS) == running.wall_ms
    assert running.announce().not_before_ms == running.wall_ms + 15 * 60_000


def test_step_back_keeps_no_driver_waiting(running: Running) -> None:
    """A driver that did not hear of an end is told again when it was to be. Source: L-7, N-4."""
    running.driver.deaf = 3
    operation = running.announce()
    running.end(operation)
    told = len(running.driver.told)
    running.pass_time(step_ms=-HOUR_MS)
    running.pass_time()
    assert len(running.driver.told) == told + 2


def test_step_never_shortens_a_running_notice(running: Running) -> None:
    """While a notice runs a step is not followed; once it has ended it is. Source: N-4."""
    operation = running.announce()
    assert running.pass_time(step_ms=HOUR_MS) == running.wall_ms - HOUR_MS
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.ask(Approve("v", operation.events))
    assert running.state_of(operation) is OperationState.RUNNING
    assert running.pass_time() == running.wall_ms


def test_earliest_start_counts_anew_where_the_clock_is_put_back(running: Running) -> None:
    """It had passed before, so that nothing would have looked at it any more. L-1, N-4."""
    groups, vms = (Group("g2"),), (Vm("v2", "h2", "g2"),)
    running.ask(ChangeTopology((Host("h2"),), groups, vms))
    late_ms = running.clock.now_ms() + 3 * HOUR_MS
    running.ask(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",), not_before_ms=late_ms))
    begun_ms = running.pass_time(step_ms=-6 * HOUR_MS)
    for _ in range(50):
        running.pass_time(MINUTE_MS)
    earliest_ms = running.clock.now_ms() + 5 * MINUTE_MS
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600, earliest_ms=earliest_ms))
    running.ask(StartMaintenance(2))
    while running.pass_time(MINUTE_MS) > begun_ms:
        pass
    [operation] = [o for o in running.plane.state.operations.values() if o.maintenance]
    assert operation.hold_ms == earliest_ms < operation.not_before_ms
    running.ask(Approve("v", operation.events))
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.pass_time(earliest_ms - running.clock.now_ms())
    assert running.state_of(operation) is OperationState.RUNNING


STEPS_MS = [HOUR_MS, -6 * HOUR_MS, 50 * 24 * HOUR_MS]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_notice_is_the_same_over_a_restart(running: Running, step_ms: int) -> None:
    """A step while the service was down neither shortens nor stretches a notice. Source: N-4."""
    operation = running.announce()
    assert running.restart(5000, step_ms=step_ms) == 0
    assert running.restart(5000) == 0
    left_ms = operation.not_before_ms - running.clock.now_ms()
    running.pass_time(left_ms - 1)
    assert running.state_of(operation) is OperationState.ANNOUNCED
    running.pass_time(1)
    assert running.state_of(operation) is OperationState.RUNNING
    assert running.pass_time() >= running.wall_ms


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_restart_follows_the_system_clock_when_no_notice_runs(
    running: Running, step_ms: int
) -> None:
    """A service without a notice starts over by the system's clock; nobody is silent for it.

    Source: N-4, B-2.
    """
    assert running.restart(5000, step_ms=step_ms) == step_ms
    assert running.clock.now_ms() == running.wall_ms
    running.pass_time()
    assert running.loop.read(lambda plane: set(plane.state.enrolments)).result(WAIT_S) == {"g"}
    operation = running.announce()
    assert running.restart(5000, step_ms=HOUR_MS) == 0
    assert running.state_of(operation) is OperationState.ANNOUNCED


@pytest.mark.parametrize("boot", ["another boot", ""], ids=["other", "none"])
def test_mark_of_another_boot_means_nothing(running: Running, boot: str) -> None:
    """After a reboot, or on another machine, the system's clock is followed. Source: N-4."""
    running.announce()
    assert running.restart(5000, step_ms=HOUR_MS, boot=boot) == HOUR_MS
    assert running.restart(5000, boot="a boot") == 0


def test_absurd_mark_means_nothing(running: Running) -> None:
    """A mark far beyond what is known of the time is not believed. Source: N-4."""
    running.announce()
    for absurd_ms in (0, -(10**15), 10**15, 2 * running.wall_ms):
        running.ask(ClockMarked("a boot", absurd_ms))
        assert running.restart(5000) == 0
        assert running.clock.now_ms() == running.wall_ms


def test_clock_that_is_not_stepped_costs_no_write(running: Running) -> None:
    """The clock's mark is written at the first start and after a step only. Source: N-4.

    With a step back the marks of polls that lie ahead are put back, too. Source: F-5.
    """
    written = running.store.generation
    for _ in range(3):
        running.pass_time()
    assert running.store.generation == written
    running.pass_time(step_ms=-HOUR_MS)
    assert running.store.generation == written + 2
    running.restart(5000)
    assert running.store.generation == written + 3, "only the claim of the writer"


def test_host_with_a_driver_nobody_has_is_refused(running: Running) -> None:
    """A driver is known before work needs it; nothing was changed."""
    with pytest.raises(DriverUnknown, match="no driver magic"):
        running.ask(ChangeTopology(hosts=(Host("other", driver="magic"),)))
    assert "other" not in running.plane.state.topology.hosts


def test_driver_that_is_gone_fails_the_attempt_only(running: Running) -> None:
    """After a restart without its driver, work fails with the reason and all else goes on.

    Source: L-8.
    """
    running.plane.commit(
        ChangeTopology(hosts=(Host("h", driver="gone"),)), actor="test", now_ms=running.wall_ms
    )
    operation = running.announce()
    running.ask(Approve("v", operation.events))
    running.pass_time()
    reason = running.loop.read(lambda plane: plane.state.operations[operation.number].reason)
    assert "no driver gone" in reason.result(WAIT_S)
    assert not running.lost


@pytest.mark.parametrize("deaf", [0, 3, ABORT_TRIES - 1])
def test_driver_is_told_of_an_end_until_it_hears(running: Running, deaf: int) -> None:
    """A driver that cannot be told to abort is told again; once is enough. Source: L-7."""
    operation = running.announce()
    running.driver.deaf = deaf
    running.end(operation)
    for _ in range(2 * ABORT_TRIES):
        running.pass_time()
    assert running.driver.told == [operation.id] * (deaf + 1)
    assert running.history(operation)[-1] == "operation.aborted"


def test_driver_that_never_hears_is_told_of_to_people(running: Running) -> None:
    """After a number of tries the driver is left alone, and history says so. Source: L-8."""
    operation = running.announce()
    running.driver.deaf = 100
    running.end(operation)
    for _ in range(2 * ABORT_TRIES):
        running.pass_time()
    assert len(running.driver.told) == ABORT_TRIES
    assert running.history(operation)[-1] == "operation.abort-failed"
    assert not running.plane.state.aborts


def test_driver_is_not_asked_after_what_it_has_not_begun(running: Running) -> None:
    """A retry is asked after once it has begun, not when the one before was due. L-7, L-8."""
    running.driver.again_after_ms = 1000
    operation = running.announce()
    running.ask(Approve("v", operation.events))
    running.pass_time()
    asked = list(running.driver.asked)
    running.publisher.fails = True
    running.ask(RequestMaintenance(cause=Cause.REBOOT, targets=("v",)))
    running.ask(Retry(operation.number))
    running.pass_time()
    assert (running.driver.begun, running.driver.asked) == ([1], asked)
    running.publisher.fails = False
    running.pass_time()
    assert running.driver.begun == [1, 2]
    assert running.driver.asked[len(asked) :] == [2] * (len(running.driver.asked) - len(asked))
    assert len(running.driver.asked) > len(asked) > 0


def test_bug_in_the_loop_ends_the_service(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """A control plane that cannot go on says so, instead of leaving everybody waiting."""
    del running.plane.policy
    running.loop.wake()
    running.loop._thread.join(WAIT_S)
    caplog.clear()  # this bug was to be
    assert [type(error) for error in running.lost] == [OurError]


def test_report_that_is_refused_is_no_trouble(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, and what the store refuses is said once until it succeeds. L-7."""
    running.loop.note(Approve("nobody", ("EVENT-9",)), "test")
    running.settle()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreFull(place="here", reason="full")))
        for _ in range(3):
            running.loop.note(GroupsPolled(frozenset({"g"})), "test")
            running.pass_time(120_000)
    said = [getattr(each, "action", "") for each in caplog.records if each.levelname == "ERROR"]
    assert said == ["store-full"]
    running.pass_time()
    assert running.loop.trouble == ""


def test_request_that_was_withdrawn_is_not_done(running: Running) -> None:
    """Who does not wait any more has changed nothing. Source: L-7."""
    held = threading.Event()
    running.loop.read(lambda _: held.wait(WAIT_S))
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
    withdrawn = running.loop.submit(asked, "test")
    assert withdrawn.cancel()
    held.set()
    running.settle()
    assert running.plane.state.last_number == 0


def test_answer_may_wait_until_it_is_shown(running: Running) -> None:
    """What changes no document is answered at once, whatever is published meanwhile. M-4."""
    running.publisher.late = True
    asked = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
    shown = running.loop.submit(asked, "test", shown=True)
    at_once = running.loop.submit(ChangeTopology(hosts=(Host("h7"),)), "test", shown=True)
    assert at_once.result(WAIT_S).entries
    assert not shown.done()
    running.publisher.catch_up()
    assert shown.result(WAIT_S).operations[0].number == 1
