"""Access to a store in parallel to its writer, for records outside of commits."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.store.addresses import engine_of
from forewarn.store.engine import Engine, Row, Transaction, Value
from forewarn.store.migrations import migrate
from forewarn.store.sqlite import SqliteEngine


class ConcurrentRecords:
    """Runs statements on a store that another process or thread may write at the same time.

    The first use opens connections. Every thread may use the object.
    """

    def __init__(self, address: str) -> None:
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        #: Empty for a store in memory, until the first use creates a file for the records.
        self._address = "" if address in {":memory:", "sqlite::memory:"} else address

    @property
    def address(self) -> str:
        """Address at which another process opens the same records; may contain a password.

        For a store in memory, the records are in a temporary file, deleted with this object.
        """
        with self._lock:
            if not self._address:
                directory = Path(tempfile.mkdtemp("", "forewarn-"))
                weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
                self._address = _new_store(directory)
            return self._address

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
                opener = engine_of(self.address)
                of_file = getattr(opener, "func", None) is SqliteEngine
                self._engine = opener(must_exist=True, **({"beside": True} if of_file else {}))
                self._closing = weakref.finalize(self, self._engine.close)
            return self._engine


def _new_store(directory: Path) -> str:
    """Create an empty store in a directory; return its address."""
    address = str(directory / "store.db")
    engine = engine_of(address)(must_exist=False)
    migrate(engine)
    engine.close()
    return address
