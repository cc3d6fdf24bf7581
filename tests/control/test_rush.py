"""Many VMs ask at the same instant: one commit stores their requests, each with its own answer."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from forewarn_base.errors import OurError
from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import EventState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, PlaneStimulus, RequestMaintenance
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control import run_loop
from forewarn_store.errors import StoreContradiction, StoreUnavailable
from tests.control.rig import Running, refuses
from tests.waiting import LIMIT_S

COUNT = 20


@pytest.fixture
def events(running: Running) -> list[str]:
    """Twenty VMs, each on a host and in a group of its own, with work announced to each."""
    names = [f"v{number}" for number in range(COUNT)]
    running.ask(
        ChangeTopology(
            hosts=tuple(Host(f"h-{name}") for name in names),
            groups=tuple(Group(f"g-{name}") for name in names),
            vms=tuple(Vm(name, f"h-{name}", f"g-{name}") for name in names),
        )
    )
    for name in names:
        running.ask(Enable(f"g-{name}"))
    hosts = tuple(f"h-{name}" for name in names)
    running.ask(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=hosts))
    running.settle()
    running.publisher.changes.clear()
    live = running.loop.read(lambda plane: tuple(plane.state.operations.values())).result(LIMIT_S)
    assert [each.vms for each in live] == [(name,) for name in names]
    return [each.events[0] for each in live]


@contextmanager
def rush(running: Running) -> Iterator[list[Future[StepResult]]]:
    """Have the loop busy while requests arrive; at the end, wait for all answers."""
    busy, answers = threading.Event(), list[Future[StepResult]]()
    running.loop.read(lambda _: busy.wait(LIMIT_S))
    yield answers
    busy.set()
    for each in answers:
        each.exception(LIMIT_S)


def approve_all(running: Running, events: list[str]) -> list[Future[StepResult]]:
    """Let each VM approve its event, all at once."""
    with rush(running) as answers:
        for number, event in enumerate(events):
            answers.append(
                running.loop.submit(ApprovalRequest(f"v{number}", (event,), ""), f"vm v{number}")
            )
    return answers


def approved(running: Running) -> list[str]:
    """Return the VMs that have approved, as of now."""
    events = running.loop.read(lambda plane: tuple(plane.state.events.values())).result(LIMIT_S)
    return [vm for each in events for vm in each.approved_by]


def test_rush_of_approvals_is_one_commit(running: Running, events: list[str]) -> None:
    """Its entries name each approver, it is published once, and all work begins. A-6, L-7."""
    before = running.plane.store.generation
    commits: list[StepResult] = []
    running.loop.on_committed.add(commits.append)
    answers = approve_all(running, events)
    assert {each.result(0).sequence for each in answers} == {before + 1}
    running.settle()  # the loop tells of a commit after its answers
    [theirs] = [each for each in commits if each.sequence == before + 1]
    entries = [each for each in theirs.entries if each.action == "event.approved"]
    assert [each.vm for each in entries] == [f"v{number}" for number in range(COUNT)]
    assert len(running.driver.begun) == COUNT
    shown = [len(each.publications) for each in running.publisher.changes]
    assert shown[0] == COUNT


def test_refused_approval_of_a_rush_changes_nothing_and_refuses_no_other(
    running: Running, events: list[str]
) -> None:
    """One is of another group, and comes between the others. Source: A-3, S-4."""
    foreign = events[0]
    answers = approve_all(running, [*events[:10], foreign, *events[11:]])
    assert [type(each.exception(0)) for each in answers].count(UnknownEvent) == 1
    assert isinstance(answers[10].exception(0), UnknownEvent)
    running.settle()
    assert sorted(approved(running)) == sorted(f"v{n}" for n in range(COUNT) if n != 10)


def test_rush_that_the_store_refuses_is_refused_whole(
    running: Running, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was answered 200, nothing is left of it, and a repetition takes effect. A-6."""
    with monkeypatch.context() as patch:
        patch.setattr(running.store, "commit", refuses(StoreUnavailable(place="p", reason="r")))
        answers = approve_all(running, [*events[:-1], "UNKNOWN"])
        assert {type(each.exception(0)) for each in answers} == {StoreUnavailable}
    running.settle()
    assert approved(running) == []
    assert all(each.exception(0) is None for each in approve_all(running, events))


