"""Drivers in the hands of the control plane: flooding, gone, and under another writer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base.errors import TEXT_CHARACTERS_MAX, clean_text
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    RequestMaintenance,
    Retry,
)
from forewarn_core.fleet.topology import Host
from forewarn_drivers import Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store
from forewarn_store.errors import StoreLost
from tests.control.gated import reason_of
from tests.control.rig import Running
from tests.waiting import LIMIT_S

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
    running.loop.submit(asked, "test").result(LIMIT_S)
    running.loop._thread.join(LIMIT_S)
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
    running.loop._thread.join(LIMIT_S)
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


def test_work_of_before_drivers_had_names_is_carried_out_by_its_host_s() -> None:
    """As an older version has left it in the store; without one, by the default. Source: R-3."""
    old = Recording("old")
    running = Running(old)
    running.loop.stop()
    nameless = ControlPlane(running.store, NoticePolicy(), lambda: "EVENT-9")
    hosts = ChangeTopology(hosts=(Host("own"), Host("bare")))
    asked = RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=("own", "bare"))
    for stimulus in (hosts, asked, ChangeTopology(hosts=(Host("own", driver="old"),))):
        nameless.commit(stimulus, actor="test", now_ms=running.wall_ms)
    running.start()
    running.settle()
    assert (old.calls, running.driver.begun) == (["begin op-1/1"], [1])
    running.loop.stop()
    running.store.close()


# --- what drivers say -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("it\x00broke\x1b[31m", "it\N{REPLACEMENT CHARACTER}broke\N{REPLACEMENT CHARACTER}[31m"),
        ("two\r\n  lines\t", "two lines"),
        ("odd \udcff byte", "odd \\udcff byte"),
        ("x" * TEXT_CHARACTERS_MAX, "x" * TEXT_CHARACTERS_MAX),
        ("x" * 5000, "x" * (TEXT_CHARACTERS_MAX - 1) + "…"),
        ("Übergröße → 7", "Übergröße → 7"),
    ],
    ids=["control", "lines", "surrogate", "longest", "long", "plain"],
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
