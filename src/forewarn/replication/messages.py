"""What the control plane sends metadata nodes and what they ask of it: messages and their lines.

A line is a message's name and values, in their order, as JSON: `["ack",7]`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias, TypeVar

import msgspec

from forewarn.errors import PeerError
from forewarn.protocol.documents import Document, ScheduledEvent
from forewarn.protocol.identity import CallerIdentity

if TYPE_CHECKING:
    import asyncio

_M = TypeVar("_M")
#: What instance metadata says of a VM by one name.
Fact: TypeAlias = str | int | bool | dict[str, str] | list[dict[str, str]] | None


class FeedUnreadable(PeerError):
    """A line of the feed cannot be read."""

    code = "feed-unreadable"
    message = "A line of the feed cannot be read: {reason}."
    advice = "Run the same version of Forewarn on both sides."


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A value that travels as an array of its fields; one missing at the end has its default.

    A later version may append fields, which this one ignores: so two versions understand one
    another. What must not be ignored is a message of its own. Source: H-8.
    """


class Caller(Row, frozen=True):
    """A VM that may ask, and how it is known."""

    vm: str
    """Name of the VM, as events name it."""
    group: str
    """Name of its group."""
    view: str
    """Which publication it is shown: `group`, or `group/vm`. Source: S-3."""
    addresses: tuple[str, ...] = ()
    """Peer addresses it asks from, IPv4 or IPv6 in their canonical text."""
    interface: str = ""
    """Receiving interface its addresses count on; empty: any."""
    instance_id: str = ""
    """What a proxy calls it in `X-Instance-ID`; empty: no proxy asks for it."""
    instance: Mapping[str, Fact] = msgspec.field(default_factory=dict)
    """Its instance metadata, flat, by the names of `compute` and `network`; missing members are
    empty. Source: I-1."""
    host: str = ""
    """Name of the host it runs on."""
    destinations: tuple[str, ...] = ()
    """Names of other hosts it is being moved to: it may run there at any moment."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts it may ask from."""
        return (self.host, *self.destinations)


class Publication(Row, frozen=True):
    """The document one view shows now."""

    view: str
    enabled: bool
    document: Document


class DocumentChange(msgspec.Struct, frozen=True):
    """One step of the feed: what a node must know to be up to date with `sequence`."""

    sequence: int
    whole: bool = False
    """Whether this change replaces everything sent before."""
    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of VMs that may no longer ask."""
    publications: tuple[Publication, ...] = ()


class PublishResult(msgspec.Struct, frozen=True):
    """What became of a publication once every node showed it, or the time for that was up."""

    unconfirmed: tuple[str, ...] = ()
    """Names of the metadata nodes that did not confirm in time; empty: all show it. Source: M-4."""
    hosts: tuple[str, ...] = ()
    """The hosts whose VMs those nodes serve; empty: they serve every VM."""

    @property
    def missing(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes that did not confirm, and their hosts."""
        return self.unconfirmed, self.hosts


class NodeTroubles(msgspec.Struct, frozen=True):
    """What people should know of metadata nodes now. Source: M-4, M-5."""

    behind: tuple[str, ...] = ()
    """Names of those that do not show everything, or are away."""
    refused: tuple[str, ...] = ()
    """What some asked for that is not theirs, the latest ones."""


class ApprovalRequest(Row, frozen=True):
    """A StartRequest body from a VM: approve all these events, or none."""

    vm: str
    event_ids: tuple[str, ...]
    """Upper case, each once."""
    address: str
    """Where the request came from, for history."""
    identity: CallerIdentity = CallerIdentity()
    """How the node knew the VM; it counts only while the VM's record still says so."""


class RequestAnswer(Row, frozen=True):
    """What became of a VM's request: an approval, a first poll, or a question about an outcome.

    An approval is `accepted` only when it is durable. Source: A-6.
    """

    accepted: bool
    error: str = ""
    """Why not, in one sentence, for the body of the refusal."""
    outcome: str = ""
    """The outcome that was asked for, as JSON; empty: the VM has no such event. Source: X-1."""


class FeedStart(Row, frozen=True, tag="start"):
    """The first message to a node, and the first of each whole after it. Source: M-1."""

    epoch: str
    """Names one server's sequence; another server's numbers mean something else."""
    sequence: int
    """Up to where the whole goes that follows; or where the node is taken up."""
    checksum: int
    """Checksum of the feed up to there."""
    whole: bool
    """Whether a whole follows; False: the node goes on after what it shows."""


class FeedPortion(Row, frozen=True, tag="portion"):
    """A part of a change, small enough to travel between others."""

    sequence: int
    last: bool
    """Whether the change is complete with this portion; it is applied then, not before."""
    checksum: int
    """CRC-32 of the content, continued from the portion before: of the same whole, or the feed."""
    content: msgspec.Raw
    """Callers, names of VMs that are gone, publications."""


