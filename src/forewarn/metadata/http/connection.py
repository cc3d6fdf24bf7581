"""One connection without its socket: bytes in, answers out in order, requests held meanwhile.

No system call may go in here: a transport (`epoll_transport.py`, `asyncio_transport.py`) owns the
socket and says what came. Everything happens on the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.metadata import request_handler
from forewarn.metadata import responder as answers
from forewarn.metadata.http import request as requests
from forewarn.metadata.http.request_reader import PendingRequest, RequestReader
from forewarn.metadata.http.response import CONTINUE
from forewarn.metadata.rate_limit import Bucket
from forewarn.metadata.rendering import cut
from forewarn.metadata.responder import ShowDocument

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from forewarn.metadata.identity import Peer
    from forewarn.metadata.service import MetadataService
    from forewarn.metadata.snapshot import PublishedView, Remembered

PIPELINE_BYTES_MAX = 128 * 1024  # kept while an answer is held; then the transport stops reading
WRITE_BYTES_MAX = 64 * 1024  # answers to pipelined requests gathered for one write
NOTHING: dict[bytes, Remembered] = {}
"""What a connection remembers that must not answer from memory; stays empty."""
NOBODYS = Bucket()
"""The tokens of such a connection; none is ever taken."""


class Connection:
    """The state of one connection."""

    __slots__ = (
        "_home",
        "_intake",
        "_timer",
        "bucket",
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

    def __init__(self, service: MetadataService, peer: Peer) -> None:
        """Start idle."""
        self.service = service
        self.peer = peer
        self.ready = NOTHING
        """Request bytes -> the answer; empty while anything is under way."""
        self.bucket = NOBODYS
        """Where an answer of `ready` takes its token from."""
        self.stamp = service.tick
        """Second of the last sign of life."""
        self.since = service.tick
        """Second the unfinished request began; meaningless while there is none."""
        self.eof = False
        self.over = False
        """Whether nothing more will be answered here."""
        self.stalled = False
        """Whether the client does not read its answers."""
        self.reading = True
        self._home = NOTHING
        self._intake = RequestReader()
        self.held: PendingRequest | None = None
        self._timer: asyncio.TimerHandle | None = None

    # What a transport gives: four things it does with the socket.

    def _write(self, octets: bytes) -> None:
        """Send, now or as soon as the client reads; sets `stalled` where it does not."""
        raise NotImplementedError

    def _close(self, *, linger: bool) -> None:
        """Close once everything is sent; `linger`: read on for a while, unheard."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Reset the connection at once."""
        raise NotImplementedError

    def _read(self, *, wanted: bool) -> None:
        """Read from the client, or stop reading."""
        raise NotImplementedError

    # What a transport calls.

    @property
    def idle(self) -> bool:
        """Whether nothing of this connection is under way."""
        return self.held is None and not self._intake.begun and not self.stalled

    @property
    def unfinished(self) -> bool:
        """Whether a request has begun to arrive and is not here yet."""
        return self.held is None and self._intake.begun and not self.stalled

    def enter(self, view: PublishedView, bucket: Bucket) -> None:
        """Answer from memory from the first request on: the address alone says who asks."""
        self.ready = self._home = view.ready
        self.bucket = bucket

    def answered(self, octets: bytes) -> bool:
        """Answer from memory; False where these bytes are not remembered, or no token is left."""
        service, found = self.service, self.ready.get(octets)
        if found is None or not self.bucket.take(*service.times()):
            return False
        self.stamp = service.tick
        self._write(service.answer(found))
        return True

    def received(self, octets: bytes) -> None:
        """Take bytes from the client."""
        if self.over:
            return
        self.stamp = self.service.tick
        if not self._intake.begun:
            self.since = self.service.tick
        self._intake.push(octets)
        if self.held is None and not self.stalled:
            self._advance()
        elif len(self._intake) > PIPELINE_BYTES_MAX and self.reading:
            self.reading = False
            self._read(wanted=False)

    def received_eof(self) -> None:
        """Take note that the client will send no more; what was asked is still answered."""
        self.eof = True
        if self.held is None and not self.stalled and not self.over:
            self._finish()

    def unstalled(self) -> None:
        """Go on after the client has read its answers."""
        self.stalled = False
        self.stamp = self.service.tick
        if not self.over and self.held is None:
            self._go_on()

    def lost(self) -> None:
        """Forget everything: the connection is gone."""
        self.over = True
        self._let_go()
        self._intake.clear()
        self.ready = self._home = NOTHING

    def abandon(self) -> None:
        """Cut the connection off."""
        self.lost()
        self._reset()

    def stop(self) -> None:
        """Close if idle, else with the answer under way; a wait is answered now."""
        if self.over:
            return
        if self.held is None:
            self._finish()
            return
        self.held.close = True
        if isinstance(self.held.planned.plan, ShowDocument):
            self._time_up()

    def slow(self) -> None:
        """Refuse a request that did not arrive in time."""
        self._break_off(requests.RequestSlow())

    def identity_moved(self) -> bool:
        """Ask anew who this is; returns whether a held answer must be another's. S-4, S-6."""
        self.ready = self._home = NOTHING
        held = self.held
        if held is None or held.view is None:
            return False
        held.caller = self.service.callers.find(self.peer, held.request).caller
        if held.caller is not None and held.caller.view == held.view.name:
            return False
        held.view.waiters.pop(self, None)
        held.ends_s = 0.0
        return True

    def answer_anew(self) -> None:
        """Answer a held request as whoever asks now."""
        held = self._let_go()
        if held is None:
            return
        octets = request_handler.anew(self, held)
        if octets is not None:
            self.held = held
            self.done(octets)

    def view_changed(self) -> None:
        """Look at the view again: what was waited for may be there."""
        held = self.held
        if held is None:
            return
        octets = request_handler.show(self, held)
        if octets is not None:
            self.done(octets)
            return
        assert held.view is not None
        assert self._timer is not None
        if held.view.enabled:  # perhaps only now: then it waits for a change, no longer for that
            self._timer.cancel()
            self._timer = self.service.loop.call_at(held.ends_s, self._time_up)

    def remember(self, asked: PendingRequest) -> None:
        """Answer from memory from now on who was answered this; also at new connections."""
        assert asked.caller is not None
        assert asked.view is not None
        self._home = asked.view.ready
        self.bucket = self.service.limit.bucket(asked.caller.vm)
        self.service.open_door(self.peer, asked.view, self.bucket)

    # One request after the other.

    def _advance(self) -> None:
        out: list[bytes] = []
        size = 0
        while self._intake.begun and not self.over and not self.stalled:
            try:
                asked = self._intake.next(self.service)
            except CallerError as error:
                self._flush(out)
                self._break_off(error)
                return
            if asked is None:
                break
            octets = request_handler.begin(self, asked)
            if octets is None:
                break
            out.append(octets)
            size += len(octets)
            if asked.close or self.service.stopping:
                self._flush(out)
                self._finish()
                return
            if size > WRITE_BYTES_MAX:
                self._flush(out)
                size = 0
        if self._intake.continue_due:
            self._intake.continue_due = False
            out.append(CONTINUE)
        self._flush(out)
        self._settle()

    def _flush(self, out: list[bytes]) -> None:
        if out and not self.over:
            self._write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _settle(self) -> None:
        """Answer from memory from now on if nothing is under way."""
        if self.over:
            return
        self.ready = self._home if self.idle else NOTHING
        if self.eof and self.held is None and not self.stalled:
            self._finish()

    # Holding an answer.

    def hold(
        self, asked: PendingRequest, seconds: float, *, then: Callable[[], None] | None = None
    ) -> None:
        """Hold the answer until somebody calls `done`, or the time is up."""
        assert self.held is None
        if self.service.stopping:
            asked.close = True
            seconds = asked.ends_s = 0.0
        self.held = asked
        self.ready = NOTHING
        if asked.view is not None:
            asked.view.waiters[self] = None
        self._timer = self.service.loop.call_later(seconds, then or self._time_up)

    def _time_up(self) -> None:
        held = self.held
        assert held is not None
        self.done(request_handler.late(self, held))

    def done(self, octets: bytes) -> None:
        """Send the held answer and go on with what came meanwhile."""
        held = self._let_go()
        assert held is not None
        self.stamp = self.since = self.service.tick
        self._write(cut(held, octets))
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

    def _finish(self) -> None:
        self.over = True
        self.ready = self._home = NOTHING
        self._close(linger=False)

    def _break_off(self, error: CallerError) -> None:
        """Refuse what cannot be understood; nothing after it can be either."""
        self.over = True
        self.ready = self._home = NOTHING
        answer = answers.refused(error)
        self._write(self.service.head(answer) + self.service.tail(close=True) + answer.body)
        self._close(linger=True)
