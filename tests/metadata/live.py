"""A metadata server on loopback with the other end of its feed in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from msgspec.structs import replace as struct_replace

from forewarn_base.ids import Ids
from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.settings import MetadataSettings
from forewarn_core.requests import ApprovalRequest, EnableRequest, Request, RequestAnswer
from forewarn_metadata.endpoint.responder import NOT_EMULATED, EmulatedAnswers
from forewarn_metadata.endpoint.server import MetadataServer, new_event_loop
from forewarn_metadata.replication.messages import Caller, DocumentChange, PollReport, Publication
from tests.clock import VirtualClock
from tests.waiting import LIMIT_S

T = TypeVar("T")

NOW_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT

FREEZE = ScheduledEvent(
    event_id="C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    event_type="Freeze",
    resources=("vm-a", "vm-b"),
    not_before_ms=NOW_MS + 900_000,
    description="Host server is undergoing maintenance.",
    duration_s=9,
)
PREEMPT = ScheduledEvent(
    event_id="11111111-AFDC-4513-B24B-AA5F13A16123", event_type="Preempt", resources=("vm-a",)
)
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"

#: Rounds of the server's event loop in which it accepts, reads and answers all that was sent.
ROUNDS = 8

#: How long a test listens, after these rounds, to be sure that nothing comes.
QUIET_S = 0.01


@dataclass
class Control:
    """The control plane, as far as a metadata server sees it."""

    #: What approvals get; None keeps them waiting.
    answer: RequestAnswer | None = field(default_factory=lambda: RequestAnswer(True))
    enables: bool = True
    approvals: list[ApprovalRequest] = field(default_factory=list)
    enabled: list[str] = field(default_factory=list)
    groups: list[frozenset[str]] = field(default_factory=list)
    ages_ms: list[int] = field(default_factory=list)
    waiting: list[asyncio.Future[RequestAnswer]] = field(default_factory=list)
    enabling: list[asyncio.Future[RequestAnswer]] = field(default_factory=list)
    on_enable: Callable[[str], None] | None = None
    #: VMs that have left the hosts of a node while an event was there.
    left: set[tuple[str, frozenset[str]]] = field(default_factory=set)
    #: VM and event -> its outcome, as JSON.
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    #: VM -> the client of its last poll.
    clients: dict[str, str] = field(default_factory=dict)
    #: VMs whose approvals it fails at.
    failing: set[str] = field(default_factory=set)

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Note a request, and answer it."""
        future: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        if isinstance(request, ApprovalRequest):
            self._approve(request, future)
        elif isinstance(request, EnableRequest):
            self.enabled.append(request.vm)
            self.enabling.append(future)
            if self.enables:
                future.set_result(RequestAnswer(accepted=True))
            if self.on_enable is not None:
                self.on_enable(request.vm)
        else:
            text = self.outcomes.get((request.vm, request.event_id), "")
            future.set_result(RequestAnswer(accepted=bool(text), outcome=text))
        return future

    def _approve(self, request: ApprovalRequest, future: asyncio.Future[RequestAnswer]) -> None:
        """Note the approval; one for a VM that is elsewhere counts where it had been there."""
        hosts = frozenset(request.node_hosts)
        if hosts and (request.vm, hosts) not in self.left:
            future.set_result(RequestAnswer(accepted=False, error="It never was there."))
            return
        if request.vm in self.failing:
            future.cancel()
            return
        self.approvals.append(struct_replace(request, node_hosts=()))
        if self.answer is None:
            self.waiting.append(future)
        else:
            future.set_result(self.answer)

    def tell(self, report: PollReport) -> None:
        """Note polls, those of each age together, and which clients VMs used."""
        by_age: dict[int, list[str]] = {}
        for group, age_ms in report.groups.items():
            by_age.setdefault(age_ms, []).append(group)
        for age_ms, groups in by_age.items():
            self.groups.append(frozenset(groups))
            self.ages_ms.append(age_ms)
        self.clients.update({each.vm: each.user_agent for each in report.vms})


