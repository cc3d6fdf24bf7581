"""What was committed is loaded again: every kind of record, whatever people wrote into it."""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn_base.values import replace
from forewarn_core.fleet.document import View
from forewarn_core.fleet.draft import Draft, Terms, image_of
from forewarn_core.fleet.history import Rows
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import (
    Event,
    EventState,
    Execution,
    Notice,
    Operation,
    OperationState,
)
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.records import FIXED, KIND_OF, KINDS, Record, from_row, to_row
from forewarn_core.fleet.state import TABLES, Changes, Image, State
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host
from forewarn_store import HistoryPage, Store
from forewarn_store.images import read_images
from tests.store import strategies
from tests.store.story import Story, begin, entry, live_records, poll, replayed

R = TypeVar("R", Operation, Event, View)

one_store_for_all = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def as_it_began(record: R, known: R | None) -> R:
    """Return a record that belongs to what it has belonged to from the first."""
    fixed = FIXED[KIND_OF[type(record)]] if known else ()
    return replace(record, **{name: getattr(known, name) for name in fixed})


def taking_over(store: Store, state: State, world: Changes) -> Changes:
    """Make a change of it that takes out what is there, and that history explains."""
    old = state.topology
    last = state.last_number  # a number is given out once
    operations = [replace(each, number=each.number + last) for each in world.operations.values()]
    world.operations = {each.number: each for each in operations}
    for event_id, event in world.events.items():
        told = replace(event, operation=event.operation + last)
        world.events[event_id] = as_it_began(told, store.event(event_id))
    for key, view in world.views.items():
        world.views[key] = view and as_it_began(view, state.views.get(key))
    world.hosts = {**dict.fromkeys(old.hosts), **world.hosts}
    world.groups = {**dict.fromkeys(old.groups), **world.groups}
    world.vms = {**dict.fromkeys(old.vms), **world.vms}
    world.enrolments = {**dict.fromkeys(state.enrolments), **world.enrolments}
    world.views = {**dict.fromkeys(state.views), **world.views}
    world.last_number += last
    world.entries = [
        replace(
            entry(f"{kind} {key}"), images=(Image(kind, key, to_row(record) if record else None),)
        )
        for kind in TABLES
        for key, record in world.records(kind).items()
    ]
    return world


@one_store_for_all
@given(world=strategies.worlds())
def test_load_gives_what_was_committed(store: Store, world: Changes) -> None:
    """The loaded state equals the state that adopted the same changes. Source: L-7, D-1."""
    state = store.load()
    changes = taking_over(store, state, world)
    store.commit(changes)
    state.adopt(changes)
    loaded = store.load()
    assert loaded == state
    for event in state.events.values():
        assert event.id in loaded.event_ids_of(event.group)


@one_store_for_all
@given(world=strategies.worlds(), later=strategies.worlds())
def test_record_is_written_again_as_it_is_then(
    store: Store, world: Changes, later: Changes
) -> None:
    """All but what never changes is written each time. Source: L-7."""
    state = store.load()
    changes = taking_over(store, state, world)
    store.commit(changes)
    state.adopt(changes)
    operations = zip(changes.operations.values(), later.operations.values(), strict=False)
    events = zip(changes.events.values(), later.events.values(), strict=False)
    views = zip(changes.views.values(), later.views.values(), strict=False)
    again = Changes(
        last_number=state.last_number,
        operations={
            old.number: as_it_began(replace(new, number=old.number), old)
            for old, new in operations
            if old.live or not new.live  # what has ended does not begin again
        },
        events={old.id: as_it_began(replace(new, id=old.id), old) for old, new in events},
        views={
            old.key: as_it_began(replace(new, key=old.key), old)
            for old, new in views
            if old and new
        },
    )
    store.commit(again)
    state.adopt(again)
    assert store.load() == state


