"""A service in a process of its own that may be killed at any moment, and what was seen of it."""

import asyncio
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import (
    DriverSettings,
    ListenSettings,
    MetadataSettings,
    OperatorSettings,
    Settings,
    StoreSettings,
)
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.hooks import ServiceHooks
from tests.e2e.client_log import Approval, ClientLog, Read, event_of
from tests.waiting import LIMIT_S

CLOCK = SystemClock()
VERSION = "2020-07-01"
#: Two hosts in two fault domains, two groups, of which one spans both.
HOSTS = (Host("h1", fault_domain=0), Host("h2", fault_domain=1))
GROUPS = (Group("web"), Group("db"))
VMS = (Vm("web_0", "h1", "web"), Vm("web_1", "h2", "web"), Vm("db_0", "h1", "db"))
#: A life is at most this many requests long; half of them see less than ten events.
REQUESTS_MAX = 200
#: Rounds of reading and approving in which all that is left must end.
ROUNDS_MAX = 100_000
#: How often a VM approves what it sees: often enough that work goes on, rarely enough to wait.
APPROVAL_CHANCE = 0.3
#: Length of a lease here, so that a standby need not wait for long.
TERM_MS = 2000
#: Everything the children need, imported once by the server they are forked from.
PRELOAD = [
    "tests.e2e.crashing",
    "forewarn_metadata.endpoint.http.epoll_transport",
    "forewarn_server.api.app",
    "forewarn_server.api.driver_routes",
    "forewarn_server.api.outbox_routes",
    "forewarn_server.api.server",
    "pytest",  # which each child imports where it is the main program
    "uvicorn.lifespan.off",
]


FLEET = ChangeTopology(hosts=HOSTS, groups=GROUPS, vms=VMS)


def serve(store: str, ready: Connection, fleet: ChangeTopology = FLEET) -> None:
    """Run the service until it is killed; tell where it listens."""
    settings = Settings(
        listen=ListenSettings(metadata=("127.0.0.1:0",), operator="127.0.0.1:0"),
        metadata=MetadataSettings(vm_by_query=True, rate_per_s=0),
        operator=OperatorSettings(open_on_loopback=True),
        store=StoreSettings(url=store),
        drivers=DriverSettings(default="simulated"),
    )

    def lay_out(plane: ControlPlane) -> None:
        if not plane.state.topology.vms:
            plane.commit(fleet, actor="test", now_ms=SystemClock().now_ms())

    async def run() -> None:
        hooks = ServiceHooks(prepare=lay_out, term_ms=TERM_MS)
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids(), hooks=hooks)
        bound = await daemon.start()
        ready.send((bound.metadata[0], bound.operator.removeprefix("http://")))
        await daemon.ended.wait()

    asyncio.run(run())


@dataclass
class Seen:
    """What clients were told over all lives of the service."""

    #: (VM, incarnation) -> the events' bytes.
    documents: dict[tuple[str, int], str] = field(default_factory=dict)
    #: Documents that differed from an earlier one with the same incarnation.
    contradictions: list[str] = field(default_factory=list)
    #: Times an incarnation went back.
    retreats: list[str] = field(default_factory=list)
    #: Events whose approval was answered 200.
    approved: set[str] = field(default_factory=set)
    #: Operations an operator was told of.
    planned: set[str] = field(default_factory=set)
    #: Each poll and approval as its client saw it, for a checker apart from the product.
    log: ClientLog = field(default_factory=ClientLog)
    last: dict[str, int] = field(default_factory=dict)

    def document(self, vm: str, body: bytes) -> list[dict[str, object]]:
        """Take in a document and return its events."""
        shown = json.loads(body)
        incarnation, events = shown["DocumentIncarnation"], shown["Events"]
        text = json.dumps(events)
        if self.documents.setdefault((vm, incarnation), text) != text:
            self.contradictions.append(f"{vm} at {incarnation}: {text}")
        if incarnation < self.last.get(vm, 0):
            self.retreats.append(f"{vm} from {self.last[vm]} to {incarnation}")
        self.last[vm] = incarnation
        return list(events)


class Life:
    """One run of the service, from its start to its death."""

    def __init__(self, store: str, serving: Callable[..., None] = serve, *given: object) -> None:
        """Start it; it may have to stand by before it listens."""
        methods = multiprocessing.get_context("forkserver")
        methods.set_forkserver_preload(PRELOAD)
        receiving, sending = methods.Pipe(duplex=False)
        self._process = methods.Process(target=serving, args=(store, sending, *given))
        self._process.start()
        sending.close()
        self._ready = receiving
        self.metadata = self.operator = ""

    def listening(self, *, wait_s: float = LIMIT_S) -> bool:
        """Wait until it listens; False if it does not within that time."""
        if not self.metadata and self._ready.poll(wait_s):
            self.metadata, self.operator = self._ready.recv()
            self._ready.close()
        return bool(self.metadata)

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # it may have died already
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()


