"""A SQLite store as files: the ones that were opened, whole, private, and held by one process."""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_server.service.store_watch import StoreWatch
from forewarn_store import Store, open_store
from forewarn_store.errors import (
    StoreAddressInvalid,
    StoreDamaged,
    StoreMissing,
    StoreRemoved,
    StoreReplaced,
    StoreTooNew,
    StoreUnavailable,
    StoreUncertain,
)
from forewarn_store.past_check import PastCheck
from forewarn_store.sqlite import LOG_INITIAL_BYTES
from forewarn_store.sqlite_file import DatabaseFile
from tests.store.story import Story
from tests.store.test_sqlite import ROOT, large, writer_of
from tests.waiting import wait_until

Opener = Callable[[str], Store]


def test_file_that_was_removed_takes_no_commit(story: Story, path: Path) -> None:
    """What nobody could find after a restart is not called durable. Source: A-6."""
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreRemoved, match="was removed") as refused:
        story.store.commit(large(story))
    assert f"/proc/{os.getpid()}/fd" in refused.value.advice_text()
    with pytest.raises(StoreReplaced):
        story.store.lease()
    path.with_name("elsewhere.db").rename(path)
    story.reboot("h0")


@pytest.mark.skipif(sys.platform != "linux", reason="open files are under /proc")
def test_deleted_file_is_rescued_from_the_process(story: Story, path: Path) -> None:
    """The advice holds: the open files, put in place, are the whole store. Source: A-6."""
    number = story.reboot("h0")
    rescued = path.with_name("rescued.db")
    path.unlink()
    log = path.with_name(f"{path.name}-wal")
    log.unlink()
    for file in Path("/proc/self/fd").iterdir():
        name = str(file.readlink()) if file.is_symlink() else ""
        for lost, target in ((path, rescued), (log, rescued.with_name("rescued.db-wal"))):
            if name == f"{lost} (deleted)":
                target.write_bytes(file.read_bytes())
    again = open_store(f"sqlite://{rescued}")
    again.load()
    known = again.operation(number)
    assert known is not None
    assert known.state is OperationState.SUCCEEDED
    again.close()


