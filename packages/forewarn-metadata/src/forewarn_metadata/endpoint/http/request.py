"""Parses HTTP/1 requests from bytes: strict, bounded, pure.

The grammar is RFC 9112 without its optional leniency. The parser refuses ambiguous requests,
because a proxy may have interpreted an ambiguous request differently.
"""

from __future__ import annotations

import re

from forewarn_base.errors import CallerError
from forewarn_base.values import value

HEAD_BYTES_MAX = (
    16 * 1024
)  # for comparison: nginx allows 8 KiB per line, Go 1 MiB; observed clients send under 1 KiB
HEADERS_MAX = 100
BODY_BYTES_MAX = 64 * 1024  # Source: A-5
CHUNK_LINE_BYTES_MAX = 256  # a chunk's size with extensions
CHUNKS_MAX = 1024  # chunks of a body; observed clients send one to three
CHUNKED_BYTES_MAX = 2 * BODY_BYTES_MAX  # a chunked body including its framing

HEAD_END = b"\r\n\r\n"


class RequestMalformed(CallerError):
    """The bytes are not an unambiguous HTTP/1 request. Source: E-8."""

    code = "request-malformed"
    message = "Bad request. {reason}"
    advice = "Send a plain HTTP/1.1 request."


class RequestTooLarge(CallerError):
    """The body exceeds the limit. Source: A-5."""

    code = "request-too-large"
    status = 413
    message = "Request too large. The body may have at most {bytes_max} bytes."
    advice = "Approve in several requests."


class HeadTooLarge(CallerError):
    """The request line and headers exceed the limit."""

    code = "head-too-large"
    status = 431
    message = (
        "Request too large. At most {headers_max} headers with {bytes_max} bytes are accepted."
    )
    advice = "Send fewer or shorter headers."


class ProtocolUnknown(CallerError):
    """The request uses an HTTP version other than 1.0 or 1.1."""

    code = "http-version-unsupported"
    status = 505
    message = "HTTP version not supported."
    advice = "Use HTTP/1.1."


class ExpectationUnknown(CallerError):
    """The request expects something other than 100-continue."""

    code = "expectation-failed"
    status = 417
    message = "Expectation failed."
    advice = "Omit the Expect header."


class RequestSlow(CallerError):
    """The request did not arrive in time."""

    code = "request-timeout"
    status = 408
    message = "Request timeout."
    advice = "Send the whole request at once."


#: Maximum number of stored characters of a User-Agent header.
USER_AGENT_MAX = 100


@value
class HttpRequest:
    """One request; `body` is empty until the body has been read."""

    method: str
    #: Path in lower case, without a trailing slash; equivalent percent-codes are decoded.
    path: str
    #: The value of `path` in the original case.
    exact_path: str
    #: Query parameters by lower-case name.
    query: dict[str, str]
    #: Name of a query parameter that occurs twice; empty if every parameter is unique.
    repeated: str
    #: Headers by lower-case name; commas join the values of repeated headers.
    headers: dict[str, str]
    #: Whether the request uses HTTP/1.0.
    old: bool
    #: Whether the connection closes after the answer.
    close: bool
    #: Bytes of the body; -1 if it is chunked.
    length: int

    @property
    def user_agent(self) -> str:
        """Return the User-Agent in printable ASCII, truncated to `USER_AGENT_MAX` characters."""
        text = self.headers.get("user-agent", "")[:USER_AGENT_MAX]
        return text if text.isascii() else text.encode("ascii", "replace").decode()


_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_LINE = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_NAME = re.compile(_TOKEN)
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_LF = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_HOST = re.compile(r"[\w\-.~!$&'()*+;=%]*(?::[0-9]*)?|\[[0-9A-Fa-f:.%\w]+\](?::[0-9]*)?", re.ASCII)
_PERCENT = re.compile("%([0-9A-Fa-f]{2})?")
_UNRESERVED = re.compile(r"[A-Za-z0-9\-._~]")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")


