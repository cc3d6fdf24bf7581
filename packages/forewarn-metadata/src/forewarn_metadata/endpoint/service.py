"""The shared state of a metadata service's connections: documents, callers, the date header.

Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from forewarn_base.clock import Clock
from forewarn_base.ids import Ids
from forewarn_base.protocol import timestamps
from forewarn_base.settings import MetadataSettings
from forewarn_core.requests import EnableRequest, RequestAnswer
from forewarn_metadata.connection_table import fd_limit
from forewarn_metadata.endpoint.fault import Fault
from forewarn_metadata.endpoint.http.open_connections import OpenConnection, OpenConnections
from forewarn_metadata.endpoint.http.request_reader import PendingRequest
from forewarn_metadata.endpoint.http.response import CLOSES, STAYS, STAYS_OLD
from forewarn_metadata.endpoint.identity import Peer
from forewarn_metadata.endpoint.rate_limit import Bucket
from forewarn_metadata.endpoint.responder import (
    KNOWN_BYTES_MAX,
    NOT_EMULATED,
    EmulatedAnswers,
    Responder,
)
from forewarn_metadata.endpoint.snapshot import Answer, CachedAnswer, PublishedView
from forewarn_metadata.replication.messages import (
    DocumentChange,
    PollReport,
    Publication,
    Upstream,
    VmPoll,
)

#: Maximum number of addresses whose VM is cached for connections with a single request.
VIEWS_BY_ADDRESS_MAX = 65_536

#: Interval in seconds of the reports of VMs' last polls.
ROUND_S = 60
DAY_S = 86_400

#: Time without requests, in seconds, after which the process may have been stopped meanwhile.
PAUSE_S = 1.0

_LOG = logging.getLogger("forewarn.metadata.service")


class _Round:
    """The VMs that the current round of reports has not examined yet."""

    def __init__(self, vms: list[str], tick: int, from_tick: int) -> None:
        self.vms = vms
        self.size = len(vms) // ROUND_S + 1
        self.tick = tick
        #: First second of the polls in the round.
        self.from_tick = from_tick
        self.tally: Counter[str] = Counter()


class MetadataService:
    """The state behind every connection."""

    def __init__(
        self,
        settings: MetadataSettings,
        upstream: Upstream,
        *,
        clock: Clock,
        ids: Ids,
        on_pause: Callable[[], object] = lambda: None,
        emulated: EmulatedAnswers = NOT_EMULATED,
    ) -> None:
        """Start without VMs or documents; call on the event loop.

        `on_pause` is called after a pause, before any answer, because documents may be outdated
        (H-3).
        """
        self.settings = settings
        self.upstream = upstream
        self.loop = asyncio.get_running_loop()
        self.responder = Responder(settings, emulated)
        #: Peer address -> cached answers and token bucket of its VM.
        self.views_by_address: dict[str, tuple[PublishedView, Bucket]] = {}
        self.connections = OpenConnections(settings, self.responder.callers, fds_max=fd_limit())
        #: Whole seconds since the start, on the monotonic clock.
        self.tick = 0
        self.stopping = False
        #: Future that completes with the last connection's close; set only while stopping.
        self.emptied: asyncio.Future[None] | None = None
        self._on_pause = on_pause
        self._served_s = 0.0
        self._clock = clock
        self._ids = ids
        self._round = _Round([], 0, 0)
        #: Number of VMs that polled within a day, by client, at the last round.
        self.user_agents: Counter[str] = Counter()
        #: Number of the current date header; each new date increases the number.
        self.dated = 0
        self._tails: dict[tuple[bool, bool], bytes] = {}
        self._set_date()

    # Used by connections.

    def remembers(self, raw: bytes) -> bool:
        """Return whether the answer to a request with these bytes may be cached."""
        if self.responder.fault is not None or self.stopping or self.settings.request_id:
            return False
        return len(raw) <= KNOWN_BYTES_MAX

    def answer(self, cached: CachedAnswer) -> bytes:
        """Return a cached answer with the current date.

        The first cached answer in each second records the group's poll. Source: B-2.
        """
        if cached.dated != self.dated:
            self.responder.polled[cached.view] = None
            head, body, close, old, _ = cached.answer
            cached.octets = b"".join((head, self._tails[close, old], body))
            cached.dated = self.dated
        return cached.octets

    def times(self) -> tuple[float, float]:
        """Return the time arguments of `Bucket.take`."""
        return self.responder.limit.times(self.loop.time())

    def now_s(self) -> float:
        """Return the time on the event loop's clock."""
        return self.loop.time()

    def look_after_pause(self, now_s: float) -> None:
        """Call `on_pause` if nothing was served for so long that the process may have stopped."""
        if now_s - self._served_s > PAUSE_S:
            self._on_pause()
        self._served_s = now_s

    def enable(self, pending: PendingRequest) -> None:
        """Enable the VM's group, unless this is already in progress. Source: B-1."""
        view, caller = pending.view, pending.caller
        assert view is not None
        assert caller is not None
        if not view.enabling:
            self._enable(view, caller.vm)

    def remember_address(self, peer: Peer, view: PublishedView, bucket: Bucket) -> None:
        """Use cached answers for new connections from this address."""
        if not peer.interface and not self.responder.callers.interfaces_matter:
            if len(self.views_by_address) >= VIEWS_BY_ADDRESS_MAX:
                self.views_by_address.clear()
            self.views_by_address[peer.address] = view, bucket

    def joined(self, answer: Answer) -> bytes:
        """Return an encoded answer with the current date."""
        return answer.head + self.tail(close=answer.close, old=answer.old) + answer.body

    def tail(self, *, close: bool, old: bool) -> bytes:
        """Return the end of an answer's head: the date and the connection headers."""
        tail = self._tails[close or self.stopping, old]
        if self.settings.request_id:
            return tail[:29] + f"\r\nx-ms-request-id: {self._request_id()}".encode() + tail[29:]
        return tail

    # Used by the server.

    def apply(self, change: DocumentChange) -> None:
        """Apply a change of the feed."""
        self.responder.figures.changes += 1
        moved: list[OpenConnection] = []
        of_callers = change.callers or change.gone or change.whole
        if of_callers and self.responder.apply(change):
            self.views_by_address.clear()
            for connection in self.connections:
                if connection.identity_moved():
                    moved.append(connection)
                self.connections.move(connection)
        publications = change.publications
        if self.responder.added is not None:
            publications = tuple(map(self.responder.added.shown, publications))
        self.responder.snapshot.publish(publications, whole=change.whole)
        for connection in (
            moved
        ):  # enable the group last, because the change may contain the group's new document
            connection.answer_again()

    def show(self, publication: Publication) -> None:
        """Show a document with added events; see `EmulatedAnswers`."""
        self.responder.snapshot.publish((publication,), whole=False)

    def view_of(self, vm: str) -> str:
        """Return the view of a VM; empty if the VM does not exist."""
        caller = self.responder.callers.named(vm)
        return caller.view if caller is not None else ""

    def group_of(self, vm: str) -> str:
        """Return the group of a VM; empty if the VM does not exist."""
        caller = self.responder.callers.named(vm)
        return caller.group if caller is not None else ""

    def set_fault(self, fault: Fault | None) -> None:
        """Start or stop injecting faults, and drop cached answers."""
        self.responder.fault = fault
        self.responder.snapshot.forget()

    def clock_moved(self) -> None:
        """Use the clock's new time immediately."""
        self._set_date()

    def second(self) -> None:
        """Run the tasks of each second: update the date, report polls, close slow connections."""
        self.tick += 1
        self._set_date()
        self.last_polls()
        self._report_vms()
        self.connections.sweep(self.tick)

    def forget(self, connection: OpenConnection) -> None:
        """Remove a closed connection."""
        self.connections.remove(connection)
        if self.emptied is not None and not self.connections and not self.emptied.done():
            self.emptied.set_result(None)

    def last_polls(self) -> None:
        """Report the polls of the last, unfinished second."""
        polled, self.responder.polled = self.responder.polled, {}
        if polled:
            self.responder.figures.documents_polled += len(polled)
            self.upstream.tell(PollReport(dict.fromkeys([view.group for view in polled], 0)))

    def poll_of(self, vm: str) -> VmPoll | None:
        """Return the last poll of a VM at any node; None if unknown. Safe on any thread."""
        bucket = self.responder.limit.known(vm)
        if bucket is None or bucket.user_agent is None:
            return None
        return VmPoll(vm, bucket.user_agent, max(self.tick - bucket.polled_tick, 0))

    def note_polls(self, polls: Sequence[VmPoll]) -> None:
        """Record the last polls that a node reports; ignore polls of unknown VMs."""
        for poll in polls:
            caller = self.responder.callers.named(poll.vm)
            if caller is None:
                continue
            bucket, tick = self.responder.bucket(caller), self.tick - poll.age_s
            if bucket.user_agent is None or tick > bucket.polled_tick:
                bucket.polled_tick, bucket.user_agent = tick, poll.user_agent

    def _report_vms(self) -> None:
        """Report a part of the VMs that polled since the last round.

        Each second examines a part of the VMs, and a round over all VMs takes about a minute.
        """
        vms = self._round.vms
        if not vms:
            self.user_agents = self._round.tally
            self._round = _Round(self.responder.limit.vms(), self.tick, self._round.tick)
            vms = self._round.vms
        part = vms[-self._round.size :]
        del vms[-self._round.size :]
        tick, from_tick, tally = self.tick, self._round.from_tick, self._round.tally
        polls: list[VmPoll] = []
        for vm in part:
            bucket = self.responder.limit.known(vm)
            if bucket is None or bucket.user_agent is None:
                continue
            if bucket.polled_tick > tick - DAY_S:
                tally[bucket.user_agent] += 1
            if bucket.polled_tick >= from_tick:
                polls.append(VmPoll(vm, bucket.user_agent, tick - bucket.polled_tick))
        if polls:
            self.upstream.tell(PollReport(vms=tuple(polls)))

    def _enable(self, view: PublishedView, vm: str) -> None:
        """Enable the group after the delay, and hold the group's requests until then. Source: B-1.

        Events announced during the delay require no notice (B-3). Events announced after the delay
        are shown immediately (N-1).
        """
        view.enabling = True
        self.loop.call_later(self.settings.enable_delay_s, self._ask_to_enable, view, vm)

    def _ask_to_enable(self, view: PublishedView, vm: str) -> None:
        if view.enabled or self.stopping:  # another node enabled the group first
            view.enabling = False
            return
        self.upstream.ask(EnableRequest(vm)).add_done_callback(partial(self._enabled, view))

    def _enabled(self, view: PublishedView, done: asyncio.Future[RequestAnswer]) -> None:
        view.enabling = False
        failed = done.cancelled() or done.exception() is not None
        if failed or not done.result().accepted:
            _LOG.warning(
                "The metadata service could not enable the group %s.",
                view.group,
                extra={"action": "enable"},
            )

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
