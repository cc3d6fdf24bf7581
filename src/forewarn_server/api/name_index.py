"""Sorted names of large fleets, returned in pages.

Sorting a million names at once would block all other threads for a third of a second. Therefore the
index sorts parts, and merges the parts as far as a page requires.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from forewarn_base.validation.complexity import checkpoint
from forewarn_core.fleet.topology import Topology

#: Number of names in a part; sorting a part takes about two milliseconds.
PORTION = 8192


class NameIndex:
    """The names of some records, sorted; O(names) once, O(a page) later."""

    def __init__(self, names: Iterable[str]) -> None:
        self._portions: list[list[str]] = []
        rest = iter(names)
        while portion := list(islice(rest, PORTION)):
            checkpoint()
            portion.sort()
            self._portions.append(portion)

    def after(self, name: str) -> Iterator[str]:
        """Yield the names after `after`, in order."""
        rest = (islice(each, bisect_right(each, name), None) for each in self._portions)
        return heapq.merge(*rest)


class FleetIndex:
    """The sorted names of the latest fleet, rebuilt when the fleet has changed."""

    def __init__(self) -> None:
        self._known: tuple[Topology, dict[str, NameIndex]] | None = None

    def of(self, topology: Topology, kind: str) -> NameIndex:
        """Return the names of `hosts`, `groups` or `vms`; may be called on any thread."""
        indexes = self._known
        if indexes is None or indexes[0] is not topology:
            indexes = self._known = (topology, {})
        if kind not in indexes[1]:
            indexes[1][kind] = NameIndex(getattr(topology, kind))
        return indexes[1][kind]
