"""What a database must supply: the seam between the store's one text of SQL and its engines."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from forewarn.values import value

Value: TypeAlias = str | int
Row: TypeAlias = tuple[Value, ...]


class Cursor(Protocol):
    """What a statement gave."""

    def fetchall(self) -> list[Row]:
        """Return all its rows."""

    def __iter__(self) -> Iterator[Row]:
        """Yield its rows one after another."""


class DatabaseConnection(Protocol):
    """The part of a database connection a transaction needs."""

    def execute(self, text: str, values: Sequence[Value] = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, text: str, rows: Iterable[Sequence[Value]], /) -> object:
        """Run a statement for each row."""


class Transaction:
    """Statements that take effect together or not; lives as long as its `with` block."""

    __slots__ = ("_connection", "_statements")

    def __init__(self, connection: DatabaseConnection, statements: Statements) -> None:
        """Run on a connection whose transaction has begun."""
        self._connection = connection
        self._statements = statements

    def run(self, name: str, /, **values: Value) -> None:
        """Run a named statement."""
        statement = self._statements.named(name)
        self._connection.execute(statement.text, [values[each] for each in statement.names])

    def run_many(self, name: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a named statement for each row, values in the statement's order."""
        text = self._statements.named(name).text
        if len(rows) == 1:
            self._connection.execute(text, rows[0])
        else:
            self._connection.executemany(text, rows)

    def run_text(self, text: str) -> None:
        """Run a statement without values unchanged: one of the schema or of an engine."""
        self._connection.execute(text)

    def insert(self, table: str, rows: Sequence[Sequence[Value]]) -> None:
        """Add rows that have all the columns of a table, in their order."""
        text = self._statements.insertion(table, len(rows[0]))
        self._connection.executemany(text, rows)

    def rows(self, name: str, /, **values: Value) -> list[Row]:
        """Run a named statement and return all its rows."""
        return self.rows_filled(name, {}, **values)

    def run_filled(self, name: str, /, **fills: str) -> None:
        """Run a named statement that has no values, filled from fixed texts."""
        self._connection.execute(self._statements.named(name, **fills).text)

    def each(self, name: str, /, **fills: str) -> Iterator[Row]:
        """Run a named statement without values; yield its rows one after another."""
        statement = self._statements.named(name, **fills)
        yield from self._connection.execute(statement.text)

    def rows_filled(self, name: str, fills: dict[str, str], /, **values: Value) -> list[Row]:
        """Run a named statement whose `{…}` are filled from fixed texts; return all its rows."""
        statement = self._statements.named(name, **fills)
        wanted = [values[each] for each in statement.names]
        return self._connection.execute(statement.text, wanted).fetchall()


@value
class Statement:
    """One statement as an engine takes it, and the order in which it wants its values."""

    text: str
    names: tuple[str, ...]


class Statements:
    """Every named statement for one engine."""

    def __init__(self, texts: Mapping[str, str], mark: str) -> None:
        """Compile the statements by name; `mark` is the sign of a parameter, `?` or `%s`."""
        self._texts = texts
        self._mark = mark
        self._compiled: dict[str, Statement] = {}

    def named(self, name: str, /, **fills: str) -> Statement:
        """Return a statement; `fills` are fixed texts for its `{…}`, never values."""
        key = name + "".join(fills.values()) if fills else name
        known = self._compiled.get(key)
        if known is None:
            text = self._texts[name]
            for place, fill in fills.items():
                text = text.replace("{" + place + "}", fill)
            known = self._compiled[key] = _compile(text, self._mark)
        return known

    def insertion(self, table: str, columns: int) -> str:
        """Return the text that adds a whole row to a table."""
        return f"INSERT INTO {table} VALUES ({', '.join([self._mark] * columns)})"  # noqa: S608 - a name


@value
class DatabaseFacts:
    """What a database says about itself."""

    #: Its clock, in milliseconds since the epoch UTC; None: it has none of its own.
    clock_ms: int | None
    #: Settings or places that may lose a change after it was acknowledged; empty: none.
    unsafe: tuple[str, ...]
    #: Whether it copies another database, and accepts no changes.
    is_replica: bool
    #: Free space of its disk, in bytes; None: unknown.
    free_bytes: int | None


class Engine(abc.ABC):
    """One open database. Safe to use from several threads.

    Every error of the database leaves here as one of `store/errors.py`.
    """

    #: Whether other processes may use the database at the same time.
    is_shared = False
    #: An expression for the database's time now, ms since the epoch UTC; where it is shared.
    now_ms = "0"

    def __init__(self, place: str, statements: Statements) -> None:
        """Name the database for people, without any password, and take what it will run."""
        self.place = place
        self.statements = statements

    @abc.abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that may write; commit at the end, undo it on any exception.

        Raises:
            StoreUncertain: the connection was lost during COMMIT.
            StoreUnavailable, StoreFull, StoreDamaged, StoreContradiction: nothing was changed.
        """

    @abc.abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that only reads, and sees the same state throughout."""

    def lease_reading(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction as `reading` does, which no other work of this process delays."""
        return self.reading()

    def lease_writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction as `writing` does, which no other work of this process delays."""
        return self.writing()

    @abc.abstractmethod
    def portions(self, transaction: Transaction, table: str) -> Iterator[list[Row]]:
        """Yield every row of a table, some thousands at a time."""

    @abc.abstractmethod
    def lock_schema(self, transaction: Transaction) -> None:
        """Keep every other process from changing the schema until the transaction ends."""

    @abc.abstractmethod
    def schema_text(self, text: str) -> str:
        """Return the text of a schema step as this database reads it."""

    @abc.abstractmethod
    def notify(self, transaction: Transaction) -> None:
        """Notify processes that wait in `notice` once the transaction is committed."""

    @abc.abstractmethod
    def notice(self, timeout_s: float) -> bool:
        """Wait for a notice, at most `timeout_s` seconds; return whether there was one."""

    @abc.abstractmethod
    def examine(self) -> DatabaseFacts:
        """Return what the database says about itself. Source: U-4.

        Raises:
            StoreUnavailable: it does not answer.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the database; afterwards the engine must not be used."""


def _compile(text: str, mark: str) -> Statement:
    names = tuple(re.findall(r":([a-z_]+)", text))
    return Statement(re.sub(r":[a-z_]+", mark, text), names)
