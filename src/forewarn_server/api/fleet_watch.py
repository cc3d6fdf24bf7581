"""The live fleet overview: commits update the overview, and streams send it to watchers.

The writer's thread only queues each commit. The overview encodes its changes at most ten times a
second, once for all watchers. A watcher that falls behind reloads everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol, TypeVar

from forewarn_base.clock import Clock
from forewarn_base.errors import OurError
from forewarn_base.protocol import timestamps
from forewarn_base.validation.fields import Schema
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.topology import Topology
from forewarn_server.api import schemas
from forewarn_server.api.fleet_overview import OPERATIONS_MAX, STATES, FleetOverview, Rack
from forewarn_server.api.responses import encoded
from forewarn_server.api.watch import OpenStreams
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.plane import StateView
from forewarn_server.control.readable import ReadableControl

T = TypeVar("T")

#: Shortest time between two messages, in seconds; each message combines all new changes.
PAUSE_S = 0.1
#: Shortest time between messages after hosts were added or removed, in seconds; each of these
#: messages costs O(fleet).
LAYOUT_PAUSE_S = 1.0
#: Longest time between two messages, in seconds; the page sets its clock from messages.
SILENCE_S_MAX = 2.0
#: Maximum number of stored messages for watchers that reconnect; each message is bounded.
MESSAGES_MAX = 256
#: Maximum number of commits that are queued while nobody follows; the overview is rebuilt
#: when the queue is full.
COMMITS_MAX = 20_000
#: Message that makes a watcher reload the overview.
RELOAD = "reload"


COUNTS: Schema = {"type": "object", "additionalProperties": schemas.WHOLE}
RACK: schemas.ObjectSchema[Rack] = schemas.ObjectSchema(
    "",
    "A rack, or several neighbouring racks.",
    schemas.Member("zone", schemas.TEXT),
    schemas.Member(
        "first", schemas.TEXT, meaning="The hosts' label `rack`, or their fault domain."
    ),
    schemas.Member("last", schemas.TEXT, meaning="Last rack, if the entry combines several racks."),
    schemas.Member(
        "hosts", COUNTS, lambda rack: dict(+rack.hosts), "Number of hosts by state letter."
    ),
    schemas.Member("vms", schemas.WHOLE),
    schemas.Member(
        "disturbed",
        COUNTS,
        lambda rack: dict(+rack.disturbed),
        "Number of affected VMs by state letter.",
    ),
)


class Reader(Protocol):
    """Reads the live state and runs work on a thread: the `ControlClient`."""

    async def read(self, query: Callable[[StateView], T]) -> T:
        """Return the result of a query on the live state."""

    async def compute(self, work: Callable[[], T]) -> T:
        """Run a long computation off the event loop."""


class FleetWatch:
    """Maintains the overview and streams its changes to watchers."""

    def __init__(self, loop: ReadableControl, clock: Clock, streams: OpenStreams) -> None:
        """Start without an overview, which the first reader loads."""
        self._loop = loop
        self._clock = clock
        self._streams = streams
        self._overview: FleetOverview | None = None
        self._lock = threading.Lock()
        self._commits: deque[StepResult] = deque(maxlen=COMMITS_MAX)
        self._sequence = 0
        self._subscribed = False
        #: Random id that distinguishes the versions of this process run from earlier runs.
        self._epoch = clock.now_ms()
        self._version = 0
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=MESSAGES_MAX)
        #: The last complete overview as JSON, and its commit.
        self._whole: tuple[int, bytes] = (-1, b"")
        self._here: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        #: Set by the next message, and then replaced.
        self._message = asyncio.Event()
        self._watchers = 0
        self._ticking: asyncio.Task[None] | None = None
        self._stopped = False

    async def query(self, control: Reader, question: Callable[[FleetOverview], T]) -> T:
        """Return the result of a query on the current overview; the query runs on a thread.

        Raises:
            AnswerOverdue, Stopping: as `Reader.read`.
        """
        while True:
            await self._see(control)
            result = await control.compute(lambda: self._query(question))
            if result is not None:
                return result[0]

    async def whole(self, control: Reader) -> bytes:
        """Return the complete overview as JSON, encoded once per commit; raises as `look`."""
        return await self.query(control, self._everything)

    async def follow(
        self, control: Reader, place: str, operator: str
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield new messages after a place, and time messages during silence.

        The caller has counted the stream, and this function stops counting it.
        """
        self._watchers += 1
        try:
            await self._see(control)
            if self._ticking is None and not self._stopped:
                self._ticking = asyncio.create_task(self._tick(control))
                self._news.set()
            yield [self._event("time", {})]
            after = self._read_place(place)
            while not self._stopped:
                messages = [each for each in self._messages if each[0] > after]
                follows = after == self._version or (messages and messages[0][0] == after + 1)
                if after < 0 or not follows:
                    after = self._version
                    yield [self._event(RELOAD, {})]
                elif messages:
                    after = messages[-1][0]
                    yield [data for _, data in messages]
                elif not await self._wait():
                    yield [self._event("time", {})]
        finally:
            self._watchers -= 1
            self._streams.leave(operator)
            if not self._watchers and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None

    async def within(self, control: Reader) -> bytes:
        """Return the overview for a caller restricted to some owners; O(the owners' records)."""
        parts, listening, sequence = await control.read(_whole_state)
        place = f"{self._epoch}-{sequence}"
        overview = await control.compute(lambda: FleetOverview(*parts, listening=listening))
        return encoded({**self._now(), "refused": [], **_fleet_form(overview, place)})

    async def follow_scoped(
        self, control: Reader, operator: str
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield a reload message to a restricted caller after each change of its records."""
        self._watchers += 1
        before = None
        try:
            while not self._stopped:
                work = (await control.read(_whole_state))[0][1:3]
                event = RELOAD if before is not None and work != before else "time"
                before = work
                shown = encoded({**self._now(), "refused": []})
                yield [b"event: %b\ndata: %b\n\n" % (event.encode(), shown)]
                await asyncio.sleep(LAYOUT_PAUSE_S)
        finally:
            self._watchers -= 1
            self._streams.leave(operator)

    def stop(self) -> None:
        """End every stream, and the encoding of changes."""
        self._stopped = True
        if self._ticking is not None:
            self._ticking.cancel()
        self._wake()

    # --- updates ------------------------------------------------------------------------------

    async def _see(self, control: Reader) -> None:
        """Build the overview if there is none; O(fleet) for a build."""
        self._here = asyncio.get_running_loop()
        if self._overview is not None and len(self._commits) < COMMITS_MAX:
            return
        if not self._subscribed:  # sequence numbers identify repeated commits
            self._subscribed = True
            self._loop.on_committed.add(self._note)
        self._commits.clear()
        parts, listening, sequence = await control.read(_whole_state)
        overview = await control.compute(lambda: FleetOverview(*parts, listening=listening))
        with self._lock:
            overview.layout += self._overview.layout if self._overview else 0
            self._overview, self._sequence = overview, sequence
        self._begin_again()

    def _note(self, committed: StepResult) -> None:
        """Queue a commit; runs on the writer's thread."""
        if committed.changes:
            self._commits.append(committed)
            if self._watchers and self._here is not None and not self._here.is_closed():
                self._here.call_soon_threadsafe(self._news.set)

    def _query(self, question: Callable[[FleetOverview], T]) -> tuple[T] | None:
        """Query the current overview; return None if the overview missed a commit."""
        with self._lock:
            overview = self._overview
            if overview is None:
                return None
            while self._commits:
                committed = self._commits.popleft()
                changes = committed.changes
                if committed.sequence <= self._sequence:
                    continue
                if committed.sequence != self._sequence + 1 or changes.topology is not None:
                    self._overview = None
                    return None
                self._sequence = committed.sequence
                overview.adopt(changes)
            overview.settle()
            return (question(overview),)

    async def _tick(self, control: Reader) -> None:
        """Encode changes repeatedly until the last watcher leaves."""
        while True:
            await self._news.wait()
            self._news.clear()
            version = self._version
            try:
                event, shown, more = await self.query(control, self._next_message)
            except Stopping:
                self._begin_again()
                return
            except OurError:  # reading the state took too long
                self._begin_again()
                event, shown, more = "", {}, True
            made_again = version != self._version
            pause_s = LAYOUT_PAUSE_S if made_again or event == RELOAD else PAUSE_S
            if event:
                self._version += 1
                self._messages.append((self._version, self._event(event, shown)))
                self._wake()
            if more:
                self._news.set()
            await asyncio.sleep(pause_s)

    def _begin_again(self) -> None:
        """Make all watchers reload everything, because messages may be lost."""
        self._version += 1
        self._messages.clear()
        self._wake()

    async def _wait(self) -> bool:
        """Wait for a message; return False on a long silence."""
        message = self._message
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S_MAX):
                await message.wait()
        return message.is_set()

    def _wake(self) -> None:
        message, self._message = self._message, asyncio.Event()
        message.set()

    # --- messages -----------------------------------------------------------------------------

    def _event(self, name: str, shown: dict[str, object]) -> bytes:
        body = {**self._always(), **shown}
        place = f"{self._epoch}-{self._version}".encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (place, name.encode(), encoded(body))

    def _read_place(self, place: str) -> int:
        """Return the version from which a stream resumes; -1 if later messages were dropped."""
        epoch, _, version = place.partition("-")
        if epoch != str(self._epoch) or not version.isdigit() or int(version) > self._version:
            return -1
        return int(version)

    def _everything(self, overview: FleetOverview) -> bytes:
        if self._whole[0] != self._sequence:
            place = f"{self._epoch}-{self._version}"
            self._whole = self._sequence, encoded(_fleet_form(overview, place))
        return encoded(self._always())[:-1] + b"," + self._whole[1][1:]

    def _always(self) -> dict[str, object]:
        """Return the members that every message contains because they change without a commit."""
        refused = self._loop.refused_records.sentences()
        return {**self._now(), "refused": refused}

    def _now(self) -> dict[str, object]:
        return {"now": timestamps.iso8601(self._clock.now_ms())}

    def _next_message(self, overview: FleetOverview) -> tuple[str, dict[str, object], bool]:
        """Return the message with the next changes, and whether more changes remain."""
        difference = overview.difference()
        if difference.laid_out:
            return RELOAD, {}, False
        if not difference:
            return "", {}, False
        shown = {
            "hosts": list(difference.hosts.items()),
            "racks": [(place, RACK.of(overview.racks[place])) for place in difference.racks],
            "counts": overview.counts(),
            "operations": _operations(overview, difference.operations),
        }
        return "change", shown, len(difference.operations) >= OPERATIONS_MAX


def _fleet_form(overview: FleetOverview, place: str) -> dict[str, object]:
    """Return the complete overview in the form of a message."""
    return {
        "place": place,
        "layout": overview.layout,
        "states": STATES,
        "hosts": len(overview.names),
        "host_states": overview.encoded_states(),
        "racks": RACK.each(overview.racks),
        "counts": overview.counts(),
        "operations": _operations(overview, overview.urgent()),
    }


def _operations(overview: FleetOverview, operations: Iterable[Operation]) -> list[object]:
    return [
        schemas.GLANCE.of(schemas.Glance(each, *overview.approvals(each))) for each in operations
    ]


def _whole_state(
    view: StateView,
) -> tuple[tuple[Topology, dict[int, Operation], dict[str, Event]], tuple[str, ...], int]:
    """Return the overview's source state, the enabled groups, and the commit's sequence number."""
    state = view.state
    parts = view.fleet(), dict(state.operations), dict(state.events)
    return parts, tuple(state.enrolments), view.sequence
