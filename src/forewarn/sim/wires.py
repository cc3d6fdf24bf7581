"""How requests travel between machines and nodes: lost, late, twice, out of order, or well.

What a request says is decided by the machine, what the answer says by the node.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from forewarn import wire
from forewarn.sim import node as nodes
from forewarn.sim.node import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.sim.agenda import Agenda
    from forewarn.sim.dice import Dice
    from forewarn.sim.invariants import Judge
    from forewarn.sim.machine import Machine
    from forewarn.sim.node import Node

LATE_MS_MAX = 20 * 60 * 1000
"""A lost packet found again: the longest a request wanders before it arrives."""

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Weather:
    """What share of requests, in a thousand, meets which fate."""

    lost: int = 0
    answer_lost: int = 0
    late: int = 0
    twice: int = 0


class Wires:
    """Every connection of the world."""

    def __init__(self, agenda: Agenda, judge: Judge, dice: Dice) -> None:
        """Begin with good weather."""
        self.weather = Weather()
        #: Since when nothing is lost and nothing late, true time in ms; far ahead while it is not.
        self.calm_since_ms = agenda.now_ms
        self._agenda = agenda
        self._judge = judge
        self._dice = dice
        self._nodes: dict[str, Node] = {}
        self._gets = {
            version: nodes.get(version) for version in (*wire.VERSIONS, wire.PREVIEW_VERSION)
        }

    def turn(self, weather: Weather) -> None:
        """Let the weather change."""
        self.weather = weather
        self.calm_since_ms = self._agenda.now_ms if weather == Weather() else NEVER_MS

    def connect(self, machine: str, node: Node) -> None:
        """Say which node a machine's requests reach."""
        self._nodes[machine] = node

    def move(self, old: Node, new: Node) -> list[str]:
        """Let what asked one node ask another; return the machines."""
        moved = [machine for machine, node in self._nodes.items() if node is old]
        self._nodes.update(dict.fromkeys(moved, new))
        return moved

    def node_of(self, machine: str) -> Node:
        """The node a machine's requests reach."""
        return self._nodes[machine]

    def poll(self, machine: Machine, answered: Callable[[bytes | None], None]) -> None:
        """Send a poll; the machine hears of it now, later, or never in time."""
        if self._dice.chance(self.weather.lost + self.weather.answer_lost):
            answered(None)
            return
        node = self._nodes[machine.seat.name]
        reply = self._ask(node, machine, self._gets[machine.seat.version])
        if reply.status == 200:
            self._judge.read(machine.seat.name, reply)
            answered(reply.body)
        elif reply.status != nodes.HELD:  # held: it hears when its group is enabled
            answered(None)

    def approve(self, machine: Machine, event_ids: tuple[str, ...], body: bytes) -> None:
        """Send an approval; it may arrive twice, late, or not at all."""
        if self._dice.chance(self.weather.lost):
            self._agenda.after(5000, partial(self._tell, machine, event_ids, Reply(nodes.LOST)))
            return
        delay_ms = self._dice.between(0, 20)
        if self._dice.chance(self.weather.late):
            delay_ms = self._dice.between(1000, LATE_MS_MAX)
            self._agenda.after(5000, partial(self._tell, machine, event_ids, Reply(nodes.LOST)))
        self._agenda.after(delay_ms, partial(self._arrive, machine, event_ids, body))
        if self._dice.chance(self.weather.twice):
            self._agenda.after(
                delay_ms + self._dice.between(0, 5000),
                partial(self._arrive, machine, event_ids, body),
            )

    def pry(self, machine: Machine) -> None:
        """Send an approval of an event that is another group's, or nobody's."""
        foreign = self._judge.foreign_event(machine.seat.name, self._dice)
        head = nodes.post(machine.seat.version)
        reply = self._ask(
            self._nodes[machine.seat.name], machine, head, wire.render_approval((foreign,))
        )
        self._judge.pried(machine.seat.name, foreign, reply)

    def _arrive(self, machine: Machine, event_ids: tuple[str, ...], body: bytes) -> None:
        self._judge.asks_to_approve(machine.seat.name, event_ids)
        node = self._nodes[machine.seat.name]
        reply = self._ask(node, machine, nodes.post(machine.seat.version), body)
        if reply.status == 200:
            self._judge.approved(machine.seat.name, event_ids)
        if self._dice.chance(self.weather.answer_lost):
            reply = Reply(nodes.LOST)
        self._tell(machine, event_ids, reply)

    def _tell(self, machine: Machine, event_ids: tuple[str, ...], reply: Reply) -> None:
        for event_id in event_ids:
            machine.approval_ended(event_id, status=reply.status)

    def _ask(self, node: Node, machine: Machine, raw: bytes, body: bytes = b"") -> Reply:
        """Ask a node; without the service a follower still shows, and nobody approves."""
        if not node.serves:
            return Reply(nodes.LOST)
        answer = node.ask(machine.seat.address, raw, body)
        if not isinstance(answer, Future):
            return answer
        if not answer.done():
            return Reply(nodes.LOST)  # the process died before it could answer
        if body:
            return node.approved(answer)
        return Reply(nodes.HELD if answer.exception() is None else nodes.LOST)
