"""Pages of history and of ended work, for people and for replay, also while the writer writes."""

import threading
from collections.abc import Callable, Iterator

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import EventState, OperationState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import Cancel, RequestMaintenance
from forewarn_core.requests import ApprovalRequest
from forewarn_store import HistoryPage, OperationPage, Store, reading
from forewarn_store.errors import StoreDamaged
from forewarn_store.reading import PAGE_MAX, owners_text
from tests.store.story import Story, begin, entry

Opener = Callable[[str], Store]


@pytest.fixture
def story(store: Store) -> Story:
    """Two ended operations, one on each host, and one that waits, on each engine."""
    story = begin(store)
    story.reboot("h0")
    story.reboot("h1")
    story.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("db_0",)))
    return story


def numbers(story: Story, page: OperationPage) -> list[int]:
    """Numbers of the operations on a page."""
    return [operation.number for operation in story.store.operations(page)]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (OperationPage(), [3, 2, 1]),
        (OperationPage(limit=2), [3, 2]),
        (OperationPage(before=3), [2, 1]),
        (OperationPage(host="h0"), [3, 1]),
        (OperationPage(vm="web_1"), [2]),
        (OperationPage(vm="db_0"), [3, 1]),
        (OperationPage(vm="web\\_1"), []),
        (OperationPage(group="db"), [3, 1]),
        (OperationPage(owners=owners_text(["Ümit's", "b"])), [3, 1]),
        (OperationPage(owners=owners_text(["a", "b"])), []),
        (OperationPage(states=frozenset({OperationState.SUCCEEDED})), [2, 1]),
        (OperationPage(states=frozenset(OperationState), host="h0", vm="db_0", before=3), [1]),
        (OperationPage(limit=0), []),
        (OperationPage(limit=-1), []),
    ],
)
def test_operations_finds_what_is_asked(
    story: Story, page: OperationPage, expected: list[int]
) -> None:
    """Ended work is found by state, host, VM and group, newest first. Source: L-5, A-6."""
    assert numbers(story, page) == expected


def test_ended_work_stays_readable(story: Story) -> None:
    """Ended work is gone from the state, not from the store. Source: L-5."""
    assert story.state.operations.keys() == story.store._placed.keys() == {3}
    ended = story.store.operation(1)
    assert ended is not None
    assert ended.state is OperationState.SUCCEEDED
    events = story.store.events_of(1)
    assert [event.group for event in events] == ["db", "web"]
    assert [event.id for event in events] == list(ended.events)
    assert {event.state for event in events} == {EventState.COMPLETED}
    assert story.store.event(events[0].id) == events[0]
    assert story.store.event("nobody's") is None
    assert story.store.operation(99) is None


def test_operations_follow_changed_vms(story: Story) -> None:
    """A planned operation whose VMs change is found by the new ones only. Source: D-5."""
    planned = story.state.operations[3]
    for vms in (("web_0", "web_1"), ("web_1",), ("db_0",)):
        changed = Changes(last_number=3, operations={3: replace(planned, vms=vms)})
        story.store.commit(changed)
        for vm in ("db_0", "web_0", "web_1"):
            assert (3 in numbers(story, OperationPage(vm=vm))) == (vm in vms)
    story.store.load()
    story.store.commit(Changes(last_number=3, operations={3: planned}))
    assert 3 in numbers(story, OperationPage(vm="db_0"))


def test_history_pages_both_ways(story: Story) -> None:
    """Pages follow one another without gap or overlap in either direction. Source: A-6."""
    everything = [each.seq for each in story.store.entries()]
    forward = HistoryPage(limit=4)
    seen: list[int] = []
    while page := story.store.history(forward):
        seen += [each.seq for each in page]
        forward = HistoryPage(limit=4, after=seen[-1])
    backward = HistoryPage(limit=4, newest_first=True)
    back: list[int] = []
    while page := story.store.history(backward):
        back += [each.seq for each in page]
        backward = HistoryPage(limit=4, newest_first=True, before=back[-1])
    assert seen == everything == back[::-1]


