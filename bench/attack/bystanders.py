"""Legitimate callers during a flood: polling VMs and an operator."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
POLL = f"GET {TARGET} HTTP/1.1\r\nHost: 169.254.169.254\r\nMetadata: true\r\n"
KEPT = f"{POLL}\r\n".encode()
CLOSED = f"{POLL}Connection: close\r\n\r\n".encode()
TOKEN = "fw_bench_seeded"
CALL = (
    "GET /v1/operations?limit=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    f"Authorization: Bearer {TOKEN}\r\n\r\n"
).encode()
#: Time limit of an answer, after which a call counts as failed.
PATIENCE_S = 5.0
VMS = tuple(f"127.1.0.{n}" for n in range(1, 21))
#: Intervals between two polls of a VM, and between two calls of the operator.
POLL_S, CALL_S = 0.5, 0.25


@dataclass
class Phase:
    """Results of the legitimate callers in one phase; times are in seconds."""

    polls_s: list[float] = field(default_factory=list)
    calls_s: list[float] = field(default_factory=list)
    failed_polls: int = 0
    failed_calls: int = 0


class Bystanders:
    """Twenty VMs, half of them with persistent connections, and an operator."""

    def __init__(self, metadata_port: int, operator_port: int) -> None:
        """Create the callers without starting them."""
        self.phase = Phase()
        self._metadata_port = metadata_port
        self._operator_port = operator_port
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the calls."""
        for number, address in enumerate(VMS):
            poll = self._poll_kept if number % 2 else self._poll_closed
            self._tasks.append(asyncio.create_task(poll(address, number)))
        self._tasks.append(asyncio.create_task(self._call()))

    async def stop(self) -> None:
        """Stop the calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _poll_closed(self, address: str, number: int) -> None:
        await asyncio.sleep(POLL_S * number / len(VMS))
        while True:
            phase, begun = self.phase, time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await _once(self._metadata_port, CLOSED, source=address)
                phase.polls_s.append(time.perf_counter() - begun)
            except (OSError, EOFError, TimeoutError):
                phase.failed_polls += 1
            await asyncio.sleep(POLL_S)

    async def _poll_kept(self, address: str, number: int) -> None:
        await asyncio.sleep(POLL_S * number / len(VMS))
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while True:
            phase, begun = self.phase, time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if streams is None:
                        streams = await _open(self._metadata_port, address)
                    streams[1].write(KEPT)
                    await _answer(streams[0])
                phase.polls_s.append(time.perf_counter() - begun)
            except (OSError, EOFError, TimeoutError):
                phase.failed_polls += 1
                if streams is not None:
                    streams[1].close()
                streams = None
            await asyncio.sleep(POLL_S)

    async def _call(self) -> None:
        while True:
            phase, begun = self.phase, time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await _once(self._operator_port, CALL)
                phase.calls_s.append(time.perf_counter() - begun)
            except (OSError, EOFError, TimeoutError):
                phase.failed_calls += 1
            await asyncio.sleep(CALL_S)


async def _open(port: int, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    local = (source, 0) if source else None
    return await asyncio.open_connection("127.0.0.1", port, local_addr=local)


async def _once(port: int, octets: bytes, *, source: str = "") -> None:
    reader, writer = await _open(port, source)
    try:
        writer.write(octets)
        await _answer(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> None:
    """Read one answer; every status except 200 is a failure."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(head)
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
