"""Messages between the control plane and metadata nodes, and their encoding as lines.

A line is a JSON array of a message's name and values, in order: `["ack",7]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import asdict
from msgspec.structs import replace as changed

from forewarn.errors import PeerError
from forewarn.protocol.documents import Document, ScheduledEvent
from forewarn.protocol.identity import CallerIdentity

_M = TypeVar("_M")
#: Name and value of an attribute of a VM's instance metadata.
Fact: TypeAlias = str | int | bool | dict[str, str] | list[dict[str, str]] | None
#: Fact of a cloud service's VM, which instance metadata does not show: its name has no underscore
#: in the oldest api-version. As a fact it changes only these VMs' lines of the feed. Source: V-1.
PAAS_FACT = "paas"


class FeedUnreadable(PeerError):
    """A line of the feed is malformed."""

    code = "feed-unreadable"
    message = "A line of the feed cannot be read: {reason}."
    advice = "Run the same version of Forewarn on both sides."


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A value that is encoded as an array of its fields; missing fields at the end have defaults.

    A later version may append fields, which this version ignores. It sends data that this version
    must not ignore as a separate message. Source: H-8.
    """


class Caller(Row, frozen=True):
    """A VM that may send requests, with its identity."""

    vm: str
    """Name of the VM, as events name it."""
    group: str
    """Name of its group."""
    view: str
    """Name of the VM's view: `group`, or `group/vm`. Source: S-3."""
    addresses: tuple[str, ...] = ()
    """Source addresses of the VM's requests, IPv4 or IPv6 in canonical text."""
    interface: str = ""
    """Receiving interface on which the VM's addresses are valid; empty: any."""
    instance_id: str = ""
    """Id of the VM in a proxy's `X-Instance-ID`; empty: no proxy."""
    instance: Mapping[str, Fact] = msgspec.field(default_factory=dict)
    """Instance metadata by the dotted names of `compute` and `network`; missing members are empty.

    Source: I-1.
    """
    host: str = ""
    """Name of the VM's host."""
    destinations: tuple[str, ...] = ()
    """Names of hosts to which the VM is moving, and where it may already run."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts on which the VM may run."""
        return (self.host, *self.destinations)


class Publication(Row, frozen=True):
    """The current document of one view."""

    view: str
    enabled: bool
    document: Document


class DocumentChange(msgspec.Struct, frozen=True):
    """One change of the feed, numbered `sequence`."""

    sequence: int
    whole: bool = False
    """Whether this change replaces all earlier changes."""
    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of removed VMs, whose requests are refused."""
    publications: tuple[Publication, ...] = ()
    withheld: frozenset[str] = frozenset()
    """Groups without documents in this whole until recovery; their nodes wait. Source: M-2."""
    commit: str = ""
    """Signed id of the newest commit, which nodes report when they connect. Source: H-10."""


def signed(change: DocumentChange, commit: str) -> DocumentChange:
    """Return a change with the id of the newest commit."""
    return changed(change, commit=commit)


class PublishResult(msgspec.Struct, frozen=True):
    """The result of a publication, after all nodes confirmed or at the time limit."""

    unconfirmed: tuple[str, ...] = ()
    """Names of the metadata nodes that did not confirm in time; empty: all confirmed.

    Source: M-4.
    """
    hosts: tuple[str, ...] = ()
    """Hosts whose VMs the missing nodes serve; empty: all hosts."""


class NodeTroubles(msgspec.Struct, frozen=True):
    """Problems of metadata nodes, for operators. Source: M-4, M-5."""

    behind: tuple[str, ...] = ()
    """Names of nodes that are behind or disconnected."""
    refused: tuple[str, ...] = ()
    """The latest refused requests of nodes."""


class ApprovalRequest(Row, frozen=True):
    """The StartRequests of one POST from a VM, which approve all or none of these events."""

    vm: str
    event_ids: tuple[str, ...]
    """Event ids in upper case, without duplicates."""
    address: str
    """Source of the request, recorded in history."""
    identity: CallerIdentity = CallerIdentity()
    """Kind of the VM's identification at the node, which the VM's current record must confirm."""


class RequestAnswer(Row, frozen=True):
    """The result of a VM's request: an approval, a first poll, or a query for an outcome.

    An approval is `accepted` only when it is durable. Source: A-6.
    """

    accepted: bool
    error: str = ""
    """Reason of a refusal in one sentence, for the response's body."""
    outcome: str = ""
    """The requested outcome, as JSON; empty: the VM has no such event. Source: X-1."""


