"""A metadata node without sockets: the product's responder, asked request by request.

What an answer says is decided by the product; how requests travel is decided in `network.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forewarn.core.stimulus import Approve, Enable
from forewarn.errors import CallerError
from forewarn.metadata.http.request_reader import PendingRequest
from forewarn.metadata.identity import Peer
from forewarn.metadata.responder import Hold, Responder, Send
from forewarn.metadata.routing import ShowDocument
from forewarn.replication.messages import ApprovalAnswer, FeedPortion, read_server_message
from forewarn.replication.portions import ChangeAssembly, cut

if TYPE_CHECKING:
    from forewarn.metadata.snapshot import Snapshot
    from forewarn.replication.messages import DocumentChange, Publication
    from forewarn.settings import MetadataSettings
    from tests.simulator.world.control_process import SimulatedControl

LOST = 0
"""Status of a request that got no answer at all."""
KEPT = 202
"""What stands for 200 where an approval is safe at its node alone. Source: M-3."""
HELD = -1
"""Status of a first request that is held until its group is enabled. Source: B-1."""


class SimulatedReply(NamedTuple):
    """What a VM gets."""

    status: int
    body: bytes = b""
    #: The name of what it shows.
    view: str = ""
    version: str = ""


class SimulatedNode:
    """Answers the VMs of some hosts; the first node is part of the service's own process."""

    def __init__(self, name: str, settings: MetadataSettings, service: SimulatedControl) -> None:
        """Begin with nothing to show."""
        self.name = name
        self._settings = settings
        #: Whom its approvals go to.
        self.service = service
        #: Whether it answers at all.
        self.serves = False
        self._is_cut = False
        self.clear()

    def clear(self) -> None:
        """Forget everything: a process that starts again."""
        self._responder = Responder(self._settings)
        self.readers: dict[str, dict[str, None]] = {}
        self._views: dict[str, str] = {}

    @property
    def snapshot(self) -> Snapshot:
        """What it shows."""
        return self._responder.snapshot

    @property
    def is_cut(self) -> bool:
        """Whether it cannot reach the service; a remote one shows what it knows without that."""
        return self._is_cut

    def cut(self) -> None:
        """Cut it off from the service."""
        self._is_cut = True

    def join(self) -> None:
        """Let it reach the service again."""
        self._is_cut = False

    def apply(self, change: DocumentChange) -> None:
        """Take over a change of the feed."""
        self.serves = True
        if change.whole:
            self.readers.clear()
            self._views.clear()
        for name in change.gone:
            self._remove_caller(name)
        for caller in change.callers:
            self._remove_caller(caller.vm)
            self._views[caller.vm] = caller.view
            self.readers.setdefault(caller.view, {})[caller.vm] = None
        self.show(change)

    def show(self, change: DocumentChange) -> None:
        """Have documents shown."""
        self._responder.apply(change)
        self.snapshot.publish(change.publications, whole=change.whole)

    def shows_otherwise(self, publication: Publication) -> bool:
        """Whether this publication would change what is shown."""
        view = self.snapshot.view(publication.view)
        return view.enabled != publication.enabled or view.document != publication.document

    def ask(self, address: str, raw: bytes, body: bytes = b"") -> SimulatedReply:
        """Answer a request; without the service a follower still shows, and nobody approves."""
        if not self.serves:
            return SimulatedReply(LOST)
        responder, peer = self._responder, Peer(address)
        asked = PendingRequest(raw, responder.known.get(raw) or responder.read(raw))
        asked.body = body
        reaction = responder.admit(asked, peer, 0.0) or responder.respond(asked, peer, 0.0)
        if isinstance(reaction, Send):
            return _reply(asked, reaction)
        assert isinstance(reaction, Hold), reaction
        return SimulatedReply(LOST) if self.is_cut else self._held(asked, reaction)

    def _held(self, asked: PendingRequest, hold: Hold) -> SimulatedReply:
        """Return what a held request gets: control has decided by now, or its process died."""
        caller = asked.caller
        assert caller is not None
        if hold.approval is None:
            done = self.service.submit(Enable(caller.group), f"vm {caller.vm}")
            return SimulatedReply(HELD if done.done() and done.exception() is None else LOST)
        approve = Approve(caller.vm, hold.approval.event_ids)
        done = self.service.submit(approve, f"vm {caller.vm} at {hold.approval.address}")
        if not done.done():
            return SimulatedReply(LOST)
        error, outcome = done.exception(), None
        if error is None:
            outcome = ApprovalAnswer(accepted=True)
        elif isinstance(error, CallerError):
            outcome = ApprovalAnswer(accepted=False, error=str(error))
        return _reply(asked, self._responder.decided(asked, outcome))

    def _remove_caller(self, vm: str) -> None:
        view = self._views.pop(vm, None)
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


def received(change: DocumentChange) -> DocumentChange:
    """Return a change as a node receives it: put together again from its portions."""
    assembly, sent = ChangeAssembly(0, whole=change.whole), None
    for line, _ in cut(change, 0):
        portion = read_server_message(line)
        assert isinstance(portion, FeedPortion), portion
        sent = assembly.add(portion)
    assert sent is not None
    return sent


def _reply(asked: PendingRequest, answer: Send) -> SimulatedReply:
    status = int(answer.pieces.head[9:12])
    plan = asked.planned.plan
    version = plan.version if isinstance(plan, ShowDocument) else ""
    view = asked.view.name if asked.view is not None else ""
    return SimulatedReply(status, answer.pieces.body, view, version)
