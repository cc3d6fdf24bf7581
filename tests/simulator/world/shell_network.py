"""Requests as bytes over connections: kinds of clients, half-written requests, floods, long polls.

What an answer means to a machine is decided in `network.py`; what it says, by the product.
"""

from __future__ import annotations

import hmac
from collections import Counter, defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from forewarn.agent.poller import ANSWER_MS, APPROVAL_MS, FIRST_ANSWER_MS
from tests.simulator.world import metadata_node as nodes
from tests.simulator.world.dice import Dice
from tests.simulator.world.document_cache import read
from tests.simulator.world.http_line import HttpAnswer, HttpLine
from tests.simulator.world.metadata_node import SimulatedReply
from tests.simulator.world.network import Network, NetworkFaultRates
from tests.simulator.world.shell_node import ShellNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.checkers.invariants import InvariantChecker
    from tests.simulator.world.event_queue import EventQueue
    from tests.simulator.world.machine_profile import MachineProfile
    from tests.simulator.world.metadata_node import SimulatedNode

KEEPS, CLOSES, COMPARES, WAITS, FLOODS = "keeps", "closes", "compares", "waits", "floods"
KINDS = (KEEPS, KEEPS, KEEPS, CLOSES, COMPARES, COMPARES, WAITS, WAITS, FLOODS)
"""Clients: one connection for all, one for each request, `If-None-Match`, long polls, and those
that now and then ask far more often than they may."""

PROXY, SECRET = "proxy-1", "a secret of proxies"
"""The address of the proxy whose signatures are believed, and what it signs with. Source: S-6."""

BURST, REQUESTS_S = 10, 60
"""Who has sent at most a burst within this many seconds is owed an answer. Source: E-6."""
FLOOD = 25
WAIT_S_MAX = 280
TORN_MS_MAX = 15_000
"""Longest pause within a request: some are given up by the service, after ten seconds."""


class _Request(NamedTuple):
    """What is sent."""

    octets: bytes
    #: After this time the client gives up.
    timeout_ms: int
    #: Whether it is never sent in two parts.
    whole: bool = False


class _Client:
    """What one machine's programs remember of the service."""

    def __init__(self, queue: EventQueue, dice: Dice) -> None:
        """Draw what kind of client it is."""
        self.kind = dice.pick(KINDS)
        self.polls, self.approvals, self.waits = (HttpLine(queue) for _ in range(3))
        self.etag, self.body = b"", b""


