"""Signals and stop requests, stored until the agent's loop reads them.

Requests survive a reload, so that no signal is lost between two configurations. A signal handler
only records its signal.
"""

from __future__ import annotations

import signal
import socket


class StopRequest:
    """A stop request from another thread, which wakes the loop."""

    def __init__(self) -> None:
        self.stopping = False
        #: Whether the agent must start again; the runner resets this before doing so.
        self.reloading = False
        self._wake: tuple[socket.socket, socket.socket] | None = None

    def listen(self) -> None:
        """Open the socket pair that wakes the loop, unless already open."""
        if self._wake is None:
            self._wake = socket.socketpair()
            for end in self._wake:
                end.settimeout(0.0)
            self._catch(self._wake[1].fileno())

    def stop(self) -> None:
        """Request the end of the loop; callable from any thread."""
        self.stopping = True
        if self._wake is not None:
            self._wake[1].send(b"\0")

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable after a request."""
        return () if self._wake is None else (self._wake[0].fileno(),)

    def drain(self, ready: set[int]) -> None:
        """Read the bytes that woke the loop."""
        if self._wake is not None and self._wake[0].fileno() in ready:
            self._wake[0].recv(64)

    def close(self) -> None:
        """Stop handling the signals."""
        if self._wake is not None:
            for end in self._wake:
                end.close()
            self._wake = None

    def _catch(self, fd: int) -> None:
        """Catch no signals, because the application handles signals."""


class Signals(StopRequest):
    """SIGTERM and SIGINT, which stop the agent, and SIGHUP, which starts the agent again."""

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
            signal.signal(signal.SIGHUP, self._request_reload)

    def _stop(self, number: int, frame: object) -> None:  # noqa: ARG002  arguments of a handler
        self.stopping = True

    def _request_reload(self, number: int, frame: object) -> None:  # noqa: ARG002  the same
        self.reloading = True
