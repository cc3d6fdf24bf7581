"""A virtual machine with the real agent inside: it polls, prepares, approves, dies, recovers.

How requests travel is decided in `wires.py`; what the agent does is decided by the agent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from forewarn.agent.core import AgentCore
from forewarn.agent.names import Identity
from forewarn.agent.rules import Match, Rule, Step, default_rules
from forewarn.agent.values import (
    ApprovalEnded,
    Approve,
    HookEnded,
    HookIntent,
    Polled,
    Resumed,
    Stop,
    Tick,
)
from forewarn.wire import Document, read_document, render_approval

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.agent.values import Intent, Stimulus
    from forewarn.sim.agenda import Agenda
    from forewarn.sim.dice import Dice
    from forewarn.sim.wires import Wires

POLL_MS = 1000
"""An agent polls once a second; only the polls that can matter are simulated. Source: C-1."""
RETRY_MS_MIN = 1000
RETRY_MS_MAX = 30_000
TERM_STATUS = -15
"""Exit status of a hook that was told to stop."""
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

STEPS = ((Step("drain", timeout_s=600, repeatable=True), Step("note", does=False, undoes=False)),)
RULES = default_rules(STEPS)
RULES_WITHOUT_APPROVAL = (
    Rule("prepare only", Match(), action="prepare", then="hold", steps=STEPS),
    *RULES,
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


class Machine:
    """One VM."""

    def __init__(self, seat: Seat, agenda: Agenda, *, wires: Wires, dice: Dice) -> None:
        """Begin switched off."""
        self.seat = seat
        self.up = False
        #: No poll leaves it while this is set, for a group that falls silent.
        self.muted = False
        self._agenda = agenda
        self._wires = wires
        self._dice = dice
        self._identity = Identity(seat.name)
        self._rules = RULES if seat.habit.approves else RULES_WITHOUT_APPROVAL
        self._core: AgentCore | None = None
        self._journal: dict[str, object] | None = None
        self._written = 0
        self._hooks: dict[str, int] = {}
        self._poll_planned = False
        self._tick_ms = 0
        self._life = 0
        #: Told what the agent does, for transcripts.
        self.heard: Callable[[Machine, Intent], None] = lambda _, __: None

    @property
    def core(self) -> AgentCore | None:
        """The agent's core while it runs."""
        return self._core

    # ---- the machine ---------------------------------------------------------------------------

    def boot(self) -> None:
        """Switch on, and begin where the agent's journal left off."""
        if self.up:
            return
        self.up = True
        self._begin_agent(rebooted=True)

    def halt(self) -> None:
        """Switch off: the agent, its hooks and requests are gone."""
        self.up = False
        self._end_agent()

    def _begin_agent(self, *, rebooted: bool) -> None:
        if not self.up or not self.seat.habit.polls or self._core is not None:
            return
        journal = None if self._journal is None else json.loads(json.dumps(self._journal))
        self._core = AgentCore(self._identity, self._rules, journal=journal)
        self._written = self._core.generation
        if journal is not None:
            found = dict.fromkeys(self._core.running(), "interrupted")
            self._step(Resumed(found, rebooted=rebooted))
        self.plan_poll()

    def _end_agent(self) -> None:
        self._life += 1
        self._core = None
        self._hooks.clear()
        self._poll_planned = False
        self._tick_ms = 0

    def _die(self) -> None:
        """The agent's process ends; whoever looks after it starts it again."""
        self._end_agent()
        self._later(self._dice.between(1000, 60_000), lambda: self._begin_agent(rebooted=False))

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
        if self._tick_ms and self._agenda.now_ms < self._tick_ms <= at_ms:
            return
        self._tick_ms = at_ms
        self._later(at_ms - self._agenda.now_ms, lambda: self._step(Tick()))

    def _do(self, intent: Intent) -> None:
        if isinstance(intent, HookIntent):
            low, high = self.seat.habit.hook_s
            status = 1 if self._dice.chance(self.seat.habit.hook_fails) else 0
            self._hooks[intent.key] = intent.run
            end = partial(self._hook_ends, intent.key, intent.run, status)
            self._later(self._dice.between(low * 1000, high * 1000), end)
        elif isinstance(intent, Stop):
            run = self._hooks.get(intent.key, -1)
            end = partial(self._hook_ends, intent.key, run, TERM_STATUS)
            self._later(self._dice.between(1, 3000), end)
        elif isinstance(intent, Approve):
            self._send(intent.event.event_id)
            if self.seat.habit.twice:
                again = partial(self._send, intent.event.event_id)
                self._later(self._dice.between(500, 5000), again)

    def _hook_ends(self, key: str, run: int, status: int) -> None:
        if self._hooks.get(key) == run:
            del self._hooks[key]
            self._step(HookEnded(key, status))

    def _send(self, event_id: str) -> None:
        self._wires.approve(self, (event_id,), render_approval((event_id,)))

    def approval_ended(self, event_id: str, *, accepted: bool) -> None:
        """Take in the answer to an approval, or that there was none."""
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