class FeedStart(Row, frozen=True, tag="start"):
    """The first message to a node, and the first message of each later whole feed. Source: M-1."""

    epoch: str
    """Id of one server's sequence of changes; the numbers of other servers differ."""
    sequence: int
    """Last change in the following whole feed, or the change after which the node continues."""
    checksum: int
    """Checksum of the feed up to `sequence`."""
    whole: bool
    """Whether a whole feed follows; otherwise the node continues from its last change."""
    commit: str = ""
    """Signed id of the newest commit of the store; empty: unknown. Source: H-10."""


class FeedPortion(Row, frozen=True, tag="portion"):
    """A small part of a change, which can be sent between other changes."""

    sequence: int
    last: bool
    """Whether this is the last portion, after which the node applies the change."""
    checksum: int
    """CRC-32 of the content, continued from the previous portion of the whole or of the feed."""
    content: msgspec.Raw
    """Content of the portion: new or changed VMs, names of removed VMs, publications."""
    commit: str = ""
    """As in `FeedStart`."""


class FeedCurrent(Row, frozen=True, tag="current"):
    """Reports the end of the complete feed. From now on publications wait for the node."""


class Refused(Row, frozen=True, tag="refused"):
    """Refuses a node, as the last message of the connection. Source: M-5."""

    reason: str


class Ping(Row, frozen=True, tag="ping"):
    """Asks a node for a keepalive."""


class Answered(Row, frozen=True, tag="answered"):
    """The result of a node's request."""

    number: int
    answer: RequestAnswer | None
    """Answer to the request; None: the request could not be forwarded."""


class Follow(Row, frozen=True, tag="follow"):
    """A node's first message: its identity and its last change. Source: M-1, M-5."""

    name: str
    epoch: str = ""
    """Id of the change sequence that the node followed last; empty: no trusted documents."""
    sequence: int = 0
    checksum: int = 0
    hosts: tuple[str, ...] = ()
    """Hosts whose VMs the node serves; empty: all permitted hosts."""
    digest: str = ""
    """Digest of all records of the node, for a server that did not send them; empty: unknown."""
    token: str = ""
    """Token that proves the node's name without a certificate."""
    commit: str = ""
    """The newest signed commit that the node has received. Source: H-10."""
    instance: str = ""
    """Id of the node's process; two machines with one name differ in it. Empty: unknown."""


class Ack(Row, frozen=True, tag="ack"):
    """Confirms that a node shows everything up to a change."""

    sequence: int


class Pong(Row, frozen=True, tag="pong"):
    """A node's keepalive."""


class ApproveMessage(Row, frozen=True, tag="approve"):
    """A node forwards an approval."""

    number: int
    request: ApprovalRequest


class EnableMessage(Row, frozen=True, tag="enable"):
    """Requests that the control plane enables a VM's group. Source: B-1."""

    number: int
    vm: str


class OutcomeMessage(Row, frozen=True, tag="outcome"):
    """A node asks for the outcome of a VM's event. Source: X-1."""

    number: int
    vm: str
    event_id: str


POLLED_MAX = 1000
"""Maximum number of groups or VMs in one message of polls."""


class PollMessage(Row, frozen=True, tag="polled"):
    """Reports polls of VMs of these groups at a node. Source: B-2."""

    groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=POLLED_MAX)]
    age_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Age of the polls in milliseconds; the node delays polls while the feed is lost.

    Source: F-5.
    """


class VmPoll(Row, frozen=True):
    """A VM's last poll. Source: B-5."""

    vm: str
    user_agent: str
    age_s: int
    """Age of the poll in seconds."""


class VmPollsMessage(Row, frozen=True, tag="vms-polled"):
    """Last polls of a node's VMs."""

    polls: Annotated[tuple[VmPoll, ...], msgspec.Meta(max_length=POLLED_MAX)]


class PortionContent(Row, frozen=True):
    """The content of a portion: parts of a change."""

    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    publications: tuple[Publication, ...] = ()


class _EventRow(Row, frozen=True):
    """The encoded fields of an event."""

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
    """The encoded fields of a document."""

    incarnation: int
    events: tuple[_EventRow, ...]


ServerMessage: TypeAlias = FeedStart | FeedPortion | FeedCurrent | Answered | Ping | Refused
"""Messages to a node."""
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
"""Messages from a node, of which `Follow` is the first."""


class RelayReport(msgspec.Struct, frozen=True):
    """A follower's report on the nodes that follow its feed. Source: H-4, M-4."""

    process: str
    """Id of the follower and its series of reports."""
    generation: int
    """Last commit in the follower's feed, which all its nodes except `behind` show."""
    behind: dict[str, int] = {}
    """Nodes that are behind, each with its last shown change."""
    joined: tuple[str, ...] = ()
    """Nodes that have connected since the last report; all nodes in the first report."""
    left: tuple[str, ...] = ()
    """Nodes that have disconnected since the last report."""
    begins: bool = False
    """Whether this is the first report to an active process, which names all nodes."""