class FeedCurrent(Row, frozen=True, tag="current"):
    """The node has been sent everything there is; from now on publications wait for it."""


class Refused(Row, frozen=True, tag="refused"):
    """A node may not follow; the connection ends with it. Source: M-5."""

    reason: str


class Ping(Row, frozen=True, tag="ping"):
    """Asks a node for a sign of life."""


class Answered(Row, frozen=True, tag="answered"):
    """What became of a node's request."""

    number: int
    answer: RequestAnswer | None
    """None: it could not be handed on."""


class Follow(Row, frozen=True, tag="follow"):
    """A node's first message: who it is and what it shows. Source: M-1, M-5."""

    name: str
    epoch: str = ""
    """Whose feed it followed; empty: it shows nothing yet, or cannot trust what it shows."""
    sequence: int = 0
    checksum: int = 0
    hosts: tuple[str, ...] = ()
    """The hosts whose VMs it serves; empty: all that it may."""
    digest: str = ""
    """Digest of all records it has, for a server that did not see them sent; empty: unknown."""
    token: str = ""
    """Proves its name where it has no certificate."""


class Ack(Row, frozen=True, tag="ack"):
    """A node shows everything up to a change."""

    sequence: int


class Pong(Row, frozen=True, tag="pong"):
    """A node's sign of life."""


class ApproveMessage(Row, frozen=True, tag="approve"):
    """A node hands an approval on."""

    number: int
    request: ApprovalRequest


class EnableMessage(Row, frozen=True, tag="enable"):
    """A node asks for the group of a VM to be enabled. Source: B-1."""

    number: int
    vm: str


class OutcomeMessage(Row, frozen=True, tag="outcome"):
    """A node asks for the outcome of a VM's event. Source: X-1."""

    number: int
    vm: str
    event_id: str


POLLED_MAX = 1000
"""Groups or VMs in one message of polls."""


class PollMessage(Row, frozen=True, tag="polled"):
    """VMs of these groups have asked a node. Source: B-2."""

    groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=POLLED_MAX)]
    age_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How long ago, in milliseconds: while the feed is away marks wait for it. Source: F-5."""


class VmPoll(Row, frozen=True):
    """A VM's last poll. Source: B-5."""

    vm: str
    user_agent: str
    age_s: int
    """How long ago, in seconds."""


class VmPollsMessage(Row, frozen=True, tag="vms-polled"):
    """Last polls of a node's VMs."""

    polls: Annotated[tuple[VmPoll, ...], msgspec.Meta(max_length=POLLED_MAX)]


class PortionContent(Row, frozen=True):
    """What a portion carries of a change."""

    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    publications: tuple[Publication, ...] = ()


class _EventRow(Row, frozen=True):
    """What travels of an event."""

    event_id: str
    status: str
    event_type: str
    resource_type: str
    resources: tuple[str, ...]
    not_before_ms: int | None
    description: str
    source: str
    duration_s: int


class _DocumentRow(Row, frozen=True):
    """What travels of a document."""

    incarnation: int
    events: tuple[_EventRow, ...]


ServerMessage: TypeAlias = FeedStart | FeedPortion | FeedCurrent | Answered | Ping | Refused
"""What a node is sent."""
Asked: TypeAlias = (
    Follow
    | Ack
    | Pong
    | ApproveMessage
    | EnableMessage
    | OutcomeMessage
    | PollMessage
    | VmPollsMessage
)
"""What a node says; `Follow` first."""


class RelayReport(msgspec.Struct, frozen=True):
    """What a follower reports of the nodes that follow the feed at it. Source: H-4, M-4."""

    process: str
    """Names the follower, and this report's predecessors."""
    generation: int
    """The last commit that its feed has; its nodes show it, but for those that are behind."""
    behind: dict[str, int] = {}
    """Nodes that do not show everything, and up to which change they do."""
    joined: tuple[str, ...] = ()
    """Nodes that follow there now; at the beginning all of them."""
    left: tuple[str, ...] = ()
    """Nodes that do no longer."""
    begins: bool = False
    """Whether it names all nodes: the first report to an active process."""


class RelayedReport(msgspec.Struct, frozen=True, tag="report"):
    """The state of a follower's nodes, and who polled there."""

    nodes: RelayReport
    polled: tuple[tuple[tuple[str, ...], int], ...] = ()
    polls: tuple[VmPoll, ...] = ()


class RelayedApproval(msgspec.Struct, frozen=True, tag="approve"):
    """An approval of a VM, and the hosts of its node where the VM is on none of them."""

    request: ApprovalRequest
    node_hosts: tuple[str, ...] = ()


