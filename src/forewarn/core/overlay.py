"""A mapping over another one: reads go through, writes stay here, so the state is untouched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


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

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V, /) -> V: ...
    @overload
    def get(self, key: K, default: T, /) -> V | T: ...
    def get(self, key: K, default: object = None, /) -> object:
        """Return what is written here, else what is below, else the default."""
        if key in self._written:
            return self._written[key]
        return default if key in self._gone else self._below.get(key, default)

    def setdefault(self, key: K, record: V) -> V:
        """Return what is there, or write it here."""
        known = self.get(key)
        if known is None:
            self._written[key] = known = record
        return known

    def update(self, records: Mapping[K, V], /) -> None:  # type: ignore[override]  # of no pairs
        """Write many here."""
        self._written.update(records)

    def write_into(self, below: MutableMapping[K, V]) -> None:
        """Make all changes in a mapping that is as the one below; costs what is written."""
        for key in self._gone:
            below.pop(key, None)
        below.update(self._written)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in the order that one mapping written in place would have."""
        yield from (key for key in self._below if key not in self._gone)
        yield from (key for key in self._written if key in self._gone or key not in self._below)

    def __len__(self) -> int:
        """How many keys there are; costs what is written."""
        below = sum(1 for key in self._gone if key in self._below)
        new = sum(1 for key in self._written if key in self._gone or key not in self._below)
        return len(self._below) - below + new
