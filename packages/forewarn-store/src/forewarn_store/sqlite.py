"""SQLite engine: a file with a write-ahead log, or memory, with one writing process."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forewarn_base.errors import ForewarnError
from forewarn_base.values import Word
from forewarn_store.engine import DatabaseFacts, Engine, Row, Statements, Transaction
from forewarn_store.errors import (
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreRemoved,
    StoreReplaced,
    StoreUnavailable,
    StoreUncertain,
)
from forewarn_store.sqlite_file import (
    NETWORK_SYSTEMS,
    DatabaseFile,
    FileInUse,
    FileLost,
    disk_problem,
    file_system_of,
    sentence,
)
from forewarn_store.statements import statement_texts

#: Time limit of a statement's wait for another process's lock.
#:
#: Only a backup or a user of `sqlite3` acquires such a lock. SQLite's documentation and Python's
#: module also use 5 s.
BUSY_TIMEOUT_MS = 5000

#: Number of cached prepared statements per connection; higher than the number of statements.
STATEMENTS_CACHED = 256

#: Maximum number of idle reading connections; further connections are closed after use.
IDLE_READERS_MAX = 8

#: Number of rows that the copy of a table reads at a time.
COPIED_AT_ONCE = 5000

#: Pages in the write-ahead log after which a commit also moves the log into the file.
#:
#: After a crash, SQLite reads these 16 MiB in some 20 ms. With SQLite's default of 1000, every 56th
#: commit of a host's work moved the log, and the 99th percentile of commits was 1.6 ms. With 4000
#: pages, the 99th percentile is 0.6 ms.
CHECKPOINT_PAGES = 4000

#: Initial length of the write-ahead log: `CHECKPOINT_PAGES` and a large commit.
#:
#: A commit that makes a file longer waits for the file system's own journal, and so for all other
#: writes to that disk. Beside other writers the 99th percentile of the first 270 commits was 3 to 7
#: ms; with a log of full length, 1 to 4 ms.
LOG_INITIAL_BYTES = 17 * 1024 * 1024

#: Pages that are returned to the disk at a time, a megabyte; a commit waits for that.
PAGES_RETURNED = 256

#: Free pages that stay for later commits: 16 MiB, or a tenth of the file.
FREE_PAGES_KEPT, FREE_SHARE_KEPT = 4096, 10

#: SQLite's number of the mode in which free pages can be returned step by step.
_INCREMENTAL = 2

#: Length to which a checkpoint truncates the log. Only a long read makes the log longer.
WAL_BYTES_MAX = 64 * 1024 * 1024

# `synchronous=FULL` makes every commit durable (A-6, L-7). On macOS, durability requires
# `fullfsync`, which has no effect on other systems.
_SETTINGS = f"""
PRAGMA busy_timeout = {BUSY_TIMEOUT_MS};
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
"""
_WRITER_SETTINGS = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
PRAGMA journal_size_limit = {WAL_BYTES_MAX};
"""


#: The only connection needs no index file of the log, for which a full disk has no space.
_ALONE = "PRAGMA locking_mode = EXCLUSIVE;"


class DiskAccess(Word):
    """How the file of a database can be used."""

    #: A writing connection, and reading connections beside it.
    WRITABLE = "writable"
    #: The disk is full: one connection, which only reads.
    ALONE = "alone"
    #: The file or its file system is read-only.
    READ_ONLY = "read-only"


#: Texts in SQLite's messages that occur only with a damaged file.
_DAMAGE = ("decode to UTF-8", "no such column", "has no column named")


