"""HTTP/1.1 for a client of a metadata service: requests and answers as bytes; pure.

`http.client` would cost the agent 6 MiB of memory. Source: C-7.
"""

from __future__ import annotations

import sys

from forewarn.agent.value import Value
from forewarn_base.errors import CallerError, PeerError
from forewarn_base.host_port import host_and_port, host_of_url, joined_address, without_zone
from forewarn_base.protocol.versions import EVENTS_PATH

HEAD_BYTES_MAX = 64 * 1024  # limit of status line and headers, the same as in other clients
BODY_BYTES_MAX = 4 * 1024 * 1024 + 64  # length of the longest document, and a newline
PORT = 80
OWN_PARAMETERS = ("api-version", "wait", "incarnation")  # query parameters that the client sets
QUERY_CHARACTERS = frozenset(map(chr, range(0x21, 0x7F))) - set('"<>\\^`{|}#')
AUTHORITY_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%"
)


class EndpointInvalid(CallerError, ValueError):
    """The metadata service's endpoint is malformed."""

    code = "endpoint-invalid"
    message = "{endpoint!r} is not an endpoint: {reason}."
    advice = (
        "Write http://ADDRESS[:PORT], optionally with /metadata/scheduledevents, or unix:/PATH."
    )


class ResponseInvalid(PeerError):
    """The HTTP answer is malformed, incomplete or far too long."""

    code = "response-invalid"
    message = "The answer of the metadata service is unusable: {reason}."
    advice = "Repeat the request, because connections are sometimes interrupted."


class Endpoint(Value):
    """The address of a service."""

    host: str
    port: int = PORT
    #: The path of the Unix socket; empty for TCP.
    path: str = ""
    #: Additional parameters of every request, such as `vm=NAME`.
    query: str = ""

    def __str__(self) -> str:
        """Return the endpoint as written in a configuration."""
        if self.path:
            return f"unix:{self.path}"
        rest = f"{EVENTS_PATH}?{self.query}" if self.query else ""
        port = None if self.port == PORT else self.port
        return f"http://{joined_address(self.host.replace('%', '%25'), port)}{rest}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return joined_address(without_zone(self.host), None if self.port == PORT else self.port)


