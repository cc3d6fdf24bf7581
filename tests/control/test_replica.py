"""What readers ask: a copy of the state on a thread of its own, which keeps no writer."""

import threading

import pytest

from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import Cancel, ChangeTopology, Complete
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control.inbox import Inbox, Stopping
from forewarn_server.control.plane import StateView
from forewarn_server.control.readable import StateReplica
from forewarn_server.control.service_state import ServiceStatus
from forewarn_store.errors import StoreUncertain
from tests.control.rig import Running
from tests.waiting import LIMIT_S, wait_until


def read_all(running: Running) -> tuple[bool, int, int]:
    """Whether readers' state is the writer's, and the sequence of both."""
    reading = running.loop.replica.read(lambda view: (view.state.copy(), view.sequence))
    state, sequence = reading.result(LIMIT_S)
    plane = running.loop.read(lambda plane: (plane.state.copy(), plane.sequence)).result(LIMIT_S)
    assert state.places.all() == plane[0].places.all()
    return state == plane[0], sequence, plane[1]


def test_whoever_wrote_reads_it(running: Running) -> None:
    """Every answer is followed by reads that have it. Source: E-1."""
    for number in range(50):
        name = f"h{number}"
        running.ask(ChangeTopology((Host(name),)))
        found = running.loop.replica.read(lambda view: list(view.state.topology.hosts))
        assert found.result(LIMIT_S)[-1] == name


def test_readers_see_what_the_writer_has(running: Running) -> None:
    """Through all of an operation's life, changes of the fleet included. Source: L-7."""
    same, *sequences = read_all(running)
    assert (same, len(set(sequences))) == (True, 1)
    operation = running.announce()
    running.ask(ChangeTopology((Host("h2"),), (Group("g2"),), (Vm("v2", "h2", "g2"),)))
    running.ask(ApprovalRequest("v", operation.events, ""))
    running.settle()
    same, *sequences = read_all(running)
    assert (same, len(set(sequences))) == (True, 1)
    running.ask(Complete(operation.number))
    running.ask(ChangeTopology(removed=(("vm", "v2"),)))
    running.settle()
    same, *sequences = read_all(running)
    assert (same, len(set(sequences))) == (True, 1)


def test_reader_that_takes_long_keeps_no_approval(running: Running) -> None:
    """The writer goes on while a question is looked into. Source: A-1."""
    operation = running.announce()
    running.settle()
    looks, go_on = threading.Event(), threading.Event()

    def ponder(view: StateView) -> OperationState:
        looks.set()
        go_on.wait(LIMIT_S)
        return view.state.operations[operation.number].state

    answer = running.loop.replica.read(ponder)
    assert looks.wait(LIMIT_S)
    running.ask(ApprovalRequest("v", operation.events, ""))
    assert running.state_of(operation) is OperationState.RUNNING
    go_on.set()
    assert answer.result(LIMIT_S) is OperationState.ANNOUNCED


def test_fleet_that_somebody_reads_stays_as_it_was(running: Running) -> None:
    """It is not copied for him, but before it changes, if he still has it by then."""

    def read() -> tuple[Topology, bool]:
        query = running.loop.replica.read(lambda view: (view.fleet(), view.state.topology))
        fleet, live = query.result(LIMIT_S)
        return fleet, fleet.vms is live.vms

    fleet, is_live = read()
    assert is_live
    running.ask(Cancel(running.announce().number))
    assert read()[0] is fleet  # nothing of it has changed
    running.ask(ChangeTopology(vms=(Vm("v2", "h", "g"),)))
    newer, is_live = read()
    assert is_live
    assert ({*fleet.vms}, fleet.vms_on("h")) == ({"v"}, ("v",))
    assert ({*newer.vms}, newer.vms_on("h")) == ({"v", "v2"}, ("v", "v2"))
    tables = newer.vms
    del newer
    running.ask(ChangeTopology(removed=(("vm", "v2"),)))
    newest, is_live = read()
    assert is_live
    assert newest.vms is tables
    assert {*tables} == {"v"}


def test_commit_of_unknown_outcome_reaches_readers(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What turns out to have happened is adopted by both. Source: L-7."""
    running.announce()
    read_all(running)
    commit, happened = running.store.commit, []

    def cut(changes: Changes) -> int:
        commit(changes)
        happened.append(changes)
        raise StoreUncertain(place="here", reason="cut")

    monkeypatch.setattr(running.store, "settle", lambda: happened.pop() if happened else None)
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", cut)
        with pytest.raises(StoreUncertain):
            running.ask(ChangeTopology((Host("h2"),)))
    running.pass_time(0)
    same, *sequences = read_all(running)
    assert (same, len(set(sequences))) == (True, 1)
    found = running.loop.replica.read(lambda view: "h2" in view.state.topology.hosts)
    assert found.result(LIMIT_S)


def test_missed_change_is_made_good(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy that cannot follow is made again, and readers wait for it. Source: L-8."""
    read_all(running)

    adopt = StateView.adopt
    failed: list[int] = []

    def fails(view: StateView, changes: Changes, sequence: int) -> None:
        if type(view) is StateView and not failed:
            failed.append(sequence)
            raise RuntimeError
        adopt(view, changes, sequence)

    monkeypatch.setattr(StateView, "adopt", fails)
    running.announce()
    running.settle()
    same, *sequences = read_all(running)
    assert (same, len(set(sequences))) == (True, 1)
    assert failed
    assert "missed a change" in caplog.text
    caplog.clear()  # this bug was to be


def test_question_to_a_service_that_ends_is_refused(running: Running) -> None:
    """Nobody waits for an answer that will never come, and no thread for a question. L-8."""
    read_all(running)
    thread = running.loop.replica._thread
    running.loop.stop()
    assert thread is not None
    assert not thread.is_alive()
    with pytest.raises(Stopping):
        running.loop.replica.read(lambda view: view.sequence).result(LIMIT_S)


def test_question_that_never_had_a_state_is_refused() -> None:
    """The service has ended before its state was copied. Source: L-8."""
    status = ServiceStatus()
    replica = StateReplica(Inbox(status), status)
    questions = [replica.read(lambda view: view.sequence) for _ in range(2)]
    replica.stop()
    for question in questions:
        with pytest.raises(Stopping):
            question.result(0)


def test_question_of_before_the_end_is_answered(running: Running) -> None:
    """The service ends only when it is, and its thread with it. Source: L-8."""
    replica = running.loop.replica
    looks = threading.Event()

    def ponder(view: StateView) -> int:
        looks.set()
        wait_until(lambda: replica._thread is None)  # the end has come meanwhile
        return sum(range(1_000_000)) and view.sequence

    answer, last = replica.read(ponder), replica.read(lambda view: view.sequence)
    thread = replica._thread
    assert looks.wait(LIMIT_S)
    replica.stop()
    assert (answer.done(), last.done()) == (True, True)
    assert answer.result() == last.result()
    assert thread is not None
    assert not thread.is_alive()


def test_readers_of_a_large_fleet_wait_for_no_copy(running: Running) -> None:
    """It may be copied before the loop runs; then no question visits the writer. Source: E-1."""
    running.loop.stop()
    running.publisher.late = True
    elsewhere = StateReplica(running.loop._inbox, ServiceStatus())
    elsewhere.begin(running.plane)
    asked = len(running.loop._inbox)
    found = elsewhere.read(lambda view: sorted(view.state.topology.vms))
    assert found.result(LIMIT_S) == ["v"]
    assert len(running.loop._inbox) == asked
    elsewhere.stop()
