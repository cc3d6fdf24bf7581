"""What SQLite and the file system answer, and what that means for the one who asked."""

import errno
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_store import Store, open_store
from forewarn_store.errors import (
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreTooNew,
    StoreUnavailable,
)
from forewarn_store.migrations import SchemaMigration, every_step, migrate
from forewarn_store.sqlite import LOG_INITIAL_BYTES, SqliteEngine
from tests.store.story import begin

Opener = Callable[[str], Store]


class Refusing:
    """A connection whose every statement fails in one way."""

    in_transaction = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def execute(self, *_: object) -> None:
        """Fail."""
        raise self._error

    def close(self) -> None:
        """Do nothing."""


def sqlite_error(code: int) -> sqlite3.Error:
    """An error as SQLite numbers it."""
    error = sqlite3.DatabaseError("something happened")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), StoreFull),
        (sqlite_error(sqlite3.SQLITE_READONLY_DBMOVED), StoreFull),
        (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_LOCKED_SHAREDCACHE), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN_ISDIR), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_PERM), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_AUTH), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_NOMEM), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_INTERRUPT), StoreUnavailable),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), StoreDamaged),
        (sqlite_error(sqlite3.SQLITE_NOTADB), StoreDamaged),
        (sqlite_error(sqlite3.SQLITE_CONSTRAINT_CHECK), StoreContradiction),
        (sqlite3.OperationalError("no such column: reason"), StoreDamaged),
        (sqlite3.OperationalError("table vm has no column named host"), StoreDamaged),
        (sqlite3.OperationalError("Could not decode to UTF-8 column"), StoreDamaged),
        (sqlite3.ProgrammingError("without a number"), StoreContradiction),
        (OverflowError("Python int too large"), StoreContradiction),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), StoreContradiction),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), StoreDamaged),
    ],
    ids=lambda each: str(getattr(each, "sqlite_errorcode", "")) or None,
)
def test_error_of_sqlite_says_who_must_act(
    memory: Store, error: Exception, meaning: type[ForewarnError]
) -> None:
    """Each code, extended ones too, is one of the store's own errors. Source: L-7, A-6."""
    engine = memory._engine
    assert isinstance(engine, SqliteEngine)
    sound, engine._writer = engine._writer, Refusing(error)  # type: ignore[assignment]
    try:
        with pytest.raises(ForewarnError) as refused:
            memory.lease()
    finally:
        engine._writer = sound
    assert type(refused.value) is meaning
    assert str(error) in str(refused.value)


def spoil_pages(path: Path) -> None:
    """Have a database with noise behind its first page."""
    store = open_store(str(path))
    begin(store).reboot("h0")
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def spoil_all(path: Path) -> None:
    """Have a file of something else."""
    path.write_bytes(b"no database at all " * 100)


def upgrade(path: Path) -> None:
    """Have a store that a newer version has migrated."""
    store = open_store(str(path))
    number = len(every_step()) + 1
    step = SchemaMigration(number, f"{number:04}_next", "CREATE TABLE extra (a BIGINT);\n")
    migrate(store._engine, (*every_step(), step), upgrade=True)
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("prepare", "refusal"),
    [
        (spoil_pages, StoreDamaged),
        (spoil_all, StoreDamaged),
        (upgrade, StoreTooNew),
        (lambda _: None, StoreMissing),
        (Path.mkdir, StoreUnavailable),
    ],
    ids=["pages", "no-database", "newer", "missing", "directory"],
)
def test_refused_store_is_let_go(
    path: Path, prepare: Callable[[Path], None], refusal: type[ForewarnError]
) -> None:
    """Whatever an opening ends with, no file stays open or locked. Source: L-7."""
    prepare(path)
    with pytest.raises(refusal):
        open_store(str(path), must_exist=True)
    names = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert [name for name in names if name.startswith(str(path))] == []
    with pytest.raises(refusal):  # and not StoreInUse
        open_store(str(path), must_exist=True)


def test_missing_directory_is_named(path: Path) -> None:
    """A store in a directory that is not there says so."""
    nowhere = path.parent / "nowhere"
    with pytest.raises(StoreUnavailable, match=f"the directory {nowhere} does not exist"):
        open_store(str(nowhere / "store.db"))


def test_store_in_use_names_its_process(path: Path, opened: Opener) -> None:
    """Whoever held it before is not named, and of a hard link nobody knows. Source: L-7."""
    path.with_name("store.db.lock").write_text("123456789012345\n")
    opened(str(path))
    with pytest.raises(StoreInUse) as refused:
        open_store(str(path))
    assert refused.value.facts["pid"] == str(os.getpid())
    other = path.with_name("other.db")
    other.hardlink_to(path)
    with pytest.raises(StoreInUse) as refused:
        open_store(str(other))
    assert refused.value.facts["pid"] == "unknown"


def test_full_disk_while_the_log_is_made_costs_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    """What was added is given back: commits need what room there is. Source: A-6."""
    room, write = [3], os.write

    def write_into_room(file: int, data: bytes) -> int:
        if len(data) > 4096:
            if not room[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            room[0] -= 1
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_into_room)
        story = begin(opened(str(path)))
    log = path.with_name("store.db-wal")
    assert log.stat().st_size < LOG_INITIAL_BYTES // 4
    story.reboot("h0")
    assert story.store.load() == story.state


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_vacuum_is_no_damage_whatever_the_page_size(path: Path, page_size: int) -> None:
    """A file that became shorter and says so itself is whole. Source: L-7."""
    with sqlite3.connect(path, isolation_level=None) as person:
        person.execute(f"PRAGMA page_size = {page_size}")
        person.execute("VACUUM")
    person.close()
    store = open_store(str(path))
    story = begin(store)
    with sqlite3.connect(path, isolation_level=None) as person:
        assert person.execute("PRAGMA page_size").fetchall() == [(page_size,)]
        person.execute("CREATE TABLE large AS SELECT zeroblob(2000000) AS bytes")
        person.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        store.lease()  # it has seen the file at its longest
        long = path.stat().st_size
        person.execute("DROP TABLE large")
        person.execute("VACUUM")
        person.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    person.close()
    assert path.stat().st_size < long
    story.reboot("h0")
    store.close()
