"""SQLite: one file with a write-ahead log, or memory; one writing process, many reading threads."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.store.engine import DatabaseFacts, Engine, Statements, Transaction
from forewarn.store.errors import (
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreReplaced,
    StoreUnavailable,
    StoreUncertain,
)
from forewarn.store.sqlite_file import (
    NETWORK_SYSTEMS,
    DatabaseFile,
    FileInUse,
    FileLost,
    file_system_of,
    sentence,
)
from forewarn.store.statements import statement_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.errors import ForewarnError
    from forewarn.store.engine import Row

BUSY_TIMEOUT_MS = 5000
"""How long a statement waits for another process's lock. Only a backup or a person with `sqlite3`
holds one; SQLite's documentation uses 5 s, Python's module the same."""

STATEMENTS_CACHED = 256
"""Prepared statements kept for each connection: more than the store has."""

IDLE_READERS_MAX = 8
"""Reading connections kept open between reads; more are made when needed and closed again."""

COPIED_AT_ONCE = 5000
"""Rows of a table that are read at a time where all of it is copied."""

CHECKPOINT_PAGES = 4000
"""Pages in the write-ahead log after which a commit also folds it into the file: 16 MiB, read in
some 20 ms after a crash. With SQLite's 1000 every 56th commit of a host's work did so, and the
99th percentile of commits was measured at 1.6 ms; with 4000 at 0.6 ms, near the 90th."""

LOG_BYTES = 17 * 1024 * 1024
"""How long the write-ahead log is made when it is opened: `CHECKPOINT_PAGES` and a large commit. A
commit that makes a file longer waits for the file system's own journal, and so for whatever else is
written on that disk. Beside other writers the 99th percentile of the first 270 commits was 3 to
7 ms; of a log that has its length already, 1 to 4."""

WAL_BYTES_MAX = 64 * 1024 * 1024
"""What the write-ahead log is cut back to after a checkpoint; it grows only under a long read."""

# Full durability is `synchronous=FULL`: every commit reaches the disk (A-6, L-7).
# `fullfsync` is what makes that true on macOS; elsewhere it does nothing.
_SETTINGS = f"""
PRAGMA busy_timeout = {BUSY_TIMEOUT_MS};
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
"""
_WRITER_SETTINGS = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
PRAGMA journal_size_limit = {WAL_BYTES_MAX};
"""


_DAMAGE = ("decode to UTF-8", "no such column", "has no column named")
"""In SQLite's words: what only a damaged file can bring."""


