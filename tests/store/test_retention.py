"""History that is too old or too much: exported, removed, and a replay begins at a checkpoint."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.history import CHECKPOINT
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes, Image
from forewarn_core.fleet.stimulus import CancelMaintenance, CreateMaintenance, RequestMaintenance
from forewarn_server.control.history_keeper import SLACK_MS, HistoryKeeper
from forewarn_store import (
    HistoryPage,
    OperationPage,
    Retention,
    Store,
    open_store,
    retention,
    sqlite,
)
from forewarn_store.errors import StoreLost
from forewarn_store.images import image_columns
from forewarn_store.migrations import migrate
from forewarn_store.retention import DAY_MS, MAINTENANCE_TABLES, ExportFailed
from forewarn_store.sqlite import SqliteEngine
from tests.clock import VirtualClock
from tests.store.story import Story, begin, entry, live_records, replayed
from tests.waiting import wait_until

Opener = Callable[[str], Store]


@pytest.fixture
def story(store: Store) -> Story:
    """Some reboots over some minutes."""
    story = begin(store)
    for _ in range(3):
        story.reboot("h0")
        story.reboot("h1")
    return story


def sequences(store: Store) -> list[int]:
    """What is left of history."""
    return [each.seq for each in store.history(HistoryPage(limit=1000))]


def exported(folder: Path) -> list[dict[str, Any]]:
    """What was exported, in the order of the files' names."""
    lines: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as read:
            lines += map(json.loads, read)
    return lines


def at_of(store: Store, seq: int) -> int:
    """When an entry happened."""
    return store.history(HistoryPage(after=seq - 1, limit=1))[0].entry.at_ms


