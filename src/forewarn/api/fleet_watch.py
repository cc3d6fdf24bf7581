"""The live fleet overview: updated by commits, streamed to its followers.

The writer's thread hands over each commit and continues. Changes are encoded at most ten times a
second, once for all followers; a follower that falls behind reloads everything.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from forewarn.api import schemas
from forewarn.api.fleet_overview import OPERATIONS_MAX, STATES, FleetOverview
from forewarn.api.responses import encoded
from forewarn.control.inbox import Stopping
from forewarn.errors import OurError
from forewarn.protocol import timestamps

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from forewarn.api.fleet_overview import Rack
    from forewarn.api.watch import OpenStreams
    from forewarn.clock import Clock
    from forewarn.control.plane import Committed, StateView
    from forewarn.control.readable import ReadableControl
    from forewarn.core.lifecycle import Event, Operation
    from forewarn.core.topology import Topology

T = TypeVar("T")

#: Seconds between two messages; changes in between are combined.
PAUSE_S = 0.1
#: The same while hosts are added or removed: each such message costs the fleet.
LAYOUT_PAUSE_S = 1.0
#: Longest silence of a stream in seconds: the page sets its clock by the messages.
SILENCE_S_MAX = 2.0
#: Messages kept for followers that reconnect, each of bounded size.
MESSAGES_MAX = 256
#: Most commits queued without a follower; beyond it the overview is rebuilt.
COMMITS_MAX = 20_000
#: The event that makes a follower reload everything.
RELOAD = "reload"


class Reader(Protocol):
    """Reads the live state and runs work on a thread: the `ControlClient`."""

    async def read(self, query: Callable[[StateView], T]) -> T:
        """Return the result of a query on the live state."""

    async def compute(self, work: Callable[[], T]) -> T:
        """Run a long computation off the event loop."""


class FleetWatch:
    """Maintains the overview and streams its changes to followers."""

    def __init__(self, loop: ReadableControl, clock: Clock, streams: OpenStreams) -> None:
        """Start empty: the first reader loads the overview."""
        self._loop = loop
        self._clock = clock
        self._streams = streams
        self._overview: FleetOverview | None = None
        self._lock = threading.Lock()
        self._commits: deque[Committed] = deque(maxlen=COMMITS_MAX)
        self._sequence = 0
        self._subscribed = False
        #: Distinguishes this run's versions from those of an earlier one.
        self._epoch = clock.now_ms()
        self._version = 0
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=MESSAGES_MAX)
        #: The last whole overview as JSON, and its commit.
        self._whole: tuple[int, bytes] = (-1, b"")
        self._here: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._followers = 0
        self._ticking: asyncio.Task[None] | None = None
        self._stopped = False

    async def look(self, control: Reader, question: Callable[[FleetOverview], T]) -> T:
        """Return the result of a query on the current overview, run on a thread.

        Raises:
            AnswerOverdue, Stopping: as `Reader.read`.
        """
        while True:
            await self._see(control)
            answer = await control.compute(lambda: self._asked(question))
            if answer is not None:
                return answer[0]

    async def whole(self, control: Reader) -> bytes:
        """Return the whole overview as JSON, encoded once per commit. Raises as `look`."""
        return await self.look(control, self._everything)

    async def follow(
        self, control: Reader, place: str, operator: str
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield messages after a place as they arrive, and the time during silence.

        The caller has counted the stream; this function releases it.
        """
        self._followers += 1
        try:
            await self._see(control)
            if self._ticking is None:
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
            self._followers -= 1
            self._streams.leave(operator)
            if not self._followers and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None

    async def within(self, control: Reader) -> bytes:
        """Return the overview for a caller restricted to some owners; O(their records)."""
        parts, listening, sequence = await control.read(_whole_state)
        place = f"{self._epoch}-{sequence}"
        overview = await control.compute(lambda: FleetOverview(*parts, listening=listening))
        return encoded({**self._now(), "refused": [], **_shown(overview, place)})

    async def follow_within(
        self, control: Reader, operator: str
    ) -> AsyncGenerator[list[bytes], None]:
        """Send such a caller a reload after each change that concerns them."""
        self._followers += 1
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
            self._followers -= 1
            self._streams.leave(operator)

    def stop(self) -> None:
        """End every stream."""
        self._stopped = True
        self._wake()

    # --- keeping it ---------------------------------------------------------------------------

    async def _see(self, control: Reader) -> None:
        """Ensure that an overview exists; O(fleet) if it must be built."""
        self._here = asyncio.get_running_loop()
        if self._overview is not None and len(self._commits) < COMMITS_MAX:
            return
        if not self._subscribed:  # commits seen twice are recognized by their sequence
            self._subscribed = True
            self._loop.on_committed.add(self._note)
        self._commits.clear()
        parts, listening, sequence = await control.read(_whole_state)
        overview = await control.compute(lambda: FleetOverview(*parts, listening=listening))
        with self._lock:
            overview.layout += self._overview.layout if self._overview else 0
            self._overview, self._sequence = overview, sequence
        self._begin_again()

    def _note(self, committed: Committed) -> None:
        """Queue a commit; called on the writer's thread."""
        if committed.changes is not None:
            self._commits.append(committed)
            if self._followers and self._here is not None and not self._here.is_closed():
                self._here.call_soon_threadsafe(self._news.set)

    def _asked(self, question: Callable[[FleetOverview], T]) -> tuple[T] | None:
        """Query the current overview; None: it missed a commit and must be rebuilt."""
        with self._lock:
            overview = self._overview
            if overview is None:
                return None
            while self._commits:
                committed = self._commits.popleft()
                changes = committed.changes
                if changes is None or committed.sequence <= self._sequence:
                    continue
                if committed.sequence != self._sequence + 1 or changes.topology is not None:
                    self._overview = None
                    return None
                self._sequence = committed.sequence
                overview.adopt(changes)
            overview.settle()
            return (question(overview),)

    async def _tick(self, control: Reader) -> None:
        """Encode changes for as long as there are followers."""
        while True:
            await self._news.wait()
            self._news.clear()
            version = self._version
            try:
                event, shown, more = await self.look(control, self._changed)
            except Stopping:  # or the last follower left
                self._begin_again()
                return
            except OurError:  # the state was not read in time
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
        """Make all followers reload everything: messages for them may be lost."""
        self._version += 1
        self._messages.clear()
        self._wake()

    async def _wait(self) -> bool:
        """Wait for a message; return False on a long silence."""
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        done, _ = await asyncio.wait([news], timeout=SILENCE_S_MAX)
        if not done:
            news.cancel()
        return bool(done)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            if not news.done():
                news.set_result(None)

    # --- messages -----------------------------------------------------------------------------

    def _event(self, name: str, shown: dict[str, object]) -> bytes:
        body = {**self._always(), **shown}
        place = f"{self._epoch}-{self._version}".encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (place, name.encode(), encoded(body))

    def _read_place(self, place: str) -> int:
        """Return the version a stream resumes from; -1: later messages are no longer kept."""
        epoch, _, version = place.partition("-")
        if epoch != str(self._epoch) or not version.isdigit() or int(version) > self._version:
            return -1
        return int(version)

    def _everything(self, overview: FleetOverview) -> bytes:
        if self._whole[0] != self._sequence:
            place = f"{self._epoch}-{self._version}"
            self._whole = self._sequence, encoded(_shown(overview, place))
        return encoded(self._always())[:-1] + b"," + self._whole[1][1:]

    def _always(self) -> dict[str, object]:
        """Return the members of every message that change without a commit."""
        refused = self._loop.refused_records.sentences()
        return {**self._now(), "refused": refused}

    def _now(self) -> dict[str, object]:
        return {"now": timestamps.iso8601(self._clock.now_ms())}

    def _changed(self, overview: FleetOverview) -> tuple[str, dict[str, object], bool]:
        """Return the event with the changes, and whether there are more."""
        difference = overview.difference()
        if difference.laid_out:
            return RELOAD, {}, False
        if not difference:
            return "", {}, False
        shown = {
            "hosts": list(difference.hosts.items()),
            "racks": [(place, _rack(overview.racks[place])) for place in difference.racks],
            "counts": overview.counts(),
            "operations": _operations(overview, difference.operations),
        }
        return "change", shown, len(difference.operations) >= OPERATIONS_MAX


