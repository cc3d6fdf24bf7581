"""The lease: decides which process may become the writer of a shared store.

Each process measures the lease's term by its own clock. The store's generation always prevents two
writers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from forewarn_base.ids import Ids
from forewarn_base.values import value


class LeaseStore(Protocol):
    """The store, with the methods for the lease."""

    @property
    def place(self) -> str:
        """Name of the store for messages."""

    def lease(self) -> Lease:
        """Return the current lease."""

    def move_lease(self, seen: Lease, holder: str, url: str = "") -> Lease | None:
        """Move the lease to `holder` if it equals `seen`; otherwise return None."""


@value
class Lease:
    """One state of the lease; its holder renews it to show that it is alive."""

    #: Token of the holder; empty: the lease is free.
    holder: str
    #: Number that grows with every renewal and every new holder.
    beat: int
    #: URL of the holder's operator API; empty: unknown.
    url: str = ""


class Tenure:
    """One process's side of the competition for the lease.

    Processes never compare clocks. The holder measures its term from before its request to renew. A
    rival measures the term from after it has read the last renewal. The rival's term therefore ends
    later, even if the clocks differ. Source: N-4.
    """

    def __init__(self, store: LeaseStore, term_ms: int, url: Callable[[], str] = str) -> None:
        """Compete for the process that opened `store`; a term lasts `term_ms` milliseconds.

        `url` returns the URL of the process's operator API for others; empty: not known yet.
        """
        assert term_ms > 0, term_ms
        self.term_ms = term_ms
        self._store = store
        self._url = url
        self.token = Ids().token("tenure")
        self._seen: Lease | None = None
        self._seen_ms = 0
        self._until_ms = 0

    @property
    def place(self) -> str:
        """Name of the store for messages."""
        return self._store.place

    @property
    def holder_url(self) -> str:
        """URL of the last known holder's operator API; may be empty."""
        return self._seen.url if self._seen is not None and self._seen.holder else ""

    @property
    def holder(self) -> str:
        """Token of the last known holder, a secret of processes with access to the store."""
        return self._seen.holder if self._seen is not None else ""

    def held(self, now_ms: int) -> bool:
        """Return whether no other process can have taken the lease yet."""
        return now_ms < self._until_ms

    def left_ms(self, now_ms: int) -> int:
        """Return for how long no other process can take the lease, in ms."""
        return max(self._until_ms - now_ms, 0)

    def attempt(self, now_ms: int, clock_ms: Callable[[], int] | None = None) -> bool:
        """Renew the lease, or acquire a lease that is free or expired.

        Call this method a few times per term. The result is whether this process holds the lease.

        Args:
            now_ms: the time at the call.
            clock_ms: returns the time after the lease was read, if the read may take long: the
                holder may renew the lease meanwhile.

        Raises:
            StoreUnavailable: the lease could not be renewed; a held lease stays held until its term
            ends.
        """
        seen = self._store.lease()
        if seen != self._seen:
            self._seen, self._seen_ms = seen, clock_ms() if clock_ms else now_ms
        silent = now_ms - self._seen_ms >= self.term_ms
        if seen.holder not in {"", self.token} and not silent:
            self._until_ms = 0
            return False
        mine = self._store.move_lease(seen, self.token, self._url())
        if mine is None:  # another process acquired the lease first
            self._until_ms = 0
            return False
        self._seen, self._seen_ms = mine, now_ms
        self._until_ms = now_ms + self.term_ms
        return True

    def release(self) -> None:
        """Release the lease, so that another process need not wait for the end of the term."""
        self._until_ms = 0
        if self._seen is not None and self._seen.holder == self.token:
            self._store.move_lease(self._seen, "", self._url())