def check_unfinished(head: bytes | bytearray, start: int = 0) -> None:
    """Refuse an incomplete head that can never become a request.

    The bytes before `start` were checked before.

    Raises:
        RequestMalformed: a line ends in a bare LF.
        HeadTooLarge: the head is too long.
    """
    if _BARE_LF.search(head, start):
        raise RequestMalformed(reason="A line does not end in CR LF.")
    if len(head) > HEAD_BYTES_MAX:
        raise _head_too_large()


def parse_head(head: bytes) -> HttpRequest:
    """Parse a request line and headers, without the final empty line.

    Raises:
        CallerError: the request is refused, and the connection cannot be used further.
    """
    if len(head) > HEAD_BYTES_MAX:
        raise _head_too_large()
    if _BARE_LF.search(head):
        raise RequestMalformed(reason="A line does not end in CR LF.")
    line, *fields = head.split(b"\r\n")
    match = _LINE.fullmatch(line)
    if match is None:
        raise RequestMalformed(reason="The request line is malformed.")
    if match[3] != b"1":
        raise ProtocolUnknown
    if len(fields) > HEADERS_MAX:
        raise _head_too_large()
    old = match[4] == b"0"
    headers = _headers_of(fields)
    _check_host(headers, old=old)
    method = match[1].decode("ascii")
    host, path, query_text = _target_of(method, match[2].decode("ascii"))
    if host:  # the host in the target overrides the header: RFC 9112, 3.2.2
        headers["host"] = host
    query, repeated = _query_of(query_text)
    exact_path = _normal_path(path)
    return HttpRequest(
        method=method,
        path=exact_path.lower(),
        exact_path=exact_path,
        query=query,
        repeated=repeated,
        headers=headers,
        old=old,
        close=_closes(headers, old=old),
        length=_length_of(headers, old=old),
    )


def expects_continue(request: HttpRequest) -> bool:
    """Return whether the client waits for `100 Continue` before it sends the body.

    Raises:
        ExpectationUnknown: the client expects something other than 100-continue.
    """
    expected = request.headers.get("expect")
    if expected is None or request.old:
        return False
    if expected.lower() != "100-continue":
        raise ExpectationUnknown
    return request.length != 0


class ChunkedBody:
    """An incomplete chunked body, with the position up to which it was read."""

    __slots__ = ("_at", "_body", "_chunks", "_trailers")

    def __init__(self) -> None:
        self._at = 0
        self._body = bytearray()
        self._chunks = 0
        self._trailers = -1

    def read(self, buffer: bytes | bytearray) -> tuple[bytes, int] | None:
        """Return the body and its end position in `buffer`; None if the body is incomplete.

        Costs O(bytes and chunks since the last call).

        Raises:
            RequestMalformed: the framing is broken, or the chunks are too many.
            RequestTooLarge: the body or its framing is too long.
        """
        while self._trailers < 0:
            line_end = buffer.find(b"\r\n", self._at, self._at + CHUNK_LINE_BYTES_MAX)
            if line_end < 0:
                if len(buffer) - self._at >= CHUNK_LINE_BYTES_MAX:
                    raise RequestMalformed(reason="A chunk's size is malformed.")
                return None
            match = _CHUNK_SIZE.fullmatch(buffer, self._at, line_end)
            if match is None:
                raise RequestMalformed(reason="A chunk's size is malformed.")
            size = int(match[1], 16)
            if len(self._body) + size > BODY_BYTES_MAX or line_end > CHUNKED_BYTES_MAX:
                raise RequestTooLarge(bytes_max=BODY_BYTES_MAX)
            data = line_end + 2
            if size == 0:
                self._trailers = self._at = data
                break
            if len(buffer) < data + size + 2:
                return None
            if buffer[data + size : data + size + 2] != b"\r\n":
                raise RequestMalformed(reason="A chunk is longer than its size.")
            self._body += buffer[data : data + size]
            self._at = data + size + 2
            self._chunks += 1
            if self._chunks > CHUNKS_MAX:
                raise RequestMalformed(reason="The body has too many chunks.")
        return self._end(buffer)

    def _end(self, buffer: bytes | bytearray) -> tuple[bytes, int] | None:
        """Skip the trailers up to the empty line."""
        while True:
            line_end = buffer.find(b"\r\n", self._at)
            if len(buffer) - self._trailers > HEAD_BYTES_MAX:
                raise _head_too_large()
            if line_end < 0:
                return None
            line = bytes(buffer[self._at : line_end])
            self._at = line_end + 2
            if not line:
                return bytes(self._body), self._at
            _headers_of([line])


