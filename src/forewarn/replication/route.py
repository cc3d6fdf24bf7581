"""The route from a node to its feed: a socket by default."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from forewarn.host_port import host_and_port
from forewarn.ids import Ids
from forewarn.replication.nodes import FeedPace, usual_pace
from forewarn.values import value

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of a line: a portion, or a document with ten thousand events.

A busy node buffers twice this length.
"""


async def connect(address: str, tls: ssl.SSLContext | None = None) -> Streams:
    """Open a stream to `unix:PATH` or `HOST:PORT`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        return await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    host, port = host_and_port(address)
    return await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX, ssl=tls)


@value
class FeedRoute:
    """The route to a feed, and the interval of keepalives."""

    connect: Callable[[str, ssl.SSLContext | None], Awaitable[Streams]] = connect
    pace: FeedPace = field(default_factory=usual_pace)
    #: Random numbers that distribute reconnects over time.
    ids: Ids = field(default_factory=Ids)


async def next_line(reader: asyncio.StreamReader, silent_s_max: float) -> bytes:
    """Return the next line; empty bytes at the end, or if the other end hangs."""
    async with asyncio.timeout(silent_s_max):
        return await reader.readline()