class SqliteEngine(Engine):
    """A SQLite database; this process is its only writer."""

    def __init__(
        self,
        path: Path | None,
        *,
        must_exist: bool,
        read_only: bool = False,
        beside: bool = False,
        replaces: bool = False,
    ) -> None:
        """Open the database at `path`, and create it if necessary; None: a database in memory.

        Args:
            path: path of the file.
            must_exist: whether the database must exist already.
            replaces: whether a new database may replace a missing database.
            read_only: whether this process only reads, and another process may write.
            beside: whether another process may write, and this process writes only other records.

        Raises:
            StoreMissing: the database does not exist, although it must.
            StoreInUse: another process writes the database.
            StoreUnavailable, StoreFull, StoreDamaged: the database cannot be opened.
        """
        super().__init__(str(path) if path else "in memory", Statements(statement_texts(), "?"))
        self._path = path
        self.commit_file = f"{path}.commit" if path else ""
        self._lock = threading.RLock()
        self._idle: list[sqlite3.Connection] = []
        self._news = threading.Event()
        self._file: DatabaseFile | None = None
        self._access = DiskAccess.WRITABLE
        #: Parameters of the address of a reading connection.
        self._reading = "mode=ro"
        if read_only or beside:
            assert path is not None
            if not path.exists():
                raise StoreMissing(place=self.place)
            self._writer = (
                self._connect(str(path), _WRITER_SETTINGS) if beside else self._reader(path)
            )
            return
        self._file = (
            self._locked_file(path, must_exist=must_exist, replaces=replaces) if path else None
        )
        try:
            self._writer = self._connect_writer()
            try:
                if self._file:
                    self._file.opened()
            except BaseException:
                self._writer.close()
                raise
        except BaseException:
            self._release()
            raise

    def _connect_writer(self) -> sqlite3.Connection:
        """Open the writing connection, or one that only reads while the disk takes no writes.

        Raises:
            StoreFull: the disk takes no writes, and the database is new.
            StoreUnavailable, StoreDamaged: the database cannot be opened.
        """
        if self._file is None or self._path is None:
            return self._connect(":memory:", _WRITER_SETTINGS)
        self._access, self._reading = DiskAccess.WRITABLE, "mode=ro"
        self._forget_readers()
        if self._path.exists() and not os.access(self._path, os.W_OK):
            return self._connect_without_space(self._path, self._file.log_path)
        try:
            writer = self._connect(str(self._path), _WRITER_SETTINGS)
            try:
                # this query opens the log
                writer.execute("SELECT 1 FROM sqlite_schema").fetchall()
                _lengthen_log(self._file.log_path)
            except sqlite3.Error as error:
                writer.close()
                raise self._meaning(error) from error
        except StoreFull:
            if self._file.made:
                raise
            return self._connect_without_space(self._path, self._file.log_path)
        return writer

    def _connect_without_space(self, path: Path, log_path: Path) -> sqlite3.Connection:
        """Open the only connection while the disk is full, or one to a file that is read-only."""
        if os.access(path, os.W_OK):
            writer = self._connect(str(path), _ALONE)
            self._access = DiskAccess.ALONE
            return writer
        has_log = log_path.exists() and log_path.stat().st_size > 0
        self._reading = "mode=ro" if has_log else "immutable=1"
        self._access = DiskAccess.READ_ONLY
        return self._connect(f"{path.absolute().as_uri()}?{self._reading}", "")

    def _is_writable(self) -> bool:
        return self._access is DiskAccess.WRITABLE

    def _regain_access(self) -> None:
        """Open the writing connection once the disk takes writes again.

        Raises:
            StoreFull: the disk still takes no writes.
        """
        if self._is_writable():
            return
        assert self._path is not None
        assert self._file is not None
        problem = disk_problem(self._path.parent)
        if not problem:
            self._file.reopened()
            self._writer.close()
            self._writer = self._connect_writer()
            self._file.opened()
            if not self._is_writable():
                problem = "the disk has too little space"
        if problem:
            raise StoreFull(place=self.place, reason=problem)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Begin a transaction with the write lock, so that later statements do not wait."""
        with self._lock:
            self._regain_access()
            with self._undone_on_error(self._writer):
                self.check_file()
                self._writer.execute("BEGIN IMMEDIATE")
                yield Transaction(self._writer, self.statements)
                self._writer.execute("COMMIT")
                if self._file and (problem := self._file.problem()):
                    # The commit went into a deleted file, so no answer may depend on the commit.
                    raise StoreUncertain(place=self.place, reason=problem)
        self._news.set()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read on a separate connection; a store in memory has only one connection."""
        if self._path is None or self._access is DiskAccess.ALONE:
            with self._lock, self._undone_on_error(self._writer):
                yield Transaction(self._writer, self.statements)
            return
        self.check_file()
        access = self._access
        reader = self._reader(self._path)
        try:
            with self._undone_on_error(reader):
                reader.execute("BEGIN")
                yield Transaction(reader, self.statements)
                reader.execute("COMMIT")
        finally:
            if len(self._idle) < IDLE_READERS_MAX and access is self._access:
                self._idle.append(reader)
            else:
                reader.close()

    def portions(self, transaction: Transaction, table: str) -> Iterator[list[Row]]:
        """Read further rows when the caller requests them."""
        rows = transaction.each("copied", table=table)
        while portion := list(itertools.islice(rows, COPIED_AT_ONCE)):
            yield portion

    def lock_schema(self, transaction: Transaction) -> None:
        """Do nothing, because a writing transaction has the only write lock."""

    def schema_text(self, text: str) -> str:
        """Return an equivalent schema that is cheaper in SQLite.

        INTEGER has the range of BIGINT, and an INTEGER key needs no second index. For each check of
        a list, SQLite builds an index, which takes more than half the time of writing an operation.
        """
        return _LISTED_CHECK.sub(_compare_each, text.replace("BIGINT", "INTEGER"))

    def end_silent_sessions(self) -> None:
        """Do nothing, because the end of a process releases its locks."""

    def notify(self, transaction: Transaction) -> None:
        """Do nothing, because `writing` wakes this process's threads, and there are no others."""

    def wait_for_commit(self, timeout_s: float) -> bool:
        """Wait for a write by another thread."""
        heard = self._news.wait(timeout_s)
        self._news.clear()
        return heard

    def return_space(self) -> bool:
        """Move some free pages to the end of the file, and cut them off.

        A file of an earlier version keeps its free pages until `compact`.
        """
        with self._lock, self._undone_on_error(self._writer):
            if not self._is_writable():
                return False
            kept = max(FREE_PAGES_KEPT, self._number("PRAGMA page_count") // FREE_SHARE_KEPT)
            spare = self._number("PRAGMA freelist_count") - kept
            if spare <= 0 or self._number("PRAGMA auto_vacuum") != _INCREMENTAL:
                return False
            count = min(spare, PAGES_RETURNED)
            # `execute` would take one of the steps, each of which returns one page.
            self._writer.executescript(f"PRAGMA incremental_vacuum({count})")
        return True

    def compact(self) -> None:
        """Write the file again without free pages; later free pages are returned step by step.

        Cost: O(size), also in free space of the disk.

        Raises:
            StoreFull: the disk has too little space; nothing was changed.
        """
        with self._lock, self._undone_on_error(self._writer):
            self._writer.executescript("PRAGMA auto_vacuum = INCREMENTAL; VACUUM;")

    def _number(self, pragma: str) -> int:
        return int(self._writer.execute(pragma).fetchone()[0])

    @property
    def expects_store(self) -> bool:
        """Whether the lock file records a store."""
        return self._file is not None and self._file.known

    def note_store(self) -> None:
        """Record the store in the lock file, which survives a lost database."""
        if self._file is not None:
            self._file.note_store()

    def check(self) -> None:
        """Check every page, index and reference with SQLite. Cost: O(size of the file).

        Raises:
            StoreDamaged: the check failed.
        """
        with self._undone_on_error(self._writer):
            results = self._writer.execute("PRAGMA integrity_check(1)").fetchall()
            broken = self._writer.execute("PRAGMA foreign_key_check").fetchall()
        if results != [("ok",)] or broken:
            reason = f"SQLite says: {results[0][0] if results != [('ok',)] else broken[0]}"
            raise StoreDamaged(place=self.place, reason=reason)

    def examine(self) -> DatabaseFacts:
        """Check the file's disk, which must be local for SQLite's locks and log."""
        if self._path is None:
            return DatabaseFacts(None, ("a store in memory",), is_replica=False, free_bytes=None)
        try:
            free_bytes = shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise StoreUnavailable(place=self.place, reason=sentence(error)) from error
        system = file_system_of(self._path)
        unsafe = (f"a network file system ({system})",) if system in NETWORK_SYSTEMS else ()
        return DatabaseFacts(None, unsafe, is_replica=False, free_bytes=free_bytes)

    def close(self) -> None:
        """Close every connection, the writer last, which merges the log into the file."""
        self._forget_readers()
        with self._lock:
            self._writer.close()
        self._release()

    def _locked_file(self, path: Path, *, must_exist: bool, replaces: bool) -> DatabaseFile:
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

    def _forget_readers(self) -> None:
        with suppress(IndexError):  # another thread may have closed the connection
            while self._idle:
                self._idle.pop().close()

    def _release(self) -> None:
        if self._file is not None:
            self._file.release()
            self._file = None

    def check_file(self) -> None:
        """Refuse to continue if another file has replaced the opened file."""
        if self._file and (problem := self._file.problem()):
            if (path := self._file.removed()) is not None:
                raise StoreRemoved(place=self.place, reason=problem, path=path, pid=os.getpid())
            raise StoreReplaced(place=self.place, reason=problem)

    def check_table(self, name: str) -> None:
        """Check the pages of a table and its indexes with SQLite."""
        with self.reading() as transaction:
            problems = transaction.rows_filled("pages_check", {"table": name})
        if problems != [("ok",)]:
            raise StoreDamaged(place=self.place, reason=f"SQLite says: {problems[0][0]}")

    def _reader(self, path: Path) -> sqlite3.Connection:
        with suppress(IndexError):  # another thread may have closed the connection
            return self._idle.pop()
        address = f"{path.absolute().as_uri()}?{self._reading}"
        return self._connect(address, "PRAGMA query_only = ON;")

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
                with suppress(
                    sqlite3.Error
                ):  # some errors have already rolled the transaction back
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OverflowError | UnicodeError):
                raise self._meaning(error) from error
            raise

    def _meaning(self, error: Exception) -> ForewarnError:
        """Return the Forewarn error for an error of the database."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = _KINDS.get(code, StoreContradiction)
        # Python's module reports no error number for invalid text, which may also be in a message.
        # A missing column means a damaged name, because the steps of the schema are checked.
        text = str(error)
        if isinstance(error, UnicodeDecodeError) or any(sign in text for sign in _DAMAGE):
            kind = StoreDamaged
        reason = f"SQLite says: {error}"
        # SQLite reports a full disk also as an I/O error, when it needs space for its own files.
        if kind in {StoreFull, StoreUnavailable} and self._path is not None:
            problem = disk_problem(self._path.parent)
            if problem:
                kind, reason = StoreFull, f"{problem} (SQLite says: {error})"
        return kind(place=self.place, reason=reason)


def _compare_each(check: re.Match[str]) -> str:
    """Return a CHECK clause that compares a column with each word, instead of `IN (words)`."""
    name, words = check.groups()
    return f"CHECK ({' OR '.join(f'{name} = {word.strip()}' for word in words.split(','))})"


def _lengthen_log(path: Path) -> None:
    """Fill the log with zeros up to its full length; ignore a failure.

    SQLite reads only parts of the log with valid checksums, so it never reads the zeros.
    """
    with suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        size = os.fstat(log).st_size
        try:
            for _ in range(size, LOG_INITIAL_BYTES, len(_NOUGHTS)):
                os.write(log, _NOUGHTS)
        except OSError:  # the disk is full, so leave the space for commits
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
