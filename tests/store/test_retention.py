"""History that is too old or too much: exported, removed, and a replay begins at a checkpoint."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.history_keeper import HistoryKeeper
from forewarn.core.history import CHECKPOINT
from forewarn.errors import ForewarnError
from forewarn.store import HistoryPage, Retention, Store, retention
from forewarn.store.errors import StoreLost
from forewarn.store.retention import ExportFailed
from tests.store.story import Story, begin, live_records, replayed
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
    count = store.trim(Retention(tmp_path, max_age_ms=story.now_ms - limit_ms), story.now_ms)
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
    assert store.trim(Retention(tmp_path, max_age_ms=1), story.now_ms + 2) > 0
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


def test_history_is_kept_within_its_bytes(story: Story, tmp_path: Path) -> None:
    """The oldest goes, and no more than must. Source: A-6."""
    store = story.store
    assert store.trim(Retention(tmp_path, max_bytes=10**9), story.now_ms) == 0
    with store._engine.reading() as transaction:
        [(size,)] = transaction.rows("history_bytes")
    assert store.trim(Retention(tmp_path, max_bytes=int(size) // 2), story.now_ms) > 0
    with store._engine.reading() as transaction:
        [(left,)] = transaction.rows("history_bytes")
    assert int(size) // 3 < int(left) <= int(size) // 2
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


def test_keeper_trims_at_the_start(
    story: Story, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A service that is started again and again trims, too; trouble ends nothing. Source: A-6."""

    class Later:
        def now_ms(self) -> int:
            return story.now_ms + 2

    gone = HistoryKeeper(story.store, Retention(tmp_path / "gone", max_age_ms=1), Later())  # type: ignore[arg-type]
    wait_until(lambda: "could not be trimmed" in caplog.text)
    gone.stop()
    keeper = HistoryKeeper(story.store, Retention(tmp_path, max_age_ms=1), Later())  # type: ignore[arg-type]
    wait_until(lambda: not sequences(story.store))
    keeper.stop()
    assert issubclass(ExportFailed, ForewarnError)