@pytest.mark.parametrize(
    "page",
    [
        HistoryPage(operation=1),
        HistoryPage(host="h0"),
        HistoryPage(action="operation.announced"),
        HistoryPage(operation=1, action="event.approved", after=3, before=1000),
    ],
    ids=["operation", "host", "action", "several"],
)
def test_history_filters_agree_with_the_whole(story: Story, page: HistoryPage) -> None:
    """Each filter finds what looking through everything finds. Source: A-6."""
    wanted = {
        name: getattr(page, name)
        for name in ("operation", "event", "host", "action")
        if getattr(page, name)
    }
    found = [each.seq for each in story.store.history(page)]
    assert found == [
        each.seq
        for each in story.store.entries()
        if all(getattr(each.entry, name) == value for name, value in wanted.items())
        and page.after < each.seq
    ]
    assert found


def test_history_of_a_group_has_the_work_it_was_told_of(story: Story) -> None:
    """Its events and documents, and how the work behind them went; no other group's. A-6."""
    everything = list(story.store.entries())
    told = {n for n in (1, 2, 3) if any(e.group == "db" for e in story.store.events_of(n))}
    found = story.store.history(HistoryPage(group="db"))
    assert [each.seq for each in found] == [
        each.seq
        for each in everything
        if each.entry.group == "db" or (each.entry.operation in told and not each.entry.event)
    ]
    texts = {each.entry.text for each in found}
    assert "op-1 is announced" in texts
    assert "op-2 is announced" not in texts


@pytest.mark.parametrize("page", [HistoryPage(limit=1000), HistoryPage(after=1, before=900)])
def test_history_of_an_owner_is_that_of_its_groups(story: Story, page: HistoryPage) -> None:
    """An owner has no less than each of its groups, and nothing of the others. Source: P-3."""
    owners = owners_text(["Ümit's"])
    found = {each.seq: each.entry for each in story.store.history(replace(page, owners=owners))}
    of_group = story.store.history(replace(page, group="db"))
    assert [each.seq for each in of_group] == list(found)
    assert {each.group for each in found.values()} == {"", "db"}


@pytest.mark.parametrize(
    "page",
    [HistoryPage(group="db"), HistoryPage(vm="db_0"), HistoryPage(vm="web_1")],
    ids=["group", "vm", "other-vm"],
)
def test_history_in_a_narrow_window_is_the_same(story: Story, page: HistoryPage) -> None:
    """A follower's next entries are found another way, and are those of the whole. A-6."""
    found = [each.seq for each in story.store.history(page)]
    for low in range(found[-1]):
        window = replace(page, after=low, before=low + 6)
        near = [each.seq for each in story.store.history(window)]
        assert near == [seq for seq in found if low < seq < low + 6]


def test_history_of_a_vm_is_all_that_happened_to_it(story: Story) -> None:
    """Work on its host and what its group was told of it are a VM's history, too. Source: A-6."""
    events = {event.group: event.id for event in story.store.events_of(1)}
    texts = [each.entry.text for each in story.store.history(HistoryPage(vm="db_0"))]
    assert texts[0] == "VM db_0 is added"
    told = {"op-1 is announced", f"event {events['db']} is approved for db", "op-3 is announced"}
    assert told <= set(texts)
    assert not any("op-2" in text or events["web"] in text for text in texts)


def test_history_of_a_vm_has_its_approvals(story: Story) -> None:
    """What a VM approved for another of its group is its history. Source: A-6, S-1."""
    story.tell(RequestMaintenance(cause=Cause.REBOOT, targets=("web_0",)))
    (event_id,) = story.state.operations[4].events
    story.tell(ApprovalRequest("web_1", (event_id,), ""))
    for vm in ("web_0", "web_1"):
        found = [each.entry for each in story.store.history(HistoryPage(vm=vm))]
        assert [each.vm for each in found if each.event == event_id] == ["web_1"]


def test_history_brings_images_only_when_asked(story: Story) -> None:
    """Images are many times the size of the rest: only replay wants them. Source: A-6."""
    assert not any(each.entry.images for each in story.store.history(HistoryPage(limit=1000)))
    assert all(
        each.entry.images for each in story.store.history(HistoryPage(limit=1000, images=True))
    )


