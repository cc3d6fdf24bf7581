"""How requests travel between machines and nodes: lost, late, twice, out of order, or well.

An agent asks one thing at a time on each of its two lines, so no answer overtakes another one.
What a request says is decided by the machine, what the answer says by the node.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from forewarn.agent.poller import ANSWER_MS, APPROVAL_MS
from forewarn.protocol.approvals import render_approval
from forewarn.protocol.versions import PREVIEW_VERSION, VERSIONS
from forewarn.values import value
from tests.simulator.world import metadata_node as nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.checkers.invariants import InvariantChecker
    from tests.simulator.world.dice import Dice
    from tests.simulator.world.event_queue import EventQueue
    from tests.simulator.world.machine_profile import MachineProfile
    from tests.simulator.world.metadata_node import SimulatedNode, SimulatedReply

LATE_MS_MAX = 20 * 60 * 1000
"""A lost packet found again: the longest a request wanders before it arrives."""

NEVER_MS = 1 << 62


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
        self.end(nodes.LOST)


class Network:
    """Every connection of the world."""

    def __init__(self, queue: EventQueue, checker: InvariantChecker, dice: Dice) -> None:
        """Begin without faults."""
        self.rates = NetworkFaultRates()
        #: Since when nothing is lost and nothing late, true time in ms; far ahead while it is not.
        self.calm_since_ms = queue.now_ms
        self._queue = queue
        self._checker = checker
        self._dice = dice
        self._nodes: dict[str, SimulatedNode] = {}
        #: Fate -> requests or answers that met it.
        self.fault_counts: Counter[str] = Counter()
        self._gets = {version: nodes.get(version) for version in (*VERSIONS, PREVIEW_VERSION)}

    def set_fault_rates(self, rates: NetworkFaultRates) -> None:
        """Set what share of requests meets which fault from now on."""
        self.rates = rates
        self.calm_since_ms = self._queue.now_ms if rates == NetworkFaultRates() else NEVER_MS

    def connect(self, machine: str, node: SimulatedNode) -> None:
        """Say which node a machine's requests reach from now on."""
        self._nodes[machine] = node

    def move(self, old: SimulatedNode, new: SimulatedNode) -> list[str]:
        """Let what asked one node ask another; return the machines."""
        moved = [machine for machine, node in self._nodes.items() if node is old]
        self._nodes.update(dict.fromkeys(moved, new))
        return moved

    def node_of(self, machine: str) -> SimulatedNode:
        """The node a machine's requests reach."""
        return self._nodes[machine]

    def poll(self, machine: MachineProfile, answered: Callable[[bytes | None], None]) -> bool:
        """Send a poll; the machine hears of it now or later, or that it heard nothing in time.

        Returns:
            whether it will hear: not of one that is held until its group is enabled.
        """
        if self._meets("request lost", self.rates.lost):
            self._queue.after(self._failure_delay_ms(ANSWER_MS), partial(answered, None))
            return True
        node = self._nodes[machine.name]
        return self._poll(node, machine, partial(self._answer_poll, machine, node, answered))

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
            ended: called once with the status of the answer, `nodes.LOST` where none came in time.
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
            status = nodes.KEPT
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

    def disconnect(self, machine: str) -> None:
        """A machine's programs end; here nothing is open between two requests."""

    def _poll(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        answered: Callable[[SimulatedReply], None],
    ) -> bool:
        """Ask a node for a document; False where nothing is answered before the next change."""
        reply = node.ask(machine.address, self._gets[machine.version])
        if reply.status == nodes.HELD:
            return False
        answered(reply)
        return True

    def _post(
        self,
        node: SimulatedNode,
        machine: MachineProfile,
        body: bytes,
        answered: Callable[[SimulatedReply], None],
    ) -> None:
        """Send a node an approval."""
        answered(node.ask(machine.address, nodes.post(machine.version), body))