def test_approval_that_cannot_be_stored_refuses_no_other(
    running: Running, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store contradicts one of them: each is then stored by itself. Source: A-6."""
    commit = running.store.commit

    def contradict(changes: Changes) -> int:
        if any(each.vm == "v7" for each in changes.entries):
            raise StoreContradiction(place="here", reason="v7")
        return commit(changes)

    monkeypatch.setattr(running.store, "commit", contradict)
    answers = approve_all(running, events)
    failed = [n for n, each in enumerate(answers) if each.exception(0) is not None]
    assert failed == [7]
    assert isinstance(answers[7].exception(0), StoreContradiction)
    assert len(approved(running)) == COUNT - 1


def test_bug_in_a_request_of_a_rush_refuses_no_other(
    running: Running, events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The step that fails is undone alone."""
    broken = ApprovalRequest("v7", (7,), "")  # type: ignore[arg-type]
    with rush(running) as answers:
        for number, event in enumerate(events):
            asked = broken if number == 7 else ApprovalRequest(f"v{number}", (event,), "")
            answers.append(running.loop.submit(asked, "vm"))
    caplog.clear()  # this bug was to be
    assert isinstance(answers[7].exception(0), OurError)
    assert len(approved(running)) == COUNT - 1


@pytest.mark.parametrize("limit_ms", [0, run_loop.BATCH_MS_MAX])
def test_commit_is_bounded_in_time(
    running: Running, events: list[str], limit_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has not been decided on by then is in the next commit, which a call precedes."""
    monkeypatch.setattr(run_loop, "BATCH_MS_MAX", limit_ms)
    before = running.plane.store.generation
    with rush(running) as answers:
        for number, event in enumerate(events):
            answers.append(running.loop.submit(ApprovalRequest(f"v{number}", (event,), ""), "vm"))
        call = running.loop.submit(ChangeTopology(hosts=(Host("new"),)), "operator")
    assert call.result(LIMIT_S).sequence == before + 2
    sequences = {each.result(0).sequence for each in answers}
    assert min(sequences) == before + 1
    assert len(sequences) == (COUNT if limit_ms == 0 else 1)


def test_first_polls_of_a_fleet_are_one_commit(running: Running) -> None:
    """A new fleet polls, and some VM approves what it has read just now. Source: B-1."""
    names = [f"g{number}" for number in range(COUNT)]
    running.ask(ChangeTopology(groups=tuple(map(Group, names))))
    before = running.plane.store.generation
    asked: list[PlaneStimulus] = [
        *map(Enable, names),
        ApprovalRequest("v", ("UNKNOWN",), ""),
        Enable(names[0]),
    ]
    with rush(running) as answers:
        answers += [running.loop.submit(each, "vm") for each in asked]
    assert {type(each.exception(0)) for each in answers} == {type(None), UnknownEvent}
    assert running.plane.store.generation == before + 1
    enrolled = running.loop.read(lambda plane: tuple(plane.state.enrolments)).result(LIMIT_S)
    assert set(names) <= set(enrolled)


def test_both_groups_of_a_host_that_approve_at_once_start_its_work_once(running: Running) -> None:
    """The second approval of the commit starts what the first could not. Source: L-2."""
    running.ask(ChangeTopology(groups=(Group("g2"),), vms=(Vm("v2", "h", "g2"),)))
    running.ask(Enable("g2"))
    first, second = running.announce().events
    with rush(running) as answers:
        answers.append(running.loop.submit(ApprovalRequest("v", (first,), ""), "vm"))
        answers.append(running.loop.submit(ApprovalRequest("v2", (second,), ""), "vm"))
        answers.append(running.loop.submit(ApprovalRequest("v", (first,), ""), "vm"))
    assert [each.exception(0) for each in answers] == [None] * 3
    running.settle()
    assert running.driver.begun == [1]
    events = running.loop.read(lambda plane: tuple(plane.state.events.values())).result(LIMIT_S)
    assert {each.state for each in events} == {EventState.STARTED}