class HttpResponse(Value):
    """A complete answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def target_of(endpoint: str) -> Endpoint:
    """Parse a base address or a full address.

    A full address ends in `/metadata/scheduledevents?api-version=V&vm=NAME`. Parameters that the
    client sets, such as `api-version`, are ignored. The other parameters are added to every
    request.

    Raises:
        EndpointInvalid: the address is malformed, or uses https, which no metadata service offers.
    """
    scheme, _, rest = endpoint.partition(":")
    if scheme == "unix" and rest.startswith("/"):
        if sys.platform == "win32":
            raise EndpointInvalid(
                endpoint=endpoint, reason="Python on Windows does not support Unix sockets"
            )
        return Endpoint("localhost", path="/" + rest.lstrip("/"))
    if scheme != "http" or not rest.startswith("//"):
        raise EndpointInvalid(endpoint=endpoint, reason="it must begin with http:// or unix:/")
    place, _, query = rest[2:].partition("?")
    authority, _, path = place.partition("/")
    if (
        path.rstrip("/").lower() not in ("", EVENTS_PATH[1:])
        or set(authority) - AUTHORITY_CHARACTERS
    ):
        reason = f"only address, port and {EVENTS_PATH} may follow"
        raise EndpointInvalid(endpoint=endpoint, reason=reason)
    if set(query) - QUERY_CHARACTERS:
        raise EndpointInvalid(endpoint=endpoint, reason="its query is not written as in a URL")
    if ":" not in authority.rpartition("]")[2]:
        authority += f":{PORT}"
    try:
        host, port = host_and_port(authority)
        host = host_of_url(host)
    except ValueError:
        host, port = "", 0
    if not port:
        raise EndpointInvalid(
            endpoint=endpoint,
            reason="an endpoint is an address, optionally with a port from 1 to 65535",
        )
    pairs = [pair for pair in query.split("&") if pair]
    kept = [pair for pair in pairs if pair.partition("=")[0].lower() not in OWN_PARAMETERS]
    return Endpoint(host, port, query="&".join(kept))


def request_bytes(
    method: str,
    target: Endpoint,
    *,
    path: str,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
) -> bytes:
    """Return a request in its wire format."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.authority}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    assert not any("\r" in line or "\n" in line for line in lines)
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class ResponseReader:
    """Parses one answer from successive pieces of received bytes."""

    def __init__(self, method: str = "GET", *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._method = method
        self._body_bytes_max = body_bytes_max
        self._bytes = bytearray()
        self._at = 0  # index of the first unread byte
        self._searched = 0  # index from which to search the end of the current part
        self._head: tuple[int, dict[str, str]] | None = None
        self._chunk = -1  # bytes of the current chunk; -1: before the chunk's size
        self._chunks = bytearray()
        #: The answer; None until complete.
        self.answer: HttpResponse | None = None
        #: Whether the connection can be used for another request after the complete answer.
        self.keeps = False

    @property
    def begun(self) -> bool:
        """Whether any bytes have arrived."""
        return self._head is not None or bool(self._bytes)

    def feed(self, data: bytes) -> bool:
        """Process received bytes (empty: end of input); return whether the answer is complete.

        Raises:
            ResponseInvalid: the answer is malformed.
        """
        assert self.answer is None
        self._bytes += data
        if self._head is None and not self._read_head() and data:
            return False
        if self._head is None:
            raise ResponseInvalid(
                reason="the connection was closed before its headers were complete"
            )
        status, headers = self._head
        body = self._body(status, headers, closed=not data)
        if len(self._bytes) > self._body_bytes_max:  # the limit includes the framing of chunks
            raise ResponseInvalid(reason=f"it is longer than {self._body_bytes_max} bytes")
        if body is None:
            if not data:
                raise ResponseInvalid(
                    reason="the connection was closed before its body was complete"
                )
            return False
        self.answer = HttpResponse(status, headers, body=body)
        closes = headers.get("connection", "").lower() == "close"
        self.keeps = bool(data) and not closes and self._has_known_end(status, headers)
        return True

    def _read_head(self) -> bool:
        while True:  # bounded: each round removes a 1xx answer, which precedes the final answer
            end = self._find(b"\r\n\r\n")
            if end < 0:
                if len(self._bytes) > HEAD_BYTES_MAX:
                    raise ResponseInvalid(reason="its headers do not end")
                return False
            status, headers = _parse_head(self._bytes[:end].decode("latin-1"))
            del self._bytes[: end + 4]
            self._searched = 0
            if status >= 200:
                self._head = (status, headers)
                return True

    def _find(self, end: bytes) -> int:
        """Return the index of the next marker `end`, or -1.

        Searches each byte once: O(new bytes).
        """
        place = self._bytes.find(end, max(self._at, self._searched - len(end) + 1))
        self._searched = place if place >= 0 else len(self._bytes)
        return place

    def _has_known_end(self, status: int, headers: dict[str, str]) -> bool:
        return (
            self._method == "HEAD"
            or status in (204, 304)
            or "content-length" in headers
            or "chunked" in headers.get("transfer-encoding", "").lower()
        )

    def _body(self, status: int, headers: dict[str, str], *, closed: bool) -> bytes | None:
        if self._method == "HEAD" or status in (204, 304):
            return b""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks()
        if "content-length" not in headers:
            return bytes(self._bytes) if closed else None
        text = headers["content-length"]
        plausible = text.isdecimal() and len(text) <= len(str(self._body_bytes_max))
        if not plausible or int(text) > self._body_bytes_max:
            raise ResponseInvalid(reason=f"its Content-Length is {text[:40]!r}")
        length = int(text)
        return bytes(self._bytes[:length]) if len(self._bytes) >= length else None

    def _read_chunks(self) -> bytes | None:
        """Process the complete chunks; return the joined chunks after the last."""
        while self._chunk:
            if self._chunk < 0:
                end = self._find(b"\r\n")
                if end < 0:
                    return None
                self._chunk = _chunk_size(self._bytes[self._at : end])
                self._at = end + 2 if self._chunk else end
            else:
                end = self._at + self._chunk
                if len(self._bytes) < end + 2:
                    return None
                self._chunks += self._bytes[self._at : end]
                self._at, self._chunk = end + 2, -1
        return bytes(self._chunks) if self._find(b"\r\n\r\n") >= 0 else None


def _parse_head(text: str) -> tuple[int, dict[str, str]]:
    first, *lines = text.split("\r\n")
    words = first.split(" ", 2)
    known = len(words) > 1 and words[0].startswith("HTTP/1.")
    if not known or len(words[1]) != 3 or not words[1].isdecimal():
        raise ResponseInvalid(reason="it is not HTTP/1.1")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if words[0] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return int(words[1]), headers


def _chunk_size(line: bytearray) -> int:
    try:
        size = int(line.split(b";")[0].strip(), 16)
    except ValueError as error:
        raise ResponseInvalid(reason="a chunk has no size") from error
    if size < 0:
        raise ResponseInvalid(reason="a chunk has no size")
    return size
