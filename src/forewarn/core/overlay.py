"""A mapping over another one: reads go through, writes stay here; how a draft leaves the state be.

Nothing that knows what is mapped may go in here.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V], Generic[K, V]):
    """A mapping that begins as another one is; costs what is written, not what is below."""

    __slots__ = ("_below", "_gone", "_written")

    def __init__(self, below: MutableMapping[K, V]) -> None:
        """Change nothing yet."""
        self._below = below
        self._written: dict[K, V] = {}
        self._gone: set[K] = set()

    def __getitem__(self, key: K) -> V:
        """Return what is written here, else what is below."""
        if key in self._written:
            return self._written[key]
        if key in self._gone:
            raise KeyError(key)
        return self._below[key]

    def __setitem__(self, key: K, record: V) -> None:
        """Write here."""
        self._written[key] = record

    def __delitem__(self, key: K) -> None:
        """Take a key out here."""
        if key not in self:
            raise KeyError(key)
        self._written.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        """Whether a key is here or below."""
        return key in self._written or (key not in self._gone and key in self._below)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in the order that one mapping written in place would have."""
        yield from (key for key in self._below if key not in self._gone)
        yield from (key for key in self._written if key in self._gone or key not in self._below)

    def __len__(self) -> int:
        """How many keys there are; costs what is written."""
        below = sum(1 for key in self._gone if key in self._below)
        new = sum(1 for key in self._written if key in self._gone or key not in self._below)
        return len(self._below) - below + new
