"""A metadata node without sockets: the product's callers, documents, plans and answers.

What an answer says is decided by the product; how requests travel is decided in `network.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forewarn.core.stimulus import Approve, Enable
from forewarn.errors import CallerError
from forewarn.metadata import responder as answers
from forewarn.metadata.http.request import HttpRequest, parse_head
from forewarn.metadata.http.response import Response
from forewarn.metadata.identity import Callers, Peer
from forewarn.metadata.snapshot import Snapshot
from forewarn.protocol.approvals import read_approval
from forewarn.replication.messages import ApprovalAnswer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forewarn.control.plane import Committed
    from forewarn.metadata.responder import Planned
    from forewarn.metadata.snapshot import PublishedView
    from forewarn.replication.messages import Caller, DocumentChange, Publication
    from forewarn.settings import MetadataSettings
    from forewarn.simulator.world.control_process import SimulatedControl

LOST = 0
"""Status of a request that got no answer at all."""
HELD = -1
"""Status of a first request that is held until its group is enabled. Source: B-1."""


class Reply(NamedTuple):
    """What a VM gets."""

    status: int
    body: bytes = b""
    view: PublishedView | None = None
    version: str = ""


class SimulatedNode:
    """Answers the VMs of some hosts; the first node is part of the service's own process."""

    def __init__(self, name: str, settings: MetadataSettings, service: SimulatedControl) -> None:
        """Begin with nothing to show."""
        self.name = name
        self._settings = settings
        #: Whom its approvals go to.
        self.service = service
        self._known: dict[bytes, tuple[HttpRequest, Planned]] = {}
        #: Whether it answers at all.
        self.serves = False
        #: Whether it can reach the service; a remote one shows what it knows without that.
        self.connected = True
        self.clear()

    def clear(self) -> None:
        """Forget everything: a process that starts anew."""
        self.callers = Callers(self._settings)
        self.snapshot = Snapshot(self._settings.server_header)
        self.readers: dict[str, dict[str, None]] = {}
        self._seats: dict[str, str] = {}

    def apply(self, change: DocumentChange) -> None:
        """Take over a change of the feed."""
        self.serves = True
        self.callers.apply(change)
        if change.whole:
            self.readers.clear()
            self._seats.clear()
        for name in change.gone:
            self._unseat(name)
        for caller in change.callers:
            self._unseat(caller.vm)
            self._seats[caller.vm] = caller.view
            self.readers.setdefault(caller.view, {})[caller.vm] = None
        self.snapshot.publish(change.publications, whole=change.whole)

    def shows_otherwise(self, publication: Publication) -> bool:
        """Whether this publication would change what is shown."""
        view = self.snapshot.view(publication.view)
        return view.enabled != publication.enabled or view.document != publication.document

    def ask(self, address: str, raw: bytes, body: bytes = b"") -> Reply | Future[Committed]:
        """Answer a request; an approval and an enabling are answered when they are durable."""
        request, planned = self._read(raw)
        caller = self.callers.find(Peer(address), request).caller
        if caller is None:
            return _reply(answers.NOT_FOUND)
        plan = planned.plan
        if isinstance(plan, answers.ShowDocument):
            return self._show(caller, plan)
        if isinstance(plan, answers.ApproveEvents):
            return self._approve(caller, body, address)
        assert isinstance(plan, answers.RefuseRequest), plan
        return _reply(plan.answer)

    def approved(self, done: Future[Committed]) -> Reply:
        """The answer to an approval that was decided."""
        error = done.exception()
        if error is None:
            return _reply(answers.approval_answered(ApprovalAnswer(accepted=True), self._settings))
        if isinstance(error, CallerError):
            refused = ApprovalAnswer(accepted=False, error=str(error))
            return _reply(answers.approval_answered(refused, self._settings))
        return _reply(answers.BUSY)

    def _read(self, raw: bytes) -> tuple[HttpRequest, Planned]:
        known = self._known.get(raw)
        if known is None:
            request = parse_head(raw.removesuffix(b"\r\n\r\n"))
            known = self._known[raw] = (request, answers.planned(request, self._settings))
        return known

    def _show(self, caller: Caller, plan: answers.ShowDocument) -> Reply | Future[Committed]:
        view = self.snapshot.view(caller.view)
        if not view.enabled:
            if not self.connected:
                return Reply(LOST)
            return self.service.submit(Enable(caller.group), f"vm {caller.vm}")
        return Reply(200, view.rendered(plan.version).body, view, plan.version)

    def _approve(self, caller: Caller, body: bytes, address: str) -> Reply | Future[Committed]:
        try:
            ids = read_approval(body)
        except CallerError as error:
            return _reply(answers.refused(error))
        if not self.connected:
            return Reply(LOST)
        return self.service.submit(Approve(caller.vm, ids), f"vm {caller.vm} at {address}")

    def _unseat(self, vm: str) -> None:
        view = self._seats.pop(vm, None)
        if view is not None:
            self.readers[view].pop(vm, None)


def get(version: str) -> bytes:
    """The bytes of a poll."""
    return (
        f"GET /metadata/scheduledevents?api-version={version} HTTP/1.1\r\n"
        "Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
    ).encode()


def post(version: str) -> bytes:
    """The head of an approval."""
    return (
        f"POST /metadata/scheduledevents?api-version={version} HTTP/1.1\r\n"
        "Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
    ).encode()


def _reply(answer: Response) -> Reply:
    return Reply(answer.status, answer.body)