class ShellNetwork(Network):
    """Every connection of the world, down to its bytes."""

    def __init__(
        self, queue: EventQueue, checker: InvariantChecker, dice: Dice, *, seed: int
    ) -> None:
        """Begin without faults."""
        super().__init__(queue, checker, dice)
        self._seed = seed
        self._client_dice = Dice(seed, "clients")
        self._clients: dict[str, _Client] = {}
        #: Machine -> when it sent its last requests, true time in ms; a restart changes nothing.
        self._sent: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=BURST + 1))
        #: VM -> what its proxy calls it, for those behind one.
        self.instance_ids: dict[str, str] = {}
        #: What happened to connections -> how often.
        self.counts: Counter[str] = Counter()

    def disconnect(self, machine: str) -> None:
        """A machine's programs end: their connections are closed, and what they knew is gone."""
        client = self._clients.pop(machine, None)
        if client is not None:
            for line in (client.polls, client.approvals, client.waits):
                line.forget()

    def connect(self, machine: str, node: SimulatedNode) -> None:
        """Say which node a machine's requests reach; what was under way to another one is lost."""
        client = self._clients.get(machine)
        if client is not None and self._nodes.get(machine) is not node:
            for line in (client.polls, client.approvals, client.waits):
                line.drop()
        super().connect(machine, node)

    # ---- requests ------------------------------------------------------------------------------

    def _poll(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        answered: Callable[[SimulatedReply], None],
    ) -> bool:
        client = self._client(machine.name)
        if client.polls.busy:  # it is sent an earlier one, or gives it up
            client.polls.forget()
        if client.kind == FLOODS and self._client_dice.chance(60):
            self._flood(node, machine)
        extra = b""
        if client.kind == COMPARES and client.etag:
            extra = b"If-None-Match: " + client.etag + b"\r\n"
        head = self._head(machine, "GET", "", extra)
        timeout_ms = ANSWER_MS if client.body else FIRST_ANSWER_MS
        take = partial(self._polled, client, machine, answered, node=node)
        self._send(node, machine, client.polls, request=_Request(head, timeout_ms), take=take)
        return True

    def _polled(
        self,
        client: _Client,
        machine: MachineProfile,
        answered: Callable[[SimulatedReply], None],
        answer: HttpAnswer,
        *,
        node: SimulatedNode,
    ) -> None:
        self._check_refusal(machine.name, answer)
        if answer.status == 304:
            self._checker.premises["E-7: a document is not sent again"] += 1
            answer = HttpAnswer(200, answer.etag, client.body)
        elif answer.status == 200:
            client.etag, client.body = answer.etag, answer.body
        answered(self._reply(node, machine, answer))
        waits = client.kind == WAITS and answer.status == 200 and not client.waits.busy
        if waits and self._client_dice.chance(300) and self._clients.get(machine.name) is client:
            self._wait(client, machine)

    def _post(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        body: bytes,
        answered: Callable[[SimulatedReply], None],
    ) -> None:
        client = self._client(machine.name)
        line = HttpLine(self._queue) if client.approvals.busy else client.approvals
        head = self._head(machine, "POST", "", b"Content-Length: %d\r\n" % len(body))

        def take(answer: HttpAnswer) -> None:
            self._check_refusal(machine.name, answer)
            answered(self._reply(node, machine, answer))

        self._send(node, machine, line, request=_Request(head + body, APPROVAL_MS), take=take)

    def _wait(self, client: _Client, machine: MachineProfile) -> None:
        """Ask to be notified when the document changes. Source: E-9."""
        node = self._nodes[machine.name]
        known, wait_s = read(client.body).incarnation, self._client_dice.between(1, WAIT_S_MAX)
        head = self._head(machine, "GET", f"&wait={wait_s}&incarnation={known}", b"")
        asked_ms = self._queue.now_ms

        def take(answer: HttpAnswer) -> None:
            self._check_refusal(machine.name, answer)
            reply = self._reply(node, machine, answer)
            if reply.status != 200:
                return
            self._checker.read(machine.name, reply)
            now_ms = self._queue.now_ms
            clients = self._checker.clients
            clients.polled(machine.name, node, reply, answered_ms=now_ms)
            clients.waited(machine.name, node, reply, asked_ms=asked_ms, known=known)

        timeout_ms = ANSWER_MS + wait_s * 1000
        request = _Request(head, timeout_ms)
        # Who sends the rest of a request late has asked by then only.
        asked_ms += self._send(node, machine, client.waits, request=request, take=take)

    def _flood(self, node: SimulatedNode, machine: MachineProfile) -> None:
        """Ask far more often than a VM may, all at once. Source: E-6."""
        client = self._client(machine.name)
        head = self._head(machine, "GET", "", b"")
        statuses: Counter[int] = Counter()
        for _ in range(FLOOD):
            line = HttpLine(self._queue)

            def take(answer: HttpAnswer, line: HttpLine = line) -> None:
                statuses[answer.status] += 1
                line.drop()

            self._send(
                node, machine, line, request=_Request(head, ANSWER_MS, whole=True), take=take
            )
        self.counts["throttled"] += statuses[429]
        self._checker.clients.flooded(machine.name, statuses[200], burst=BURST)
        client.body = b""

    def _send(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        line: HttpLine,
        *,
        request: _Request,
        take: Callable[[HttpAnswer], None],
    ) -> int:
        """Send a request, whole or in two parts; return how many ms lie between those."""
        assert isinstance(node, ShellNode)
        octets = request.octets
        parts: tuple[tuple[int, bytes], ...] = ((0, octets),)
        pause_ms = 0
        dice = self._client_dice
        if not request.whole and self.rates != NetworkFaultRates() and dice.chance(self.rates.lost):
            self.counts["torn"] += 1
            at = dice.between(1, len(octets) - 1)
            pause_ms = dice.between(1, TORN_MS_MAX)
            parts = ((0, octets[:at]), (pause_ms, octets[at:]))
        self._sent[machine.name].append(self._queue.now_ms)
        self._checker.clients.asks(machine.name)
        behind_proxy = machine.name in self.instance_ids
        address = PROXY if behind_proxy else machine.address
        line.ask(node, address, parts, timeout_ms=request.timeout_ms, then=take)
        return pause_ms

    def _head(self, machine: MachineProfile, method: str, query: str, extra: bytes) -> bytes:
        client = self._client(machine.name)
        lines = (
            f"{method} /metadata/scheduledevents?api-version={machine.version}{query} HTTP/1.1\r\n"
            "Host: 169.254.169.254\r\nMetadata: true\r\n"
        )
        if client.kind == CLOSES:
            lines += "Connection: close\r\n"
        instance_id = self.instance_ids.get(machine.name)
        if instance_id is not None:
            signature = hmac.digest(SECRET.encode(), instance_id.encode(), "sha256").hex()
            lines += "X-Forwarded-For: 10.0.0.4\r\n"
            lines += f"X-Instance-ID: {instance_id}\r\nX-Instance-ID-Signature: {signature}\r\n"
        return lines.encode() + extra + b"\r\n"

    # ---- answers -------------------------------------------------------------------------------

    def _reply(
        self, node: SimulatedNode, machine: MachineProfile, answer: HttpAnswer
    ) -> SimulatedReply:
        """What came over the wire: which document that is shows only in what it says."""
        if answer.status != 200 or not answer.body:
            return SimulatedReply(answer.status or nodes.LOST, answer.body)
        version, body = machine.version, answer.body
        view = self._checker.view_read(machine.name, version, body, node=node)
        return SimulatedReply(200, body, view, version)

    def _check_refusal(self, vm: str, answer: HttpAnswer) -> None:
        """E-6: who asks seldom is never refused for asking too often."""
        if answer.status == 429:
            sent = self._sent[vm]
            few = len(sent) <= BURST or self._queue.now_ms - sent[0] > REQUESTS_S * 1000
            self._checker.clients.throttled(vm, few=few)

    def _client(self, machine: str) -> _Client:
        client = self._clients.get(machine)
        if client is None:
            own = Dice(self._seed, f"client/{machine}")
            client = self._clients[machine] = _Client(self._queue, own)
        return client
