"""Access to a store in parallel to its writer, for records outside of commits."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn_store.addresses import StoreLocation, location_of
from forewarn_store.engine import Engine, Row, Transaction, Value
from forewarn_store.migrations import migrate


class ConcurrentRecords:
    """Runs statements on a store that another process or thread may write at the same time.

    The first use opens connections. Every thread may use the object.
    """

    def __init__(self, address: str) -> None:
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._location = location_of(address)

    def shared_address(self) -> str:
        """Return an address at which another process opens the same records, with any password.

        For a store in memory, the records are in a temporary file, deleted with this object.
        """
        location = self._shared_location()
        return location.server or str(location.path)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Write in one transaction.

        Raises:
            StoreUnavailable, StoreFull, StoreUncertain: the transaction failed, or its result is
                unknown.
        """
        with self._open().writing() as transaction:
            yield transaction

    def rows(self, statement: str, **values: Value) -> list[Row]:
        """Return the rows of a read-only statement."""
        with self._open().reading() as transaction:
            return transaction.rows(statement, **values)

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self._lock:
            if self._engine is not None:
                self._engine = None
                self._closing()

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._shared_location().open_beside()
                self._closing = weakref.finalize(self, self._engine.close)
            return self._engine

    def _shared_location(self) -> StoreLocation:
        """Return the location of the records, which for a store in memory is a new file."""
        with self._lock:
            if self._location.in_memory:
                directory = Path(tempfile.mkdtemp("", "forewarn-"))
                weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
                self._location = _new_store(directory)
            return self._location


def _new_store(directory: Path) -> StoreLocation:
    """Create an empty store in a directory; return its location."""
    location = StoreLocation(directory / "store.db")
    engine = location.open(must_exist=False)
    migrate(engine)
    engine.close()
    return location
