"""The metadata service with a control plane that starts and ends one event once it is approved.

`service.py LISTEN,LISTEN… ADDRESS[%INTERFACE]…`: where it listens, and where its VMs are.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from forewarn.clock import SystemClock
from forewarn.feed import ApprovalAnswer, ApprovalRequest, Caller, Change, Publication
from forewarn.metadata.server import MetadataServer
from forewarn.settings import MetadataSettings
from forewarn.wire import Document, ScheduledEvent

STEP_S = 0.5  # a few polls of a client for each state


class OneEvent:
    """Shows one Freeze; approved it starts, and a moment later it is gone."""

    def __init__(self, places: list[str]) -> None:
        self.places = [place.partition("%") for place in places]
        self.sequence = 0
        self.approved = False
        self.server = MetadataServer(MetadataSettings(rate_per_s=0), self, clock=SystemClock())

    def show(self, status: str) -> None:
        """Publish the event in this status, or nothing."""
        self.sequence += 1
        event = ScheduledEvent(
            event_id="C7061BAC-AFDC-4513-B24B-AA5F13A16123",
            event_type="Freeze",
            status=status,
            resources=("vm-a", "vm-b"),
            not_before_ms=1_900_000_000_000 if status == "Scheduled" else None,
        )
        document = Document(self.sequence, (event,) if status else ())
        callers = tuple(
            Caller(f"vm-{'abcd'[n]}", "group", "group", addresses=(address,), interface=interface)
            for n, (address, _, interface) in enumerate(self.places)
        )
        publications = (Publication("group", enabled=True, document=document),)
        self.server.apply(Change(self.sequence, callers=callers, publications=publications))

    def approve(self, request: ApprovalRequest) -> asyncio.Future[ApprovalAnswer]:
        """Start the event, and end it soon."""
        loop = asyncio.get_running_loop()
        known = request.event_ids == ("C7061BAC-AFDC-4513-B24B-AA5F13A16123",)
        if known and not self.approved:
            self.approved = True
            loop.call_later(STEP_S, self.show, "Started")
            loop.call_later(2 * STEP_S, self.show, "")
        future: asyncio.Future[ApprovalAnswer] = loop.create_future()
        future.set_result(ApprovalAnswer(known, "" if known else "unknown"))
        return future

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Never needed: the group is enabled."""
        raise NotImplementedError(vm)

    def polled(self, groups: frozenset[str]) -> None:
        """Nothing depends on polls here."""


async def main() -> None:
    """Serve until told to stop."""
    listen, *places = sys.argv[1:]
    control = OneEvent(places)
    bound = await control.server.start(listen.split(","))
    control.show("Scheduled")
    print(*bound, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await control.server.stop()


asyncio.run(main())
