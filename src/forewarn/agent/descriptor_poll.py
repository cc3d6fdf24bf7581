"""Wait for descriptors with `poll`, or with `select` where `poll` is missing.

`selectors` would cost the agent more memory.
"""

from __future__ import annotations

import select


class DescriptorPoll:
    """A set of descriptors for a single wait."""

    def __init__(self) -> None:
        self._read: list[int] = []
        self._write: list[int] = []

    def watch(self, fd: int, *, write: bool = False) -> None:
        """Add a descriptor that must become readable, or with `write` writable."""
        (self._write if write else self._read).append(fd)

    def wait(self, timeout_s: float) -> set[int]:
        """Return the ready descriptors; an empty set after the timeout."""
        if not hasattr(select, "poll"):
            read, write, odd = select.select(self._read, self._write, self._write, timeout_s)
            return {*read, *write, *odd}
        poll = select.poll()
        for fd in self._read:
            poll.register(fd, select.POLLIN)
        for fd in self._write:
            poll.register(fd, select.POLLOUT)
        return {fd for fd, _ in poll.poll(timeout_s * 1000 + 0.5)}
