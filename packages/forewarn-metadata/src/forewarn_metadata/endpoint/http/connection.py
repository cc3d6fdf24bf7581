"""One connection without its socket: converts received bytes to answers, in order.

A connection may hold a request before its answer. Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from functools import partial

from forewarn_base.errors import CallerError
from forewarn_base.protocol.versions import EVENTS_PATH
from forewarn_core.requests import ApprovalRequest, OutcomeRequest, RequestAnswer
from forewarn_metadata.endpoint.http import request as requests
from forewarn_metadata.endpoint.http.open_connections import ConnectedClient
from forewarn_metadata.endpoint.http.request_reader import PendingRequest, RequestReader
from forewarn_metadata.endpoint.http.response import CONTINUE
from forewarn_metadata.endpoint.identity import UNIX, Peer
from forewarn_metadata.endpoint.rate_limit import Bucket
from forewarn_metadata.endpoint.responder import CUT, Hold, Reaction, Reset
from forewarn_metadata.endpoint.routing import ApproveEvents
from forewarn_metadata.endpoint.service import MetadataService
from forewarn_metadata.endpoint.snapshot import Answer, CachedAnswer, PublishedView

PIPELINE_BYTES_MAX = (
    128 * 1024
)  # limit of buffered bytes while an answer is held; at the limit the transport stops reading
WRITE_BYTES_MAX = 64 * 1024  # limit of answers to pipelined requests in one write
#: Empty cache for a connection that must not use cached answers.
NOTHING: dict[bytes, CachedAnswer] = {}
#: Unused token bucket of a connection without cached answers.
NOBODYS = Bucket()


class Connection:
    """The state of one connection."""

    __slots__ = (
        "_home",
        "_reader",
        "_timer",
        "bucket",
        "client",
        "eof",
        "held",
        "over",
        "peer",
        "reading",
        "ready",
        "service",
        "since",
        "stalled",
        "stamp",
    )

    def __init__(self, service: MetadataService, peer: Peer, client: ConnectedClient) -> None:
        self.service = service
        self.peer = peer
        #: Caller to whose limit the connection counts.
        self.client = client
        #: Request bytes -> cached answer; empty while a request is in progress.
        self.ready = NOTHING
        #: Token bucket for the cached answers in `ready`.
        self.bucket = NOBODYS
        #: Second of the connection's last activity.
        self.stamp = service.tick
        #: Second in which the unfinished request began; undefined without an unfinished request.
        self.since = service.tick
        self.eof = False
        #: Whether the connection refuses further requests.
        self.over = False
        #: Whether the client has stopped reading answers.
        self.stalled = False
        self.reading = True
        self._home = NOTHING
        self._reader = RequestReader()
        self.held: PendingRequest | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- methods for transports

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return self.held is None and not self._reader.begun and not self.stalled

    @property
    def unfinished(self) -> bool:
        """Whether a request has arrived in part."""
        return self.held is None and self._reader.begun and not self.stalled

    def enter(self, view: PublishedView, bucket: Bucket) -> None:
        """Use cached answers from the start, because the address identifies the caller."""
        self.ready = self._home = view.ready
        self.bucket = bucket

    def answered(self, octets: bytes) -> bool:
        """Send a cached answer; return False for unknown bytes or an empty token bucket."""
        service, answer = self.service, self.ready.get(octets)
        if answer is None or not self.bucket.take(*service.times()):
            return False
        self.stamp = self.bucket.polled_tick = service.tick
        self.bucket.user_agent = answer.user_agent
        self._write(service.answer(answer))
        return True

    def received(self, octets: bytes) -> None:
        """Process received bytes."""
        if self.over:
            return
        self.stamp = self.service.tick
        if (
            not self._reader.begun and self.client.is_known
        ):  # further bytes do not restart the time limit
            self.since = self.service.tick
        self._reader.push(octets)
        if self.held is None and not self.stalled:
            self._advance()
        elif len(self._reader) > PIPELINE_BYTES_MAX and self.reading:
            self.reading = False
            self._read(wanted=False)

    def received_eof(self) -> None:
        """Handle the end of the client's data; received requests are still answered."""
        self.eof = True
        if self.held is None and not self.stalled and not self.over:
            self._finish()

    def unstalled(self) -> None:
        """Continue after the client has read its answers."""
        self.stalled = False
        self.stamp = self.service.tick
        if not self.over and self.held is None:
            self._go_on()

    def lost(self) -> None:
        """Drop all state of a closed connection."""
        self.over = True
        self._let_go()
        self._reader.clear()
        self.ready = self._home = NOTHING

    def abandon(self) -> None:
        """Close the connection without waiting."""
        self.lost()
        self._reset()

    def stop(self) -> None:
        """Close now if idle, otherwise after the current answer; answer held requests now."""
        if self.over:
            return
        if self.held is None:
            self._finish()
            return
        self.held.close = True
        if not isinstance(self.held.routed.action, ApproveEvents):
            self._time_up()

    def make_way(self) -> bool:
        """Close in favour of a new connection; return False during an approval."""
        held = self.held
        if held is not None and isinstance(held.routed.action, ApproveEvents):
            return False
        if self.over or self.stalled or self.unfinished:
            self.abandon()
        else:
            self.stop()
        return True

    def slow(self) -> None:
        """Refuse a request that has not arrived in time."""
        self._break_off(requests.RequestSlow())

    def identity_moved(self) -> bool:
        """Identify the caller again; return whether a held request has another caller now.

        So has the held request of a removed VM that is back. S-4, S-6.
        """
        self.ready = self._home = NOTHING
        callers = self.service.responder.callers
        if callers.interfaces_matter and not self.peer.interface and self.peer.address != UNIX:
            self.peer = self.peer._replace(interface=self._interface())
        held = self.held
        if held is not None and held.disturbance is CUT:
            return callers.find(self.peer, held.request).caller is not None
        if held is None or held.view is None:
            return False
        held.caller = callers.find(self.peer, held.request).caller
        if held.caller is not None and held.caller.view == held.view.name:
            return False
        held.view.waiters.pop(self, None)
        held.ends_s = 0.0
        return True

    def answer_again(self) -> None:
        """Answer a held request now, for the current caller."""
        held = self._let_go()
        if held is None:
            return
        service = self.service
        octets = self._octets(
            held, service.responder.respond_again(held, self.peer, service.now_s())
        )
        if octets is not None:
            self._complete_held(held, octets)

    def view_changed(self) -> None:
        """Check the changed view for a held request."""
        held = self.held
        if held is None:
            return
        reaction = self.service.responder.look_again(held, self.service.now_s())
        if isinstance(reaction, Answer):
            self._send_held(reaction)
            return
        assert self._timer is not None
        self._timer.cancel()
        self._timer = self.service.loop.call_at(reaction.until_s, self._time_up)
        if reaction.enable:
            self.service.enable(held)

    # Requests are processed one after another.

    def _advance(self) -> None:
        out: list[bytes] = []
        size = 0
        while self._reader.begun and not self.over and not self.stalled:
            try:
                pending = self._reader.pending or self._reader.head(self.service.responder)
                octets = None if pending is None else self._answer(pending)
            except CallerError as error:
                self._flush(out)
                self._break_off(error)
                return
            if pending is None or octets is None:
                break
            out.append(octets)
            size += len(octets)
            if pending.close or self.service.stopping:
                self._flush(out)
                self._finish(linger=pending.body_unread)
                return
            if size > WRITE_BYTES_MAX:
                self._flush(out)
                size = 0
        if self._reader.continue_due:
            self._reader.continue_due = False
            out.append(CONTINUE)
        self._flush(out)
        self._settle()

    def _answer(self, pending: PendingRequest) -> bytes | None:
        """Return the answer to a request; None while its body is incomplete, or while it is held.

        The connection checks the caller and the rate before it reads the body.
        """
        service, reader = self.service, self._reader
        responder = service.responder
        if reader.pending is None:
            refusal = responder.admit(pending, self.peer, service.now_s())
            if pending.caller is not None and pending.request.path == EVENTS_PATH:
                bucket = responder.bucket(pending.caller)
                bucket.polled_tick, bucket.user_agent = service.tick, pending.request.user_agent
            if refusal is not None:
                return self._refused(pending, refusal)
        if pending.request.length and not reader.body(pending):
            return None
        reaction = responder.respond(pending, self.peer, service.now_s())
        return self._octets(pending, reaction)

    def _refused(self, pending: PendingRequest, refusal: Answer) -> bytes:
        """Return a refusal, which closes the connection if its client has sent or must send more.

        A flood of requests therefore costs only one answer. Behind a proxy, the next request may
        belong to another VM.
        """
        length = pending.request.length
        pending.body_unread = length < 0 or (length > 0 and not self._reader.body(pending))
        if pending.body_unread or (len(self._reader) and not self.client.is_shared):
            pending.close = True
            return self.service.joined(refusal._replace(close=True))
        return self.service.joined(refusal)

    def _remember(self, pending: PendingRequest) -> None:
        """Cache the answer to this request for this and new connections."""
        assert pending.caller is not None
        assert pending.view is not None
        self._home = pending.view.ready
        self.bucket = self.service.responder.bucket(pending.caller)
        self.service.remember_address(self.peer, pending.view, self.bucket)

    def _octets(self, pending: PendingRequest, reaction: Reaction) -> bytes | None:
        """Execute a request; return its answer, or None while the request is held."""
        if isinstance(reaction, Hold):
            self._hold(pending, reaction)
            return None
        if isinstance(reaction, ApprovalRequest | OutcomeRequest):
            self._forward(pending, reaction)
            return None
        if isinstance(reaction, Reset):
            self.abandon()
            return None
        if reaction.is_document and pending.storable and self.service.remembers(pending.raw):
            assert pending.view is not None
            pending.view.remember(pending.raw, reaction, pending.request.user_agent)
            self._remember(pending)
        return self.service.joined(reaction)

    def _flush(self, out: list[bytes]) -> None:
        if out and not self.over:
            self._write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _settle(self) -> None:
        """Enable cached answers if no request is in progress."""
        if self.over:
            return
        self.ready = self._home if self.idle else NOTHING
        if self.eof and self.held is None and not self.stalled:
            self._finish()

    # --- held requests

    def _hold(self, pending: PendingRequest, hold: Hold) -> None:
        """Hold a request until its view changes, its approval is decided, or its time is over."""
        assert self.held is None
        service, until_s = self.service, hold.until_s
        if service.stopping:
            pending.close = True
            until_s = pending.ends_s = 0.0
        self.held = pending
        self.ready = NOTHING
        if pending.view is not None:
            pending.view.waiters[self] = None
        then = self.answer_again if hold.then_respond else self._time_up
        self._timer = service.loop.call_at(until_s, then)
        if hold.enable:
            service.enable(pending)

    def _forward(self, pending: PendingRequest, request: ApprovalRequest | OutcomeRequest) -> None:
        """Hold a request until the control plane decides on it. Source: A-6, X-1."""
        service = self.service
        self._hold(pending, Hold(service.now_s() + service.settings.approve_timeout_s))
        service.upstream.ask(request).add_done_callback(partial(self._decided, pending))

    def _decided(self, pending: PendingRequest, future: asyncio.Future[RequestAnswer]) -> None:
        failed = future.cancelled() or future.exception() is not None
        if self.held is pending:
            outcome = None if failed else future.result()
            self._send_held(self.service.responder.decided(pending, outcome))

    def _time_up(self) -> None:
        held = self.held
        assert held is not None
        self._send_held(self.service.responder.late(held, self.service.now_s()))

    def _send_held(self, answer: Answer) -> None:
        held = self._let_go()
        assert held is not None
        octets = self._octets(held, answer)
        assert octets is not None
        self._complete_held(held, octets)

    def _complete_held(self, held: PendingRequest, octets: bytes) -> None:
        """Send a held answer and continue with the requests received since."""
        self.stamp = self.since = self.service.tick
        self._write(octets)
        if held.close or self.service.stopping:
            self._finish()
        elif not self.stalled:
            self._go_on()

    def _let_go(self) -> PendingRequest | None:
        held, self.held = self.held, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if held is not None and held.view is not None:
            held.view.waiters.pop(self, None)
        return held

    def _go_on(self) -> None:
        if not self.reading:
            self.reading = True
            self._read(wanted=True)
        self._advance()

    def _finish(self, *, linger: bool = False) -> None:
        self.over = True
        self.ready = self._home = NOTHING
        self._close(linger=linger)

    def _break_off(self, error: CallerError) -> None:
        """Refuse a malformed request, and stop parsing."""
        self.over = True
        self.ready = self._home = NOTHING
        self._write(self.service.joined(self.service.responder.malformed(error)))
        self._close(linger=True)

    # --- methods of each transport -----------------------------------------------------------

    def _write(self, octets: bytes) -> None:
        """Send now, or once the client reads; set `stalled` if the client does not read."""
        raise NotImplementedError

    def _close(self, *, linger: bool) -> None:
        """Close after sending everything; with `linger`, first discard received data for a time."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Reset the connection at once."""
        raise NotImplementedError

    def _read(self, *, wanted: bool) -> None:
        """Start or stop reading from the client."""
        raise NotImplementedError

    def _interface(self) -> str:
        """Return the interface of the connection, if the system knows it."""
        raise NotImplementedError