def test_removed_file_is_logged_at_once(
    story: Story, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once when it is gone, once when it is back, without a commit. Source: U-4."""
    watch = StoreWatch(story.store, look_s=0.01)
    caplog.set_level("INFO")

    def logged() -> list[str]:
        return [each.action for each in caplog.records if hasattr(each, "action")]

    path.rename(path.with_name("elsewhere.db"))
    wait_until(lambda: "store-removed" in logged())
    path.with_name("elsewhere.db").rename(path)
    wait_until(lambda: "store.back" in logged())
    watch.stop()
    assert logged().count("store-removed") == 1


@pytest.mark.parametrize("name", ["store.db", "store.db-wal"])
def test_file_that_was_replaced_takes_no_commit(story: Story, path: Path, name: str) -> None:
    """Another file under the same name is not the store. Source: A-6."""
    story.reboot("h0")
    file = path.with_name(name)
    copy = file.read_bytes()
    file.unlink()
    file.write_bytes(copy)
    with pytest.raises(StoreReplaced, match="another file"):
        story.store.commit(large(story))


@pytest.mark.parametrize("size", [0, 5000])
def test_file_that_was_cut_off_takes_no_commit(story: Story, path: Path, size: int) -> None:
    """A store that has lost its end is not written. Source: A-6."""
    writer_of(story.store).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    story.reboot("h0")
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(StoreReplaced, match="truncated"):
        story.store.commit(large(story))


class GrowingPath(type(Path())):  # type: ignore[misc]  # the class of paths of this system
    """A path whose file grows, and is looked at by others, while somebody looks at it."""

    grow: Callable[[], object] | None = None

    def stat(self, **options: bool) -> os.stat_result:
        """Look at the file; what grows it does so once."""
        found: os.stat_result = super().stat(**options)
        if self.grow is not None:
            grow, self.grow = self.grow, None
            grow()
        return found


def test_file_that_grows_between_two_looks_is_whole(path: Path) -> None:
    """A checkpoint goes on while threads look at the file; each by itself sees it grow. A-6."""
    sqlite3.connect(path).execute("PRAGMA user_version = 1").connection.close()
    growing = GrowingPath(path)
    file = DatabaseFile(growing)

    def grow() -> None:
        head = bytearray(path.read_bytes())
        head[28:32] = (1000).to_bytes(4, "big")
        path.write_bytes(head + bytes(999 * 4096))
        assert not file.problem()

    growing.grow = grow
    assert not file.problem()
    file.release()


def test_log_that_was_cut_off_takes_no_commit(story: Story, path: Path) -> None:
    """A commit behind a log's lost beginning would be lost with it. Source: A-6."""
    story.reboot("h0")
    path.with_name("store.db-wal").write_bytes(bytes(LOG_INITIAL_BYTES))
    with pytest.raises(StoreReplaced, match="log of the store was truncated"):
        story.store.commit(large(story))


def test_commit_into_a_file_just_removed_is_uncertain(
    story: Story, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not answered as durable, and is settled once the file is back. Source: A-6."""
    changes = large(story)
    elsewhere = path.with_name("elsewhere.db")
    with monkeypatch.context() as patch:  # the last thing before COMMIT
        patch.setattr(story.store._engine, "notify", lambda _: path.rename(elsewhere))
        with pytest.raises(StoreUncertain, match="was removed"):
            story.store.commit(changes)
    elsewhere.rename(path)
    assert story.store.settle() is changes
    story.reboot("h0")


def test_store_is_private(story: Story, path: Path) -> None:
    """Nobody but the service's user may read what it holds."""
    story.reboot("h0")
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)
    assert len(modes) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere SQLite's own locks are in the way")
def test_second_process_is_refused_through_a_hard_link(story: Story, path: Path) -> None:
    """The file is held, not its name. Source: L-7."""
    other = path.parent / "elsewhere"
    other.mkdir()
    (other / "same.db").hardlink_to(path)
    assert "StoreInUse" in opened_elsewhere(other / "same.db")
    (other / "symbolic.db").symlink_to(path)
    assert "StoreInUse" in opened_elsewhere(other / "symbolic.db")
    story.reboot("h0")


def opened_elsewhere(path: Path) -> str:
    """What another process says that opens a store."""
    command = "import sys; from forewarn_store import open_store; open_store(sys.argv[1])"
    second = subprocess.run(
        [sys.executable, "-c", command, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return second.stderr


def test_new_store_is_said(path: Path, opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    """An empty store where one was expected is told of. Source: L-7."""
    opened(str(path)).close()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert f"created a new store at {path}" in caplog.text
    caplog.clear()
    opened(str(path))
    assert caplog.text == ""


@pytest.mark.parametrize("content", [None, b""], ids=["none", "empty"])
def test_store_that_must_exist_is_not_made(path: Path, content: bytes | None) -> None:
    """A store that is gone is no reason to start over. Source: L-7."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreMissing, match="must_exist"):
        open_store(str(path), must_exist=True)
    assert path.exists() is (content is not None)
    open_store(str(path)).close()
    open_store(str(path), must_exist=True).close()


@pytest.mark.parametrize("lost", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_lost_store_is_not_replaced_by_an_empty_one(
    path: Path, lost: Callable[[Path], object]
) -> None:
    """The lock file remembers the store; without it an empty store begins. Source: L-7."""
    open_store(str(path)).close()
    lost(path)
    for _ in range(2):
        with pytest.raises(StoreMissing, match="no store at"):
            open_store(str(path))
    path.with_name(f"{path.name}.lock").unlink()
    open_store(str(path)).close()


@pytest.mark.slow
def test_damage_is_refused_reported_or_harmless(story: Story, path: Path) -> None:
    """Whatever page is overwritten: at the start, by the check, or all can be read. L-7, A-6."""
    for _ in range(60):  # more pages hold history than the schema
        story.reboot("h0")
    story.store.close()
    whole = path.read_bytes()
    dice = random.Random(35)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        length = dice.choice((1, 16, 512, 4096))
        place = dice.randrange(len(whole) - length)
        damaged[place : place + length] = dice.randbytes(length)
        path.write_bytes(damaged)
        try:
            store = open_store(str(path))
        except (StoreDamaged, StoreTooNew, StoreUnavailable):
            refused += 1
            continue
        try:
            store.load()
            check = PastCheck(store, SystemClock(), share=1.0)
            check._thread.join()
            assert store.past_progress
            assert store.past_progress.percent == 100
            if store.past_progress.damage:
                refused += 1
            else:
                assert sum(1 for _ in store.entries())
        except StoreDamaged:
            refused += 1
        finally:
            store.close()
    assert 25 < refused < 60


@pytest.mark.parametrize(
    "address",
    [
        "mysql://user:s3cret@host/db",
        "http://s3cret@host",
        "postgres:user:s3cret@x?password=s3cret",
        "mysql:host=x password=s3cret",
        "user:s3cret@host/db",
        "//user:s3cret@host/db",
        "postgresql//user:s3cret@host/db",
        "sqlite://user:s3cret@host/db",
        "sqlite:postgresql://user:s3cret@host/db",
    ],
)
def test_no_message_shows_a_password(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does an address that no engine understands."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreAddressInvalid) as refused:
        open_store(address)
    assert "s3cret" not in str(refused.value)
