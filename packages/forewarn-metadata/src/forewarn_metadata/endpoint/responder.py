"""Decides on each request: send an answer, hold the request, or reset the connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol, TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.protocol.approvals import read_approval
from forewarn_base.protocol.versions import EVENTS_PATH
from forewarn_base.settings import MetadataSettings
from forewarn_core.requests import ApprovalRequest, OutcomeRequest, RequestAnswer
from forewarn_metadata.endpoint import instance
from forewarn_metadata.endpoint.fault import Absence, Fault, InjectedFault
from forewarn_metadata.endpoint.http import request as requests
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.request_reader import PendingRequest
from forewarn_metadata.endpoint.http.response import JSON, TEXT, Response, head_of, refusal
from forewarn_metadata.endpoint.identity import Callers, Peer, known_by
from forewarn_metadata.endpoint.rate_limit import Bucket, RateLimit
from forewarn_metadata.endpoint.routing import (
    NO_IDENTITY,
    NOT_FOUND,
    ApproveEvents,
    AttestInstance,
    DescribeInstance,
    GiveToken,
    RefuseRequest,
    RoutedRequest,
    ShowDocument,
    ShowOutcome,
    refused,
    route,
)
from forewarn_metadata.endpoint.snapshot import Answer, PublishedView, Snapshot
from forewarn_metadata.replication.messages import PAAS_FACT, Caller, DocumentChange, Publication


@dataclass(slots=True)
class Figures:
    """Counts since the start of the process, without cached answers, which are most answers.

    The service counts the groups with polls once a second, when it reports their polls.
    """

    #: Requested documents; a document counts once for each second with a request.
    documents_polled: int = 0
    #: Requests with answer 429.
    throttled: int = 0
    #: Requests of unknown callers, answered 404.
    unknown_callers: int = 0
    #: Approvals by answer: 200, refused, 503.
    approvals_accepted: int = 0
    approvals_refused: int = 0
    approvals_unanswered: int = 0
    #: Document changes received.
    changes: int = 0

    def counts(self) -> dict[str, int]:
        """Return all counters by name."""
        return asdict(self)


#: Maximum number of requests cached by bytes; a client program sends one or two.
KNOWN_MAX = 1024

#: Longest cached request, in bytes; observed clients send at most 600 bytes.
KNOWN_BYTES_MAX = 2048

APPROVED = Response()
BUSY = refusal(503, "Service is not ready. Try again.", ("Retry-After", "1"))
#: Reset of a held request whose caller is still unknown at the end of the hold.
CUT = InjectedFault(reset=True)
FORWARDED_REFUSED = refusal(400, "Bad request. X-Forwarded-For is not accepted")


class Hold(NamedTuple):
    """Hold the request until its view changes, or until a time."""

    #: Deadline of the answer, on the clock of `now_s`.
    until_s: float
    #: Whether a fault delays the request until the deadline. Source: E-10.
    then_respond: bool = False
    #: Whether to enable the VM's group, which changes its view. Source: B-1.
    enable: bool = False


class Reset(NamedTuple):
    """Reset the connection."""


#: An answer, a hold, a reset, or a request for the control plane, which decides on the answer.
Reaction: TypeAlias = Answer | Hold | Reset | ApprovalRequest | OutcomeRequest


class AddedEvents(Protocol):
    """Adds events to documents that the control plane does not have."""

    def shown(self, publication: Publication) -> Publication:
        """Return a publication with the added events of its view."""

    def others(self, view: str, event_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Return the ids that are not added events."""


class EmulatedAnswers(NamedTuple):
    """Answers that only an emulator has; None: not given."""

    #: Decides on requests of unknown callers. Source: E-10.
    absence: Absence | None = None
    #: Issues a token for a VM and a resource. Source: Z-3.
    give_token: Callable[[str, str], Response] | None = None
    #: Signs attested documents. Source: I-1.
    attest: Callable[[Caller, str, str], Response] | None = None
    #: Adds recommendations to documents. Source: Z-9.
    added: AddedEvents | None = None


