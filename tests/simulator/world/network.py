"""How requests travel between machines and nodes: lost, late, twice, out of order, or well.

An agent asks one thing at a time on each of its two lines, so no answer overtakes another one.
Requests are bytes over connections, of several kinds of clients: some write a request in halves,
flood, or wait for changes. What an answer says is decided by the product.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from forewarn.agent.poller import ANSWER_MS, APPROVAL_MS, FIRST_ANSWER_MS
from forewarn_base.protocol.approvals import render_approval
from forewarn_base.values import value
from tests.simulator.checkers.invariants import InvariantChecker
from tests.simulator.world.dice import Dice
from tests.simulator.world.document_cache import read
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.http_line import HttpAnswer, HttpLine
from tests.simulator.world.machine_profile import MachineProfile
from tests.simulator.world.metadata_node import KEPT, LOST, SimulatedNode, SimulatedReply

#: A lost packet found again: the longest a request wanders before it arrives.
LATE_MS_MAX = 20 * 60 * 1000

NEVER_MS = 1 << 62

KEEPS, CLOSES, COMPARES, WAITS, FLOODS = "keeps", "closes", "compares", "waits", "floods"
#: Clients: one connection for all, one for each request, `If-None-Match`, long polls, and those
#: that now and then ask far more often than they may.
KINDS = (KEEPS, KEEPS, KEEPS, CLOSES, COMPARES, COMPARES, WAITS, WAITS, FLOODS)

#: Who has sent at most a burst within this many seconds is owed an answer. Source: E-6.
BURST, REQUESTS_S = 10, 60
FLOOD = 25
WAIT_S_MAX = 280
#: Longest pause within a request: some are given up by the service, after ten seconds.
TORN_MS_MAX = 15_000


class _Request(NamedTuple):
    """What is sent."""

    octets: bytes
    #: After this time the client gives up.
    timeout_ms: int
    #: Whether it is never sent in two parts.
    whole: bool = False


class _Client:
    """What one machine's programs remember of the service."""

    def __init__(self, queue: EventQueue, kind: str) -> None:
        """Begin without a connection."""
        self.kind = kind
        self.polls, self.approvals, self.waits = (HttpLine(queue) for _ in range(3))
        self.etag, self.body = b"", b""

    def drop(self) -> None:
        """Lose every connection."""
        for line in (self.polls, self.approvals, self.waits):
            line.drop()

    def forget(self) -> None:
        """Close every connection."""
        for line in (self.polls, self.approvals, self.waits):
            line.forget()


@value
class NetworkFaultRates:
    """What share of requests, in a thousand, meets which fate."""

    lost: int = 0
    answer_lost: int = 0
    late: int = 0
    twice: int = 0
    answer_late: int = 0


class _Transmission:
    """One approval on its way: its machine hears once how it ended, whatever arrives how often."""

    def __init__(
        self, event_ids: tuple[str, ...], body: bytes, ended: Callable[[int], None]
    ) -> None:
        """Begin unanswered."""
        self.event_ids = event_ids
        self.body = body
        self._ended = ended
        self._over = False

    def end(self, status: int) -> None:
        """The answer has come, the first or a further one."""
        if not self._over:
            self._over = True
            self._ended(status)

    def fail(self) -> None:
        """No answer will come, or none has come for too long."""
        self.end(LOST)


