"""Drivers in the hands of the control plane: hung, gone, flooding, and under another writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.control.driver_calls import (
    TEXT_CHARACTERS_MAX,
    clean_text,
)
from forewarn.control.publishing import FollowUp
from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.stimulus import (
    Approve,
    ChangeTopology,
    Complete,
    RequestMaintenance,
    Retry,
)
from forewarn.core.topology import Host
from forewarn.drivers import Progress, Task
from forewarn.drivers.manual import ManualDriver
from forewarn.store import open_store
from forewarn.store.errors import StoreLost
from tests.control.gated import MINUTE_MS, gated, started_on
from tests.control.rig import WAIT_S, Running
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forewarn.core.lifecycle import Operation


def reason_of(running: Running, operation: Operation) -> str:
    """Why an operation is stuck."""
    read = running.loop.read(lambda plane: plane.state.operations[operation.number].reason)
    return read.result(WAIT_S)


@pytest.mark.parametrize("verb", ["begin", "progress", "abort"])
def test_hanging_driver_delays_only_its_own_operation(verb: str) -> None:
    """Approvals, polls, starts and ends of others go on while a call never returns. Source: R-1."""
    with gated(verb) as (running, _, _):
        other = running.announce()
        running.settle()
        running.ask(Approve("v", other.events))
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
        [waiting] = running.loop.why(operation.number).result(WAIT_S)
        assert "since 2027" in waiting.text
        assert [r for r in caplog.records if getattr(r, "action", "") == "driver.hung"]


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
        running.loop._inbox.put(FollowUp(begin=(live.result(WAIT_S),)))
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
        [waiting] = running.loop.why(second.number).result(WAIT_S)
        assert "All 1 calls that driver gated may have under way hang" in waiting.text
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


def test_retry_takes_the_place_of_a_call_that_hangs() -> None:
    """People may try again although the last attempt never returned. Source: R-1, L-8."""
    with gated("begin") as (running, driver, operation):
        running.pass_time(MINUTE_MS)
        running.ask(Retry(operation.number))
        assert driver.called.acquire(timeout=WAIT_S)
        driver.gate.set()
        wait_until(lambda: running.history(operation)[-1] == "operation.succeeded")
        assert {call for call in driver.calls if call[0] == "begin"} == {
            ("begin", "op-1/1"),
            ("begin", "op-1/2"),
        }


# --- who may call -----------------------------------------------------------------------------


class Usurped(ManualDriver):
    """A driver during whose first call another process becomes the writer."""

    name = "usurped"

    def __init__(self, path: Path) -> None:
        """Note what is begun and aborted."""
        self.calls: list[str] = []
        self._path = path

    def begin(self, task: Task) -> None:
        """Lose the store to another process, the first time."""
        self._call(f"begin {task.id}")

    def abort(self, task: Task) -> None:
        """Note it."""
        self._call(f"abort {task.id}")

    def _call(self, call: str) -> None:
        self.calls.append(call)
        self.usurp()

    def usurp(self) -> None:
        """Let another process claim the store."""
        import sqlite3

        with sqlite3.connect(self._path) as other:
            other.execute("UPDATE service SET generation = generation + 1, writer = 'another'")
        other.close()


@pytest.fixture
def usurped(tmp_path: Path) -> Iterator[tuple[Running, Usurped]]:
    """A run loop whose store another process takes over during the first call of a driver."""
    path = tmp_path / "store.db"
    driver = Usurped(path)
    running = Running(driver, store=open_store(str(path)))
    hosts = tuple(Host(f"h{n}", driver="usurped") for n in range(3))
    running.ask(ChangeTopology(hosts=(Host("h", driver="usurped"), *hosts)))
    yield running, driver
    running.loop.stop()
    running.store.close()


def test_writer_that_was_superseded_begins_nothing_more(
    usurped: tuple[Running, Usurped],
) -> None:
    """Of three operations that start at once only the first is begun. Source: R-2, L-7."""
    running, driver = usurped
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h0", "h1", "h2"))
    running.loop.submit(asked, "test").result(WAIT_S)
    running.loop._thread.join(WAIT_S)
    assert driver.calls == ["begin op-1/1"]
    assert [type(error) for error in running.lost] == [StoreLost]


def test_writer_that_was_superseded_aborts_nothing(usurped: tuple[Running, Usurped]) -> None:
    """Neither is a driver told of an end by a writer that is none. Source: R-2, L-7."""
    running, driver = usurped
    driver.usurp, usurp = lambda: None, driver.usurp  # type: ignore[method-assign]
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("h",))
    operation = running.ask(asked).operations[0]
    running.settle()
    running.publisher.late = True
    running.ask(Complete(operation.number))
    usurp()
    running.publisher.catch_up()
    running.loop._thread.join(WAIT_S)
    assert driver.calls == ["begin op-1/1"]
    assert [type(error) for error in running.lost] == [StoreLost]


def test_task_names_the_generation_of_its_writer() -> None:
    """A driver can refuse calls of a writer that was replaced. Source: R-2."""

    class Naming(ManualDriver):
        name = "naming"
        generations: list[int] = []  # noqa: RUF012 - one test, one list

        def begin(self, task: Task) -> None:
            self.generations.append(task.generation)

    driver = Naming()
    running = Running(driver)
    running.ask(ChangeTopology(hosts=tuple(Host(f"n{n}", driver="naming") for n in range(2))))
    running.ask(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("n0",)))
    running.settle()
    running.restart(1000)
    running.ask(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("n1",)))
    running.settle()
    first, second = driver.generations
    assert 0 < first < second
    running.loop.stop()
    running.store.close()


# --- who is called ----------------------------------------------------------------------------


class Recording(ManualDriver):
    """A driver that notes which calls it gets."""

    def __init__(self, name: str) -> None:
        """Take a name."""
        self.name = name
        self.calls: list[str] = []

    def begin(self, task: Task) -> None:
        """Note it."""
        self.calls.append(f"begin {task.id}")

    def abort(self, task: Task) -> None:
        """Note it."""
        self.calls.append(f"abort {task.id}")


def test_operation_keeps_its_driver_when_its_host_changes() -> None:
    """It is ended by who has begun it, over a restart, too. Source: R-3."""
    old, new = Recording("old"), Recording("new")
    running = Running(old, new)
    running.ask(ChangeTopology(hosts=(Host("own", driver="old"),)))
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("own",))
    operation = running.ask(asked).operations[0]
    running.settle()
    running.ask(ChangeTopology(hosts=(Host("own", driver="new"),)))
    running.ask(Retry(operation.number))
    running.settle()
    running.restart(1000)
    running.settle()
    running.ask(Complete(operation.number))
    running.settle()
    assert old.calls == ["begin op-1/1", "begin op-1/2", "abort op-1/2"]
    assert new.calls == []
    running.loop.stop()
    running.store.close()


def test_owed_abort_reaches_its_driver_when_its_host_is_gone() -> None:
    """A host that was removed meanwhile makes nobody else the driver. Source: R-3, L-7."""
    old = Recording("old")
    running = Running(old)
    running.ask(ChangeTopology(hosts=(Host("own", driver="old"),)))
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("own",))
    operation = running.ask(asked).operations[0]
    running.settle()
    running.publisher.fails = True
    running.ask(RequestMaintenance(cause=Cause.REBOOT, targets=("v",)))
    running.ask(Complete(operation.number))
    running.ask(ChangeTopology(removed=(("host", "own"),)))
    running.publisher.fails = False
    running.pass_time()
    assert old.calls == ["begin op-1/1", "abort op-1/1"]
    assert running.driver.told == []
    running.loop.stop()
    running.store.close()


# --- what drivers say -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("it\x00broke\x1b[31m", "it\N{REPLACEMENT CHARACTER}broke\N{REPLACEMENT CHARACTER}[31m"),
        ("two\r\n  lines\t", "two lines"),
        ("odd \udcff byte", "odd \\udcff byte"),
        ("x" * 5000, "x" * (TEXT_CHARACTERS_MAX - 1) + "…"),
        ("Übergröße → 7", "Übergröße → 7"),
    ],
    ids=["control", "lines", "surrogate", "long", "plain"],
)
def test_text_of_a_driver_can_be_stored_and_shown(said: str, kept: str) -> None:
    """What a driver says is bounded and harmless. Source: R-1."""
    assert clean_text(said) == kept


@pytest.mark.parametrize("act", ["exit", "nonsense", "nul"])
def test_driver_that_misbehaves_fails_its_attempt_only(act: str) -> None:
    """It neither ends the service nor leaves its operation without a reason. Source: R-1, L-8."""

    class Odd(ManualDriver):
        name = "odd"

        def begin(self, task: Task) -> None:  # noqa: ARG002
            if act == "exit":
                raise SystemExit(3)
            if act == "nul":
                raise OSError("no\x00where")

        def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
            return "done"  # type: ignore[return-value]

    running = Running(Odd())
    running.ask(ChangeTopology(hosts=(Host("own", driver="odd"),)))
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("own",))
    operation = running.ask(asked).operations[0]
    running.settle()
    expected = {
        "exit": "3",
        "nul": "no\N{REPLACEMENT CHARACTER}where",
        "nonsense": "its progress is a str",
    }
    assert reason_of(running, operation) == expected[act]
    assert running.state_of(operation) is OperationState.RUNNING
    running.loop.stop()
    running.store.close()