NOT_EMULATED = EmulatedAnswers()


class Responder:
    """The state of a metadata node, and functions that derive answers from it."""

    def __init__(
        self, settings: MetadataSettings, emulated: EmulatedAnswers = NOT_EMULATED
    ) -> None:
        self.settings = settings
        self.callers = Callers(settings)
        self.snapshot = Snapshot(settings.server_header)
        self.limit = RateLimit(settings.rate_per_s, settings.rate_burst)
        self.fault: Fault | None = None
        self.absence, self.give_token, self.attest, self.added = emulated
        self.known: dict[bytes, tuple[HttpRequest, RoutedRequest]] = {}
        #: Views with polls or approvals since the last report. Source: B-2.
        self.polled: dict[PublishedView, None] = {}
        self.figures = Figures()

    def apply(self, change: DocumentChange) -> bool:
        """Apply changed VMs; return whether the identity of a caller changed."""
        moved = self.callers.apply(change)
        if moved:
            if change.whole:
                self.limit.keep(caller.vm for caller in change.callers)
            self.limit.forget(change.gone)
            if self.limit.shared:  # the changed addresses may reach other processes
                self.limit.forget(caller.vm for caller in change.callers)
        return moved

    def bucket(self, caller: Caller) -> Bucket:
        """Return the token bucket of a VM."""
        return self.limit.bucket(caller.vm, caller.addresses)

    def read(self, raw: bytes) -> tuple[HttpRequest, RoutedRequest]:
        """Parse a request's head; cache the action of a request without a body."""
        request = requests.parse_head(raw[:-4])
        meaning = request, route(request, self.settings)
        if request.length == 0:
            requests.expects_continue(request)
            if len(raw) <= KNOWN_BYTES_MAX:
                if len(self.known) >= KNOWN_MAX:
                    del self.known[next(iter(self.known))]
                self.known[raw] = meaning
        return meaning

    # `admit` checks each request's head; `respond` answers the complete request.

    def admit(self, pending: PendingRequest, peer: Peer, now_s: float) -> Answer | None:
        """Return a refusal that does not depend on the request's body, or None."""
        identified = self.callers.find(peer, pending.request)
        if identified.caller is None:
            if (
                self.absence is not None
                and self.absence.fault_for(peer, pending.request) is not None
            ):
                return None
            pending.close = (
                pending.close or identified.by_peer
            )  # the next request may have another caller
            self.figures.unknown_callers += 1
            return self._answer(pending, NOT_FOUND)
        pending.caller = identified.caller
        if pending.request.path == EVENTS_PATH:
            self.polled[self.snapshot.view(identified.caller.view)] = None
        if not self.bucket(identified.caller).take(*self.limit.times(now_s)):
            self.figures.throttled += 1
            return self._answer(pending, too_many(self.limit.retry_after_s()))
        if pending.routed.forwarded and not identified.signed:
            return self._answer(pending, FORWARDED_REFUSED)
        if identified.signed and pending.routed.if_signed is not None:
            pending.routed = RoutedRequest(pending.routed.if_signed, pending.routed.forwarded)
        pending.storable = identified.by_peer and self.fault is None
        return None

    def respond(self, pending: PendingRequest, peer: Peer, now_s: float) -> Reaction:
        """Return the answer to an admitted request that has arrived completely."""
        if pending.request.length:  # the caller may have changed while the body arrived
            pending.caller = self.callers.find(peer, pending.request).caller
        if pending.caller is None:
            return self._of_nobody(pending, peer, now_s)
        if self.fault is not None:
            disturbance = pending.disturbance = self.fault.fault_for(
                pending.caller.vm, pending.request
            )
            if disturbance is not None and disturbance.hold_s > 0:
                return Hold(now_s + disturbance.hold_s, then_respond=True)
        return self._disturbed(pending, pending.caller, peer, now_s=now_s)

    def respond_again(self, pending: PendingRequest, peer: Peer, now_s: float) -> Reaction:
        """Return the current answer to a held request, for its caller. Source: S-4."""
        pending.caller = self.callers.find(peer, pending.request).caller
        if pending.caller is None:
            return self._of_nobody(pending, peer, now_s)
        if pending.disturbance is CUT:  # the VM is back
            pending.disturbance = None
        return self._disturbed(pending, pending.caller, peer, now_s=now_s)

    def look_again(self, pending: PendingRequest, now_s: float) -> Answer | Hold:
        """Return the answer to a document request after a change of its view. Source: E-9, B-1."""
        view, action = pending.view, pending.routed.action
        assert view is not None
        assert isinstance(action, ShowDocument)
        if not view.enabled:  # the group is not enabled
            if not pending.enable_by_s:
                pending.enable_by_s = now_s + self.settings.enable_timeout_s
            return Hold(pending.enable_by_s, enable=True)
        pending.enable_by_s = 0.0
        ahead = 0 if pending.disturbance is None else pending.disturbance.incarnation_ahead
        if pending.ends_s and view.document.incarnation + ahead == action.incarnation:
            return Hold(pending.ends_s)
        return self._document(pending, view, action, ahead=ahead)

    def late(self, pending: PendingRequest, now_s: float) -> Answer:
        """Return the answer to a request at the deadline of its hold."""
        pending.ends_s = 0.0
        if pending.view is not None and pending.view.enabled:
            shown = self.look_again(pending, now_s)
            assert isinstance(shown, Answer)
            return shown
        if isinstance(pending.routed.action, ApproveEvents):
            self.figures.approvals_unanswered += 1
        return self._answer(pending, BUSY)

    def decided(self, pending: PendingRequest, reply: RequestAnswer | None) -> Answer:
        """Return the answer for the control plane's decision; None: no decision arrived.

        Source: A-1, A-3, A-6, X-1.
        """
        if isinstance(pending.routed.action, ShowOutcome):
            if reply is None:
                return self._answer(pending, BUSY)
            body = reply.outcome.encode()
            return self._answer(pending, Response(200, body, JSON) if body else NOT_FOUND)
        if reply is None:
            self.figures.approvals_unanswered += 1
            return self._answer(pending, BUSY)
        if reply.accepted:
            self.figures.approvals_accepted += 1
            return self._answer(pending, APPROVED)
        self.figures.approvals_refused += 1
        error = reply.error or "Bad request. An event id is not known"
        return self._answer(pending, refusal(self.settings.unknown_event_status, error))

    def malformed(self, error: CallerError) -> Answer:
        """Return the answer to bytes that are not a request."""
        response = refused(error)
        head = head_of(response, self.settings.server_header)
        return Answer(head, response.body, close=True, old=False)

    def _of_nobody(self, pending: PendingRequest, peer: Peer, now_s: float) -> Reaction:
        """Answer an unknown caller with 404, or with the emulator's fault for a removed VM.

        A held request of a VM that is back at the end of the hold is answered then. Source: E-10.
        """
        gone = None if self.absence is None else self.absence.fault_for(peer, pending.request)
        if gone is None:
            return self._answer(pending, NOT_FOUND)
        if gone.hold_s and pending.disturbance is not CUT:
            pending.disturbance, pending.view = CUT, None
            return Hold(now_s + gone.hold_s, then_respond=True)
        return Reset()

    def _disturbed(
        self, pending: PendingRequest, caller: Caller, peer: Peer, *, now_s: float
    ) -> Reaction:
        disturbance = pending.disturbance
        if disturbance is not None and disturbance.reset:
            return Reset()
        if disturbance is not None and disturbance.answer is not None:
            return self._answer(pending, disturbance.answer)
        return self._carry_out(pending, caller, peer, now_s=now_s)

    def _carry_out(
        self, pending: PendingRequest, caller: Caller, peer: Peer, *, now_s: float
    ) -> Reaction:
        action = pending.routed.action
        if isinstance(action, ShowDocument):
            if action.wait_s and pending.view is None:
                pending.storable = False
                pending.ends_s = now_s + action.wait_s
            pending.view = self.snapshot.view(caller.view)
            return self.look_again(pending, now_s)
        if isinstance(action, ApproveEvents):
            return self._approve(pending, caller, peer)
        if isinstance(action, ShowOutcome):
            return OutcomeRequest(caller.vm, action.event_id)
        if isinstance(action, DescribeInstance):
            return self._answer(pending, instance_response(caller, action))
        if isinstance(action, GiveToken):
            return self._answer(pending, self._token(caller, action))
        if isinstance(action, AttestInstance):
            return self._answer(pending, self._attested(caller, action))
        assert isinstance(action, RefuseRequest)
        return self._answer(pending, action.answer)

    def _token(self, caller: Caller, action: GiveToken) -> Response:
        """Return a token; without an issuer, the answer says that the VM has no identity.

        Source: Z-3.
        """
        if action.refusal or self.give_token is None:
            return action.refusal or NO_IDENTITY
        return self.give_token(caller.vm, action.resource)

    def _attested(self, caller: Caller, action: AttestInstance) -> Response:
        """Return a signed document; without a signer, the path does not exist. Source: I-1."""
        if self.attest is None:
            return NOT_FOUND
        return action.refusal or self.attest(caller, action.version, action.nonce)

    def _approve(self, pending: PendingRequest, caller: Caller, peer: Peer) -> Reaction:
        """Forward the approval; its answer waits until the approval is durable. Source: A-6."""
        try:
            event_ids = read_approval(pending.body)
        except CallerError as error:
            return self._answer(pending, refused(error))
        if self.added is not None:
            event_ids = self.added.others(caller.view, event_ids)
            if not event_ids:  # approving a recommendation does nothing
                return self._answer(pending, Response())
        identified = self.callers.find(peer, pending.request)
        assert identified.caller is caller
        identity = known_by(identified, peer)  # the control plane repeats this check
        return ApprovalRequest(caller.vm, event_ids, peer.address, identity)

    def _document(
        self, pending: PendingRequest, view: PublishedView, action: ShowDocument, *, ahead: int
    ) -> Answer:
        iaas = pending.caller is None or PAAS_FACT not in pending.caller.instance
        version = action.version
        rendered = (
            view.ahead(version, by=ahead, iaas=iaas) if ahead else view.rendered(version, iaas=iaas)
        )
        head, body = rendered.head, rendered.body
        if action.unless and matches(action.unless, rendered.etag):
            head, body = rendered.head_unchanged(), b""
        return _sent(pending, head, body, is_document=True)

    def _answer(self, pending: PendingRequest, response: Response) -> Answer:
        return _sent(pending, head_of(response, self.settings.server_header), response.body)


