"""What control planes, metadata nodes and workers send one another, as JSON.

A value has one shape on its way: in memory, over HTTP, and on the stream to local workers. A later
version may add fields, which this version ignores. Source: H-8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec

from forewarn_base.errors import PeerError
from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.protocol.identity import CallerIdentity
from forewarn_core.requests import ApprovalRequest, Request, RequestAnswer

_M = TypeVar("_M")
#: Name and value of an attribute of a VM's instance metadata.
Fact: TypeAlias = str | int | bool | dict[str, str] | list[dict[str, str]] | None
#: Fact of a cloud service's VM, which instance metadata does not show: its name has no underscore
#: in the oldest api-version. As a fact it changes only these VMs' lines of the feed. Source: V-1.
PAAS_FACT = "paas"


_NOTHING = Document(incarnation=0, events=())


class FeedUnreadable(PeerError):
    """A message of the feed is malformed."""

    code = "feed-unreadable"
    message = "A message of the feed cannot be read: {reason}."
    advice = "Run the same version of Forewarn on both sides."


class Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    """A VM that may send requests, with its identity."""

    #: Name of the VM, as events name it.
    vm: str
    #: Name of its group.
    group: str
    #: Name of the VM's view: `group`, or `group/vm`. Source: S-3.
    view: str
    #: Source addresses of the VM's requests, IPv4 or IPv6 in canonical text.
    addresses: tuple[str, ...] = ()
    #: Receiving interface on which the VM's addresses are valid; empty: any.
    interface: str = ""
    #: Id of the VM in a proxy's `X-Instance-ID`; empty: no proxy.
    instance_id: str = ""
    #: Instance metadata by the dotted names of `compute` and `network`; missing members are empty.
    #:
    #: Source: I-1.
    instance: Mapping[str, Fact] = msgspec.field(default_factory=dict)
    #: Name of the VM's host.
    host: str = ""
    #: Names of hosts to which the VM is moving, and where it may already run.
    destinations: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts on which the VM may run."""
        return (self.host, *self.destinations)


class Publication(msgspec.Struct, frozen=True):
    """The current document of one view."""

    view: str
    enabled: bool
    document: Document

    def without_document(self) -> Publication:
        """Return the publication that withdraws the view's document."""
        return Publication(self.view, enabled=False, document=_NOTHING)


class DocumentChange(msgspec.Struct, frozen=True, tag="change", omit_defaults=True):
    """One change of the feed, numbered `sequence`."""

    sequence: int
    #: Whether this change replaces all earlier changes.
    whole: bool = False
    callers: tuple[Caller, ...] = ()
    #: Names of removed VMs, whose requests are refused.
    gone: tuple[str, ...] = ()
    publications: tuple[Publication, ...] = ()
    #: Groups without documents in this whole until recovery; their nodes wait. Source: M-2.
    withheld: frozenset[str] = frozenset()


class PublishResult(msgspec.Struct, frozen=True):
    """The result of a publication, after all nodes confirmed or at the time limit."""

    #: Names of the metadata nodes that did not confirm in time; empty: all confirmed.
    #:
    #: Source: M-4.
    unconfirmed: tuple[str, ...] = ()
    #: Hosts whose VMs the missing nodes serve; empty: all hosts.
    hosts: tuple[str, ...] = ()


class NodeTroubles(msgspec.Struct, frozen=True):
    """Problems of metadata nodes, for operators. Source: M-4, M-5."""

    #: Names of nodes that are behind or disconnected.
    behind: tuple[str, ...] = ()
    #: The latest refused requests of nodes.
    refused: tuple[str, ...] = ()


#: Maximum length of a node's part, in bytes; a node with 10,000 VMs takes about 4 MB.
PART_BYTES_MAX = 64 * 1024 * 1024

#: Maximum number of groups, and of VMs, in one report.
POLLED_MAX = 1000


class VmPoll(msgspec.Struct, frozen=True):
    """A VM's last poll. Source: B-5."""

    vm: str
    user_agent: str
    #: Age of the poll in seconds.
    age_s: int


class PollReport(msgspec.Struct, frozen=True, tag="polled", omit_defaults=True):
    """Polls of VMs. Source: B-2, B-5."""

    #: Group -> age in milliseconds of the last poll of one of its VMs; a node delays polls while
    #: the feed is lost. Source: F-5.
    groups: Annotated[
        dict[str, Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=POLLED_MAX)
    ] = {}
    #: The last polls of some VMs; the receiver may drop them.
    vms: Annotated[tuple[VmPoll, ...], msgspec.Meta(max_length=POLLED_MAX)] = ()


class Upstream(Protocol):
    """Receives the requests of VMs for the control plane; no call may block the event loop.

    `Bridge` answers them in the service; `FeedClient` and `WorkerClient` send them from a node or
    worker. `Spool` and `NodeRequests` stand before these on the way of a node's requests.
    """

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Return the answer to a request; an approval's future completes once it is durable."""

    def tell(self, report: PollReport) -> None:
        """Record polls."""


class RelayReport(msgspec.Struct, frozen=True):
    """A follower's report on the nodes that follow its feed. Source: H-4, M-4."""

    #: Id of the follower and its series of reports.
    process: str
    #: Last commit in the follower's feed, which all its nodes except `behind` show.
    generation: int
    #: Nodes that are behind, each with its last shown change.
    behind: dict[str, int] = {}
    #: Nodes that have connected since the last report; all nodes in the first report.
    joined: tuple[str, ...] = ()
    #: Nodes that have disconnected since the last report.
    left: tuple[str, ...] = ()
    #: Whether this is the first report to an active process, which names all nodes.
    begins: bool = False


