"""Killed at random moments under load, the service keeps its promises."""

import collections
import json
import random
from dataclasses import dataclass

import pytest

from forewarn_base.protocol.documents import read_document
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.records import Record
from forewarn_core.fleet.state import Entry, State
from forewarn_store import open_store
from tests.core.replay import Replay
from tests.e2e.crashing import Seen, live_and_die, live_on

pytestmark = pytest.mark.slow

SEED = 20260420


@dataclass(frozen=True)
class Aftermath:
    """What clients saw over many lives, and what is durable after the last."""

    seen: Seen
    history: list[Entry]
    state: State
    #: Operations that a calm last life could not end.
    hanging: list[str]


@pytest.fixture(scope="module", params=[30, pytest.param(300, marks=pytest.mark.nightly)])
def aftermath(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Aftermath:
    """Live and die under load, time and again, on one store."""
    path = tmp_path_factory.mktemp("crash") / "forewarn.db"
    chance, seen = random.Random(SEED), Seen()
    for _ in range(request.param):
        live_and_die(str(path), seen, chance)
    hanging = live_on(str(path), seen)
    store = open_store(str(path))
    state = store.load()
    history = [each.entry for each in store.entries()]
    store.close()
    assert len(seen.approved) > request.param / 10, (
        "too few approvals for the tests to mean anything"
    )
    return Aftermath(seen, history, state, hanging)


def counted(history: list[Entry], action: str) -> collections.Counter[int]:
    """How often each operation made a transition."""
    return collections.Counter(each.operation for each in history if each.action == action)


def test_crash_loses_no_approval(aftermath: Aftermath) -> None:
    """An approval answered 200 stays in the history for ever. Source: A-6, L-7."""
    kept = {each.event for each in aftermath.history if each.action == "event.approved"}
    assert aftermath.seen.approved <= kept


def test_crash_loses_no_operation(aftermath: Aftermath) -> None:
    """What an operator was told is planned was planned. Source: L-7."""
    planned = {f"op-{number}" for number in counted(aftermath.history, "operation.planned")}
    assert aftermath.seen.planned
    assert aftermath.seen.planned <= planned


@pytest.mark.parametrize(
    "action", ["operation.planned", "operation.announced", "operation.started", "operation.begun"]
)
def test_crash_repeats_no_transition(aftermath: Aftermath, action: str) -> None:
    """No operation is announced, started or begun twice. Source: L-7."""
    times = counted(aftermath.history, action)
    assert times
    assert set(times.values()) == {1}


def test_crash_leaves_nothing_hanging(aftermath: Aftermath) -> None:
    """In a calm life after all the deaths, everything that was begun ends. Source: L-7."""
    assert not aftermath.hanging
    assert not aftermath.state.operations
    assert not aftermath.state.events


def test_crash_changes_no_document_in_place(aftermath: Aftermath) -> None:
    """The same incarnation shows the same events in every life, and only grows. Source: D-1."""
    assert aftermath.seen.documents
    assert not aftermath.seen.contradictions
    assert not aftermath.seen.retreats


def test_clients_saw_only_what_a_sound_service_answers(aftermath: Aftermath) -> None:
    """Reads in order, notice, approvals before early starts: by the clients' log alone.

    Source: D-1, N-1, L-1, A-3.
    """
    log = aftermath.seen.log
    assert {each.status for each in log.approvals} >= {0, 200}
    assert log.violations() == []


def test_nothing_was_shown_that_was_not_durable(aftermath: Aftermath) -> None:
    """Every document on the wire is one that history tells of. Source: L-7."""
    durable: dict[tuple[str, int], list[str]] = {("web", 0): [], ("db", 0): []}
    for entry in aftermath.history:
        for image in entry.images:
            if image.kind == "document" and image.row is not None:
                document = read_document(str(image.row["document"]))
                ids = [event.event_id for event in document.events]
                durable[str(image.key), document.incarnation] = ids
    for (vm, incarnation), text in aftermath.seen.documents.items():
        shown = [event["EventId"] for event in json.loads(text)]
        assert durable[vm.partition("_")[0], incarnation] == shown


def test_history_survives_crashes_as_the_state(aftermath: Aftermath) -> None:
    """Replaying the history gives exactly the state that is stored. Source: invariant 10."""
    replay = Replay()
    replay.extend(aftermath.history)
    assert replay.records["document"] == aftermath.state.views
    assert not [each for each in replay.records["operation"].values() if is_live(each)]
    assert not [each for each in replay.records["event"].values() if is_live(each)]


def is_live(record: Record) -> bool:
    """Whether an operation or event has not ended."""
    assert isinstance(record, Operation | Event)
    return record.live