class RelayedReport(msgspec.Struct, frozen=True, tag="report"):
    """The state of a follower's nodes, and their VMs' polls."""

    nodes: RelayReport
    polled: tuple[tuple[tuple[str, ...], int], ...] = ()
    polls: tuple[VmPoll, ...] = ()


class RelayedApproval(msgspec.Struct, frozen=True, tag="approve"):
    """An approval of a VM, with the node's hosts if the VM has left these hosts."""

    request: ApprovalRequest
    node_hosts: tuple[str, ...] = ()


class RelayedEnable(msgspec.Struct, frozen=True, tag="enable"):
    """The first poll of a VM, which enables its group."""

    vm: str


RelayedRequest: TypeAlias = RelayedApproval | RelayedEnable
"""The request of a VM."""


class RelayedRequests(msgspec.Struct, frozen=True, tag="requests"):
    """Requests of VMs that waited together."""

    requests: tuple[RelayedRequest, ...]


class RelayAnswer(msgspec.Struct, frozen=True):
    """The result of the request."""

    generation: int
    known: bool = True
    """Whether the active process knows the follower's reports from their start."""
    answer: RequestAnswer | None = None
    answers: tuple[RequestAnswer | int | None, ...] = ()
    """Results of several requests, in their order; a number: the HTTP status of a refusal."""


Relayed: TypeAlias = RelayedReport | RelayedRequest | RelayedRequests
"""Messages from a follower to the active process."""


class Upstream(Protocol):
    """Requests of metadata nodes to the control plane; no call may block the event loop.

    `Bridge` answers them in the service, and `FeedClient` sends them from a worker or node. `Spool`
    and `NodeRequests` stand before these two on a node.
    """

    def approve(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Approve events; the future completes once the result is durable."""

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of a VM after the VM's first poll. Source: B-1."""

    def outcome(self, vm: str, event_id: str) -> asyncio.Future[RequestAnswer]:
        """Look up the outcome of a VM's event. Source: X-1."""

    def polled(self, groups: frozenset[str], age_ms: int = 0) -> None:
        """Record polls of these groups' VMs in the second that ended `age_ms` ago. Source: B-2."""

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Record the last polls of some VMs; the receiver may drop them. Source: B-5."""


class FeedControlPlane(Upstream, Protocol):
    """Requests of nodes outside the control plane's process."""

    def approve(
        self, request: ApprovalRequest, *, node_hosts: Collection[str] = ()
    ) -> asyncio.Future[RequestAnswer]:
        """Approve events.

        If the VM has left the node's hosts, it may approve only events that this node could
        still serve to it.

        Args:
            request: the approval.
            node_hosts: the node's hosts if the VM has left them; otherwise empty.
        """


def line_of(message: ServerMessage | Asked) -> bytes:
    """Encode a message as a line with a newline."""
    return _encoder.encode(message) + b"\n"


def encoded(item: Caller | Publication | str) -> bytes:
    """Encode one item of a portion's content."""
    return _encoder.encode(item)


def portion_line(
    sequence: int, content: bytes, *, checksum: int, last: bool, commit: str = ""
) -> bytes:
    """Encode a portion as a line; `content` is included unchanged."""
    return line_of(FeedPortion(sequence, last, checksum, msgspec.Raw(content), commit))


def _read(decoder: msgspec.json.Decoder[_M], line: bytes | msgspec.Raw) -> _M:
    """Decode a line, or the content of a portion.

    Raises:
        FeedUnreadable: the line is malformed.
    """
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
    events = [ScheduledEvent(**asdict(event)) for event in row.events]
    return Document(row.incarnation, tuple(events))


_event_values: attrgetter[tuple[object, ...]] = attrgetter(*_EventRow.__struct_fields__)
_encoder = msgspec.json.Encoder(enc_hook=_document_values)
_content = msgspec.json.Decoder(PortionContent, dec_hook=_document_of)

read_server_message: partial[ServerMessage] = partial(_read, msgspec.json.Decoder(ServerMessage))
"""Decode a message to a node."""
read_asked: partial[Asked] = partial(_read, msgspec.json.Decoder(Asked))
"""Decode a message from a node."""
read_content: partial[PortionContent] = partial(_read, _content)
"""Decode the content of a portion."""
read_relayed: partial[Relayed] = partial(_read, msgspec.json.Decoder(Relayed))
"""Decode a message from a follower."""
read_relay_answer: partial[RelayAnswer] = partial(_read, msgspec.json.Decoder(RelayAnswer))
"""Decode the answer to a follower."""
