"""Sends requests and parses answers for checks.

The module uses sockets instead of `http.client`, because checks need the original header lines.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from forewarn_base.errors import CallerError, PeerError, reason_of
from forewarn_base.host_port import host_of_url
from forewarn_base.protocol.versions import EVENTS_PATH, HOLD_S_MAX, VERSIONS
from forewarn_base.urls import shown_url
from forewarn_base.values import value

VERSION = VERSIONS[-1]
#: Longest wait for an answer, in seconds.
ANSWER_TIMEOUT_S = HOLD_S_MAX + 5.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
#: Longest wait until the server closes a connection, in seconds.
CLOSE_TIMEOUT_S = 1.0
#: Most repetitions of a request after refusals by the rate limit. Source: E-6.
THROTTLED_MAX = 20
#: Longest pause before a repetition, in seconds.
RETRY_AFTER_S_MAX = 10.0
#: Default pause before a repetition, in seconds.
RETRY_AFTER_S = 1.0


class TargetInvalid(CallerError):
    """The address of the metadata service is malformed."""

    code = "conformance-target-invalid"
    message = "{url!r} is not the address of a metadata service."
    advice = "Give http://HOST[:PORT]."


class TargetUnreachable(PeerError):
    """The service does not answer."""

    code = "conformance-target-unreachable"
    message = "The service at {url} cannot be reached: {reason}."
    advice = "Start the service, or use another address."


@value
class Reply:
    """An answer; header names are in lower case, and repeated headers are joined by commas."""

    status: int
    headers: dict[str, str]
    body: bytes


class ServiceUnderTest:
    """A client of a metadata service that opens a new connection for each request."""

    def __init__(self, url: str, *, pause: Callable[[float], object] | None = None) -> None:
        """Parse the address of the service; `pause` waits for some seconds.

        Raises:
            TargetInvalid: the address is malformed.
        """
        if not shown_url(url).startswith("http://"):
            raise TargetInvalid(url=url)
        parts = urlsplit(url)
        self.url = url
        self.host, self.port = host_of_url(parts.hostname or ""), parts.port or 80
        #: Parameters of every request, such as `vm=NAME` for an emulator.
        self.query = parts.query
        self.pause = pause or threading.Event().wait

    def get(
        self,
        path: str = EVENTS_PATH,
        *,
        query: str | None = f"api-version={VERSION}",
        headers: tuple[str, ...] = ("Metadata: true",),
        method: str = "GET",
    ) -> Reply:
        """Send a GET and return the answer; `query` None: no parameters."""
        return self.send(method, path, query=query, headers=headers)

    def post(
        self, body: bytes, *, version: str = VERSION, headers: tuple[str, ...] = ("Metadata: true",)
    ) -> Reply:
        """Post an approval and return the answer."""
        framing = (f"Content-Length: {len(body)}",)
        query = f"api-version={version}"
        return self.send("POST", EVENTS_PATH, query=query, headers=headers + framing, body=body)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: str | None,
        headers: tuple[str, ...],
        body: bytes = b"",
    ) -> Reply:
        """Send a request and return the answer; repeat requests refused by a rate limit.

        Raises:
            TargetUnreachable: the service returns no HTTP answer.
        """
        query = "&".join(part for part in (query, self.query) if part)
        line = f"{method} {path}{'?' + query if query else ''} HTTP/1.1"
        head = "\r\n".join((line, f"Host: {self.host}", *headers, "", ""))
        request = head.encode("latin-1") + body
        try:
            reply = self.raw(request, head_only=method == "HEAD")
            for _ in range(THROTTLED_MAX):
                if reply.status != 429:
                    break
                self.pause(_pause_asked(reply))
                reply = self.raw(request, head_only=method == "HEAD")
        except (OSError, ValueError, IndexError) as error:
            raise TargetUnreachable(url=self.url, reason=reason_of(error)) from error
        return reply

    def closes(self, *, close: bool) -> bool:
        """Return whether the server closes a connection, with `close` after `Connection: close`."""
        query = "&".join(part for part in (f"api-version={VERSION}", self.query) if part)
        line = f"GET {EVENTS_PATH}?{query} HTTP/1.1\r\nHost: {self.host}\r\n"
        end = "Connection: close\r\n\r\n" if close else "\r\n"
        try:
            address = (self.host, self.port)
            with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as connection:
                connection.sendall(f"{line}Metadata: true\r\n{end}".encode())
                _read(connection, head_only=False)
                connection.settimeout(CLOSE_TIMEOUT_S)
                return connection.recv(1) == b""
        except TimeoutError:
            return False
        except (OSError, ValueError, IndexError) as error:
            raise TargetUnreachable(url=self.url, reason=reason_of(error)) from error

    def raw(self, request: bytes, *, head_only: bool = False) -> Reply:
        """Send bytes, and read an answer."""
        address = (self.host, self.port)
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as connection:
            with contextlib.suppress(ConnectionError):  # the server may close early
                connection.sendall(request)
            return _read(connection, head_only=head_only)


def _pause_asked(reply: Reply) -> float:
    """Return the pause requested in a refusal, in seconds."""
    text = reply.headers.get("retry-after", "")
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdigit() else RETRY_AFTER_S


def _read(connection: socket.socket, *, head_only: bool) -> Reply:
    """Read an answer from a connection."""
    data = _until(connection, b"", b"\r\n\r\n")
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(":")
        known = headers.get(name.lower())
        headers[name.lower()] = text.strip() if known is None else f"{known}, {text.strip()}"
    status = int(first.split(" ")[1])
    body = b"" if head_only or status in {204, 304} else _body(connection, headers, rest)
    return Reply(status, headers, body)


def _until(connection: socket.socket, data: bytes, end: bytes) -> bytes:
    while end not in data and len(data) < ANSWER_BYTES_MAX:
        more = connection.recv(65_536)
        if not more:
            break
        data += more
    return data


def _body(connection: socket.socket, headers: dict[str, str], rest: bytes) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _until(connection, rest, b"0\r\n\r\n")
    length = headers.get("content-length")
    wanted = int(length) if length and length.isdigit() else ANSWER_BYTES_MAX
    while len(rest) < wanted:
        more = connection.recv(65_536)
        if not more:
            break
        rest += more
    return rest
