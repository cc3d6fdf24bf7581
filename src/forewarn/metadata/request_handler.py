"""What one whole request gets: who asks, may it, and which answer, at once or when it is there.

No socket and no order among requests may go in here: a connection asks this for one request
after another, and holds the one that has to wait.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.metadata import responder as answers
from forewarn.metadata.identity import identity_of
from forewarn.metadata.rendering import answered, cut, joined, shown
from forewarn.metadata.responder import ApproveEvents, DescribeInstance, RefuseRequest, ShowDocument
from forewarn.protocol.approvals import read_approval
from forewarn.replication.messages import ApprovalAnswer, ApprovalRequest

if TYPE_CHECKING:
    import asyncio

    from forewarn.metadata.http.connection import Connection
    from forewarn.metadata.http.request_reader import PendingRequest


def begin(connection: Connection, asked: PendingRequest) -> bytes | None:
    """Return the answer, or None where it is held or the connection was reset."""
    service = connection.service
    found = service.callers.find(connection.peer, asked.request)
    if found.caller is None:
        return answered(service, asked, answers.NOT_FOUND)
    asked.caller = found.caller
    if asked.request.path == answers.EVENTS_PATH:
        service.mark(found.caller)
    vm = found.caller.vm
    if not service.limit.bucket(vm).take(*service.times()):
        return answered(service, asked, answers.too_many(service.limit.retry_after_s()))
    if asked.planned.forwarded and not found.signed:
        return answered(service, asked, answers.forwarded())
    if service.fault is None:
        asked.storable = found.by_peer
        return _carry_out(connection, asked)
    disturbance = asked.disturbance = service.fault.meet(vm, asked.request)
    if disturbance is not None and disturbance.hold_s > 0:
        connection.hold(asked, disturbance.hold_s, then=connection.answer_anew)
        return None
    octets = _disturbed(connection, asked)
    return None if octets is None else cut(asked, octets)


def anew(connection: Connection, asked: PendingRequest) -> bytes | None:
    """Return the answer for whoever asks now, or None as `begin` does."""
    service = connection.service
    asked.caller = service.callers.find(connection.peer, asked.request).caller
    if asked.caller is None:
        return answered(service, asked, answers.NOT_FOUND)
    return _disturbed(connection, asked)


def late(connection: Connection, asked: PendingRequest) -> bytes:
    """Return the answer to a request that was held as long as it may be."""
    asked.ends_s = 0.0
    octets = show(connection, asked) if asked.view is not None else None
    return octets or answered(connection.service, asked, answers.BUSY)


def show(connection: Connection, asked: PendingRequest) -> bytes | None:
    """Return the document, or None while it is not what the request waits for."""
    pieces = shown(asked)
    if pieces is None:
        return None
    if asked.storable and connection.service.remembers(asked.raw):
        assert asked.view is not None
        asked.view.remember(asked.raw, pieces)
        connection.remember(asked)
    return joined(connection.service, pieces)


def _disturbed(connection: Connection, asked: PendingRequest) -> bytes | None:
    disturbance = asked.disturbance
    if disturbance is not None and disturbance.reset:
        connection.abandon()
        return None
    if disturbance is not None and disturbance.answer is not None:
        return answered(connection.service, asked, disturbance.answer)
    return _carry_out(connection, asked)


def _carry_out(connection: Connection, asked: PendingRequest) -> bytes | None:
    service, plan = connection.service, asked.planned.plan
    assert asked.caller is not None
    if isinstance(plan, ShowDocument):
        return _begin_show(connection, asked, plan)
    if isinstance(plan, ApproveEvents):
        return _approve(connection, asked)
    if isinstance(plan, DescribeInstance):
        return answered(service, asked, answers.described(asked.caller, plan))
    assert isinstance(plan, RefuseRequest)
    return answered(service, asked, plan.answer)


def _begin_show(connection: Connection, asked: PendingRequest, plan: ShowDocument) -> bytes | None:
    service = connection.service
    assert asked.caller is not None
    if plan.wait_s and asked.view is None:
        asked.storable = False
        asked.ends_s = service.loop.time() + plan.wait_s
    asked.view = service.view_of(asked.caller)
    if not service.begin_show(asked.view, asked.caller):
        connection.hold(asked, service.settings.enable_timeout_s)
        return None
    octets = show(connection, asked)
    if octets is None:
        connection.hold(asked, plan.wait_s)
    return octets


def _approve(connection: Connection, asked: PendingRequest) -> bytes | None:
    """Hand the approval on and hold the answer until it is durable. Source: A-6."""
    service = connection.service
    assert asked.caller is not None
    try:
        event_ids = read_approval(asked.body)
    except CallerError as error:
        return answered(service, asked, answers.refused(error))
    peer = connection.peer
    found = service.callers.find(peer, asked.request)
    if found.caller is None:
        return answered(service, asked, answers.NOT_FOUND)
    vm, identity = found.caller.vm, identity_of(found, peer)
    request = ApprovalRequest(vm, event_ids, peer.address, identity)
    future = service.upstream.approve(request)
    future.add_done_callback(partial(_approved, connection, asked))
    connection.hold(asked, service.settings.approve_timeout_s)
    return None


def _approved(
    connection: Connection, asked: PendingRequest, future: asyncio.Future[ApprovalAnswer]
) -> None:
    answer = answers.BUSY
    if not future.cancelled() and future.exception() is None:
        answer = answers.approval_answered(future.result(), connection.service.settings)
    if connection.held is asked:
        connection.done(answered(connection.service, asked, answer))
