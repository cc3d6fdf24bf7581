"""Writes to a stream that may have ended."""

from __future__ import annotations

import asyncio


def write_line(writer: asyncio.StreamWriter, line: bytes) -> None:
    """Write a line, or nothing if the connection has ended; its reader notices the end.

    asyncio ignores such a write, but uvloop raises a RuntimeError.
    """
    if not writer.transport.is_closing():
        writer.write(line)
