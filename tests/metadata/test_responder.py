"""What one request gets, by the clock that is given: how long it is held, and what counts. E, B."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.metadata.fault import InjectedFault
from forewarn.metadata.figures import Figures
from forewarn.metadata.http.request_reader import PendingRequest
from forewarn.metadata.http.response import Response
from forewarn.metadata.identity import Peer
from forewarn.metadata.responder import Hold, Reset, Responder, Send
from forewarn.protocol.documents import Document
from forewarn.replication.messages import DocumentChange, Publication, RequestAnswer
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    VM_A,
    VM_C,
    approval,
    request,
    wait_for,
    with_settings,
)

if TYPE_CHECKING:
    from forewarn.metadata.http.request import HttpRequest
    from forewarn.metadata.responder import Reaction

HERE, ELSEWHERE = Peer("127.0.0.1"), Peer("127.0.0.9")
NOW_S = 1000.0
SETTINGS = with_settings(approve_timeout_s=7.0, enable_timeout_s=9.0, wait_timeout_s=60.0)


class Always:
    """A fault, or an absence, that meets every request alike."""

    def __init__(self, disturbance: InjectedFault | None) -> None:
        self.disturbance = disturbance

    def meet(self, _: object, __: HttpRequest) -> InjectedFault | None:
        """Do it."""
        return self.disturbance


@pytest.fixture
def responder() -> Responder:
    """A node that shows a document to one group."""
    made = Responder(SETTINGS)
    made.apply(DocumentChange(1, whole=True, callers=(VM_A, VM_C)))
    shown = Publication("group-1", True, Document(3, (FREEZE,)))
    made.snapshot.publish((shown,), whole=False)
    return made


def asked_of(
    responder: Responder, raw: bytes, peer: Peer = HERE
) -> tuple[PendingRequest, Reaction]:
    """A request and what it gets."""
    head, _, body = raw.partition(b"\r\n\r\n")
    asked = PendingRequest(raw, responder.read(head + b"\r\n\r\n"))
    refusal = responder.admit(asked, peer, NOW_S)
    if refusal is not None:
        return asked, refusal
    asked.body = body
    return asked, responder.respond(asked, peer, NOW_S)


def status_of(reaction: Reaction) -> int:
    """The status of an answer."""
    assert isinstance(reaction, Send)
    return int(reaction.pieces.head.split()[1])


POST = request(EVENTS, method="POST", body=approval(FREEZE.event_id))


def test_answer_is_held_as_long_as_its_reason_says(responder: Responder) -> None:
    """A wait, an approval, enabling: each has its end. Source: E-9, A-6, B-1."""
    _, waits = asked_of(responder, request(wait_for(20, 3)))
    assert waits == Hold(NOW_S + 20)
    _, longest = asked_of(responder, request(wait_for(500, 3)))
    assert longest == Hold(NOW_S + 60)
    _, approves = asked_of(responder, POST)
    assert isinstance(approves, Hold)
    assert (approves.until_s, approves.then_respond, approves.enable) == (NOW_S + 7, False, False)
    assert approves.approval is not None
    assert (approves.approval.vm, approves.approval.event_ids) == ("vm-a", (FREEZE.event_id,))
    responder.snapshot.publish((Publication("group-1", False, Document()),), whole=False)
    asked, enables = asked_of(responder, request(wait_for(20, 3)))
    assert enables == Hold(NOW_S + 9, enable=True)
    assert responder.look_again(asked, NOW_S + 5) == Hold(NOW_S + 9, enable=True)


def test_wait_ends_with_its_time_or_a_change(responder: Responder) -> None:
    """What is there then is shown; a group that is not enabled is not ready. Source: E-9, B-1."""
    asked, _ = asked_of(responder, request(wait_for(20, 3)))
    assert responder.look_again(asked, NOW_S + 1) == Hold(NOW_S + 20)
    assert status_of(responder.late(asked, NOW_S + 20)) == 200
    asked, _ = asked_of(responder, request(wait_for(20, 3)))
    responder.snapshot.publish((Publication("group-1", True, Document(4)),), whole=False)
    shown = responder.look_again(asked, NOW_S + 1)
    assert isinstance(shown, Send)
    assert b'"DocumentIncarnation":4' in shown.pieces.body
    responder.snapshot.publish((Publication("group-1", False, Document()),), whole=False)
    asked, _ = asked_of(responder, request(EVENTS))
    assert status_of(responder.late(asked, NOW_S + 9)) == 503


@pytest.mark.parametrize(
    ("disturbance", "expected"),
    [
        (None, 200),
        (InjectedFault(hold_s=5.0), Hold(NOW_S + 5, then_respond=True)),
        (InjectedFault(reset=True), Reset()),
        (InjectedFault(answer=Response(410)), 410),
        (InjectedFault(incarnation_ahead=2), 200),
        (InjectedFault(truncate=True), 200),
    ],
    ids=["none", "hold", "reset", "answer", "ahead", "truncate"],
)
def test_fault_does_what_was_asked_for(
    responder: Responder, disturbance: InjectedFault | None, expected: object
) -> None:
    """And a request it meets is remembered by nobody. Source: E-10."""
    responder.fault = Always(disturbance)
    asked, reaction = asked_of(responder, request(EVENTS))
    assert not asked.storable
    if not isinstance(expected, int):
        assert reaction == expected
        return
    assert status_of(reaction) == expected
    assert isinstance(reaction, Send)
    body = reaction.pieces.body
    if disturbance is not None and disturbance.incarnation_ahead:
        assert b'"DocumentIncarnation":5' in body
    if disturbance is not None and disturbance.truncate:
        assert asked.close
        length = int(reaction.pieces.head.partition(b"Content-Length: ")[2].split()[0])
        assert (len(body), reaction.pieces.close) == (length // 2, False)


def test_held_request_is_answered_as_it_was_disturbed(responder: Responder) -> None:
    """After its hold, once. Source: E-10."""
    responder.fault = Always(InjectedFault(hold_s=5.0, answer=Response(410)))
    asked, _ = asked_of(responder, request(EVENTS))
    assert status_of(responder.respond_again(asked, HERE, NOW_S + 5)) == 410


def test_nobody_is_held_then_cut(responder: Responder) -> None:
    """Or cut at once; where nothing is done to the gone, it is 404. Source: E-10, S-6."""
    responder.absence = Always(InjectedFault(hold_s=5.0))
    asked, held = asked_of(responder, request(EVENTS), ELSEWHERE)
    assert held == Hold(NOW_S + 5, then_respond=True)
    assert responder.respond_again(asked, ELSEWHERE, NOW_S + 5) == Reset()
    responder.absence = Always(InjectedFault())
    assert asked_of(responder, request(EVENTS), ELSEWHERE)[1] == Reset()
    for absence in (Always(None), None):
        responder.absence = absence
        asked, reaction = asked_of(responder, request(EVENTS), ELSEWHERE)
        assert (status_of(reaction), asked.close) == (404, True)
    assert responder.figures.unknown_callers == 2


def test_held_request_is_that_of_whoever_asks_then(responder: Responder) -> None:
    """A VM that goes, or comes to another group, while it waits. Source: S-4."""
    asked, _ = asked_of(responder, request(wait_for(20, 3)))
    responder.apply(DocumentChange(2, gone=("vm-a",)))
    assert status_of(responder.respond_again(asked, HERE, NOW_S + 1)) == 404


def test_outcomes_of_approvals_are_counted(responder: Responder) -> None:
    """Accepted, refused with what the setting says, and those that nobody decided. A-3, A-6."""
    asked, _ = asked_of(responder, POST)
    told = [
        status_of(responder.decided(asked, outcome))
        for outcome in (
            RequestAnswer(True),
            RequestAnswer(False, "No."),
            RequestAnswer(False),
            None,
        )
    ]
    assert told == [200, 400, 400, 503]
    figures = responder.figures
    assert (
        figures.approvals_accepted,
        figures.approvals_refused,
        figures.approvals_unanswered,
    ) == (1, 2, 1)


def test_node_begins_with_nothing_counted() -> None:
    """Whatever is counted later. Source: M-1."""
    figures = Responder(SETTINGS).figures.counts()
    assert figures
    assert {*figures.values()} == {0}


def test_polls_are_noted_and_nothing_else(responder: Responder) -> None:
    """Whoever asks for the document has polled, throttled or not; other paths are none. B-2."""
    asked_of(responder, request("/metadata/versions"))
    assert not responder.polled
    asked_of(responder, request(EVENTS, metadata=""))
    assert [view.name for view in responder.polled] == ["group-1"]


def test_answer_of_one_request_counts_for_its_bytes_alone(responder: Responder) -> None:
    """Whoever is known by the connection; not behind a proxy, and no wait. Source: E-9, S-6."""
    asked, shown = asked_of(responder, request(EVENTS))
    assert isinstance(shown, Send)
    assert (asked.storable, shown.is_document) == (True, True)
    assert not asked_of(responder, request(wait_for(20, 2)))[0].storable
    _, listed = asked_of(responder, request("/metadata/versions"))
    assert isinstance(listed, Send)
    assert not listed.is_document


def test_node_that_has_just_started_has_counted_nothing() -> None:
    """Rates are made from differences, and the first one is from zero."""
    assert set(Figures().counts().values()) == {0}
