"""HTTP/1.1 for a client on an event loop: one exchange after another over a stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from forewarn_base.errors import PeerError

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

#: Maximum length of a response's head, in bytes: the limit of a stream's line.
HEAD_BYTES_MAX = 64 * 1024

#: Maximum length of a piece of a body, in bytes.
PIECE_BYTES_MAX = 64 * 1024

_NO_BODY = frozenset({204, 304})
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")


class HttpBroken(PeerError):
    """A response is malformed, incomplete or too long."""

    code = "http-broken"
    message = "The HTTP response cannot be used: {reason}."
    advice = "Check what answers at the address; a proxy before it must speak HTTP/1.1."


class HttpAnswer(NamedTuple):
    """A response."""

    status: int
    #: Headers by lower-case name.
    headers: Mapping[str, str]
    body: bytes


class HttpHead(NamedTuple):
    """The head of a response, whose body follows in pieces."""

    status: int
    #: Headers with lower-case names, in their order.
    fields: tuple[tuple[str, str], ...]


class HttpStream:
    """One connection; the caller limits the time of each call."""

    def __init__(self, streams: Streams, host: str, body_bytes_max: int) -> None:
        """Use open streams; `host` is the value of the header `Host`."""
        self._reader, self._writer = streams
        self._host = host
        self._body_bytes_max = body_bytes_max
        self._stays = False
        #: Bytes until the end of the body, or of its current chunk; None: until the stream's.
        self._left: int | None = 0
        self._is_chunked = False
        #: Whether another request may follow.
        self.usable = True

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], *, body: bytes = b""
    ) -> HttpAnswer:
        """Send a request and return its response.

        Raises:
            OSError, EOFError, HttpBroken: no response has arrived; the connection is closed.
        """
        fields = [("Host", self._host), *headers.items()]
        if body:
            fields += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        try:
            head = await self.begin(method, target, fields, body=body)
            return HttpAnswer(head.status, dict(head.fields), await self._body())
        except BaseException:
            self.close()
            raise

    async def begin(
        self, method: str, target: str, fields: Iterable[tuple[str, str]], *, body: bytes = b""
    ) -> HttpHead:
        """Send a request with these headers, and return the head of the response.

        Raises:
            OSError, EOFError, HttpBroken: no response has arrived; close the connection.
        """
        self.usable = False
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields)]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await self._writer.drain()
        head = await self._head()
        while 100 <= head.status < 200:
            head = await self._head()
        if method == "HEAD" or head.status in _NO_BODY:
            self._left, self._is_chunked = 0, False
            self._end()
        elif self._left is None:
            self._stays = False
        return head

    async def piece(self) -> bytes:
        """Return the next piece of the body; empty after the last one. Raises as `begin`."""
        if self._is_chunked and not self._left:
            self._left = await self._chunk()
        if self._left == 0:
            self._end()
            return b""
        length = PIECE_BYTES_MAX if self._left is None else min(self._left, PIECE_BYTES_MAX)
        data = await self._reader.read(length)
        if self._left is not None:
            if not data:
                raise EOFError("the response has ended early")
            self._left -= len(data)
        elif not data:
            self._end()
        return data

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        self._writer.close()

    def _end(self) -> None:
        """Note the end of a response."""
        self._is_chunked, self.usable = False, self._stays
        if not self._stays:
            self.close()

    async def _body(self) -> bytes:
        pieces, size = [], 0
        while piece := await self.piece():
            pieces.append(piece)
            size += len(piece)
            if size > self._body_bytes_max:
                raise HttpBroken(reason=f"it has more than {self._body_bytes_max} bytes")
        return b"".join(pieces)

    async def _head(self) -> HttpHead:
        try:
            text = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise HttpBroken(reason="its head is too long") from error
        first, *lines = text.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise HttpBroken(reason="it is not HTTP/1")
        pairs = (line.partition(":") for line in lines if line)
        fields = tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
        headers = dict(fields)
        self._stays = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        self._left = 0
        if not self._is_chunked and length:
            if not length.isdecimal():
                raise HttpBroken(reason=f"its Content-Length is {length[:40]!r}")
            self._left = int(length[:18])
        elif not self._is_chunked:
            self._left = None
        return HttpHead(int(rest[:3]), fields)

    async def _chunk(self) -> int:
        """Return the length of the next chunk; 0 after the last one."""
        line = await self._line()
        if line == b"\r\n":  # the end of the chunk before
            line = await self._line()
        size = line.partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(size):
            raise HttpBroken(reason=f"a chunk has the length {size[:16]!r}")
        length = int(size, 16)
        if not length and await self._line() != b"\r\n":
            raise HttpBroken(reason="it has trailers")
        return length

    async def _line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError as error:
            raise HttpBroken(reason="a line is too long") from error
