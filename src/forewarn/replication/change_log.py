"""The feed's latest changes, for nodes that are behind or reconnect; bounded in bytes."""

from __future__ import annotations

from typing import NamedTuple

KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of changes that are always stored: some thousand changes, minutes of a busy fleet."""

BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes stored for a node that is behind; a slower node receives the whole feed again."""

SCOPED_SHARE = 64
"""Fraction of both limits for a node with few hosts, which has a small feed."""


class LoggedChange(NamedTuple):
    """A change as encoded lines."""

    sequence: int
    lines: tuple[bytes, ...]
    checksum: int
    """Checksum of the feed including this change."""
    size: int


class ChangeLog:
    """Changes by position; a position is the unique place before a change."""

    def __init__(self, *, share: int = 1) -> None:
        """`share` is the fraction of the unrestricted feed's limits."""
        self._share = share
        self.next = 0
        """The position after the last change."""
        self.sequence = 0
        self.checksum = 0
        """Checksum of the feed after the last change."""
        self._first = 0
        self._before = (0, 0)
        """Sequence and checksum before the first stored change."""
        self._changes: dict[int, LoggedChange] = {}
        self._bytes = 0

    def reset(self, sequence: int) -> None:
        """Drop all changes, so that every node requires the whole feed."""
        self._changes.clear()
        self._bytes = 0
        self.next += 1
        self._first = self.next
        self.sequence, self.checksum = self._before = sequence, 0

    def append(self, sequence: int, lines: tuple[bytes, ...], checksum: int) -> None:
        """Add a change."""
        size = sum(map(len, lines))
        self._changes[self.next] = LoggedChange(sequence, lines, checksum, size)
        self._bytes += size
        self.next += 1
        self.sequence, self.checksum = sequence, checksum

    def trim(self, slowest: int) -> None:
        """Drop old changes; changes that the slowest node requires stay up to the maximum."""
        size = self._bytes * self._share
        while size > BEHIND_BYTES_MAX or (size > KEPT_BYTES and self._first < slowest):
            dropped = self._changes.pop(self._first)
            self._before = dropped.sequence, dropped.checksum
            self._bytes -= dropped.size
            self._first += 1
            size = self._bytes * self._share

    def holds(self, position: int) -> bool:
        """Return whether all changes after a position are stored."""
        return position >= self._first

    def at(self, position: int) -> LoggedChange | None:
        """Return the change after a position; None at the end of the log."""
        return self._changes.get(position)

    def position_of(self, sequence: int, checksum: int) -> int | None:
        """Return the position of a node by its last change; None if it requires the whole feed.

        Cost: O(stored changes), once for each connection.
        """
        if (sequence, checksum) == self._before:
            return self._first
        for position, change in self._changes.items():
            if (change.sequence, change.checksum) == (sequence, checksum):
                return position + 1
        return None