def test_history_of_an_event(story: Story) -> None:
    """Who approved an event, from where and when, is found by its id. Source: A-6."""
    event_id = story.store.events_of(1)[0].id
    found = [each.entry for each in story.store.history(HistoryPage(event=event_id))]
    assert found
    assert {each.event for each in found} == {event_id}
    assert {each.actor for each in found} == {"operator"}


def test_page_is_bounded(story: Story) -> None:
    """No page is longer than the limit of all pages, whatever is asked for. Source: A-6."""
    many = Changes(last_number=3, entries=[entry() for _ in range(PAGE_MAX + 5)])
    last = story.store.commit(many)
    assert len(story.store.history(HistoryPage(limit=10**9))) == PAGE_MAX
    assert sum(1 for _ in story.store.entries()) == last
    assert [each.seq for each in story.store.entries(after=last - 1)] == [last]


def spoil(story: Story, seq: int) -> None:
    """Have an entry of history that cannot be read."""
    with story.store._engine.writing() as transaction:
        transaction.run_text(f"UPDATE history SET images = '?' WHERE seq = {seq}")


def test_check_reads_the_newest_history(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage behind the first page is found, and older history is left for later. Source: L-7."""
    monkeypatch.setattr(reading, "PAGE_MAX", 3)
    monkeypatch.setattr(reading, "CHECKED_MAX", 9)
    last = story.store.commit(Changes(last_number=3, entries=[entry() for _ in range(20)]))
    story.store.check()
    spoil(story, last - 9)
    story.store.check()
    spoil(story, last - 8)
    with pytest.raises(StoreDamaged, match="history"):
        story.store.check()


def test_check_ends_with_the_oldest_entry(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """History that is shorter than what is read is read to its first entry. Source: L-7."""
    last = len(list(story.store.entries()))
    monkeypatch.setattr(reading, "PAGE_MAX", last)
    spoil(story, 1)
    with pytest.raises(StoreDamaged, match="history"):
        story.store.check()


@pytest.mark.parametrize("table", ["operation", "event"])
def test_check_reads_ended_work(story: Story, table: str) -> None:
    """Operations and their events are kept for people, so they must be readable. Source: L-5."""
    column = {"operation": "vms", "event": "resources"}[table]
    key = {"operation": "number", "event": "operation"}[table]
    with story.store._engine.writing() as transaction:
        transaction.run_text(f"UPDATE {table} SET {column} = '{{' WHERE {key} = 1")
    with pytest.raises(StoreDamaged, match=table):
        story.store.check()


def test_cancelled_work_is_kept(story: Story) -> None:
    """A cancelled operation is found with its reason. Source: L-3."""
    story.tell(Cancel(3, reason="not needed"))
    found = story.store.operations(OperationPage(states=frozenset({OperationState.CANCELLED})))
    assert [(each.number, each.reason) for each in found] == [(3, "not needed")]


def reading_threads(
    store: Store, done: threading.Event, failures: list[BaseException]
) -> Iterator[threading.Thread]:
    """Threads that read until `done`, and check that each read sees whole steps."""

    def read() -> None:
        try:
            highest = 0
            while not done.is_set():
                page = store.history(HistoryPage(newest_first=True, limit=50))
                assert [each.seq for each in page] == list(
                    range(page[0].seq, page[0].seq - len(page), -1)
                )
                assert page[0].seq >= highest
                highest = page[0].seq
                for operation in store.operations(OperationPage(limit=3)):
                    events = store.events_of(operation.number)
                    assert [event.id for event in events] == list(operation.events)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    for _ in range(3):
        thread = threading.Thread(target=read)
        thread.start()
        yield thread


def test_readers_see_whole_steps_while_writing(address: str, opened: Opener) -> None:
    """Other threads read beside the writer: no error, no half step, never back. Source: L-7."""
    read_while_writing(opened(address))


def test_readers_see_whole_steps_in_memory(memory: Store) -> None:
    """With one connection for all, readers wait for the writer's transaction. Source: L-7."""
    read_while_writing(memory)


def read_while_writing(store: Store) -> None:
    """Let three threads read while twenty reboots are written."""
    story = begin(store)
    done = threading.Event()
    failures: list[BaseException] = []
    threads = list(reading_threads(store, done, failures))
    try:
        for _ in range(10):
            story.reboot("h0")
            story.reboot("h1")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