def _headers_of(fields: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for field in fields:
        raw_name, colon, raw_value = field.partition(b":")
        if not colon or _NAME.fullmatch(raw_name) is None or _BAD_VALUE.search(raw_value):
            raise RequestMalformed(reason="A header is malformed.")
        name = raw_name.decode("ascii").lower()
        value = raw_value.strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_host(headers: dict[str, str], *, old: bool) -> None:
    host = headers.get("host")
    if host is None:
        if not old:
            raise RequestMalformed(reason="The Host header is missing.")
    elif (
        _HOST.fullmatch(host) is None
    ):  # commas join repeated headers, and no host contains a comma
        raise RequestMalformed(reason="The Host header is malformed.")


def _target_of(method: str, target: str) -> tuple[str, str, str]:
    """Return host, path and query; the host is empty unless the target is absolute."""
    host = ""
    if target.lower().startswith("http://"):
        rest = target[7:]
        cut = min((rest.find(mark) % (len(rest) + 1) for mark in "/?"), default=0)
        host = rest[:cut]
        if _HOST.fullmatch(host) is None or not host:
            raise RequestMalformed(reason="The request target is malformed.")
        target = rest[cut:] if rest[cut : cut + 1] == "/" else "/" + rest[cut:]
    if "#" in target:
        raise RequestMalformed(reason="The request target is malformed.")
    if not target.startswith("/") and not _has_no_path(method, target):
        raise RequestMalformed(reason="The request target is malformed.")
    path, _, query = target.partition("?")
    return host, path, query


def _has_no_path(method: str, target: str) -> bool:
    """Return whether the request is a valid OPTIONS or CONNECT without a path."""
    return (method == "OPTIONS" and target == "*") or (
        method == "CONNECT" and _HOST.fullmatch(target) is not None
    )


def _normal_path(path: str) -> str:
    """Decode equivalent characters of RFC 3986 only; dots and double slashes stay."""
    if "%" in path:
        path = _PERCENT.sub(_decoded, path)
    return path.removesuffix("/") or "/"


def _decoded(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None:
        raise RequestMalformed(reason="The request target is malformed.")
    letter = chr(int(digits, 16))
    return letter if _UNRESERVED.fullmatch(letter) else match[0]


def _query_of(text: str) -> tuple[dict[str, str], str]:
    query: dict[str, str] = {}
    repeated = ""
    for part in text.split("&") if text else ():
        if not part:
            continue
        raw_name, _, raw_value = part.partition("=")
        name = _query_text(raw_name).lower()
        if name in query:
            repeated = repeated or name
        query[name] = _query_text(raw_value)
    return query, repeated


def _query_text(text: str) -> str:
    text = text.replace("+", " ")
    if "%" not in text:
        return text
    first, *rest = text.split("%")
    octets = bytearray(first, "ascii")
    for part in rest:
        if re.match("[0-9A-Fa-f]{2}", part) is None:
            raise RequestMalformed(reason="The query is malformed.")
        octets.append(int(part[:2], 16))
        octets += part[2:].encode("ascii")
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestMalformed(reason="The query is malformed.") from error


def _closes(headers: dict[str, str], *, old: bool) -> bool:
    connection = headers.get("connection")
    if connection is None:
        return old
    tokens = {token.strip().lower() for token in connection.split(",")}
    return "close" in tokens or (old and "keep-alive" not in tokens)


def _length_of(headers: dict[str, str], *, old: bool) -> int:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None or old or coding.lower() != "chunked":
            raise RequestMalformed(reason="The body's length is ambiguous.")
        return -1
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise RequestMalformed(reason="Content-Length is malformed.")
    if len(length.lstrip("0")) > 18 or int(length) > BODY_BYTES_MAX:
        raise RequestTooLarge(bytes_max=BODY_BYTES_MAX)
    return int(length)


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(headers_max=HEADERS_MAX, bytes_max=HEAD_BYTES_MAX)
