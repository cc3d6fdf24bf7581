"""PostgreSQL engine: a database that a writer and its followers share, over psycopg 3."""

from __future__ import annotations

import logging
import selectors
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from forewarn_base.errors import ForewarnError
from forewarn_store.engine import Cursor, DatabaseFacts, Engine, Row, Statements, Transaction, Value
from forewarn_store.errors import (
    StoreAddressInvalid,
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StorePooled,
    StoreUnavailable,
    StoreUncertain,
    redacted,
)
from forewarn_store.statements import statement_texts

#: Documented channel of notifications about commits, so that other programs can also listen.
CHANNEL = "forewarn_changed"

log = logging.getLogger("forewarn.store")

#: Advisory lock for changes of the schema: `fore` in ASCII.
SCHEMA_LOCK = 0x666F7265

#: Prepare each statement at its first use, because all statements are repeated.
PREPARE_THRESHOLD = 0

#: Maximum number of idle reading connections; further connections are closed after use.
IDLE_READERS_MAX = 8

# Timeouts after which a silent database counts as lost, so that the writer can report it.
# Parameters in the address override them.
_CONNECTION_SETTINGS = {
    "application_name": "forewarn",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

# A transaction takes milliseconds, so a session that locks the writer's row for ten seconds is
# dead. `synchronous_commit = off` would break A-6 and is refused. The operator may choose stronger
# values than `on`, which wait for standby databases.
_SESSION_SETTINGS = """
SET client_encoding = 'UTF8';
SET lock_timeout = '5s';
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '10s';
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""

#: Time limit in ms for a session that locks a row and waits for its client.
SILENT_MS = 1000
#: Time in seconds after which a stop cancels a running statement.
CANCEL_AFTER_S = 1.0

# A process that stops or loses its connection within a pipeline leaves its session `active`.
# Neither `idle_in_transaction_session_timeout` nor `statement_timeout` ends this session, which
# locks the writer's row. The server's keepalives do not end the session while a pooler, or the
# kernel of the stopped process, answers them.
_END_SILENT = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE datname = current_database() AND usename = current_user
    AND relation IN ('service'::regclass, 'lease'::regclass)
    AND mode = 'RowExclusiveLock' AND granted AND wait_event = 'ClientRead'
    AND state_change < clock_timestamp() - %s * INTERVAL '1 millisecond'
"""

_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Pipelined:
    """A connection in pipeline mode sends statements together; a fetch waits for its statement."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, text: str, values: Sequence[Value] = (), /) -> Cursor:
        """Send a statement; a later fetch, or the commit, raises its errors."""
        # A text without values is sent unchanged, so percent signs need no escape.
        return self._connection.execute(text.encode(), values or None)

    def executemany(self, text: str, rows: Iterable[Sequence[Value]], /) -> None:
        """Send a statement for each row."""
        self._connection.cursor().executemany(text.encode(), rows)


class _Kept:
    """One connection for one user at a time, which reconnects after a loss."""

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        self._connect = connect
        self._lock = threading.RLock()
        self._closed = False
        self.connection: psycopg.Connection | None = None

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection]:
        """Yield the connection; other users wait."""
        with self._lock:
            open_connection = self.connection
            if open_connection is not None and _is_stale(open_connection):
                open_connection.close()
                open_connection = None
            connection = self.connection = open_connection or self._connect()
            try:
                yield connection
            finally:
                if self._closed:  # a query may end after the close of the store
                    connection.close()
                if connection.closed:
                    self.connection = None
                else:
                    connection.prepare_threshold = PREPARE_THRESHOLD

    def close(self) -> None:
        """Close the connection after its use; cancel a statement that runs too long."""
        self._closed = True
        while not self._lock.acquire(timeout=CANCEL_AFTER_S):
            if (connection := self.connection) is not None:
                connection.cancel()
        try:
            if self.connection is not None:
                self.connection.close()
                self.connection = None
        finally:
            self._lock.release()


class PostgresEngine(Engine):
    """A PostgreSQL database.

    Every transaction needs two round trips: the first up to its first fetch, the second for the
    other statements and COMMIT. COMMIT is never sent before the first fetch has returned,
    because `Store.settle` relies on the writer's row being locked by then.
    """

    is_shared = True
    now_ms = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT"

    def __init__(self, address: str) -> None:
        """Connect to the database at `address`, which must exist.

        Raises:
            StoreAddressInvalid: the address is not an address of a PostgreSQL database.
            StorePooled: the connection uses a pooler in transaction mode. Source: H-9.
            StoreUnavailable: no server answers there, or the server refuses this client.
        """
        try:
            parameters = {name: str(word) for name, word in conninfo_to_dict(address).items()}
        except psycopg.ProgrammingError as error:
            raise StoreAddressInvalid(
                address="postgresql://…"
            ) from error  # the address may contain a password
        where = f"{parameters.get('host', '')}:{parameters.get('port', '5432')}"
        place = f"postgresql://{where}/{parameters.get('dbname', '')}"
        super().__init__(place, Statements(statement_texts(), "%s"))
        self._settings = make_conninfo(address, **{**_CONNECTION_SETTINGS, **parameters})
        self._listening = threading.Lock()
        self._idle: list[psycopg.Connection] = []
        self._closed = False
        self._listener: psycopg.Connection | None = None
        self._writer = _Kept(self._connect)
        #: The lease has its own connections, so that its renewal never waits for a commit or a
        #: query.
        self._leasing = _Kept(self._connect)
        self._check_sessions()

    def writing(self) -> AbstractContextManager[Transaction]:
        """Write on the only writing connection."""
        return self._on(self._writer, "BEGIN")

    def lease_reading(self) -> AbstractContextManager[Transaction]:
        """Read on the lease's own connection."""
        return self._on(self._leasing, _BEGIN_READING)

    def lease_writing(self) -> AbstractContextManager[Transaction]:
        """Write on the lease's own connection."""
        return self._on(self._leasing, "BEGIN")

    @contextmanager
    def _on(self, kept: _Kept, begin: str) -> Iterator[Transaction]:
        with kept.use() as connection, self._transaction(connection, begin) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read on a connection of the pool."""
        reader = self._reader()
        try:
            with self._transaction(reader, _BEGIN_READING) as transaction:
                yield transaction
        finally:
            self._idle.append(reader)
            # A slow query may end after the close of the store.
            self._keep_readers(0 if self._closed else IDLE_READERS_MAX)

    def forget_readers(self) -> None:
        """Close the idle connections for reads."""
        self._keep_readers(0)

    def end_silent_sessions(self) -> None:
        """End silent sessions through a separate session."""
        with self._connect() as connection:
            if connection.execute(_END_SILENT.encode(), (SILENT_MS,), prepare=False).fetchall():
                text = "ended a silent session that locked %s"
                log.warning(text, self.place, extra={"action": "store.session-ended"})

    def portions(self, transaction: Transaction, table: str) -> Iterator[list[Row]]:
        """Read with a server-side cursor, so that large tables need little memory."""
        transaction.run_text("SET LOCAL statement_timeout = 0")
        transaction.run_text("SET LOCAL idle_in_transaction_session_timeout = 0")
        transaction.run_filled("copied_open", table=table)
        while rows := transaction.rows_filled("copied_next", {"table": table}):
            yield rows

    def lock_schema(self, transaction: Transaction) -> None:
        """Wait for the schema's lock, longer than for other locks; disable prepared statements.

        After an ALTER the driver drops prepared statements, but in a pipeline it still uses names
        of dropped statements.
        """
        assert self._writer.connection is not None
        self._writer.connection.prepare_threshold = None
        transaction.run_text("SET LOCAL lock_timeout = '120s'")
        transaction.run_text("SET LOCAL statement_timeout = 0")
        transaction.run_text("SET LOCAL idle_in_transaction_session_timeout = 0")
        transaction.run_text("SET LOCAL client_min_messages = warning")
        transaction.run_text(f"SELECT pg_advisory_xact_lock({SCHEMA_LOCK})")

    def schema_text(self, text: str) -> str:
        """Return the text unchanged."""
        return text

    def notify(self, transaction: Transaction) -> None:
        """Send a notification, which PostgreSQL delivers after the commit."""
        transaction.run_text(f"NOTIFY {CHANNEL}")

    def wait_for_commit(self, timeout_s: float) -> bool:
        """Wait on a separate connection; return true after a reconnect, which may miss events."""
        with self._listening:
            if self._listener is None:
                listener = self._connect()
                listener.execute(f"LISTEN {CHANNEL}".encode())
                if self._closed:
                    listener.close()
                else:
                    self._listener = listener
                return True
            try:
                return any(True for _ in self._listener.notifies(timeout=timeout_s, stop_after=1))
            except psycopg.Error as error:
                self._listener.close()
                self._listener = None
                raise self._meaning(error) from error

    def check_file(self) -> None:
        """Do nothing, because the server manages its own files."""

    def examine(self) -> DatabaseFacts:
        """Query the database's settings."""
        with self.reading() as transaction:
            clock_ms, is_replica = transaction.rows("database_facts")[0]
            unsafe = transaction.rows("database_unsafe")
        return DatabaseFacts(
            int(clock_ms),
            tuple(f"{name} is {setting}" for name, setting in unsafe),
            is_replica=bool(is_replica),
            free_bytes=None,
        )

    def _check_sessions(self) -> None:
        """Refuse a pooler in transaction mode, where clients and sessions do not correspond.

        Raises:
            StorePooled: the connection uses a pooler in transaction mode.
        """
        seen = "SELECT current_setting('forewarn.session', true)"
        try:
            with self._connect() as mine, self._connect() as other:
                mine.execute(b"SELECT set_config('forewarn.session', 'mine', false)")
                with other.transaction():  # this transaction occupies the pooler's connection
                    shared = other.execute(seen.encode()).fetchone() == ("mine",)
                    lost = mine.execute(seen.encode()).fetchone() != ("mine",)
        except psycopg.Error as error:
            raise self._meaning(error) from error
        if shared or lost:
            raise StorePooled(place=self.place, reason="sessions share connections")

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._keep_readers(0)
        with self._listening:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
        self._writer.close()
        self._leasing.close()

    def _keep_readers(self, count: int) -> None:
        with suppress(IndexError):  # another thread may have closed the connection
            while len(self._idle) > count:
                self._idle.pop().close()

    def _reader(self) -> psycopg.Connection:
        with suppress(IndexError):  # another thread may have closed the connection
            while True:
                reader = self._idle.pop()
                if not _is_stale(reader):
                    return reader
                reader.close()
        return self._connect()

    def _connect(self) -> psycopg.Connection:
        if self._closed:  # a thread that began late must not wait in the database
            raise StoreUnavailable(place=self.place, reason="this process has closed the store")
        try:
            connection = psycopg.connect(
                self._settings, autocommit=True, prepare_threshold=PREPARE_THRESHOLD
            )
            connection.execute(_SESSION_SETTINGS.encode(), prepare=False)
        except (psycopg.Error, UnicodeError) as error:
            raise StoreUnavailable(place=self.place, reason=_sentence(error)) from error
        # Use one type for all integers, because each size would need its own prepared statement.
        connection.adapters.register_dumper(int, Int8Dumper)
        return connection

    @contextmanager
    def _transaction(self, connection: psycopg.Connection, begin: str) -> Iterator[Transaction]:
        committing = False
        try:
            with connection.pipeline():
                pipelined = _Pipelined(connection)
                pipelined.execute(begin)
                yield Transaction(pipelined, self.statements)
                committing = True
                pipelined.execute("COMMIT")
        except BaseException as error:
            lost = connection.closed
            if not lost:
                try:
                    connection.execute(b"ROLLBACK")
                except psycopg.Error:
                    connection.close()
            if not isinstance(error, psycopg.Error | UnicodeError):
                raise
            if lost and committing and begin != _BEGIN_READING:
                raise StoreUncertain(place=self.place, reason=_sentence(error)) from error
            if isinstance(error, psycopg.errors.LockNotAvailable):
                self.end_silent_sessions()  # the next attempt uses another connection
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> ForewarnError:
        """Return the Forewarn error for an error of the database."""
        state = getattr(error, "sqlstate", None) or ""
        kind: type[ForewarnError] = StoreContradiction
        if isinstance(error, psycopg.OperationalError) and not state:
            kind = StoreUnavailable
        for prefix, meant in _KINDS.items():
            if state.startswith(prefix):
                kind = meant
                break
        return kind(place=self.place, reason=_sentence(error))


#: Prefix of an SQLSTATE -> our error; longer prefixes come first.
_KINDS: dict[str, type[ForewarnError]] = {
    "53100": StoreFull,  # disk full
    "25006": StoreFull,  # read-only transaction: a standby, or an operator's choice
    "08": StoreUnavailable,  # connection
    "40": StoreUnavailable,  # deadlock, serialization
    "53": StoreUnavailable,  # memory, connections
    "55": StoreUnavailable,  # lock not available
    "57": StoreUnavailable,  # cancelled, shut down, starting up
    "58": StoreUnavailable,  # input and output
    "26000": StorePooled,  # the statement was prepared on another connection
    "42P05": StorePooled,  # another client has prepared the statement on this connection
    "25P03": StoreUnavailable,  # idle in transaction for too long
    "28": StoreUnavailable,  # authentication
    "42501": StoreUnavailable,  # insufficient privilege
    "XX001": StoreDamaged,
    "XX002": StoreDamaged,
}


def _sentence(error: Exception) -> str:
    """Return the first line of an error, without details for programmers."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"PostgreSQL says: {redacted(first.rstrip('.'))}"


def _is_stale(connection: psycopg.Connection) -> bool:
    """Return whether an idle connection is lost; only a lost idle connection is readable."""
    if connection.closed:
        return True
    with selectors.DefaultSelector() as selector:  # select() supports no descriptor above 1023
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))