def _sent(
    pending: PendingRequest, head: bytes, body: bytes, *, is_document: bool = False
) -> Answer:
    """Encode the answer; a fault may cut half of its body. E-10."""
    if pending.request.method == "HEAD":
        body = b""
    answer = Answer(head, body, pending.close, pending.request.old, is_document)
    if pending.disturbance is not None and pending.disturbance.truncate:
        pending.close = True  # the connection closes without a `Connection: close` header
        answer = answer._replace(body=body[: len(body) // 2])
    return answer


def too_many(retry_after_s: int) -> Response:
    """Return the answer to a VM that exceeds its rate. Source: E-6."""
    headers = (("Retry-After", str(retry_after_s)),)
    return Response(429, b"Throttle Result: Too Many Requests", TEXT, headers)


def instance_response(caller: Caller, action: DescribeInstance) -> Response:
    """Return a part of the VM's instance metadata. Source: I-1, I-2, I-4."""
    try:
        body, is_text = instance.render(caller, action.version, path=action.path, form=action.form)
    except CallerError as error:
        return refused(error)
    return Response(200, body, TEXT if is_text else JSON)


def matches(unless: str, etag: str) -> bool:
    """Return whether an `If-None-Match` names this ETag, compared weakly. Source: E-7."""
    tags = [tag.strip().removeprefix("W/") for tag in unless.split(",")]
    return etag in tags or "*" in tags
