"""Takes a database back to an earlier moment, as a lagging replica or a plain copy does."""

from collections.abc import Iterator
from contextlib import contextmanager

from forewarn_store.addresses import location_of
from forewarn_store.engine import Engine, Row
from forewarn_store.migrations import every_table


class Snapshot:
    """All rows of a store at a moment; other processes may have the store open."""

    def __init__(self, address: str) -> None:
        """Read all tables."""
        self._address = address
        with _engine(address) as engine, engine.reading() as transaction:
            self._rows: dict[str, list[Row]] = {
                table: [row for rows in engine.portions(transaction, table) for row in rows]
                for table in every_table()
            }

    def put_back(self) -> bool:
        """Make the store what it was, in one transaction, without raising any number.

        Return whether it had later commits, which are lost.
        """
        with _engine(self._address) as engine, engine.writing() as transaction:
            transaction.rows("settle")  # no writer commits meanwhile
            before = int(transaction.rows("service")[0][0])
            for table in reversed(self._rows):
                transaction.run_filled("copy_emptied", table=table)
            for table, rows in self._rows.items():
                if rows:
                    transaction.insert(table, rows)
            return int(transaction.rows("service")[0][0]) < before


@contextmanager
def _engine(address: str) -> Iterator[Engine]:
    engine = location_of(address).open_beside()
    try:
        yield engine
    finally:
        engine.close()
