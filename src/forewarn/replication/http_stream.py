"""HTTP/1.1 for a client on an event loop: one exchange after another over a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from forewarn.errors import PeerError

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEAD_BYTES_MAX = 64 * 1024
"""Maximum length of a response's head, in bytes."""

_NO_BODY = frozenset({204, 304})


class HttpBroken(PeerError):
    """A response is malformed, incomplete or too long."""

    code = "http-broken"
    message = "The HTTP response cannot be used: {reason}."
    advice = "Check what answers at the address; a proxy before it must speak HTTP/1.1."


class HttpAnswer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes


class HttpStream:
    """One connection; the caller limits the time of each call."""

    def __init__(self, streams: Streams, host: str, body_bytes_max: int) -> None:
        """Use open streams; `host` is the value of the header `Host`."""
        self._reader, self._writer = streams
        self._host = host
        self._body_bytes_max = body_bytes_max
        self.usable = True
        """Whether another request may follow."""

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], *, body: bytes = b""
    ) -> HttpAnswer:
        """Send a request and return its response.

        Raises:
            OSError, EOFError, HttpBroken: no response has arrived; the connection is closed.
        """
        self.usable, lines = False, [f"{method} {target} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        try:
            self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            await self._writer.drain()
            response, stays = await self._read()
        except BaseException:
            self.close()
            raise
        self.usable = stays
        if not stays:
            self.close()
        return response

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        self._writer.close()

    async def _read(self) -> tuple[HttpAnswer, bool]:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise HttpBroken(reason="its head is too long") from error
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise HttpBroken(reason="it is not HTTP/1")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        status = int(rest[:3])
        stays = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if status in _NO_BODY:
            return HttpAnswer(status, headers, b""), stays
        length = headers.get("content-length", "")
        if not length and not stays:  # the end of the connection ends the body
            return HttpAnswer(status, headers, await self._reader.read(self._body_bytes_max)), False
        if not length.isdecimal() or int(length[:18]) > self._body_bytes_max:
            raise HttpBroken(reason=f"its Content-Length is {length[:40]!r}")
        return HttpAnswer(status, headers, await self._reader.readexactly(int(length))), stays