@one_store_for_all
@given(world=strategies.worlds(), text=strategies.prose)
def test_history_gives_back_its_entries(store: Store, world: Changes, text: str) -> None:
    """Entries come back word for word, images included. Source: A-6, invariant 10."""
    state = store.load()
    before = store.commit(Changes(last_number=state.last_number, entries=[entry(text)]))
    changes = taking_over(store, state, world)
    last = store.commit(changes)
    found = store.history(HistoryPage(after=before - 1, limit=1000, images=True))
    assert [recorded.entry for recorded in found] == [entry(text), *changes.entries]
    assert [recorded.seq for recorded in found] == list(range(before, last + 1))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_row_gives_back_its_record(kind: str, data: st.DataObject) -> None:
    """A row is only text and whole numbers, and holds the whole record. Source: L-7."""
    record = data.draw(strategies.OF_KIND[kind])
    row = to_row(record)
    assert all(type(value) in {str, int} for value in row.values())
    assert from_row(kind, row) == record


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("host", [0, 0, "", "", "healthy", "[]", 0]),
        ("group", ["availability-set", "", 0, 0, "[]", 0, 0, 1, "2020-07-01", "[]", "[]", "[]"]),
        ("vm", ["", "", "", 0, 0, "[]", "", "", "", "Linux", "", "", "", "[]", "[]", 0]),
    ],
)
def test_values_that_history_leaves_out_never_change(kind: str, values: list[str | int]) -> None:
    """Each history that was ever written means these values. Source: L-7."""
    [(_, _, row)] = read_images(f'[["+{kind}","k",{{}}]]')
    assert row is not None
    assert list(row.values()) == ["k", *values]


def test_replay_of_history_equals_load(address: str, opened: Callable[[str], Store]) -> None:
    """Replaying the history gives the loaded state. Source: L-7, invariant 10."""
    story = begin(opened(address))
    story.reboot("h0")
    story.reboot("h1")
    assert replayed(story.store) == live_records(story.store.load()) == live_records(story.state)


def test_load_survives_reopening(address: str, opened: Callable[[str], Store]) -> None:
    """A new process finds each incarnation, and numbers go on. Source: D-1, L-7."""
    first = begin(opened(address))
    number = first.reboot("h0")
    first.store.close()
    again = Story(opened(address), State())
    again.state = again.store.load()
    assert again.state == first.state
    assert again.state.views["web"].document.incarnation > 0
    assert again.state.last_number == number
    again.now_ms = first.now_ms
    assert again.reboot("h1") == number + 1


def test_mark_is_durable_without_history(address: str, opened: Callable[[str], Store]) -> None:
    """When a group last polled is kept, though it is not a transition. Source: B-2."""
    story = begin(opened(address))
    before = story.store.commit(Changes(last_number=story.state.last_number))
    changes = poll(story)
    assert story.store.commit(changes) == before
    story.state.adopt(changes)
    assert story.store.load() == story.state


HOST, GROUP = Host("n"), Group("n")
OPERATION = Operation(
    1,
    1,
    Cause.REBOOT,
    Impact.REBOOT,
    Source.USER,
    False,
    "h0",
    ("web_0",),
    False,
    "",
    notice=Notice(1, 1),
    execution=Execution(started_ms=1),
)
EVENT = Event("00000000-0000-4000-8000-000000000000", 1, "web", ("web_0",))


@pytest.mark.parametrize(
    ("record", "column", "words"),
    [
        (OPERATION, "cause", Cause),
        (OPERATION, "impact", Impact),
        (OPERATION, "source", Source),
        (OPERATION, "state", OperationState),
        (EVENT, "state", EventState),
        (HOST, "health", Health),
        (GROUP, "kind", GroupKind),
    ],
    ids=["cause", "impact", "source", "operation-state", "event-state", "health", "kind"],
)
def test_schema_takes_every_word(
    store: Store, record: Record, column: str, words: type[Enum]
) -> None:
    """Each member of an enum may be stored: the schema's lists are the code's. Source: L-1."""
    draft = Draft(store.load(), 0, Terms(NoticePolicy(), "operator", str))
    draft.put("test.operation", "An operation for events to belong to.", OPERATION)
    store.commit(draft.changes)
    for word in words:
        draft = Draft(store.load(), 0, Terms(NoticePolicy(), "operator", str))
        changed = from_row(KIND_OF[type(record)], {**to_row(record), column: word.value})
        image = image_of(None, changed)
        getattr(draft.changes, TABLES[image.kind])[image.key] = changed
        draft.log("test.word", "One word after another.", (image,), about=changed)
        store.commit(draft.changes)
    rows = Rows()
    last = [rows.whole(recorded.entry) for recorded in store.entries()][-1]
    assert last.images[0].row is not None
    if column not in FIXED.get(KIND_OF[type(record)], ()):  # the store leaves that as it is
        assert last.images[0].row[column] == list(words)[-1].value