def test_old_history_is_exported_and_removed(story: Story, tmp_path: Path) -> None:
    """Nothing is lost, replay gives the state, and new work goes on. Source: A-6, invariant 10."""
    store = story.store
    before = list(store.entries())
    limit_ms = at_of(store, before[len(before) // 2].seq)
    retention = Retention(tmp_path, max_age_ms=story.now_ms - limit_ms)
    count = store.trim(retention, story.now_ms).entries
    left = sequences(store)
    assert left == [each.seq for each in before if each.entry.at_ms >= limit_ms]
    assert count == len(before) - len(left)
    lines = exported(tmp_path)
    assert [each["sequence"] for each in lines] == list(range(1, count + 1))
    assert [each["text"] for each in lines] == [each.entry.text for each in before[:count]]
    assert all(each["images"] for each in lines)
    assert next(iter(store.entries())).entry.action == CHECKPOINT
    assert replayed(store) == live_records(store.load())
    story.reboot("h0")
    assert replayed(store) == live_records(story.state)
    assert store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2).entries
    assert [each["sequence"] for each in exported(tmp_path)] == list(
        range(
            1,
            left[-1]
            + 1
            + len([each for each in exported(tmp_path) if each["sequence"] > left[-1]]),
        )
    )
    assert sequences(store) == []
    assert replayed(store) == live_records(story.state)
    story.reboot("h1")
    assert replayed(store) == live_records(story.state)


def test_few_old_entries_are_removed(story: Story, tmp_path: Path) -> None:
    """What was exported leaves each time, however little it is. Source: A-6."""
    entries = list(story.store.entries())
    for at_ms in sorted({each.entry.at_ms for each in entries})[1:5]:
        story.store.trim(Retention(tmp_path, max_age_ms=story.now_ms - at_ms), story.now_ms)
        assert sequences(story.store) == [e.seq for e in entries if e.entry.at_ms >= at_ms]


def test_history_is_kept_within_its_bytes(story: Story, tmp_path: Path) -> None:
    """The oldest goes, and work that people may still ask about stays. Source: A-6, X-1."""
    store, before = story.store, story.store.past_size()
    assert not store.trim(Retention(tmp_path, max_bytes=before.total), story.now_ms).entries
    limit = before.total - before.history // 3
    assert store.trim(Retention(tmp_path, max_bytes=limit), story.now_ms).entries
    after = store.past_size()
    assert after.work == before.work
    assert limit - before.history // 3 < after.total <= limit
    assert replayed(store) == live_records(story.state)


def test_export_that_fails_removes_nothing(story: Story, tmp_path: Path) -> None:
    """History is never removed that was not written elsewhere. Source: A-6."""
    before = sequences(story.store)
    with pytest.raises(ExportFailed, match="No such file"):
        story.store.trim(Retention(tmp_path / "gone", max_age_ms=1), story.now_ms + 2)
    assert sequences(story.store) == before


@pytest.mark.parametrize("step", ["_write_checkpoint", "_remove"])
def test_trimming_that_was_cut_off_is_done_again(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Wherever it stopped, history says the same, and the next time it is finished. A-6, L-7."""
    kept = Retention(tmp_path, max_age_ms=1)
    calls: list[int] = []

    def stop(*_: object, **__: object) -> None:
        calls.append(1)
        if step == "_write_checkpoint" or len(calls) > 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retention, step, stop)
        with pytest.raises(KeyboardInterrupt):
            story.store.trim(kept, story.now_ms + 2)
    assert replayed(story.store) == live_records(story.state)
    story.store.trim(kept, story.now_ms + 2)
    assert sequences(story.store) == []
    assert replayed(story.store) == live_records(story.state)


def test_large_state_is_kept_in_portions(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No portion holds more than its share, and together they are everything. Source: L-7."""
    monkeypatch.setattr(retention, "PORTION", 2)
    monkeypatch.setattr(retention, "PAGE", 3)
    story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    portions = [each.entry.images for each in story.store.entries()]
    assert len(portions) > 3
    assert max(map(len, portions)) == 2
    assert replayed(story.store) == live_records(story.state)


def test_writer_that_was_replaced_removes_nothing(
    story: Story, address: str, tmp_path: Path, opened: Opener
) -> None:
    """Only the writer trims. Source: L-7."""
    if address.startswith("sqlite"):
        pytest.skip("one process holds the file")
    other = begin(opened(address))
    before = sequences(other.store)
    with pytest.raises(StoreLost):
        story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    assert sequences(other.store) == before


#: How long a destination that takes nothing keeps history at most.
WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize(("late_ms", "kept"), [(0, True), (1, False)])
def test_history_waits_a_week_for_a_destination(
    story: Story, tmp_path: Path, late_ms: int, kept: bool
) -> None:
    """What the outbox has yet to send stays for a week, and what it has sent does not. L-7."""
    store = story.store
    sent = sequences(store)[5]
    store.cursors.take_up(["mail"], sent)
    now_ms = at_of(store, sent + 1) + WEEK_MS + late_ms
    store.trim(Retention(tmp_path, max_age_ms=1), now_ms)
    assert (sequences(store)[0] == sent + 1) is kept
    assert replayed(store) == live_records(story.state)


def test_oldest_goes_and_no_more_than_must(story: Story, tmp_path: Path) -> None:
    """Had one entry less been removed, the past would be too much. Source: A-6."""
    store, work = story.store, story.store.past_size().work
    with store._engine.reading() as transaction:
        sizes = [int(row[2]) for row in transaction.rows("history_sizes", after=0, limit=1000)]
    for start in (0, 4, 9, 14):
        max_bytes = work + sum(sizes[start:])
        store.trim(Retention(tmp_path, max_bytes=max_bytes), story.now_ms)
        assert sequences(store)[0] == start + 1
        assert store.past_size().total == max_bytes


def test_export_is_whole_and_private_before_history_goes(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is exported is on the disk under its name before anything is removed. Source: A-6."""
    every, durable = sequences(story.store), []
    fsync = os.fsync

    def note(file: int) -> None:
        durable.append((os.fstat(file).st_size, sequences(story.store)))
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", note)
        story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    [file] = tmp_path.glob("history*")
    assert file.name == f"history-{1:012}-{every[-1]:012}.jsonl.gz"
    assert durable == [(file.stat().st_size, every)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_export_that_was_cut_off_is_written_anew(story: Story, tmp_path: Path) -> None:
    """What an earlier one has left of a file does not get into the next. Source: A-6."""
    last = sequences(story.store)[-1]
    part = tmp_path / f".history-{1:012}-{last:012}.jsonl.gz.part"
    part.write_bytes(b"x" * 100_000)
    story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    assert [each["sequence"] for each in exported(tmp_path)] == [*range(1, last + 1)]


def test_checkpoint_that_was_cut_off_is_made_anew(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Portions of one that was not finished are in nobody's way, and none are kept. L-7."""
    monkeypatch.setattr(retention, "PORTION", 2)
    kept, made = Retention(tmp_path, max_age_ms=1), [0]

    def stop(images: list[Image]) -> tuple[str, str]:
        made[0] += 1
        if made[0] > 2:
            raise KeyboardInterrupt
        return image_columns(images)

    with monkeypatch.context() as patch:
        patch.setattr(retention, "image_columns", stop)
        with pytest.raises(KeyboardInterrupt):
            story.store.trim(kept, story.now_ms + 2)
    for _ in range(2):
        assert story.store.trim(kept, story.now_ms + 2).entries
        assert replayed(story.store) == live_records(story.state)
        story.reboot("h0")
        with story.store._engine.reading() as transaction:
            cursor = transaction._connection.execute("SELECT DISTINCT seq FROM checkpoint")
            assert len(cursor.fetchall()) == 1


def test_follower_that_has_the_checkpoint_gets_what_follows(story: Story, tmp_path: Path) -> None:
    """Who knows what was removed is not told of it again. Source: L-7."""
    last = sequences(story.store)[-1]
    story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    story.reboot("h0")
    assert [each.seq for each in story.store.entries(after=last)] == sequences(story.store)
    [checkpoint, *behind] = story.store.entries(after=last - 1)
    assert (checkpoint.seq, checkpoint.entry.action) == (last, CHECKPOINT)
    assert [each.seq for each in behind] == sequences(story.store)


@pytest.mark.parametrize("when", ["_export", "_portions", "HistoryPage"])
def test_writer_replaced_while_it_trims_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Wherever another process takes over, history and its checkpoint are that one's. L-7."""
    engine = SqliteEngine(None, must_exist=False)
    migrate(engine)
    story, other = begin(Store(engine)), Store(engine)
    story.reboot("h0")
    every = sequences(story.store)
    sound = getattr(retention, when)

    def overtaken(*given: object, **named: object) -> object:
        result = sound(*given, **named)
        if other.writer_generation == 0:
            other.load()
        return result

    monkeypatch.setattr(retention, when, overtaken)
    with pytest.raises(StoreLost):
        story.store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2)
    assert sequences(other) == every
    assert replayed(other) == live_records(story.state)
    if when == "_export":
        with engine.reading() as transaction:
            cursor = transaction._connection.execute("SELECT count(*) FROM checkpoint")
            assert cursor.fetchall() == [(0,)]
    engine.close()


def test_keeper_trims_at_the_start(
    story: Story, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A service that is started again and again trims, too; trouble ends nothing. Source: A-6."""
    later = VirtualClock(story.now_ms + SLACK_MS + 2)
    gone = HistoryKeeper(
        story.store, Retention(tmp_path / "gone", max_age_ms=1), later, record=print
    )
    gone.start()
    wait_until(lambda: "could not be trimmed" in caplog.text)
    assert gone._thread.daemon  # no process is kept alive for it
    gone.stop()
    assert not gone._thread.is_alive()
    keeper = HistoryKeeper(story.store, Retention(tmp_path, max_age_ms=1), later, record=print)
    keeper.start()
    wait_until(lambda: not sequences(story.store))
    keeper.stop()
    assert issubclass(ExportFailed, ForewarnError)


# --- ended work -----------------------------------------------------------------------------------


def numbers(store: Store) -> list[int]:
    """Return the numbers of the operations in the store, ascending."""
    return sorted(each.number for each in store.operations(OperationPage(limit=1000)))


def rows_of(store: Store, table: str) -> int:
    """Return the number of rows of a table."""
    with store._engine.reading() as transaction:
        return sum(1 for _ in transaction.each("copied", table=table))


def test_ended_work_leaves_after_its_history(story: Story, tmp_path: Path) -> None:
    """With its events and VMs, and live work stays. Source: X-1, invariant 10."""
    store, ended = story.store, numbers(story.store)
    story.now_ms += 30 * DAY_MS
    story.reboot("h1")
    story.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)))
    trimmed = store.trim(Retention(tmp_path, max_age_ms=8 * DAY_MS), story.now_ms)
    assert trimmed.operations == len(ended)
    assert numbers(store) == [ended[-1] + 1, ended[-1] + 2]
    events = {each.id for number in numbers(store) for each in store.events_of(number)}
    assert rows_of(store, "event") == len(events)
    assert rows_of(store, "operation_vm") == 3
    assert replayed(store) == live_records(store.look())


@pytest.mark.parametrize(("age_days", "kept"), [(6, True), (8, False)])
def test_outcomes_can_be_read_for_a_week(
    story: Story, tmp_path: Path, age_days: int, kept: bool
) -> None:
    """However small the limits are. Source: X-1."""
    ended = numbers(story.store)
    now_ms = story.now_ms + age_days * DAY_MS
    trimmed = story.store.trim(Retention(tmp_path, max_age_ms=1, max_bytes=1), now_ms)
    assert sequences(story.store) == []
    assert numbers(story.store) == (ended if kept else [])
    assert bool(trimmed.excess) is kept


@pytest.mark.parametrize(("late_ms", "kept"), [(0, True), (1, False)])
def test_outcome_leaves_after_a_week_and_not_before(
    story: Story, tmp_path: Path, late_ms: int, kept: bool
) -> None:
    """Seven days after its end, to the millisecond. Source: X-1."""
    oldest = story.store.operation(numbers(story.store)[0])
    assert oldest is not None
    assert oldest.ended_ms is not None
    story.store.trim(
        Retention(tmp_path, max_age_ms=1, max_bytes=1), oldest.ended_ms + WEEK_MS + late_ms
    )
    left = numbers(story.store)
    assert (oldest.number in left) is kept, f"a week and {late_ms} ms after its end: {left} stay"


def test_work_of_an_open_maintenance_stays(store: Store, tmp_path: Path) -> None:
    """Its report counts the work; once it has ended, both go. Source: F-1."""
    story = begin(store)
    number = story.reboot("h0")
    story.tell(CreateMaintenance(Cause.HOST_UPDATE, ("h1",), 600, reason="firmware"))
    maintenance = story.state.last_number
    with store._engine.writing() as transaction:
        transaction.run_text(f"UPDATE operation SET maintenance = {maintenance}")
    retention = Retention(tmp_path, max_age_ms=DAY_MS)
    store.trim(retention, story.now_ms + 30 * DAY_MS)
    assert numbers(store) == [number]
    story.tell(CancelMaintenance(maintenance))
    store.trim(retention, story.now_ms + 30 * DAY_MS)
    assert numbers(store) == []
    assert [rows_of(store, table) for table in MAINTENANCE_TABLES] == [0] * 6


def test_work_beyond_its_bytes_leaves_oldest_first(story: Story, tmp_path: Path) -> None:
    """History has at least half of the limit; the rest is for work and audit."""
    store, ended = story.store, numbers(story.store)
    story.now_ms += 30 * DAY_MS
    story.reboot("h0")
    before = store.past_size()
    store.trim(Retention(tmp_path, max_bytes=before.work), story.now_ms)
    left = numbers(store)
    assert left == [*ended, ended[-1] + 1][-len(left) :]
    assert 0 < len(left) <= len(ended) // 2 + 1
    assert store.past_size().total <= before.work


def test_space_is_returned_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file shrinks while the service runs, and every commit stays. Source: A-6."""
    monkeypatch.setattr(sqlite, "FREE_PAGES_KEPT", 100)
    path = tmp_path / "store.db"
    story = begin(store := open_store(str(path)))
    texts = [entry("x" * 30_000) for _ in range(900)]
    store.commit(Changes(last_number=story.state.last_number, entries=texts))
    store.trim(Retention(None, max_age_ms=1), story.now_ms + DAY_MS)
    full, steps = path.stat().st_size, 0
    while store.return_space():
        story.reboot(f"h{steps % 2}")
        steps += 1
    store.close()
    assert steps > 3
    assert path.stat().st_size < full / 4
    store = open_store(str(path))
    assert replayed(store) == live_records(store.load())
    store.close()


def test_nothing_is_deleted_that_cannot_be_exported(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a directory the limit is reported, and history grows on. Source: P-7."""
    before = sequences(story.store)
    later = VirtualClock(story.now_ms + 2 * DAY_MS)
    retention = Retention(None, max_age_ms=1)
    keeper = HistoryKeeper(story.store, retention, later, record=print)
    keeper.start()
    wait_until(lambda: "no directory for exports" in story.store.past_excess)
    keeper.stop()
    assert "retention-limited" in {getattr(each, "action", "") for each in caplog.records}
    assert sequences(story.store) == before
