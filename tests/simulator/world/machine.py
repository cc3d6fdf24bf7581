"""A virtual machine with the real agent inside: it polls, prepares, approves, dies, recovers.

How requests travel is decided in `network.py`; what the agent does is decided by the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.values import (
    AnnounceIntent,
    ApprovalEnded,
    ApproveIntent,
    AskPeersIntent,
    DocumentPolled,
    HookEnded,
    HookIntent,
    Intent,
    NotifyIntent,
    PeersSeen,
    PrepareIntent,
    Resumed,
    Stimulus,
    StopIntent,
    TimePassed,
)
from forewarn_base.protocol.approvals import render_approval
from forewarn_base.protocol.documents import ScheduledEvent
from tests.simulator.checkers.state_checker import RATE_PPM_MAX
from tests.simulator.world.agent_disk import AgentDisk
from tests.simulator.world.agent_habits import AFTER, BEFORE, DRAIN, RETRY_MS, rules_of
from tests.simulator.world.coordination import Coordination, only_asks
from tests.simulator.world.dice import Dice
from tests.simulator.world.document_cache import read
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.machine_profile import MachineProfile
from tests.simulator.world.network import Network

#: An agent polls once a second; only the polls that can matter are simulated. Source: C-1.
POLL_MS = 1000
TERM_STATUS = -15  # exit status of a hook that was stopped
#: How often an agent whose peers say nothing new asks them here; in life: every few seconds.
ASK_AGAIN_MS = 600_000


class Machine:
    """One VM."""

    def __init__(
        self,
        profile: MachineProfile,
        queue: EventQueue,
        *,
        network: Network,
        peers: Coordination[Machine],
        dice: Dice,
    ) -> None:
        """Begin switched off."""
        self.profile = profile
        self.up = self._scrapped = False
        #: No poll leaves it while this is set, for a group that falls silent.
        self.muted = False
        self._queue = queue
        self._network = network
        self._peers = peers
        self._dice = dice
        self.identity = Identity(profile.name)
        self._rules = rules_of(profile.habit, together=bool(profile.place))
        self._core: AgentCore | None = None
        self.disk = AgentDisk()
        self._hooks: dict[str, int] = {}
        self._poll_planned = False
        #: Whether a poll is on its way, and whether something has changed meanwhile.
        self._polling = self._poll_again = False
        self._tick_ms = self._life = 0
        #: What it did by habit -> how often; a world has one for all.
        self.habit_counts: Counter[str] = Counter()
        #: What is decided and waits until it can be written.
        self._unwritten: list[Intent] = []
        #: What it reads instead of its next documents, the last first; None: nothing usable.
        self.odd_bodies: list[bytes | None] = []
        #: What was done to it alone, fault and effect -> how often; a world has one for all.
        self.fault_counts: Counter[tuple[str, str]] = Counter()
        #: Since when its agent runs and has seen what is announced, true time in ms; 0: it has not.
        self.sees_ms = 0
        #: Whether asking its peers again may bring something new: they spoke, or words were lost.
        self.unheard = False
        #: Events for which an answer of its peers is on its way: one is asked for at a time.
        self._asked: set[str] = set()
        #: Called with what the agent does, for transcripts.
        self.heard: Callable[[Machine, Intent], None] = lambda _, __: None
        #: Called with how its approvals are answered, for transcripts.
        self.answered: Callable[[Machine, str, int], None] = lambda _, __, ___: None

    @property
    def ahead_ms(self) -> int:
        """How far its clock is ahead of true time now, in ms."""
        return self.profile.ahead_ms(self._queue.now_ms)

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
        self.disk.rebooted = True
        self.begin_agent()

    def halt(self) -> None:
        """Switch off: the agent, its hooks and requests are gone."""
        self.up = False
        self._peers.checks.prepared(self.profile.name, done=False)
        self.end_agent()

    def scrap(self) -> None:
        """Switch off for good: the VM is deleted, and another may get its name and address."""
        self.halt()
        self._scrapped = True

    def begin_agent(self) -> None:
        """Start the agent's process, unless it runs."""
        if not self.up or self._core is not None:
            return
        if not self.profile.habit.polls:
            self.habit_counts[self.profile.habit.name] += 1
            return
        journal = self.disk.journal
        self._core = AgentCore(self.identity, self._rules, journal=journal)
        self.disk.written = self._core.generation
        self.sees_ms = 0
        if journal is not None:
            found = dict.fromkeys(self._core.running(), "interrupted")
            self._step(Resumed(found, rebooted=self.disk.rebooted))
        self.plan_poll()
        if self.profile.place:
            self._peers.returned(self.profile.name)

    def end_agent(self) -> None:
        """End the agent's process: its hooks and requests are gone, the machine stays up."""
        self._life += 1
        self._network.disconnect(self.profile.name)
        if self._core is not None and not self.profile.habit.dies:
            self.disk.write(self._core)
        self._core = None
        self._hooks.clear()
        self._asked.clear()
        self._unwritten.clear()
        self._poll_planned = self._polling = self._poll_again = False
        self._tick_ms = 0

    def _die(self) -> None:
        """The agent's process ends; its supervisor starts it again."""
        self.habit_counts[self.profile.habit.name] += 1
        self.end_agent()
        self._later(self._dice.between(1000, 60_000), self.begin_agent)

    # ---- the agent's loop ----------------------------------------------------------------------

    def plan_poll(self, delay_ms: int = -1) -> None:
        """Have the next poll that can matter happen, at its place in the second."""
        self._poll_again = self._polling
        if self._core is None or self._poll_planned or self._polling:
            return
        self._poll_planned = True
        if delay_ms < 0:
            delay_ms = (self.profile.phase_ms - self._queue.now_ms) % POLL_MS + 1
        self._later(delay_ms, self._poll)

    def _poll(self) -> None:
        self._poll_planned = False
        if self.muted or self._core is None:
            return
        life = self._life

        def answered(body: bytes | None) -> None:
            if self._life == life:
                self._polling = False
                self._polled(body)

        self._polling = True
        self._network.poll(self.profile, answered)

    def _polled(self, body: bytes | None) -> None:
        """Take in the answer to a poll; None for no usable one."""
        again, self._poll_again = self._poll_again, False
        if self.odd_bodies:
            body, again = self.odd_bodies.pop(), True
            self.fault_counts["odd", "odd answer"] += 1
        if body is None:
            self.plan_poll(self._dice.between(*RETRY_MS))
            return
        self._step(DocumentPolled(read(body)))
        doubts = self._core is not None and self._core.doubts
        if not (doubts or self.sees_ms):
            self.sees_ms = self._queue.now_ms
        if again or doubts:
            self.plan_poll()
        if self.profile.habit.probes and self._dice.chance(200):
            self.habit_counts[self.profile.habit.name] += 1
            self._network.probe(self.profile)

    def _step(self, stimulus: Stimulus) -> None:
        core = self._core
        if core is None:
            return
        intents = core.step(stimulus, self._queue.now_ms + self.ahead_ms)
        dies = intents and self.profile.habit.dies and self._draws_death(intents)
        if dies and self._dice.chance(500):
            self._die()  # before anything was written
            return
        self._unwritten += intents
        if not self.disk.takes(core):
            self.fault_counts["disk", "not written"] += 1
            self._plan_tick()
            return
        if self.profile.habit.dies:
            self.disk.write(core)
        if dies:
            self._die()  # after that, before anything was done
            return
        self._do_written()

    def _do_written(self) -> None:
        intents, self._unwritten = self._unwritten, []
        for intent in intents:
            self.heard(self, intent)
            self._do(intent)
        self._plan_tick()

    def fill_disk(self) -> None:
        """Let nothing more be written; what is there stays."""
        self.disk.fill(self._core)

    def free_disk(self) -> None:
        """Let the agent write, and do, what has waited for it."""
        self.disk.full = False
        if self._core is not None:
            self.disk.write(self._core)
            self._do_written()

    def _draws_death(self, intents: tuple[Intent, ...]) -> bool:
        """Whether it dies over this step; seldom while it waits for others, for hours maybe."""
        waits = all(isinstance(each, AnnounceIntent | AskPeersIntent) for each in intents)
        return self._dice.chance(self.profile.habit.dies // (10 if waits else 1))

    def _plan_tick(self) -> None:
        if self._core is not None and self._core.doubts:
            self.plan_poll()
        due_ms = self._core.next_deadline() if self._core is not None else None
        if due_ms is None:
            return
        wait_ms = due_ms - self._queue.now_ms - self.ahead_ms
        if self.profile.rate_ppm:
            wait_ms += wait_ms * RATE_PPM_MAX // 1_000_000 + 1
        at_ms = self._queue.now_ms + max(wait_ms, 1)
        if self.profile.place and self._only_asks():
            at_ms = max(at_ms, self._queue.now_ms + ASK_AGAIN_MS)
        if self._tick_ms and self._queue.now_ms < self._tick_ms <= at_ms:
            return
        self._tick_ms = at_ms
        self._later(at_ms - self._queue.now_ms, self._tick)

    def _tick(self) -> None:
        """Let the agent know that time has passed, unless what was due has been done since."""
        due_ms = self._core.next_deadline() if self._core is not None else None
        if due_ms is None or due_ms > self._queue.now_ms + self.ahead_ms:
            self._plan_tick()
        else:
            self._step(TimePassed())

    def look_again(self) -> None:
        """A peer has said something new: ask at the next time for it."""
        self.unheard = True
        self._plan_tick()

    def _only_asks(self) -> bool:
        """Whether all it waits for is another answer of its peers, which will be announced."""
        now_ms, core = self._queue.now_ms + self.ahead_ms, self._core
        return core is not None and not self.unheard and only_asks(core, self.identity, now_ms)

    def _do(self, intent: Intent) -> None:
        if isinstance(intent, NotifyIntent):
            return
        if isinstance(intent, HookIntent):
            self._begin_hook(intent)
        elif isinstance(intent, StopIntent):
            run = self._hooks.get(intent.key, -1)
            end = partial(self._hook_stops, intent.key, run)
            self._later(self._dice.between(1, 3000), end)
        elif isinstance(intent, AnnounceIntent):
            if intent.prepared:
                self._peers.checks.says(self, intent.event)
            self._peers.announce(self, intent.event, prepared=intent.prepared)
        elif isinstance(intent, AskPeersIntent):
            self._ask(intent.event, intent.names)
        elif isinstance(intent, ApproveIntent):
            self._peers.checks.approves(self, intent.event)
            self._send(intent.event.event_id)
            self._approve_by_habit(intent.event)

    def _begin_hook(self, intent: HookIntent) -> None:
        if intent.key == DRAIN and not isinstance(intent, PrepareIntent):
            self._peers.checks.prepared(self.profile.name, done=False)
        low, high = self.profile.habit.hook_s
        status = 1 if self._dice.chance(self.profile.habit.hook_fails) else 0
        self._hooks[intent.key] = intent.run
        end = partial(self._hook_ends, intent, status)
        self._later(self._dice.between(low * 1000, high * 1000), end)

    def _hook_ends(self, intent: HookIntent, status: int) -> None:
        key = intent.key
        if self._hooks.get(key) == intent.run:
            del self._hooks[key]
            if key == DRAIN and not status:
                self._drained()
            self._step(HookEnded(key, status))
            if isinstance(intent, PrepareIntent) and not status:
                self._prepared_by_habit(intent.event.event_id)

    def _hook_stops(self, key: str, run: int) -> None:
        if self._hooks.get(key) == run:
            del self._hooks[key]
            self._step(HookEnded(key, TERM_STATUS))

    def _prepared_by_habit(self, event_id: str) -> None:
        """Approve, or not; some do not look again whether it has started or is over by now."""
        if not self.profile.habit.approves:
            self.habit_counts[self.profile.habit.name] += 1
        if not self.profile.habit.late:
            return
        for record in self._core.events if self._core is not None else ():
            if record.event_id == event_id and (record.started or record.gone):
                self.habit_counts[AFTER] += 1
                self._send(event_id)

    def _approve_by_habit(self, event: ScheduledEvent) -> None:
        """An approval is on its way: send another one, or see how late it is."""
        if self.profile.habit.twice:
            self.habit_counts[self.profile.habit.name] += 1
            self._later(self._dice.between(500, 5000), partial(self._send, event.event_id))
        if self.profile.habit.late:
            due_ms = event.not_before_ms or 0
            self.habit_counts[AFTER if due_ms <= self._queue.now_ms else BEFORE] += 1

    def _drained(self) -> None:
        """A hook has succeeded; where it prepared, the machine is prepared."""
        steps = self._core.steps if self._core is not None else ()
        if any(held.key == DRAIN and held.phase == PrepareIntent.phase for held in steps):
            self._peers.checks.prepared(self.profile.name, done=True)

    def _ask(self, event: ScheduledEvent, names: tuple[str, ...]) -> None:
        if event.event_id in self._asked:
            return  # the agent asks once at a time, and again when that is answered
        self._asked.add(event.event_id)
        life = self._life

        def answered(seen: PeersSeen | None) -> None:
            if self._life == life:
                self._asked.discard(event.event_id)
                if seen is not None:
                    self._step(seen)
                else:
                    self._plan_tick()

        self._peers.ask(self, event, names, answered=answered)

    def _send(self, event_id: str) -> None:
        life = self._life

        def ended(status: int) -> None:
            if self._life == life:
                self.answered(self, event_id, status)
                reason = "" if status == 200 else "refused"
                self._step(ApprovalEnded(event_id, accepted=not reason, reason=reason))

        self._network.approve(self.profile, (event_id,), render_approval((event_id,)), ended=ended)

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something later in this agent's life; nothing if that has ended by then."""
        life = self._life

        def due() -> None:
            if self._life == life:
                act()

        self._queue.after(delay_ms, due)
