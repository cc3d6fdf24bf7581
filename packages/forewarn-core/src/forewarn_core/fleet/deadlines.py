"""Stores deadlines by key; returns the next deadline and the due keys."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", int, str, tuple[int, str])

#: Outdated heap entries allowed beyond twice the deadlines, so that a small heap is not rebuilt
#: often.
SLACK = 64


class Deadlines(Generic[K]):
    """Deadlines by key. A query costs O(due deadlines), and a change O(log n).

    Queries clean up the heap. A poll postpones its group's deadline, which costs nothing until the
    old time is reached.
    """

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        #: At least one heap entry per key that is not due, at or before its deadline.
        self._heap: list[tuple[int, K]] = []
        #: Keys that are due and not handled yet.
        self._due: dict[K, None] = {}
        #: Keys with a deadline that has passed and was handled.
        self._passed: set[K] = set()
        self._passed_ms = 0

    def put(self, key: K, at_ms: int) -> None:
        """Set or replace a deadline, in ms since the epoch UTC."""
        known_ms = self._at.get(key)
        self._at[key] = at_ms
        is_due = key in self._due or key in self._passed
        if known_ms is not None and at_ms >= known_ms and not (is_due and at_ms != known_ms):
            return
        self._due.pop(key, None)
        self._passed.discard(key)
        heappush(self._heap, (at_ms, key))
        self._shrink()

    def drop(self, key: K) -> None:
        """Forget a deadline, if there is one."""
        if self._at.pop(key, None) is not None:
            self._due.pop(key, None)
            self._passed.discard(key)
            self._shrink()

    def noted(self, key: K) -> tuple[int | None, bool]:
        """Return a key's deadline or None, and whether the deadline has passed."""
        return self._at.get(key), key in self._passed

    def restore(self, key: K, at_ms: int | None, passed: bool) -> None:  # noqa: FBT001
        """Restore a deadline that `noted` returned."""
        if at_ms is None:
            self.drop(key)
            return
        self.put(key, at_ms)
        if passed:
            self._passed.add(key)

    def next_ms(self, after_ms: int) -> int | None:
        """Return the earliest deadline after a time, ms since the epoch UTC; None if there is none.

        Deadlines handled by `passed` count again if the clock goes back before them.
        """
        self._surface(after_ms)
        if not self._due:
            return self._heap[0][0] if self._heap else None
        later = [self._at[key] for key in self._due if self._at[key] > after_ms]
        if self._heap:
            later.append(self._heap[0][0])
        return min(later, default=None)

    def due(self, now_ms: int) -> list[K]:
        """Return the due keys not yet handled by `passed`, sorted."""
        self._surface(now_ms)
        return sorted(key for key in self._due if self._at[key] <= now_ms)

    def passed(self, now_ms: int) -> None:
        """Mark every deadline up to a time as handled."""
        for key in self.due(now_ms):
            del self._due[key]
            self._passed.add(key)
        if now_ms < self._passed_ms:  # the clock was set back: later deadlines become due again
            for key in [key for key in self._passed if self._at[key] > now_ms]:
                self._passed.discard(key)
                heappush(self._heap, (self._at[key], key))
        self._passed_ms = now_ms

    def _surface(self, until_ms: int) -> None:
        """Move due keys off the heap, and drop outdated entries from its top."""
        heap = self._heap
        while heap:
            entry_ms, key = heap[0]
            at_ms = self._at.get(key)
            if at_ms is None or key in self._due or key in self._passed:
                heappop(heap)
            elif at_ms > entry_ms:
                heapreplace(heap, (at_ms, key))
            elif entry_ms <= until_ms:
                self._due[key] = None
            else:
                break

    def _shrink(self) -> None:
        if len(self._heap) > 2 * len(self._at) + SLACK:
            self._heap = [(at_ms, key) for key, at_ms in self._at.items()]
            heapify(self._heap)