class RelayedReport(msgspec.Struct, frozen=True, tag="report", omit_defaults=True):
    """The state of a follower's nodes, and their VMs' polls."""

    nodes: RelayReport
    polls: tuple[PollReport, ...] = ()


class RelayedRequests(msgspec.Struct, frozen=True, tag="requests"):
    """Requests of VMs that waited together."""

    requests: tuple[Request, ...]


class RelayAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a report or of requests."""

    generation: int
    #: Whether the active process knows the follower's reports from their start.
    known: bool = True
    #: Results of requests, in their order; a number: the HTTP status of a refusal.
    answers: tuple[RequestAnswer | int, ...] = ()


#: Messages from a follower to the active process.
Relayed: TypeAlias = RelayedReport | RelayedRequests


class NodePart(msgspec.Struct, frozen=True):
    """The whole part of the feed for one node, as the body of an answer."""

    vms: tuple[Caller, ...]
    documents: tuple[Publication, ...]


def part_body(vms: bytes, documents: Sequence[bytes]) -> bytes:
    """Return an encoded `NodePart` of an encoded list of VMs, and encoded documents."""
    return b'{"vms":' + vms + b',"documents":[' + b",".join(documents) + b"]}"


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Asks a worker for a sign of life."""

    #: The service's monotonic clock.
    clock_ms: int


class ChangePart(msgspec.Struct, frozen=True, tag="part"):
    """Records of the change that a later line completes."""

    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    publications: tuple[Publication, ...] = ()


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The answer to a worker's request; None: the request could not be answered."""

    number: int
    answer: RequestAnswer | None


#: Lines to a local worker.
ToWorker: TypeAlias = DocumentChange | ChangePart | Answered | Ping


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's first line."""

    name: str


class Shown(msgspec.Struct, frozen=True, tag="shown", omit_defaults=True):
    """Confirms that a worker shows everything up to a change; also its sign of life."""

    #: None: only a sign of life.
    sequence: int | None = None


class WorkerRequest(msgspec.Struct, frozen=True, tag="request"):
    """A worker forwards a request."""

    number: int
    request: Request


class WorkerReport(msgspec.Struct, frozen=True, tag="report"):
    """A worker's polls."""

    #: The service's clock at this moment, at most: the last ping's, and the time since.
    clock_ms: int
    report: PollReport


#: Lines from a local worker, of which `Hello` is the first.
FromWorker: TypeAlias = Hello | Shown | WorkerRequest | WorkerReport


def encoded(message: object) -> bytes:
    """Encode a message as JSON without a line end."""
    return _encoder.encode(message)


def line_of(message: ToWorker | FromWorker) -> bytes:
    """Encode a message as a line with a newline."""
    return _encoder.encode(message) + b"\n"


def _read(decoder: msgspec.json.Decoder[_M], text: bytes) -> _M:
    """Decode a message.

    Raises:
        FeedUnreadable: the message is malformed.
    """
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FeedUnreadable(reason=str(error)) from error


class _EventForm(msgspec.Struct):
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


class _DocumentForm(msgspec.Struct):
    """The encoded fields of a document."""

    incarnation: int
    events: tuple[_EventForm, ...]


_EVENT_FIELDS = _EventForm.__struct_fields__


def _form_of(document: object) -> dict[str, object]:
    assert isinstance(document, Document), document
    events = [{name: getattr(each, name) for name in _EVENT_FIELDS} for each in document.events]
    return {"incarnation": document.incarnation, "events": events}


def _document_of(kind: type, form: object) -> Document:
    assert kind is Document, kind
    read = msgspec.convert(form, _DocumentForm)
    events = [ScheduledEvent(**msgspec.structs.asdict(event)) for event in read.events]
    return Document(read.incarnation, tuple(events))


def read_spooled(line: bytes) -> ApprovalRequest:
    """Decode a stored approval, also in the form of versions with the earlier feed.

    Raises:
        FeedUnreadable: the line is damaged.
    """
    if line.startswith(b"["):
        vm, event_ids, address, *identity = _read(_spooled_earlier, line)[2]
        return ApprovalRequest(vm, event_ids, address, *identity)
    return _read(_spooled, line)


_EarlierApproval: TypeAlias = tuple[str, tuple[str, ...], str, CallerIdentity]


def _decoder(kind: object) -> msgspec.json.Decoder[_M]:
    return msgspec.json.Decoder(kind, dec_hook=_document_of)


_encoder = msgspec.json.Encoder(enc_hook=_form_of)
#: Decode a node's part of the feed.
read_part: partial[NodePart] = partial(_read, _decoder(NodePart))
#: Decode a node's request or report.
read_request: partial[Request | PollReport] = partial(_read, _decoder(Request | PollReport))
#: Decode the answer to a node's request.
read_answer: partial[RequestAnswer] = partial(_read, _decoder(RequestAnswer))
#: Decode a line to a worker.
read_to_worker: partial[ToWorker] = partial(_read, _decoder(ToWorker))
#: Decode a line from a worker.
read_from_worker: partial[FromWorker] = partial(_read, _decoder(FromWorker))
_spooled: msgspec.json.Decoder[ApprovalRequest] = _decoder(ApprovalRequest)
_spooled_earlier: msgspec.json.Decoder[tuple[str, int, _EarlierApproval]] = _decoder(
    tuple[str, int, _EarlierApproval]
)
#: Decode a message from a follower.
read_relayed: partial[Relayed] = partial(_read, _decoder(Relayed))
#: Decode the answer to a follower.
read_relay_answer: partial[RelayAnswer] = partial(_read, _decoder(RelayAnswer))
