"""What all connections of one metadata service share: documents, callers, the second's date.

No socket may go in here. Everything happens on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from forewarn.metadata import responder as answers
from forewarn.metadata.http import request as requests
from forewarn.metadata.http.response import CLOSES, STAYS, STAYS_OLD, Response, head_of
from forewarn.metadata.identity import Callers
from forewarn.metadata.rate_limit import RateLimit
from forewarn.metadata.snapshot import Snapshot
from forewarn.protocol import timestamps

if TYPE_CHECKING:
    from forewarn.clock import Clock
    from forewarn.ids import Ids
    from forewarn.metadata.fault import Fault
    from forewarn.metadata.http.connection import Connection
    from forewarn.metadata.http.request import HttpRequest
    from forewarn.metadata.identity import Peer
    from forewarn.metadata.rate_limit import Bucket
    from forewarn.metadata.responder import Planned
    from forewarn.metadata.snapshot import PublishedView, Remembered
    from forewarn.replication.messages import Caller, DocumentChange, Upstream
    from forewarn.settings import MetadataSettings

KNOWN_MAX = 1024
"""Requests remembered by their bytes; each client program in use sends one or two."""

KNOWN_BYTES_MAX = 2048
"""Longest request remembered; the longest seen from a real client has 600 bytes."""

DOORS_MAX = 65_536
"""Addresses whose view is remembered for connections that send one request and close."""

_LOG = logging.getLogger(__name__)


class MetadataService:
    """The state behind every connection."""

    def __init__(
        self, settings: MetadataSettings, upstream: Upstream, *, clock: Clock, ids: Ids
    ) -> None:
        """Start without any VM or document; call on the event loop."""
        self.settings = settings
        self.upstream = upstream
        self.loop = asyncio.get_running_loop()
        self.callers = Callers(settings)
        self.known: dict[bytes, tuple[HttpRequest, Planned]] = {}
        self.doors: dict[str, tuple[PublishedView, Bucket]] = {}
        """Peer address -> what its VM is shown and its tokens, where the address says who asks."""
        self.connections: dict[Connection, None] = {}
        """All open connections, the oldest first."""
        self.tick = 0
        """Whole seconds since the start, on the monotonic clock."""
        self.stopping = False
        self.emptied: asyncio.Future[None] | None = None
        """Done once the last connection is closed; only while stopping."""
        self.fault: Fault | None = None
        self.limit = RateLimit(settings.rate_per_s, settings.rate_burst)
        self._snapshot = Snapshot(settings.server_header)
        self._clock = clock
        self._ids = ids
        self._polled: dict[PublishedView, None] = {}
        self.dated = 0
        """Number of the date that answers carry now; each new date has another."""
        self._tails: dict[tuple[bool, bool], bytes] = {}
        self._set_date()

    # What connections use.

    def remembers(self, raw: bytes) -> bool:
        """Whether the answer to a request of these bytes may be remembered."""
        if self.fault is not None or self.stopping or self.settings.request_id:
            return False
        return len(raw) <= KNOWN_BYTES_MAX

    def answer(self, found: Remembered) -> bytes:
        """Return a remembered answer with the present date.

        Who is answered from memory is not seen: the first such answer of each second is the mark
        that the group asked. Source: B-2.
        """
        if found.dated != self.dated:
            self._polled[found.view] = None
            head, body, close, old = found.pieces
            found.answer = head + self._tails[close, old] + body
            found.dated = self.dated
        return found.answer

    def times(self) -> tuple[float, float]:
        """Return what `Bucket.take` has to know of the time."""
        return self.limit.times(self.loop.time())

    def read(self, raw: bytes) -> tuple[HttpRequest, Planned]:
        """Read a request's head, and note what it means where it has no body."""
        request = requests.parse_head(raw[:-4])
        meaning = request, answers.planned(request, self.settings)
        if request.length == 0:
            requests.expects_continue(request)
            if len(raw) <= KNOWN_BYTES_MAX:
                if len(self.known) >= KNOWN_MAX:
                    del self.known[next(iter(self.known))]
                self.known[raw] = meaning
        return meaning

    def view_of(self, caller: Caller) -> PublishedView:
        """Return what this VM is shown."""
        return self._snapshot.view(caller.view)

    def mark(self, caller: Caller) -> None:
        """Note that the VM asked for Scheduled Events, whatever it is answered. Source: B-2."""
        self._polled[self.view_of(caller)] = None

    def begin_show(self, view: PublishedView, caller: Caller) -> bool:
        """Enable the VM's group where it is not. True: show now. Source: B-1."""
        if not view.enabled and not view.enabling:
            self._enable(view, caller)
        return view.enabled

    def open_door(self, peer: Peer, view: PublishedView, bucket: Bucket) -> None:
        """Let new connections from this address be answered from memory."""
        if not peer.interface and not self.callers.interfaces_matter:
            if len(self.doors) >= DOORS_MAX:
                self.doors.clear()
            self.doors[peer.address] = view, bucket

    def head(self, answer: Response) -> bytes:
        """Return the head of an answer up to its date."""
        return head_of(answer, self.settings.server_header)

    def tail(self, *, close: bool, old: bool = False) -> bytes:
        """Return the rest of an answer's head: the date and what depends on the connection."""
        tail = self._tails[close or self.stopping, old]
        if self.settings.request_id:
            return tail[:29] + f"\r\nx-ms-request-id: {self._request_id()}".encode() + tail[29:]
        return tail

    # What the server uses.

    def apply(self, change: DocumentChange) -> None:
        """Take over a change of the feed."""
        moved: list[Connection] = []
        if self.callers.apply(change):
            self.doors.clear()
            moved = [each for each in self.connections if each.identity_moved()]
            if change.whole:
                self.limit.keep(caller.vm for caller in change.callers)
            self.limit.forget(change.gone)
        self._snapshot.publish(change.publications, whole=change.whole)
        for connection in moved:  # only now: its new document may be in the same change
            connection.answer_anew()

    def set_fault(self, fault: Fault | None) -> None:
        """Disturb answers from now on, or no more; what was remembered is forgotten."""
        self.fault = fault
        self._snapshot.forget()

    def clock_moved(self) -> None:
        """Show the clock's new time at once, not with the next second."""
        self._set_date()

    def second(self) -> None:
        """Do what is done once a second: the date, the poll marks, the slow and the silent."""
        self.tick += 1
        self._set_date()
        self.last_polls()
        self._sweep()

    def forget(self, connection: Connection) -> None:
        """Strike a closed connection off."""
        self.connections.pop(connection, None)
        if self.emptied is not None and not self.connections and not self.emptied.done():
            self.emptied.set_result(None)

    def last_polls(self) -> None:
        """Hand on the poll marks of the last, unfinished second."""
        polled, self._polled = self._polled, {}
        if polled:
            self.upstream.polled(frozenset(view.group for view in polled))

    def make_room(self) -> bool:
        """Close the oldest idle connection; False where there is none."""
        for connection in self.connections:
            if connection.idle and not connection.over:
                connection.stop()
                return True
        return False

    def _sweep(self) -> None:
        settings = self.settings
        idle_from = self.tick - settings.idle_timeout_s
        slow_from = self.tick - settings.request_timeout_s
        stall_from = self.tick - settings.stall_timeout_s
        for connection in tuple(self.connections):
            if connection.over or connection.stalled:
                if connection.stamp <= stall_from:
                    connection.abandon()
            elif connection.unfinished:
                if connection.since <= slow_from:
                    connection.slow()
            elif connection.stamp <= idle_from and connection.idle:
                connection.stop()

    def _enable(self, view: PublishedView, caller: Caller) -> None:
        """Have the group enabled after the delay; its answers are held until it is. Source: B-1.

        The delay comes before: what is announced during it is owed no notice (B-3), and what is
        announced after it is seen at once (N-1).
        """
        view.enabling = True
        self.loop.call_later(self.settings.enable_delay_s, self._ask_to_enable, view, caller.vm)

    def _ask_to_enable(self, view: PublishedView, vm: str) -> None:
        if view.enabled or self.stopping:  # another node was first
            view.enabling = False
            return
        self.upstream.enable(vm).add_done_callback(partial(self._enabled, view))

    def _enabled(self, view: PublishedView, done: asyncio.Future[None]) -> None:
        view.enabling = False
        if done.cancelled() or done.exception() is not None:
            _LOG.warning("Group %s could not be enabled.", view.group, extra={"action": "enable"})

    def _set_date(self) -> None:
        self.dated += 1
        date = timestamps.rfc1123(self._clock.now_ms()).encode("ascii")
        self._tails = {
            (False, False): date + STAYS,
            (False, True): date + STAYS_OLD,
            (True, False): date + CLOSES,
            (True, True): date + CLOSES,
        }

    def _request_id(self) -> str:
        return self._ids.guid("request").lower()
