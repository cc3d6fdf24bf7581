"""Signals: what the agent was asked to do, kept until its loop has looked.

They outlive a reload, so that no signal is lost between two configurations. Nothing is done in a
handler but to note it.
"""

from __future__ import annotations

import signal
import socket


class StopRequest:
    """A request to stop from another thread, which wakes the loop."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.stopping = False
        self.renewing = False
        """Whether to start over; who does so takes it back first."""
        self._wake: tuple[socket.socket, socket.socket] | None = None

    def listen(self) -> None:
        """Open what wakes the loop; without effect where that is done already."""
        if self._wake is None:
            self._wake = socket.socketpair()
            for end in self._wake:
                end.settimeout(0.0)
            self._catch(self._wake[1].fileno())

    def stop(self) -> None:
        """Ask the loop to end; from any thread."""
        self.stopping = True
        if self._wake is not None:
            self._wake[1].send(b"\0")

    def descriptors(self) -> tuple[int, ...]:
        """Return what can be read when something was asked."""
        return () if self._wake is None else (self._wake[0].fileno(),)

    def drain(self, ready: set[int]) -> None:
        """Read away what woke the loop."""
        if self._wake is not None and self._wake[0].fileno() in ready:
            self._wake[0].recv(64)

    def close(self) -> None:
        """Stop handling the signals."""
        if self._wake is not None:
            for end in self._wake:
                end.close()
            self._wake = None

    def _catch(self, fd: int) -> None:
        """Catch no signal: they are the application's."""


class Signals(StopRequest):
    """SIGTERM and SIGINT, which end the agent, and SIGHUP, which has it start over."""

    def close(self) -> None:
        """Stop handling the signals."""
        if self._wake is not None:
            signal.set_wakeup_fd(-1)
        super().close()

    def _catch(self, fd: int) -> None:
        signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._renew)

    def _stop(self, number: int, frame: object) -> None:  # noqa: ARG002  what a handler is given
        self.stopping = True

    def _renew(self, number: int, frame: object) -> None:  # noqa: ARG002  the same
        self.renewing = True
