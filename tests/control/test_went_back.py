"""A control plane whose store has lost commits decides nothing. Source: H-10."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Host
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers import Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_drivers.task_records import TaskOfLaterWriter, TaskSuperseded
from forewarn_server.control.service_state import ServiceState
from forewarn_store import open_store
from forewarn_store.errors import StoreLost, StoreWentBack
from tests.control.rig import Running
from tests.store.rewinding import Snapshot
from tests.waiting import wait_until


class Remembering(ManualDriver):
    """A driver whose platform remembers the call of a later writer."""

    name = "remembering"

    def __init__(self, error: type[TaskSuperseded]) -> None:
        """Refuse tasks with this error."""
        self._error = error

    def begin(self, task: Task) -> None:
        """Begin nothing."""
        later = task.generation + 100
        raise self._error(task=task.id, generation=task.generation, newest=later)

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Know nothing."""
        raise NotImplementedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def running(path: Path) -> Iterator[Running]:
    """A run loop on a file, with two drivers that refuse."""
    running = Running(store=open_store(str(path)))
    yield running
    running.loop.stop()
    running.store.close()


def test_approval_of_a_lost_event_is_refused_and_shown_documents_stay(
    running: Running, path: Path
) -> None:
    """Nothing is published, and nothing begun once the notice is over. Source: H-10, L-7."""
    before = Snapshot(str(path))
    operation = running.announce()
    published = len(running.publisher.changes)
    before.put_back()
    with pytest.raises(StoreWentBack):
        running.ask(ApprovalRequest("v", operation.events, ""))
    running.pass_time(86_400_000)
    assert running.loop.state is ServiceState.UNCERTAIN
    assert (len(running.publisher.changes), running.driver.begun) == (published, [])
    with pytest.raises(StoreWentBack):
        running.ask(ApprovalRequest("v", operation.events, ""))


def test_older_state_is_withheld_once_a_witness_is_heard(running: Running) -> None:
    """Documents that this process has shown before are withdrawn; nodes keep theirs. H-10."""
    running.announce()
    commit = running.store.newest
    with pytest.raises(StoreWentBack):
        running.store.lineage.prove_lost(commit, running.store._writer, "node n1")
    running.loop.note_went_back(running.store.lineage.lost or StoreWentBack())
    running.settle()
    last = running.publisher.changes[-1]
    assert (last.whole, last.publications, last.withheld) == (True, (), frozenset({"g"}))
    assert "node n1" in running.loop.trouble


def test_restore_by_another_process_ends_this_one(running: Running, path: Path) -> None:
    """It is started again, and loads the new epoch. Source: H-10, U-2."""
    before = Snapshot(str(path))
    running.announce()
    before.put_back()
    with pytest.raises(StoreWentBack):
        running.ask(ChangeTopology(hosts=(Host("h2"),)))
    with running.store._engine.writing() as transaction:
        transaction.run("restore_ended")
    running.elapsed_ms += 61_000
    running.loop.wake()
    wait_until(lambda: running.loop.state is ServiceState.SUPERSEDED)
    assert [type(error) for error in running.lost] == [StoreLost]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (TaskOfLaterWriter, ServiceState.UNCERTAIN),
        (TaskSuperseded, ServiceState.READY),  # of whichever store
    ],
)
def test_driver_that_knows_a_later_writer_is_a_witness(
    error: type[TaskSuperseded], state: ServiceState
) -> None:
    """Only where its record is of the same store; else the attempt fails. Source: H-10, R-2."""
    running = Running(Remembering(error))
    running.ask(ChangeTopology(hosts=(Host("h", driver="remembering"),)))
    operation = running.announce()
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.pass_time()
    wait_until(lambda: running.loop.state is state)
    assert (running.store.lineage.lost is not None) is (error is TaskOfLaterWriter)
    running.loop.stop()
    running.store.close()
