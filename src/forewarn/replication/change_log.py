"""The feed's latest changes, for nodes that are behind or reconnect; bounded in bytes."""

from __future__ import annotations

from typing import NamedTuple

KEPT_BYTES = 4 * 1024 * 1024
"""Minimum stored: some thousand changes, minutes of a busy fleet."""

BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""Maximum stored for a node that is behind; beyond it the node is sent the whole feed again."""

SCOPED_SHARE = 64
"""A node with few hosts has logs of this fraction of both: there are many such nodes, and their
feeds are small."""


class LoggedChange(NamedTuple):
    """A change in the form of its lines."""

    sequence: int
    lines: tuple[bytes, ...]
    checksum: int
    """Checksum of the feed including this change."""
    size: int


class ChangeLog:
    """Changes by position; a position identifies the place before a change and is never reused."""

    def __init__(self, *, share: int = 1) -> None:
        """Start empty: every new node needs the whole feed.

        Args:
            share: store this fraction of what the unrestricted feed stores.
        """
        self._share = share
        self.next = 0
        """The position after the last change."""
        self.sequence = 0
        self.checksum = 0
        """Checksum of the feed up to now."""
        self._first = 0
        self._before = (0, 0)
        """Sequence and checksum before the first stored change."""
        self._changes: dict[int, LoggedChange] = {}
        self._bytes = 0

    def reset(self, sequence: int) -> None:
        """Start over: every node needs the whole feed now."""
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
        """Drop old changes; those that the slowest node still needs only beyond the maximum."""
        size = self._bytes * self._share
        while size > BEHIND_BYTES_MAX or (size > KEPT_BYTES and self._first < slowest):
            dropped = self._changes.pop(self._first)
            self._before = dropped.sequence, dropped.checksum
            self._bytes -= dropped.size
            self._first += 1
            size = self._bytes * self._share

    def holds(self, position: int) -> bool:
        """Whether everything after a position is stored."""
        return position >= self._first

    def at(self, position: int) -> LoggedChange | None:
        """Return the change after a position; None if there is none yet."""
        return self._changes.get(position)

    def position_of(self, sequence: int, checksum: int) -> int | None:
        """Return the position of a node that shows a sequence; None if it needs the whole feed.

        Costs the stored changes; a node asks once for each connection.
        """
        if (sequence, checksum) == self._before:
            return self._first
        for position, change in self._changes.items():
            if (change.sequence, change.checksum) == (sequence, checksum):
                return position + 1
        return None
