"""One connection without its socket: bytes in, answers out in order, requests held meanwhile.

No system call may go in here: a shell (`epoll.py`, `streams.py`) owns the socket and says what
came. Everything happens on the event loop's thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.feed import ApprovalAnswer, ApprovalRequest
from forewarn.metadata import answer as answers
from forewarn.metadata import request as requests
from forewarn.metadata.answer import Approve, Describe, Refuse, Show
from forewarn.metadata.intake import Asked, Intake
from forewarn.metadata.response import CONTINUE, Answer
from forewarn.metadata.showing import answered, cut, shown
from forewarn.wire import read_approval

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from forewarn.metadata.identity import Peer
    from forewarn.metadata.service import Service

PIPELINE_BYTES_MAX = 128 * 1024  # kept while an answer is held; then the shell stops reading
WRITE_BYTES_MAX = 64 * 1024  # answers to pipelined requests gathered for one write
NOTHING: dict[bytes, bytes] = {}
"""What a connection remembers that must not answer from memory; stays empty."""


class Connection:
    """The state of one connection."""

    __slots__ = (
        "_held",
        "_home",
        "_intake",
        "_timer",
        "eof",
        "over",
        "peer",
        "reading",
        "ready",
        "service",
        "since",
        "stalled",
        "stamp",
    )

    def __init__(self, service: Service, peer: Peer) -> None:
        """Start idle."""
        self.service = service
        self.peer = peer
        self.ready = NOTHING
        """Request bytes -> answer bytes; a shell looks here before it calls `received`."""
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
        self._intake = Intake()
        self._held: Asked | None = None
        self._timer: asyncio.TimerHandle | None = None

    # What a shell gives: four things it does with the socket.

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

    # What a shell calls.

    @property
    def idle(self) -> bool:
        """Whether nothing of this connection is under way."""
        return self._held is None and not self._intake.begun and not self.stalled

    @property
    def unfinished(self) -> bool:
        """Whether a request has begun to arrive and is not here yet."""
        return self._held is None and self._intake.begun and not self.stalled

    def received(self, octets: bytes) -> None:
        """Take bytes from the client."""
        if self.over:
            return
        self.stamp = self.service.tick
        if not self._intake.begun:
            self.since = self.service.tick
        self._intake.push(octets)
        if self._held is None and not self.stalled:
            self._advance()
        elif len(self._intake) > PIPELINE_BYTES_MAX and self.reading:
            self.reading = False
            self._read(wanted=False)

    def received_eof(self) -> None:
        """Take note that the client will send no more; what was asked is still answered."""
        self.eof = True
        if self._held is None and not self.stalled and not self.over:
            self._finish()

    def unstalled(self) -> None:
        """Go on after the client has read its answers."""
        self.stalled = False
        self.stamp = self.service.tick
        if not self.over and self._held is None:
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
        if self._held is None:
            self._finish()
            return
        self._held.close = True
        if isinstance(self._held.planned.plan, Show):
            self._time_up()

    def slow(self) -> None:
        """Refuse a request that did not arrive in time."""
        self._break_off(requests.RequestSlow())

    def identity_moved(self) -> bool:
        """Ask anew who this is; returns whether a held answer must be another's. S-4, S-6."""
        self.ready = self._home = NOTHING
        held = self._held
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
        held.caller = self.service.callers.find(self.peer, held.request).caller
        known = held.caller is not None
        octets = self._disturbed(held) if known else self._render(held, answers.NOT_FOUND)
        if octets is not None:
            self._held = held
            self._done(octets)

    def view_changed(self) -> None:
        """Look at the view again: what was waited for may be there."""
        held = self._held
        if held is None:
            return
        octets = self._show(held)
        if octets is not None:
            self._done(octets)
            return
        assert held.view is not None
        assert self._timer is not None
        if held.view.enabled:  # perhaps only now: then it waits for a change, no longer for that
            self._timer.cancel()
            self._timer = self.service.loop.call_at(held.ends_s, self._time_up)

    # From request to answer.

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
            octets = self._answer(asked)
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
        if self.eof and self._held is None and not self.stalled:
            self._finish()

    def _answer(self, asked: Asked) -> bytes | None:
        """Return the answer, or None where it is held or the connection was reset."""
        service = self.service
        found = service.callers.find(self.peer, asked.request)
        if found.caller is None:
            return self._render(asked, answers.NOT_FOUND)
        asked.caller = found.caller
        if asked.request.path == answers.EVENTS_PATH:
            service.mark(found.caller)
        vm = found.caller.vm
        if service.limit is not None and not service.limit.take(vm, service.loop.time()):
            return self._render(asked, answers.too_many(service.limit.retry_after_s()))
        if asked.planned.forwarded and not found.signed:
            return self._render(asked, answers.forwarded())
        if service.fault is None:
            asked.storable = found.by_peer and service.remembers
            return self._carry_out(asked)
        disturbance = asked.disturbance = service.fault.meet(vm, asked.request)
        if disturbance is not None and disturbance.hold_s > 0:
            self._hold(asked, disturbance.hold_s, then=self.answer_anew)
            return None
        octets = self._disturbed(asked)
        return None if octets is None else cut(asked, octets)

    def _disturbed(self, asked: Asked) -> bytes | None:
        disturbance = asked.disturbance
        if disturbance is not None and disturbance.reset:
            self.lost()
            self._reset()
            return None
        if disturbance is not None and disturbance.answer is not None:
            return self._render(asked, disturbance.answer)
        return self._carry_out(asked)

    def _carry_out(self, asked: Asked) -> bytes | None:
        plan = asked.planned.plan
        assert asked.caller is not None
        if isinstance(plan, Show):
            if plan.wait_s and asked.view is None:
                asked.storable = False
                asked.ends_s = self.service.loop.time() + plan.wait_s
            asked.view = self.service.view_of(asked.caller)
            if self.service.begin_show(asked.view, asked.caller):
                octets = self._show(asked)
                if octets is None:
                    self._hold(asked, plan.wait_s, then=self._time_up)
                return octets
            self._hold(asked, self.service.settings.enable_wait_s_max, then=self._time_up)
            return None
        if isinstance(plan, Approve):
            return self._approve(asked)
        if isinstance(plan, Describe):
            return self._render(asked, answers.described(asked.caller, plan))
        assert isinstance(plan, Refuse)
        return self._render(asked, plan.answer)

    def _show(self, asked: Asked) -> bytes | None:
        """Return the document, or None while it is not what the request waits for."""
        octets = shown(self.service, asked)
        if octets is not None and asked.storable and not self.service.stopping:
            assert asked.view is not None
            asked.view.remember(asked.raw, octets, last=asked.close)
            self._home = asked.view.ready
            self.service.remembered(self.peer, asked.view)
        return octets

    def _approve(self, asked: Asked) -> bytes | None:
        """Hand the approval on and hold the answer until it is durable. Source: A-6."""
        assert asked.caller is not None
        try:
            event_ids = read_approval(asked.body)
        except CallerError as error:
            return self._render(asked, answers.refused(error))
        request = ApprovalRequest(asked.caller.vm, event_ids, self.peer.address)
        future = self.service.upstream.approve(request)
        future.add_done_callback(partial(self._approved, asked))
        self._hold(asked, self.service.settings.approve_wait_s_max, then=self._time_up)
        return None

    def _approved(self, asked: Asked, future: asyncio.Future[ApprovalAnswer]) -> None:
        failed = future.cancelled() or future.exception() is not None
        if self._held is not asked:
            return
        if failed:
            self._done(self._render(asked, answers.BUSY))
        else:
            answer = answers.approval_answered(future.result(), self.service.settings)
            self._done(self._render(asked, answer))

    def _render(self, asked: Asked, answer: Answer) -> bytes:
        return answered(self.service, asked, answer)

    # Holding an answer.

    def _hold(self, asked: Asked, seconds: float, *, then: Callable[[], None]) -> None:
        """Hold the answer until somebody calls `_done`, or the time is up."""
        assert self._held is None
        if self.service.stopping:
            asked.close = True
            seconds = asked.ends_s = 0.0
        self._held = asked
        self.ready = NOTHING
        if asked.view is not None:
            asked.view.waiters[self] = None
        self._timer = self.service.loop.call_later(seconds, then)

    def _time_up(self) -> None:
        held = self._held
        assert held is not None
        held.ends_s = 0.0
        octets = self._show(held) if held.view is not None else None
        self._done(octets or self._render(held, answers.BUSY))

    def _done(self, octets: bytes) -> None:
        """Send the held answer and go on with what came meanwhile."""
        held = self._let_go()
        assert held is not None
        self.stamp = self.since = self.service.tick
        self._write(cut(held, octets))
        if held.close or self.service.stopping:
            self._finish()
        elif not self.stalled:
            self._go_on()

    def _let_go(self) -> Asked | None:
        held, self._held = self._held, None
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
