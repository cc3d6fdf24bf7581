"""A virtual machine with the real agent inside: it polls, prepares, approves, dies, recovers.

How requests travel is decided in `wires.py`; what the agent does is decided by the agent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from forewarn.agent.core.coordination import turn
from forewarn.agent.core.deciding import AgentCore
from forewarn.agent.core.names import Identity
from forewarn.agent.core.records import DONE, FAILED, READY
from forewarn.agent.core.rules import Match, Rule, Step, default_rules
from forewarn.agent.core.values import (
    Announce,
    ApprovalEnded,
    Approve,
    Ask,
    HookEnded,
    HookIntent,
    PeersSeen,
    Polled,
    Prepare,
    Resumed,
    Stop,
    Tick,
)
from forewarn.wire import Document, ScheduledEvent, read_document, render_approval

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.agent.core.values import Intent, Stimulus
    from forewarn.sim.agenda import Agenda
    from forewarn.sim.dice import Dice
    from forewarn.sim.peers import Peers
    from forewarn.sim.wires import Wires

POLL_MS = 1000
"""An agent polls once a second; only the polls that can matter are simulated. Source: C-1."""
RETRY_MS_MIN = 1000
RETRY_MS_MAX = 30_000
TERM_STATUS = -15
"""Exit status of a hook that was told to stop."""
PATIENCE_MS = 10 * 60 * 1000
"""How often an agent whose peers say nothing new asks them here; in life: every few seconds."""
DOCUMENTS_MAX = 4096

_documents: dict[bytes, Document] = {}


@dataclass(frozen=True, slots=True)
class Habit:
    """How a machine and its people behave; durations in seconds."""

    name: str
    weight: int
    polls: bool = True
    approves: bool = True
    hook_s: tuple[int, int] = (5, 90)
    #: How often in a thousand a hook fails.
    hook_fails: int = 10
    #: How often in a thousand the agent dies in the middle of a step.
    dies: int = 0
    #: Sends every approval a second time.
    twice: bool = False
    #: Tries to approve what is none of its business.
    nosy: bool = False


HABITS: tuple[Habit, ...] = (
    Habit("good", 60),
    Habit("never polls", 5, polls=False),
    Habit("never approves", 8, approves=False),
    Habit("approves late", 8, hook_s=(600, 2400)),
    Habit("approves twice", 6, twice=True),
    Habit("approves what is not its own", 5, nosy=True),
    Habit("restarts in the middle", 8, dies=150, hook_fails=100),
)
GOOD = HABITS[0]

DRAIN = "drain"
STEPS = ((Step(DRAIN, timeout_s=600, repeatable=True), Step("note", does=False, undoes=False)),)
RULES = default_rules(STEPS)
RULES_WITHOUT_APPROVAL = (
    Rule("prepare only", Match(), action="prepare", then="hold", steps=STEPS),
    *RULES,
)


def together(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the same rules for VMs that approve only when all of them are prepared."""
    return tuple(
        Rule(
            rule.name,
            rule.match,
            action=rule.action,
            then=rule.then,
            steps=rule.steps,
            coordination="all",
        )
        for rule in rules
    )


@dataclass(frozen=True, slots=True)
class Seat:
    """What does not change about a machine."""

    name: str
    address: str
    version: str
    habit: Habit
    #: How far its clock is from true time, in ms.
    skew_ms: int = 0
    #: When in each second it polls, in ms.
    phase_ms: int = 0
    #: Where it and the other VMs of an event tell each other that they are prepared, one of
    #: `peers.PLACES`; empty where each approves without asking.
    place: str = ""