class SqliteEngine(Engine):
    """A SQLite database, held by this process alone as its writer."""

    def __init__(
        self,
        path: Path | None,
        *,
        must_exist: bool,
        read_only: bool = False,
        beside: bool = False,
        replaces: bool = False,
    ) -> None:
        """Open, and make if need be, the database at `path`; None keeps it in memory.

        Args:
            path: where it is.
            must_exist: whether a database must be there already.
            replaces: whether it may take the place of a database that is gone.
            read_only: whether another process may go on writing it, and this one may not.
            beside: whether another process may go on writing it, and this one writes records
                that the other does not.

        Raises:
            StoreMissing: there is none, and there must be one.
            StoreInUse: another process writes it.
            StoreUnavailable, StoreFull, StoreDamaged: it cannot be opened.
        """
        super().__init__(str(path) if path else "in memory", Statements(statement_texts(), "?"))
        self._path = path
        self._lock = threading.RLock()
        self._idle: list[sqlite3.Connection] = []
        self._news = threading.Event()
        self._file: DatabaseFile | None = None
        if read_only or beside:
            assert path is not None
            if not path.exists():
                raise StoreMissing(place=self.place)
            at = self._connect(str(path), _WRITER_SETTINGS) if beside else self._reader(path)
            self._writer = at
            return
        self._file = self._taken(path, must_exist=must_exist, replaces=replaces) if path else None
        try:
            self._writer = self._connect(str(path) if path else ":memory:", _WRITER_SETTINGS)
            try:
                if self._file:
                    self._check_pages(created=self._file.made)
                    _lengthen_log(self._writer, self._file.log_path)
                    self._file.opened()
            except BaseException:
                self._writer.close()
                raise
        except BaseException:
            self._let_go()
            raise

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Begin with the write lock taken, so that no statement in the middle can meet it."""
        with self._lock, self._undone_on_error(self._writer):
            self._check_file()
            self._writer.execute("BEGIN IMMEDIATE")
            yield Transaction(self._writer, self.statements)
            self._writer.execute("COMMIT")
            if self._file and (problem := self._file.problem()):
                # It went into a file that nobody will find: nothing may be answered on it.
                raise StoreUncertain(place=self.place, reason=problem)
        self._news.set()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read from a connection of its own; in memory there is one connection, so wait for it."""
        if self._path is None:
            with self._lock, self._undone_on_error(self._writer):
                yield Transaction(self._writer, self.statements)
            return
        self._check_file()
        reader = self._reader(self._path)
        try:
            with self._undone_on_error(reader):
                reader.execute("BEGIN")
                yield Transaction(reader, self.statements)
                reader.execute("COMMIT")
        finally:
            if len(self._idle) < IDLE_READERS_MAX:
                self._idle.append(reader)
            else:
                reader.close()

    def portions(self, transaction: Transaction, table: str) -> Iterator[list[Row]]:
        """Read on as rows are taken."""
        rows = transaction.each("copied", table=table)
        while portion := list(itertools.islice(rows, COPIED_AT_ONCE)):
            yield portion

    def lock_schema(self, transaction: Transaction) -> None:
        """Do nothing: a writing transaction has the only write lock."""

    def schema_text(self, text: str) -> str:
        """Return a schema that means the same and costs less in SQLite.

        INTEGER holds as much as BIGINT, and as a key needs no second index. SQLite builds
        an index for a list each time it checks one: more than half the cost of an operation.
        """
        return _LISTED_CHECK.sub(_compared, text.replace("BIGINT", "INTEGER"))

    def notify(self, transaction: Transaction) -> None:
        """Do nothing: `writing` wakes this process's threads, and no other process follows."""

    def notice(self, timeout_s: float) -> bool:
        """Wait for another thread's write."""
        heard = self._news.wait(timeout_s)
        self._news.clear()
        return heard

    def check(self) -> None:
        """Check every page, index and reference with SQLite. Cost: the size of the file.

        Raises:
            StoreDamaged: something is wrong.
        """
        with self._undone_on_error(self._writer):
            results = self._writer.execute("PRAGMA integrity_check(1)").fetchall()
            broken = self._writer.execute("PRAGMA foreign_key_check").fetchall()
        if results != [("ok",)] or broken:
            reason = f"SQLite says: {results[0][0] if results != [('ok',)] else broken[0]}"
            raise StoreDamaged(place=self.place, reason=reason)

    def examine(self) -> DatabaseFacts:
        """Look at the file's disk: SQLite's locks and log need one of this machine."""
        if self._path is None:
            return DatabaseFacts(None, ("a store in memory",), is_replica=False, free_bytes=None)
        try:
            free_bytes = shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise StoreUnavailable(place=self.place, reason=sentence(error)) from error
        system = file_system_of(self._path)
        unsafe = (f"a file system of the network ({system})",) if system in NETWORK_SYSTEMS else ()
        return DatabaseFacts(None, unsafe, is_replica=False, free_bytes=free_bytes)

    def close(self) -> None:
        """Close every connection, the writer last, which folds the log into the file."""
        while self._idle:
            self._idle.pop().close()
        with self._lock:
            self._writer.close()
        self._let_go()

    def _taken(self, path: Path, *, must_exist: bool, replaces: bool) -> DatabaseFile:
        try:
            if must_exist and not (path.exists() and path.stat().st_size):
                raise StoreMissing(place=self.place)
            return DatabaseFile(path, replaces=replaces)
        except FileLost as lost:
            raise StoreMissing(place=self.place) from lost
        except FileInUse as held:
            raise StoreInUse(place=self.place, pid=held.pid) from held
        except OSError as error:
            raise StoreUnavailable(place=self.place, reason=sentence(error)) from error

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.release()
            self._file = None

    def _check_file(self) -> None:
        """Refuse to go on with another file than the one that was opened."""
        if self._file and (problem := self._file.problem()):
            raise StoreReplaced(place=self.place, reason=problem)

    def _check_pages(self, *, created: bool) -> None:
        """Check every page of a file that existed before with SQLite. Cost: its size."""
        if created:
            return
        with self._undone_on_error(self._writer):
            problems = self._writer.execute("PRAGMA quick_check(1)").fetchall()
        if problems != [("ok",)]:
            raise StoreDamaged(place=self.place, reason=f"SQLite says: {problems[0][0]}")

    def _reader(self, path: Path) -> sqlite3.Connection:
        with suppress(IndexError):  # another thread may be quicker
            return self._idle.pop()
        return self._connect(f"{path.absolute().as_uri()}?mode=ro", "PRAGMA query_only = ON;")

    def _connect(self, address: str, settings: str) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                address,
                uri=address.startswith("file:"),
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS_CACHED,
            )
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        try:
            connection.executescript(_SETTINGS + settings)
        except (sqlite3.Error, UnicodeError) as error:
            connection.close()
            raise self._meaning(error) from error
        return connection

    @contextmanager
    def _undone_on_error(self, connection: sqlite3.Connection) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # some errors have undone it already
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OverflowError | UnicodeError):
                raise self._meaning(error) from error
            raise

    def _meaning(self, error: Exception) -> ForewarnError:
        """Return the Forewarn error for an error of the database."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = _KINDS.get(code, StoreContradiction)
        # A text that is none has no number in Python's module, and a message may be made of one.
        # A column that is not there is one whose name was damaged: steps of the schema are checked.
        text = str(error)
        if isinstance(error, UnicodeDecodeError) or any(sign in text for sign in _DAMAGE):
            kind = StoreDamaged
        return kind(place=self.place, reason=f"SQLite says: {error}")


def _compared(check: re.Match[str]) -> str:
    """Return a check of a list as comparisons."""
    name, words = check.groups()
    return f"CHECK ({' OR '.join(f'{name} = {word.strip()}' for word in words.split(','))})"


def _lengthen_log(writer: sqlite3.Connection, path: Path) -> None:
    """Fill the log with zeros up to its full length; go without if that fails.

    SQLite reads only parts of the log that its own checksums confirm, and chooses where it writes:
    zeros at the end are never read.
    """
    with suppress(OSError, sqlite3.Error):
        writer.execute("SELECT 1 FROM sqlite_schema").fetchall()  # it opens the log
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        size = os.fstat(log).st_size
        try:
            for _ in range(size, LOG_BYTES, len(_NOUGHTS)):
                os.write(log, _NOUGHTS)
        except OSError:  # a full disk: commits need what room there is
            os.ftruncate(log, size)
        finally:
            os.close(log)


_LISTED_CHECK = re.compile(r"CHECK \(\s*(\w+) IN \(([^()]*)\)\s*\)")

_NOUGHTS = bytes(256 * 1024)

_KINDS: dict[int, type[ForewarnError]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreFull,
    sqlite3.SQLITE_BUSY: StoreUnavailable,
    sqlite3.SQLITE_LOCKED: StoreUnavailable,
    sqlite3.SQLITE_IOERR: StoreUnavailable,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
    sqlite3.SQLITE_PERM: StoreUnavailable,
    sqlite3.SQLITE_AUTH: StoreUnavailable,
    sqlite3.SQLITE_NOMEM: StoreUnavailable,
    sqlite3.SQLITE_INTERRUPT: StoreUnavailable,
    sqlite3.SQLITE_CORRUPT: StoreDamaged,
    sqlite3.SQLITE_NOTADB: StoreDamaged,
}
