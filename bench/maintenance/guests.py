"""VMs of a large fleet, one per group; each waits for its document, prepares and approves."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Time limit of a held poll, in seconds.
WAIT_S = 60
#: Pause between polls that do not wait, in seconds.
POLL_S = 0.05
PATH = "/metadata/scheduledevents?api-version=2020-07-01"


class Guests:
    """All polling VMs, on one event loop."""

    def __init__(self, url: str, addresses: Mapping[str, str], *, prepare_s: float) -> None:
        """Create the VMs without polls.

        Args:
            url: the metadata service.
            addresses: addresses of the VMs by name.
            prepare_s: maximum duration of a preparation; VMs approve at random times.
        """
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        self._addresses = addresses
        self._prepare_s = prepare_s
        self._tasks: list[asyncio.Task[None]] = []
        self._left = len(addresses)
        self._begun = asyncio.Event()
        self._chance = random.Random(1)
        self.approval_ms: list[float] = []
        #: Durations of polls without a wait, including delays of the client's event loop.
        self.poll_ms: list[float] = []
        self.refused = 0

    @property
    def approved(self) -> int:
        """Number of approvals with answer 200."""
        return len(self.approval_ms)

    async def begin(self) -> None:
        """Start the polls of all VMs; return once each VM has an answer."""
        self._tasks = [asyncio.create_task(self._live(each)) for each in self._addresses.values()]
        await self._begun.wait()
        self._tasks.append(asyncio.create_task(self._poll(next(iter(self._addresses.values())))))

    async def end(self) -> None:
        """Stop all VMs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, address: str) -> None:
        reader, writer = await asyncio.open_connection(
            self._host, self._port, local_addr=(address, 0)
        )
        incarnation, first, approved = -1, True, set[str]()
        while True:
            wait = "" if first else f"&wait={WAIT_S}&incarnation={incarnation}"
            status, body = await self._ask(reader, writer, f"GET {PATH}{wait}", b"")
            if status != 200:
                self.refused += 1
                await asyncio.sleep(1)
                continue
            if first:
                first = False
                self._left -= 1
                if not self._left:
                    self._begun.set()
            document = json.loads(body)
            incarnation = document["DocumentIncarnation"]
            for event in document["Events"]:
                if event["EventStatus"] == "Scheduled" and event["EventId"] not in approved:
                    approved.add(event["EventId"])
                    await asyncio.sleep(self._chance.uniform(0, self._prepare_s))
                    await self._approve(reader, writer, event["EventId"])

    async def _poll(self, address: str) -> None:
        """Poll repeatedly on a separate connection."""
        reader, writer = await asyncio.open_connection(
            self._host, self._port, local_addr=(address, 0)
        )
        while True:
            begun = time.perf_counter()
            status, _ = await self._ask(reader, writer, f"GET {PATH}", b"")
            self.poll_ms.append((time.perf_counter() - begun) * 1000)
            self.refused += status != 200
            await asyncio.sleep(POLL_S)

    async def _approve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, event_id: str
    ) -> None:
        form = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        begun = time.perf_counter()
        status, _ = await self._ask(reader, writer, f"POST {PATH}", form)
        if status == 200:
            self.approval_ms.append((time.perf_counter() - begun) * 1000)
        else:
            self.refused += 1

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, body: bytes
    ) -> tuple[int, bytes]:
        head = f"{line} HTTP/1.1\r\nHost: metadata\r\nMetadata: true\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = 0
        for field in answer.split(b"\r\n")[1:]:
            name, _, text = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(text)
        return status, await reader.readexactly(length)