def _shown(overview: FleetOverview, place: str) -> dict[str, object]:
    return {
        "place": place,
        "layout": overview.layout,
        "states": STATES,
        "hosts": len(overview.names),
        "host_states": overview.runs(),
        "racks": [_rack(each) for each in overview.racks],
        "counts": overview.counts(),
        "operations": _operations(overview, overview.urgent()),
    }


def _rack(rack: Rack) -> dict[str, object]:
    return {
        "zone": rack.zone,
        "first": rack.first,
        "last": rack.last,
        "hosts": {letter: count for letter, count in rack.hosts.items() if count},
        "vms": rack.vms,
        "disturbed": {letter: count for letter, count in rack.disturbed.items() if count},
    }


def _operations(overview: FleetOverview, operations: Iterable[Operation]) -> list[object]:
    return [
        schemas.GLANCE.of(schemas.Glance(each, *overview.approvals(each))) for each in operations
    ]


def _whole_state(
    view: StateView,
) -> tuple[tuple[Topology, dict[int, Operation], dict[str, Event]], tuple[str, ...], int]:
    """Return the parts of an overview, the enabled groups, and the commit's sequence number."""
    state = view.state
    parts = view.fleet(), dict(state.operations), dict(state.events)
    return parts, tuple(state.enrolments), view.sequence