class Machine:
    """One VM."""

    def __init__(
        self, seat: Seat, agenda: Agenda, *, wires: Wires, peers: Peers, dice: Dice
    ) -> None:
        """Begin switched off."""
        self.seat = seat
        self.up = False
        self._scrapped = False
        #: No poll leaves it while this is set, for a group that falls silent.
        self.muted = False
        self._agenda = agenda
        self._wires = wires
        self._peers = peers
        self._dice = dice
        self.identity = Identity(seat.name)
        rules = RULES if seat.habit.approves else RULES_WITHOUT_APPROVAL
        self._rules = together(rules) if seat.place else rules
        self._core: AgentCore | None = None
        self._journal: dict[str, object] | None = None
        self._written = 0
        self._hooks: dict[str, int] = {}
        self._poll_planned = False
        self._tick_ms = 0
        self._life = 0
        #: Whether the machine has restarted since the journal, which names the boot, was written.
        self._rebooted = False
        #: When the agent began last, true time in ms.
        self.began_ms = 0
        #: Whether asking its peers again may bring something new: they have said something, or
        #: something was lost of what its agent last said to them or heard of them.
        self.unheard = False
        #: Events for which an answer of its peers is on its way: one is asked for at a time.
        self._asked: set[str] = set()
        #: Told what the agent does, for transcripts.
        self.heard: Callable[[Machine, Intent], None] = lambda _, __: None
        #: Told how its approvals are answered, for transcripts.
        self.answered: Callable[[Machine, str, int], None] = lambda _, __, ___: None

    @property
    def core(self) -> AgentCore | None:
        """The agent's core while it runs."""
        return self._core

    # ---- the machine ---------------------------------------------------------------------------

    def boot(self) -> None:
        """Switch on, and begin where the agent's journal left off."""
        if self.up or self._scrapped:
            return
        self.up = True
        self._rebooted = True
        self.begin_agent()

    def halt(self) -> None:
        """Switch off: the agent, its hooks and requests are gone."""
        self.up = False
        if self.seat.place:
            self._peers.accord.prepared(self.seat.name, done=False)
        self.end_agent()

    def scrap(self) -> None:
        """Switch off for good: the VM is deleted, and another may get its name and address."""
        self.halt()
        self._scrapped = True

    def begin_agent(self) -> None:
        """Start the agent's process, unless it runs."""
        if not self.up or not self.seat.habit.polls or self._core is not None:
            return
        journal = None if self._journal is None else json.loads(json.dumps(self._journal))
        self._core = AgentCore(self.identity, self._rules, journal=journal)
        self._written = self._core.generation
        self.began_ms = self._agenda.now_ms
        if journal is not None:
            found = dict.fromkeys(self._core.running(), "interrupted")
            self._step(Resumed(found, rebooted=self._rebooted))
        self.plan_poll()

    def end_agent(self) -> None:
        """End the agent's process: its hooks and requests are gone, the machine stays up."""
        self._life += 1
        self._core = None
        self._hooks.clear()
        self._asked.clear()
        self._poll_planned = False
        self._tick_ms = 0

    def _die(self) -> None:
        """The agent's process ends; whoever looks after it starts it again."""
        self.end_agent()
        self._later(self._dice.between(1000, 60_000), self.begin_agent)

    # ---- the agent's loop ----------------------------------------------------------------------

    def plan_poll(self, delay_ms: int = -1) -> None:
        """Have the next poll that can matter happen, at its place in the second."""
        if self._core is None or self._poll_planned:
            return
        self._poll_planned = True
        if delay_ms < 0:
            delay_ms = (self.seat.phase_ms - self._agenda.now_ms) % POLL_MS + 1
        self._later(delay_ms, self._poll)

    def _poll(self) -> None:
        self._poll_planned = False
        if self.muted or self._core is None:
            return
        self._wires.poll(self, self._polled)

    def _polled(self, body: bytes | None) -> None:
        """Take in the answer to a poll; None for no usable one."""
        if body is None:
            self.plan_poll(self._dice.between(RETRY_MS_MIN, RETRY_MS_MAX))
            return
        self._step(Polled(read(body)))
        if self._core is not None and self._core.doubts:
            self.plan_poll()
        if self.seat.habit.nosy and self._dice.chance(200):
            self._wires.pry(self)

    def _step(self, stimulus: Stimulus) -> None:
        core = self._core
        if core is None:
            return
        intents = core.step(stimulus, self._agenda.now_ms + self.seat.skew_ms)
        dies = intents and self.seat.habit.dies and self._dice.chance(self.seat.habit.dies)
        if dies and self._dice.chance(500):
            self._die()  # before anything was written
            return
        if core.generation != self._written:
            self._written = core.generation
            self._journal = core.journal()
            self._rebooted = False
        if dies:
            self._die()  # after that, before anything was done
            return
        for intent in intents:
            self.heard(self, intent)
            self._do(intent)
        self._plan_tick()

    def _plan_tick(self) -> None:
        due_ms = self._core.next_deadline() if self._core is not None else None
        if due_ms is None:
            return
        at_ms = max(due_ms - self.seat.skew_ms, self._agenda.now_ms + 1)
        if self.seat.place and self._only_asks():
            at_ms = max(at_ms, self._agenda.now_ms + PATIENCE_MS)
        if self._tick_ms and self._agenda.now_ms < self._tick_ms <= at_ms:
            return
        self._tick_ms = at_ms
        self._later(at_ms - self._agenda.now_ms, lambda: self._step(Tick()))

    def look_again(self) -> None:
        """A peer has said something new: ask at the next time for it."""
        self.unheard = True
        self._plan_tick()

    def _only_asks(self) -> bool:
        """Whether all it waits for is another answer of its peers, which will be announced."""
        core = self._core
        if core is None or self.unheard:
            return False
        if any(held.status not in {DONE, FAILED} for held in core.steps):
            return False
        now_ms = self._agenda.now_ms + self.seat.skew_ms
        return all(
            record.stage == READY and bool(turn(record, self.identity, now_ms=now_ms).missing)
            for record in core.events
            if record.next_ms is not None
        )

    def _do(self, intent: Intent) -> None:
        if isinstance(intent, HookIntent):
            if self.seat.place and intent.key == DRAIN and not isinstance(intent, Prepare):
                self._peers.accord.prepared(self.seat.name, done=False)
            low, high = self.seat.habit.hook_s
            status = 1 if self._dice.chance(self.seat.habit.hook_fails) else 0
            self._hooks[intent.key] = intent.run
            end = partial(self._hook_ends, intent.key, intent.run, status)
            self._later(self._dice.between(low * 1000, high * 1000), end)
        elif isinstance(intent, Stop):
            run = self._hooks.get(intent.key, -1)
            end = partial(self._hook_ends, intent.key, run, TERM_STATUS)
            self._later(self._dice.between(1, 3000), end)
        elif isinstance(intent, Announce):
            if intent.prepared:
                self._peers.accord.says(self, intent.event)
            self._peers.announce(self, intent.event, prepared=intent.prepared)
        elif isinstance(intent, Ask):
            self._ask(intent.event)
        elif isinstance(intent, Approve):
            if self.seat.place:
                self._peers.accord.approves(self, intent.event)
            self._send(intent.event.event_id)
            if self.seat.habit.twice:
                again = partial(self._send, intent.event.event_id)
                self._later(self._dice.between(500, 5000), again)

    def _hook_ends(self, key: str, run: int, status: int) -> None:
        if self._hooks.get(key) == run:
            del self._hooks[key]
            if self.seat.place and key == DRAIN and not status:
                self._drained()
            self._step(HookEnded(key, status))

    def _drained(self) -> None:
        """A hook has succeeded; where it prepared, the machine is prepared."""
        steps = self._core.steps if self._core is not None else ()
        if any(held.key == DRAIN and held.phase == Prepare.phase for held in steps):
            self._peers.accord.prepared(self.seat.name, done=True)

    def _ask(self, event: ScheduledEvent) -> None:
        if event.event_id in self._asked:
            return  # the agent asks once at a time, and again when that is answered
        self._asked.add(event.event_id)
        life = self._life

        def answered(prepared: tuple[str, ...] | None) -> None:
            if self._life == life:
                self._asked.discard(event.event_id)
                if prepared is not None:
                    self._step(PeersSeen(event.event_id, prepared))
                else:
                    self._plan_tick()

        self._peers.ask(self, event, answered)

    def _send(self, event_id: str) -> None:
        self._wires.approve(self, (event_id,), render_approval((event_id,)))

    def approval_ended(self, event_id: str, *, status: int) -> None:
        """Take in the answer to an approval, or that there was none."""
        self.answered(self, event_id, status)
        accepted = status == 200
        self._step(ApprovalEnded(event_id, accepted=accepted, reason="" if accepted else "refused"))

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something later in this agent's life; nothing if that has ended by then."""
        life = self._life

        def due() -> None:
            if self._life == life:
                act()

        self._agenda.after(delay_ms, due)


def read(body: bytes) -> Document:
    """Read a document; the same bytes are read once for all machines, and for the judge."""
    found = _documents.get(body)
    if found is None:
        if len(_documents) >= DOCUMENTS_MAX:
            _documents.clear()
        found = _documents[body] = read_document(body)
    return found
