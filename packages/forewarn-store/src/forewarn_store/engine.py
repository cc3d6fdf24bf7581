"""The interface between the store's SQL and its database engines."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from forewarn_base.values import value

Value: TypeAlias = str | int
Row: TypeAlias = tuple[Value, ...]


class Cursor(Protocol):
    """The result of a statement."""

    def fetchall(self) -> list[Row]:
        """Return all rows."""

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows one by one."""


class DatabaseConnection(Protocol):
    """The methods of a database connection that a transaction needs."""

    def execute(self, text: str, values: Sequence[Value] = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, text: str, rows: Iterable[Sequence[Value]], /) -> object:
        """Run a statement for each row."""


class Transaction:
    """Statements that take effect together or have no effect; valid within its `with` block."""

    __slots__ = ("_connection", "_statements")

    def __init__(self, connection: DatabaseConnection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    def run(self, name: str, /, **values: Value) -> None:
        """Run a named statement."""
        statement = self._statements.named(name)
        self._connection.execute(statement.text, [values[each] for each in statement.names])

    def run_many(self, name: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a named statement for each row of values, which are in the statement's order."""
        text = self._statements.named(name).text
        if len(rows) == 1:
            self._connection.execute(text, rows[0])
        else:
            self._connection.executemany(text, rows)

    def run_text(self, text: str) -> None:
        """Run an unchanged statement without values, for schema steps and engines."""
        self._connection.execute(text)

    def insert(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Insert complete rows into a table; the values are in the order of the columns."""
        text = self._statements.insertion(table, len(rows[0]))
        self._connection.executemany(text, rows)

    def rows(self, name: str, /, **values: Value) -> list[Row]:
        """Run a named statement and return all its rows."""
        return self.rows_filled(name, {}, **values)

    def run_filled(self, name: str, /, **fills: str) -> None:
        """Run a named statement without values; fixed texts replace its `{…}`."""
        self._connection.execute(self._statements.named(name, **fills).text)

    def each(self, name: str, /, **fills: str) -> Iterator[Row]:
        """Run a named statement without values; yield its rows one by one."""
        statement = self._statements.named(name, **fills)
        yield from self._connection.execute(statement.text)

    def rows_filled(self, name: str, fills: dict[str, str], /, **values: Value) -> list[Row]:
        """Run a named statement; fixed texts replace its `{…}`; return all rows."""
        statement = self._statements.named(name, **fills)
        wanted = [values[each] for each in statement.names]
        return self._connection.execute(statement.text, wanted).fetchall()


@value
class Statement:
    """One statement in the syntax of an engine, with the order of its values."""

    text: str
    names: tuple[str, ...]


class Statements:
    """All named statements, compiled for one engine."""

    def __init__(self, texts: Mapping[str, str], mark: str) -> None:
        """Compile the statements by name; `mark` is the placeholder of a parameter, `?` or `%s`."""
        self._texts = texts
        self._mark = mark
        self._compiled: dict[str, Statement] = {}

    def named(self, name: str, /, **fills: str) -> Statement:
        """Return a statement; `fills` are fixed texts for its `{…}`, never values."""
        key = name + "".join(fills.values()) if fills else name
        statement = self._compiled.get(key)
        if statement is None:
            text = self._texts[name]
            for place, fill in fills.items():
                text = text.replace("{" + place + "}", fill)
            statement = self._compiled[key] = _compile(text, self._mark)
        return statement

    def insertion(self, table: str, columns: int) -> str:
        """Return the text that inserts a whole row into a table."""
        return f"INSERT INTO {table} VALUES ({', '.join([self._mark] * columns)})"  # noqa: S608 - a name


@value
class DatabaseFacts:
    """Facts about a database, for `forewarn doctor`."""

    #: Time of the database's clock, in ms since the epoch UTC; None without a clock.
    clock_ms: int | None
    #: Settings or file systems that may lose a committed change; may be empty.
    unsafe: tuple[str, ...]
    #: Whether the database is a read-only replica.
    is_replica: bool
    #: Free space of the database's disk, in bytes; None: unknown.
    free_bytes: int | None


class Engine(abc.ABC):
    """One open database; usable from several threads.

    The engine converts errors of the database into errors of `store/errors.py`.
    """

    #: Whether other processes may use the database at the same time.
    is_shared = False
    #: SQL expression for the database's time, ms since the epoch UTC; only for shared databases.
    now_ms = "0"
    #: Path of the file for a process's last commit beside a file database; empty: none.
    commit_file = ""

    def __init__(self, place: str, statements: Statements) -> None:
        """Set the database's name for messages, without a password, and its statements."""
        self.place = place
        self.statements = statements

    @abc.abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that may write; commit at the end, or roll back after an exception.

        Raises:
            StoreUncertain: the connection was lost during COMMIT.
            StoreUnavailable, StoreFull, StoreDamaged, StoreContradiction: nothing was changed.
        """

    @abc.abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin a read-only transaction, which reads one consistent state."""

    def rows(self, name: str, /, **values: Value) -> list[Row]:
        """Return the rows of a named statement, in its own reading transaction."""
        with self.reading() as transaction:
            return transaction.rows(name, **values)

    def lease_reading(self) -> AbstractContextManager[Transaction]:
        """Begin a read-only transaction that does not wait for other work of this process."""
        return self.reading()

    def lease_writing(self) -> AbstractContextManager[Transaction]:
        """Begin a writing transaction that does not wait for other work of this process."""
        return self.writing()

    @abc.abstractmethod
    def end_silent_sessions(self) -> None:
        """End idle sessions that hold the lock of the writer's or the lease's row."""

    def check_table(self, name: str) -> None:  # noqa: B027 - servers check their own pages
        """Check the pages of a table and its indexes, in parallel to the writer.

        Cost: O(size of the table).

        Raises:
            StoreDamaged: the check failed.
        """

    def return_space(self) -> bool:
        """Return some free space to the disk; return whether there is more to return.

        A server returns space on its own.
        """
        return False

    @property
    def expects_store(self) -> bool:
        """Whether there was a store before, so that an empty database is not a new store."""
        return False

    def note_store(self) -> None:  # noqa: B027 - most databases need no note
        """Record that the database contains a store."""

    def forget_readers(self) -> None:  # noqa: B027 - most databases are one
        """Open new connections for later reads, because another database may have answered."""

    @abc.abstractmethod
    def portions(self, transaction: Transaction, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, some thousands at a time."""

    @abc.abstractmethod
    def lock_schema(self, transaction: Transaction) -> None:
        """Prevent other processes from changing the schema until the transaction ends."""

    @abc.abstractmethod
    def schema_text(self, text: str) -> str:
        """Return the text of a schema step in the syntax of this database."""

    @abc.abstractmethod
    def notify(self, transaction: Transaction) -> None:
        """Notify processes that wait in `wait_for_commit`, once the transaction is committed."""

    @abc.abstractmethod
    def wait_for_commit(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for a notification; return whether it arrived."""

    @abc.abstractmethod
    def examine(self) -> DatabaseFacts:
        """Return facts about the database. Source: U-4.

        Raises:
            StoreUnavailable: the database does not answer.
        """

    @abc.abstractmethod
    def check_file(self) -> None:
        """Check that the file of a file database is still in its place.

        Raises:
            StoreReplaced: the file was removed or replaced.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the database; the engine cannot be used afterwards."""


def _compile(text: str, mark: str) -> Statement:
    names = tuple(re.findall(r":([a-z_]+)", text))
    return Statement(re.sub(r":[a-z_]+", mark, text), names)