class RelayedEnable(msgspec.Struct, frozen=True, tag="enable"):
    """A VM that asks for the first time."""

    vm: str


class RelayAnswer(msgspec.Struct, frozen=True):
    """What became of it."""

    generation: int
    known: bool = True
    """Whether the follower's reports are known from their beginning."""
    answer: RequestAnswer | None = None


Relayed: TypeAlias = RelayedReport | RelayedApproval | RelayedEnable
"""What a follower sends the active process."""


class Upstream(Protocol):
    """What the metadata plane asks of the control plane; no call may block the event loop."""

    def approve(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Approve; the future is done once the outcome is durable."""

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of this VM, which asks for the first time. Source: B-1."""

    def outcome(self, vm: str, event_id: str) -> asyncio.Future[RequestAnswer]:
        """Look up the outcome of a VM's event. Source: X-1."""

    def polled(self, groups: frozenset[str], age_ms: int = 0) -> None:
        """Note that VMs of these groups asked within a second, until `age_ms` ago. Source: B-2."""

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Note the last polls of some VMs; may be dropped. Source: B-5."""


class FeedControlPlane(Upstream, Protocol):
    """What nodes away from the control plane ask of it."""

    def approve(
        self, request: ApprovalRequest, *, node_hosts: Collection[str] = ()
    ) -> asyncio.Future[RequestAnswer]:
        """Approve; where the VM is not the node's now, it must have been when it was asked.

        Args:
            request: the approval.
            node_hosts: the node's hosts, if the VM is on none of them; empty: it is.
        """


def line_of(message: ServerMessage | Asked) -> bytes:
    """Return a message as its line, the newline included."""
    return _encoder.encode(message) + b"\n"


def read_server_message(line: bytes) -> ServerMessage:
    """Read a message to a node.

    Raises:
        FeedUnreadable: the line is no such message.
    """
    return _read(_server_message, line)


def read_asked(line: bytes) -> Asked:
    """Read a message from a node.

    Raises:
        FeedUnreadable: the line is no such message.
    """
    return _read(_asked, line)


def read_relayed(text: bytes) -> Relayed:
    """Read what a follower sends.

    Raises:
        FeedUnreadable: it cannot be read.
    """
    return _read(_relayed, text)


def read_relay_answer(text: bytes) -> RelayAnswer:
    """Read the answer to it.

    Raises:
        FeedUnreadable: it cannot be read as one.
    """
    return _read(_relay_answer, text)


def encoded(item: Caller | Publication | str) -> bytes:
    """Return one item of a portion's content as it travels."""
    return _encoder.encode(item)


def portion_line(sequence: int, content: bytes, *, checksum: int, last: bool) -> bytes:
    """Return a portion as its line; `content` goes in unchanged."""
    return line_of(FeedPortion(sequence, last, checksum, msgspec.Raw(content)))


def read_content(content: msgspec.Raw) -> PortionContent:
    """Read the content of a portion.

    Raises:
        FeedUnreadable: it is not the content of one.
    """
    return _read(_content, content)


def _read(decoder: msgspec.json.Decoder[_M], line: bytes | msgspec.Raw) -> _M:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FeedUnreadable(reason=str(error)) from error


def _document_values(document: object) -> tuple[int, tuple[tuple[object, ...], ...]]:
    assert isinstance(document, Document), document
    return document.incarnation, tuple(map(_event_values, document.events))


def _document_of(kind: type, values: object) -> Document:
    assert kind is Document, kind
    row = msgspec.convert(values, _DocumentRow)
    return Document(row.incarnation, tuple(map(_event_of, row.events)))


def _event_of(row: _EventRow) -> ScheduledEvent:
    return ScheduledEvent(
        event_id=row.event_id,
        status=row.status,
        event_type=row.event_type,
        resource_type=row.resource_type,
        resources=row.resources,
        not_before_ms=row.not_before_ms,
        description=row.description,
        source=row.source,
        duration_s=row.duration_s,
    )


_event_values: attrgetter[tuple[object, ...]] = attrgetter(*_EventRow.__struct_fields__)
_encoder = msgspec.json.Encoder(enc_hook=_document_values)
_server_message: msgspec.json.Decoder[ServerMessage] = msgspec.json.Decoder(ServerMessage)
_content: msgspec.json.Decoder[PortionContent] = msgspec.json.Decoder(
    PortionContent, dec_hook=_document_of
)
_asked: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)
_relayed: msgspec.json.Decoder[Relayed] = msgspec.json.Decoder(Relayed)
_relay_answer: msgspec.json.Decoder[RelayAnswer] = msgspec.json.Decoder(RelayAnswer)
