"""Waiting for descriptors with what the system has: `poll`, else `select`; nothing else.

`selectors` would cost the agent more than it needs of it.
"""

from __future__ import annotations

import select


class DescriptorPoll:
    """Descriptors to wait for, once."""

    def __init__(self) -> None:
        """Wait for none yet."""
        self._read: list[int] = []
        self._write: list[int] = []

    def watch(self, fd: int, *, write: bool = False) -> None:
        """Wait until the descriptor can be read, or written."""
        (self._write if write else self._read).append(fd)

    def wait(self, timeout_s: float) -> set[int]:
        """Return the descriptors that can go on, none when the time is up."""
        if not hasattr(select, "poll"):
            read, write, odd = select.select(self._read, self._write, self._write, timeout_s)
            return {*read, *write, *odd}
        poll = select.poll()
        for fd in self._read:
            poll.register(fd, select.POLLIN)
        for fd in self._write:
            poll.register(fd, select.POLLOUT)
        return {fd for fd, _ in poll.poll(timeout_s * 1000 + 0.5)}
