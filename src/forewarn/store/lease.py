"""Who may become the writer of a shared store, judged by each process's own clock.

The lease only chooses: the store's generation keeps two processes from both writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.ids import Ids
from forewarn.values import value

if TYPE_CHECKING:
    from typing import Protocol

    class LeaseStore(Protocol):
        """Where the lease is kept: the store."""

        def lease(self) -> Lease:
            """Return who holds the lease."""

        def move_lease(self, seen: Lease, holder: str) -> Lease | None:
            """Give the lease to `holder` if it is still as it was seen; else return None."""


@value
class Lease:
    """The current lease; its holder renews it to show that it is alive."""

    #: Token of the process that holds it; empty: not held.
    holder: str
    #: Grows with every renewal and every change of hands.
    beat: int
    #: URL of its operator API; empty: not known.
    url: str = ""


class Tenure:
    """One process's part in the contest for the lease.

    No two clocks are compared. A holder counts its term from before it asked for the renewal, a
    rival from after it saw the last beat, so the rival's term ends later even where their clocks
    show different times. Source: N-4.
    """

    def __init__(self, store: LeaseStore, term_ms: int) -> None:
        """Take part for the process that opened `store`; a lease lasts `term_ms` milliseconds."""
        assert term_ms > 0, term_ms
        self.term_ms = term_ms
        self._store = store
        self.token = Ids().token("tenure")
        self._seen: Lease | None = None
        self._seen_ms = 0
        self._until_ms = 0

    @property
    def holder_url(self) -> str:
        """URL of the operator API of the process seen last with the lease; empty: none."""
        return self._seen.url if self._seen is not None and self._seen.holder else ""

    @property
    def holder(self) -> str:
        """Token of that process: a secret of those who reach the store."""
        return self._seen.holder if self._seen is not None else ""

    def held(self, now_ms: int) -> bool:
        """Whether no other process can have taken the lease yet."""
        return now_ms < self._until_ms

    def attempt(self, now_ms: int) -> bool:
        """Renew the lease, or take it if it is free or was not renewed for a whole term.

        Call it a few times a term; return whether this process holds the lease.

        Raises:
            StoreUnavailable: it could not be renewed; a `held` lease stays so until its term ends.
        """
        seen = self._store.lease()
        if seen != self._seen:
            self._seen, self._seen_ms = seen, now_ms
        silent = now_ms - self._seen_ms >= self.term_ms
        if seen.holder not in {"", self.token} and not silent:
            self._until_ms = 0
            return False
        mine = self._store.move_lease(seen, self.token)
        if mine is None:  # another process was quicker
            self._until_ms = 0
            return False
        self._seen, self._seen_ms = mine, now_ms
        self._until_ms = now_ms + self.term_ms
        return True

    def release(self) -> None:
        """Give the lease up, so that another process need not wait for the end of its term."""
        self._until_ms = 0
        if self._seen is not None and self._seen.holder == self.token:
            self._store.move_lease(self._seen, "")