class Doom:
    """Comes after a number of requests, whoever sends them."""

    def __init__(self, requests: int) -> None:
        """Come after that many."""
        self._left = itertools.count(requests, -1)
        self.come = threading.Event()

    def nearer(self) -> None:
        """One request has been sent."""
        if next(self._left) <= 0:
            self.come.set()


class Client:
    """One client that goes on until the service is gone."""

    def __init__(self, address: str, doom: Doom) -> None:
        """Connect."""
        self._doom = doom
        self._connection = http.client.HTTPConnection(address, timeout=LIMIT_S)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send one request; return status and body."""
        headers = {"Metadata": "true", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, body=sent, headers=headers)
        self._doom.nearer()
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def document(self, vm: str) -> bytes:
        """Read a VM's document."""
        status, body = self.ask("GET", f"/metadata/scheduledevents?api-version={VERSION}&vm={vm}")
        assert status == 200, body
        return body

    def approve(self, vm: str, event_id: str) -> int:
        """Approve an event; return the status."""
        path = f"/metadata/scheduledevents?api-version={VERSION}&vm={vm}"
        status, _ = self.ask("POST", path, {"StartRequests": [{"EventId": event_id}]})
        return status


def poll(client: Client, seen: Seen, vm: str) -> list[str]:
    """Read a VM's document, note what it says, and return the events that may be approved."""
    asked_ms = CLOCK.now_ms()
    body = client.document(vm)
    answered_ms = CLOCK.now_ms()
    forms = seen.document(vm, body)
    events = {str(form["EventId"]): event_of(form) for form in forms}
    seen.log.reads.append(Read(vm, asked_ms, answered_ms, seen.last[vm], events))
    return [event_id for event_id, event in events.items() if event.status == "Scheduled"]


def approve(client: Client, seen: Seen, vm: str, event_id: str) -> None:
    """Approve an event and note how that was answered, if it was."""
    asked_ms, status = CLOCK.now_ms(), 0
    try:
        status = client.approve(vm, event_id)
    finally:
        seen.log.approvals.append(Approval(vm, event_id, asked_ms, status))
    if status == 200:
        seen.approved.add(event_id)


def poll_and_approve(client: Client, seen: Seen, vm: str, chance: random.Random) -> None:
    """Be a VM: read, sometimes approve, until the service is gone."""
    try:
        while True:
            for event_id in poll(client, seen, vm):
                if chance.random() < APPROVAL_CHANCE:
                    approve(client, seen, vm, event_id)
    except (OSError, http.client.HTTPException):
        client.close()


def operate(client: Client, seen: Seen, chance: random.Random) -> None:
    """Be an operator: ask for one short piece of work after another, until the service is gone."""
    try:
        while True:
            body = {"cause": "network-update", "targets": [chance.choice(HOSTS).name]}
            status, answer = client.ask("POST", "/v1/operations", body)
            if status < 300:
                seen.planned.update(each["id"] for each in json.loads(answer)["operations"])
            client.ask("GET", "/v1/operations")
    except (OSError, http.client.HTTPException):
        client.close()


def live_on(store: str, seen: Seen) -> list[str]:
    """Let the service live until all its work has ended; return what hangs (nothing)."""
    life = Life(store)
    assert life.listening(), "the service did not start"
    doom = Doom(REQUESTS_MAX)
    clients = [(vm.name, Client(life.metadata, doom)) for vm in VMS]
    operator = Client(life.operator, doom)
    live: list[str] = []
    for _ in range(ROUNDS_MAX):
        for vm, client in clients:
            for event_id in poll(client, seen, vm):
                approve(client, seen, vm, event_id)
        status, body = operator.ask("GET", "/v1/operations?live=true")
        assert status == 200, body
        live = [each["id"] for each in json.loads(body)["operations"]]
        if not live:
            break
    for _, client in clients:
        client.close()
    operator.close()
    life.kill()
    return live


def live_and_die(store: str, seen: Seen, chance: random.Random) -> None:
    """Run the service under load, and kill it in the midst of a random request."""
    life = Life(store)
    assert life.listening(), "the service did not start"
    doom = Doom(chance.randint(1, REQUESTS_MAX))
    loads = [
        threading.Thread(
            target=poll_and_approve,
            args=(Client(life.metadata, doom), seen, vm.name, random.Random(chance.random())),
        )
        for vm in VMS
    ]
    operator = (Client(life.operator, doom), seen, random.Random(chance.random()))
    loads.append(threading.Thread(target=operate, args=operator))
    for load in loads:
        load.start()
    doomed = doom.come.wait(LIMIT_S)
    life.kill()
    for load in loads:
        load.join(LIMIT_S)
    assert doomed, "the clients got stuck"