@dataclass
class Live:
    """A running server and how to talk to it."""

    server: MetadataServer
    control: Control
    clock: VirtualClock
    loop: asyncio.AbstractEventLoop
    bound: tuple[str, ...] = ()
    sequence: int = 0

    @property
    def port(self) -> int:
        """The port of the first address."""
        return int(self.bound[0].rpartition(":")[2])

    def call(self, act: Callable[[], T]) -> T:
        """Run something on the server's event loop and return what it returns."""

        async def run() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(LIMIT_S)

    def apply(self, change: DocumentChange) -> None:
        """Apply a change as the feed would."""
        self.call(lambda: self.server.service.apply(change))

    def show(self, *events: ScheduledEvent, incarnation: int = 1, view: str = "group-1") -> None:
        """Publish a document."""
        self.sequence += 1
        document = Document(incarnation, events)
        self.apply(DocumentChange(self.sequence, publications=(Publication(view, True, document),)))

    def know(self, *callers: Caller) -> None:
        """Say who may ask."""
        self.sequence += 1
        self.apply(DocumentChange(self.sequence, callers=callers))

    def connect(self, *, receive_bytes: int = 0, source: str = "") -> Raw:
        """Open a raw connection, with a small buffer for what it receives if asked to.

        Args:
            receive_bytes: size of that buffer; 0: the system's.
            source: address on loopback to ask from; empty: that of vm-a.
        """
        sock = socket.socket()
        if source:
            sock.bind((source, 0))
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(LIMIT_S)
        try:
            sock.connect(("127.0.0.1", self.port))
        except ConnectionResetError:  # cut before the call returned: the same as just after it
            sock.close()
            sock, server = socket.socketpair()
            server.close()
        except OSError:
            sock.close()
            raise
        return Raw(sock, self.settle)

    def settle(self) -> None:
        """Return once the server has read what was sent before."""
        for _ in range(ROUNDS):
            self.call(lambda: None)

    def ask(self, request: bytes) -> Reply:
        """Send bytes on a connection of their own and return the first answer."""
        with self.connect() as raw:
            raw.send(request)
            return raw.reply()

    def get(self, target: str = EVENTS, **headers: str) -> Reply:
        """Send a plain GET."""
        return self.ask(request(target, method="GET", body=b"", **headers))

    def post(self, body: bytes, target: str = EVENTS, **headers: str) -> Reply:
        """Send a plain POST."""
        return self.ask(request(target, method="POST", body=body, **headers))


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes


class Raw:
    """A socket that understands just enough HTTP to see where an answer ends."""

    def __init__(self, sock: socket.socket, settle: Callable[[], None] = lambda: None) -> None:
        self.sock = sock
        self.settle = settle
        self.buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, octets: bytes) -> None:
        """Send all; a server that has hung up already is fine."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(octets)

    def more(self) -> bool:
        """Read once; False at the end."""
        octets = self.sock.recv(65_536)
        self.buffer += octets
        return bool(octets)

    def reply(self, *, head_only: bool = False) -> Reply:
        """Return the next answer."""
        while b"\r\n\r\n" not in self.buffer:
            if not self.more():
                raise EOFError(self.buffer)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        length = 0 if head_only else int(headers.get("content-length", "0"))
        while len(self.buffer) < length:
            if not self.more():
                raise EOFError(self.buffer)
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Reply(int(first.split()[1]), headers, body, head)

    def silent(self) -> bool:
        """Tell whether the server has read what was sent, and answers nothing."""
        self.settle()
        self.sock.settimeout(QUIET_S)
        with contextlib.suppress(TimeoutError):
            self.more()
            return False
        self.sock.settimeout(LIMIT_S)
        return True

    def closed(self) -> bool:
        """Wait for the end; tell whether nothing came before it."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            return not self.buffer
        return not self.buffer


def request(target: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request; `if_none_match` becomes `If-None-Match`, "" leaves it out."""
    fields = {"host": "169.254.169.254", "metadata": "true"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    if body:
        fields.setdefault("content-length", str(len(body)))
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body


def wait_for(seconds: float | str, incarnation: int | str = 0) -> str:
    """Return the target of a long poll."""
    return f"{EVENTS}&wait={seconds}&incarnation={incarnation}"


def approval(*event_ids: str) -> bytes:
    """Return the body of an approval."""
    ids = ",".join(f'{{"EventId":"{event_id}"}}' for event_id in event_ids)
    return f'{{"StartRequests":[{ids}]}}'.encode()


VM_A = Caller(
    vm="vm-a",
    group="group-1",
    view="group-1",
    addresses=("127.0.0.1", "::1"),
    instance_id="instance-a",
    instance={"location": "north", "vmSize": "big", "zone": 1, "tags": {"b": "2", "a": "1"}},
)
VM_C = Caller(vm="vm-c", group="group-2", view="group-2", instance_id="instance-c")

SETTINGS = MetadataSettings(rate_per_s=0)


@contextlib.contextmanager
def serving(
    settings: MetadataSettings = SETTINGS,
    *,
    listen: tuple[str, ...] = ("127.0.0.1:0",),
    portable: bool = False,
    control: Control | None = None,
    emulated: EmulatedAnswers = NOT_EMULATED,
    on_pause: Callable[[], object] = lambda: None,
    event_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> Iterator[Live]:
    """Run a server in a thread of its own, with vm-a at this address, group-1 empty."""
    loop = event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    control = control or Control()
    clock = VirtualClock(NOW_MS)
    server = MetadataServer(
        settings,
        control,
        clock=clock,
        ids=Ids(1),
        on_pause=on_pause,
        emulated=emulated,
        portable=portable,
    )
    live = Live(server, control, clock, loop)
    try:
        start = server.start(listen)
        live.bound = asyncio.run_coroutine_threadsafe(start, loop).result(LIMIT_S)
        live.know(VM_A, VM_C)
        live.show(incarnation=0)
        live.show(incarnation=0, view="group-2")
        yield live
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()


def with_settings(**changes: object) -> MetadataSettings:
    """Return the tests' settings, changed."""
    return replace(SETTINGS, **changes)  # type: ignore[arg-type]  # checked by the class
