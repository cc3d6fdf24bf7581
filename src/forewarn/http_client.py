"""The HTTP client of the service: one request per connection, with limits."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from forewarn.host_port import host_of_url
from forewarn.urls import shown_reason
from forewarn.values import value

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
    """Return an unopened connection to the server of a URL, or of `unix:PATH`."""
    if url.startswith("unix:"):
        return UnixConnection(url.removeprefix("unix:"), timeout_s)
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
    line, late = connection.sock, threading.Event()

    def give_up() -> None:
        late.set()
        with suppress(OSError):  # the connection has ended already
            socket.socket.shutdown(line, socket.SHUT_RDWR)

    # A server that sends single bytes keeps each read alive, so the whole has a limit, too.
    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return ClientResponse(response.status, headers, response.read(bytes_max + 1))
    finally:
        timer.cancel()
        connection.close()
        if late.is_set():
            raise TimeoutError(f"the answer takes more than {timeout_s:g} s")


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
    connection = new_connection(request.url, ca_file, timeout_s=timeout_s)
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    try:
        connection.request(request.method, target, request.body, dict(request.headers))
    except (ValueError, http.client.InvalidURL) as error:
        connection.close()
        if isinstance(error, OSError):
            raise
        raise http.client.HTTPException(shown_reason(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection
