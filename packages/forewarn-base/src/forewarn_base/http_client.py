"""The HTTP client of the service, with limits: a connection for one request, or a kept one."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from forewarn_base.clock import SystemClock
from forewarn_base.host_port import host_of_url
from forewarn_base.urls import MALFORMED
from forewarn_base.values import value

#: Maximum length of an answer, in bytes; topologies are the largest answers.
ANSWER_BYTES_MAX = 4 * 1024 * 1024


@value
class ClientRequest:
    """One request, ready to be sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@value
class ClientResponse:
    """The response; a body that is too long is cut one byte beyond the limit."""

    status: int
    #: Headers by lower-case name.
    headers: Mapping[str, str]
    body: bytes


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Store the socket's path; `connect` opens the connection."""
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock: socket.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def new_connection(url: str, ca_file: str, *, timeout_s: float) -> http.client.HTTPConnection:
    """Return an unopened connection to the server of a URL."""
    parts = urlsplit(url)
    host, port = host_of_url(parts.hostname or ""), parts.port
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def exchange(
    request: ClientRequest,
    *,
    timeout_s: float,
    ca_file: str = "",
    bytes_max: int = ANSWER_BYTES_MAX,
) -> ClientResponse:
    """Send one request on a new connection; never follows a redirect.

    Args:
        request: the request.
        timeout_s: time limit for each step of sending the request, and for the whole answer.
        ca_file: trusted CA certificates; empty: the system's.
        bytes_max: maximum length of a body; longer bodies are cut off.

    Raises:
        OSError, HTTPException: no complete answer arrived in time.
    """
    connection = open_request(request, timeout_s=timeout_s, ca_file=ca_file)
    try:
        return _read(connection, timeout_s=timeout_s, bytes_max=bytes_max)
    finally:
        connection.close()


class _LimitedReads(io.RawIOBase):
    """The bytes of an answer, until a time.

    A server that sends single bytes keeps each read alive, so the whole has a limit, too. Each read
    waits for the rest of that time; a thread with a timer costs a third of a request.
    """

    def __init__(self, line: socket.socket, timeout_s: float) -> None:
        self._line = line
        self._raw = line.makefile("rb", buffering=0)
        self._timeout_s = timeout_s
        self._clock = SystemClock()
        self._until_ms = self._clock.elapsed_ms() + int(timeout_s * 1000)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - any writeable buffer
        """Read what has arrived; wait for it as long as the limit allows."""
        left_ms = self._until_ms - self._clock.elapsed_ms()
        try:
            if left_ms > 0:
                self._line.settimeout(left_ms / 1000)
                return self._raw.readinto(buffer)
        except TimeoutError:
            pass
        raise TimeoutError(f"the answer takes more than {self._timeout_s:g} s")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    """An answer that is read within a time limit."""

    def __init__(self, line: socket.socket, method: str, *, timeout_s: float) -> None:
        super().__init__(line, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_LimitedReads(line, timeout_s))


def _read(
    connection: http.client.HTTPConnection, *, timeout_s: float, bytes_max: int
) -> ClientResponse:
    """Read the answer to the request that a connection has sent."""
    limited = partial(_LimitedResponse, timeout_s=timeout_s)
    connection.response_class = limited  # type: ignore[assignment]  # any callable will do
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    answer = ClientResponse(response.status, headers, response.read(bytes_max + 1))
    if not response.isclosed():  # a longer body is left, so that no other request may follow
        connection.close()
    return answer


class KeptConnection:
    """A connection to one server for requests of one thread that are safe to repeat.

    A server may close an idle connection at any time, so a request that finds it closed is repeated
    once on a new connection.
    """

    def __init__(self, *, timeout_s: float, ca_file: str = "") -> None:
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._connection: http.client.HTTPConnection | None = None

    def exchange(self, request: ClientRequest) -> ClientResponse:
        """Send one request; raises as the function `exchange`."""
        kept, self._connection = self._connection, None
        if kept is not None and kept.sock is not None:
            try:
                kept.sock.settimeout(self._timeout_s)
                _send(kept, request)
                return self._answer(kept)
            except (ConnectionError, http.client.BadStatusLine):
                kept.close()
        opened = open_request(request, timeout_s=self._timeout_s, ca_file=self._ca_file)
        return self._answer(opened)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answer(self, connection: http.client.HTTPConnection) -> ClientResponse:
        try:
            response = _read(connection, timeout_s=self._timeout_s, bytes_max=ANSWER_BYTES_MAX)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return response


def open_request(
    request: ClientRequest, *, timeout_s: float, ca_file: str = ""
) -> http.client.HTTPConnection:
    """Send one request on a new connection; the caller reads and closes the answer.

    Raises:
        OSError, HTTPException: the request could not be sent.
    """
    parts = urlsplit(request.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise OSError("the scheme must be http or https")
    try:
        connection = new_connection(request.url, ca_file, timeout_s=timeout_s)
    except http.client.InvalidURL:
        raise http.client.HTTPException(MALFORMED) from None
    try:
        _send(connection, request)
    except BaseException:
        connection.close()
        raise
    return connection


def _send(connection: http.client.HTTPConnection, request: ClientRequest) -> None:
    """Send a request; an error never shows a malformed URL or header."""
    target = target_of(request)
    try:
        connection.request(request.method, target, request.body, dict(request.headers))
    except (ValueError, http.client.InvalidURL) as error:
        if isinstance(error, OSError):  # an error of a certificate
            raise
        raise http.client.HTTPException(MALFORMED) from None


def target_of(request: ClientRequest) -> str:
    """Return the path and the query of a request's URL."""
    parts = urlsplit(request.url)
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path
