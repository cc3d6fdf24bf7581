"""HTTP exchanges over a non-blocking socket, for the runner's loop."""

from __future__ import annotations

import errno
import os
import select
import socket

from forewarn.agent.sdk.http import HttpResponse, ResponseInvalid, ResponseReader
from forewarn.agent.sdk.sockets import CHUNK_BYTES, keep_alive

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.sdk.http import Endpoint

UNDER_WAY = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, 10035)  # the last: Windows
NOT_YET = (BlockingIOError, InterruptedError)


class Line:
    """A connection for successive exchanges, which reopens when necessary."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._target: Endpoint | None = None
        self._request = b""
        self._unsent = b""
        self._reader = ResponseReader()
        self._method = "GET"
        self._fresh = True
        self._open = False
        #: Whether a request is waiting for its answer.
        self.busy = False

    @property
    def fd(self) -> int:
        """The descriptor of the connection; -1 without a connection."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether to wait for a writable descriptor, instead of a readable descriptor."""
        return bool(self._unsent)

    def begin(self, target: Endpoint, method: str, *, request: bytes) -> None:
        """Send a request; the caller then calls `advance` until the answer is complete.

        Raises:
            OSError: the connection could not be started.
        """
        assert not self.busy
        if self._target != target:
            self.close()
        self._target = target
        self._method = method
        self._request = request
        self._start()
        if not self._fresh:  # an open connection can usually send a request at once
            self.advance()

    def advance(self) -> HttpResponse | None:
        """Send and receive without blocking; return the answer once it is complete.

        Raises:
            OSError: the connection failed.
            ResponseInvalid: the answer is malformed.
        """
        assert self.busy
        try:
            response = self._advance()
        except (OSError, ResponseInvalid):
            again = not self._fresh and not self._reader.begun
            self.close()
            if not again:
                raise
            self._start()  # retry: the peer had closed the idle connection
            return None
        if response is not None:
            self.busy = False
            if not self._reader.keeps:
                self.close()
        return response

    def close(self) -> None:
        """Close the connection and abandon an open request."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unsent = b""
        self.busy = False

    def _start(self) -> None:
        assert self._target is not None
        self._fresh = self._socket is None
        if self._socket is None:
            self._socket = _open_socket(self._target)
            self._open = False
        self._unsent = self._request
        self._reader = ResponseReader(self._method)
        self.busy = True

    def _advance(self) -> HttpResponse | None:
        assert self._socket is not None
        if self._unsent:
            if not self._open:
                failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if failure:
                    raise OSError(failure, os.strerror(failure))
            try:
                sent = self._socket.send(self._unsent)
            except (*NOT_YET, OSError) as error:
                if isinstance(error, NOT_YET) or error.errno == errno.ENOTCONN:
                    return None
                raise
            self._open = True
            self._unsent = self._unsent[sent:]
            return None
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except NOT_YET:
            return None
        return self._reader.answer if self._reader.feed(data) else None


def _open_socket(target: Endpoint) -> socket.socket:
    if target.path:
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.settimeout(0.0)
        failure = local.connect_ex(target.path)
        if failure not in UNDER_WAY:
            local.close()
            raise OSError(failure, os.strerror(failure))
        return local
    host = target.host.encode()  # text would load the IDNA codec and use 1 MiB
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, target.port, type=socket.SOCK_STREAM
    )[0]
    connection = socket.socket(family, kind, protocol)
    connection.settimeout(0.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(connection)
    failure = connection.connect_ex(address)
    if failure not in UNDER_WAY:
        connection.close()
        raise OSError(failure, os.strerror(failure))
    return connection


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
