"""The real store over a real SQLite database in memory, with a disk that has bad days.

What is durable is reported to the checker at the moment it becomes so. No SQL may live here.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from forewarn_base.errors import PeerError
from forewarn_core.fleet.records import Record
from forewarn_core.fleet.state import Changes, State
from forewarn_store import Store
from forewarn_store.engine import Row, Transaction
from forewarn_store.errors import StoreFull, StoreUnavailable, StoreUncertain
from forewarn_store.lease import Lease
from forewarn_store.migrations import migrate
from forewarn_store.sqlite import SqliteEngine
from tests.simulator.world.crash_points import CrashPoint
from tests.simulator.world.dice import Dice

#: A store that refuses to write, one that is full, and one lost just before or after COMMIT.
TROUBLES = ("refused", "full", "lost before", "lost after")


class StoreObserver(Protocol):
    """Who is called with what the store does."""

    def durable(self, changes: Changes) -> None:
        """A change is durable now."""

    def note_trouble(self) -> None:
        """A change could not be made durable, or nobody knows whether it was."""


class DiskFaultRates:
    """How the disk is: what share of writes goes wrong, and how."""

    def __init__(self, dice: Dice) -> None:
        """Begin fine."""
        self._dice = dice
        self.permille = 0
        self.kinds: tuple[str, ...] = TROUBLES
        #: What the next writes meet, whatever the share.
        self.next: list[str] = []
        #: Trouble -> writes that met it by chance.
        self.fault_counts: Counter[str] = Counter()
        #: Troubles until a bad time ends; none is left where it ends on its own.
        self.left = 0

    def draw(self) -> str:
        """The trouble the next write meets; empty for none."""
        if self.next:
            return self.next.pop(0).removeprefix("fine")
        if self.permille and self._dice.chance(self.permille):
            trouble = self._dice.pick(self.kinds)
            self.fault_counts[trouble] += 1
            self.left -= 1
            if not self.left:
                self.permille = 0
            return trouble
        return ""


class Disk(SqliteEngine):
    """SQLite in memory that fails as often as the fault rates say."""

    def __init__(self, rates: DiskFaultRates) -> None:
        """Open an empty database."""
        super().__init__(None, must_exist=False)
        self._rates = rates
        #: Whether the first write since this was set to None happened.
        self.happened: bool | None = None
        #: What rows hold that were read.
        self.records: dict[tuple[str, Row], Record] = {}
        migrate(self)

    def lost_write_happened(self) -> bool:
        """Whether the first write since `happened` was set to None has taken effect."""
        return bool(self.happened)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Begin a transaction that may meet trouble."""
        trouble = self._rates.draw()
        first = self.happened is None
        self.happened = False if first else self.happened
        if trouble == "refused":
            raise StoreUnavailable(place=self.place, reason="it is locked")
        with super().writing() as transaction:
            yield transaction
            if trouble == "full":
                raise StoreFull(place=self.place, reason="the disk is full")
            if trouble == "lost before":
                raise StoreUncertain(place=self.place, reason="the line was cut")
        self.happened = True if first else self.happened
        if trouble == "lost after":
            raise StoreUncertain(place=self.place, reason="the line was cut")


class SimulatedStore(Store):
    """A store that can crash its process, and reports what it has made durable."""

    def __init__(self, disk: Disk, crash_point: CrashPoint, observer: StoreObserver) -> None:
        """Open a disk whose schema is up to date, as every process does again."""
        super().__init__(disk)
        #: Whether its process cannot reach the disk, which others still can.
        self.cut = False
        self._disk = disk
        self._crash_point = crash_point
        self._observer = observer

    def record(self, kind: str, row: Row) -> Record:
        """Return the record a row holds, found out once, however often a process starts."""
        known = self._disk.records.get((kind, row))
        if known is None:
            known = self._disk.records[kind, row] = super().record(kind, row)
        return known

    def load(self, followed: State | None = None) -> State:
        """Load, over a line that may be cut."""
        self._reach()
        return super().load(followed)

    def settle(self) -> Changes | None:
        """Find out what became of a commit, over a line that may be cut."""
        self._reach()
        try:
            return super().settle()
        except PeerError:
            self._observer.note_trouble()
            raise

    def commit(self, changes: Changes) -> int:
        """Commit; the durable change is known outside even where the caller never hears of it."""
        self._crash_point.passes("before commit")
        self._reach()
        self._disk.happened = False
        try:
            self._claim()  # a write of its own
            self._disk.happened = None
            reached = super().commit(changes)
        except PeerError as error:
            if isinstance(error, StoreUncertain) and self._disk.lost_write_happened():
                self._observer.durable(changes)
            self._observer.note_trouble()
            raise
        self._observer.durable(changes)
        self._crash_point.passes("after commit")
        return reached

    def confirm(self) -> None:
        """See that this process is still the writer, over a line that may be cut."""
        self._reach()
        super().confirm()

    def lease(self) -> Lease:
        """Return who holds the lease, over a line that may be cut."""
        self._reach()
        return super().lease()

    def _reach(self) -> None:
        if self.cut:
            self._observer.note_trouble()
            raise StoreUnavailable(place=self.place, reason="there is no way to it")