class Network:
    """Every connection of the world."""

    def __init__(
        self,
        queue: EventQueue,
        checker: InvariantChecker,
        *,
        seed: int,
        kinds: Sequence[str] = KINDS,
    ) -> None:
        """Begin without faults, with clients of these kinds."""
        self.rates = NetworkFaultRates()
        #: Since when nothing is lost and nothing late, true time in ms; far ahead while it is not.
        self.calm_since_ms = queue.now_ms
        self._queue = queue
        self._checker = checker
        self._dice = Dice(seed, "wires")
        self._nodes: dict[str, SimulatedNode] = {}
        #: Fate -> requests or answers that met it.
        self.fault_counts: Counter[str] = Counter()
        self._seed = seed
        self._kinds = kinds
        self._client_dice = Dice(seed, "clients")
        self._clients: dict[str, _Client] = {}
        #: Machine -> when it sent its last requests, true time in ms; a restart changes nothing.
        self._sent: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=BURST + 1))
        #: What happened to connections -> how often.
        self.counts: Counter[str] = Counter()

    def set_fault_rates(self, rates: NetworkFaultRates) -> None:
        """Set what share of requests meets which fault from now on."""
        self.rates = rates
        self.calm_since_ms = self._queue.now_ms if rates == NetworkFaultRates() else NEVER_MS

    def connect(self, machine: str, node: SimulatedNode) -> None:
        """Say which node a machine's requests reach; what was under way to another one is lost."""
        client = self._clients.get(machine)
        if client is not None and self._nodes.get(machine) is not node:
            client.drop()
        self._nodes[machine] = node

    def disconnect(self, machine: str) -> None:
        """A machine's programs end: their connections are closed, and what they knew is gone."""
        client = self._clients.pop(machine, None)
        if client is not None:
            client.forget()

    def move(self, old: SimulatedNode, new: SimulatedNode) -> list[str]:
        """Let what asked one node ask another; return the machines."""
        moved = [machine for machine, node in self._nodes.items() if node is old]
        self._nodes.update(dict.fromkeys(moved, new))
        return moved

    def node_of(self, machine: str) -> SimulatedNode:
        """The node a machine's requests reach."""
        return self._nodes[machine]

    def poll(self, machine: MachineProfile, answered: Callable[[bytes | None], None]) -> None:
        """Send a poll; the machine hears of it now or later, or that it heard nothing in time."""
        if self._meets("request lost", self.rates.lost):
            self._queue.after(self._failure_delay_ms(ANSWER_MS), partial(answered, None))
            return
        node = self._nodes[machine.name]
        self._poll(node, machine, partial(self._answer_poll, machine, node, answered))

    def _answer_poll(
        self,
        machine: MachineProfile,
        node: SimulatedNode,
        answered: Callable[[bytes | None], None],
        reply: SimulatedReply,
    ) -> None:
        """Let a machine have the answer to its poll: now, later or never."""
        body = reply.body if reply.status == 200 else None
        if body is not None:
            self._checker.read(machine.name, reply)
        answered_ms = self._queue.now_ms
        if self._meets("answer lost", self.rates.answer_lost):
            answered_ms = 0
            self._queue.after(self._failure_delay_ms(ANSWER_MS), partial(answered, None))
        elif self._meets("answer late", self.rates.answer_late):
            answered_ms += self._dice.between(1, ANSWER_MS - 1)
            self._queue.at(answered_ms, partial(answered, body))
        self._checker.clients.polled(machine.name, node, reply, answered_ms=answered_ms)
        self._checker.nodes.polled(machine.name, node, reply, calm_since_ms=self.calm_since_ms)
        if answered_ms == self._queue.now_ms:
            answered(body)

    def approve(
        self,
        machine: MachineProfile,
        event_ids: tuple[str, ...],
        body: bytes,
        *,
        ended: Callable[[int], None],
    ) -> None:
        """Send an approval; it may arrive twice, late, or not at all.

        Args:
            machine: who approves.
            event_ids: what it approves.
            body: the same, as it is sent.
            ended: called once with the status of the answer, `LOST` where none came in time.
        """
        sending = _Transmission(event_ids, body, ended)
        if self._meets("request lost", self.rates.lost):
            self._queue.after(self._failure_delay_ms(APPROVAL_MS), sending.fail)
            return
        delay_ms = self._dice.between(0, 20)
        if self._meets("request late", self.rates.late):
            delay_ms = self._dice.between(1000, LATE_MS_MAX)
            self._queue.after(self._failure_delay_ms(APPROVAL_MS), sending.fail)
        self._queue.after(delay_ms, partial(self._arrive, machine, sending))
        if self._meets("request twice", self.rates.twice):
            again_ms = delay_ms + self._dice.between(0, 5000)
            self._queue.after(again_ms, partial(self._arrive, machine, sending))

    def probe(self, machine: MachineProfile) -> None:
        """Send an approval of an event that is another group's, or nobody's."""
        foreign = self._checker.foreign_event(machine.name, self._dice)
        checked = partial(self._checker.probe_answered, machine.name, foreign)
        self._post(self._nodes[machine.name], machine, render_approval((foreign,)), checked)

    def _arrive(self, machine: MachineProfile, sending: _Transmission) -> None:
        self._checker.asks_to_approve(machine.name, sending.event_ids)
        node = self._nodes[machine.name]
        self._post(node, machine, sending.body, partial(self._answer, machine, sending, node))

    def _answer(
        self,
        machine: MachineProfile,
        sending: _Transmission,
        node: SimulatedNode,
        reply: SimulatedReply,
    ) -> None:
        """Let a machine have the answer to its approval: now, later or never."""
        status = reply.status
        if status == 200 and not self._checker.approved(machine.name, node, sending.event_ids):
            status = KEPT
        report, answered_ms = partial(sending.end, reply.status), self._queue.now_ms
        if self._meets("answer lost", self.rates.answer_lost):
            answered_ms = 0
            self._queue.after(self._failure_delay_ms(APPROVAL_MS), sending.fail)
        elif self._meets("answer late", self.rates.answer_late):
            answered_ms += self._dice.between(1, APPROVAL_MS - 1)
            self._queue.at(answered_ms, report)
        self._checker.clients.approval(
            machine.name, node, sending.event_ids, status=status, answered_ms=answered_ms
        )
        if answered_ms == self._queue.now_ms:
            report()

    def _meets(self, fate: str, permille: int) -> bool:
        """Draw whether something meets its fate, and count it if so."""
        met = permille and self._dice.chance(permille)
        if met:
            self.fault_counts[fate] += 1
        return bool(met)

    def _failure_delay_ms(self, timeout_ms: int) -> int:
        """How long until it is noticed that no answer comes: a line that broke, or silence."""
        return self._dice.pick((1, timeout_ms))

    # ---- requests ------------------------------------------------------------------------------

    def _poll(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        answered: Callable[[SimulatedReply], None],
    ) -> None:
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
        line.ask(node, machine.address, parts, timeout_ms=request.timeout_ms, then=take)
        return pause_ms

    def _head(self, machine: MachineProfile, method: str, query: str, extra: bytes) -> bytes:
        client = self._client(machine.name)
        lines = (
            f"{method} /metadata/scheduledevents?api-version={machine.version}{query} HTTP/1.1\r\n"
            "Host: 169.254.169.254\r\nMetadata: true\r\n"
        )
        if client.kind == CLOSES:
            lines += "Connection: close\r\n"
        return lines.encode() + extra + b"\r\n"

    # ---- answers -------------------------------------------------------------------------------

    def _reply(
        self, node: SimulatedNode, machine: MachineProfile, answer: HttpAnswer
    ) -> SimulatedReply:
        """What came over the wire: which document that is shows only in what it says."""
        if answer.status != 200 or not answer.body:
            return SimulatedReply(answer.status or LOST, answer.body)
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
            kind = Dice(self._seed, f"client/{machine}").pick(self._kinds)
            client = self._clients[machine] = _Client(self._queue, kind)
        return client
