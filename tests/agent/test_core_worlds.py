"""The agent's core in random small worlds, with crashes anywhere; the world here is a toy."""

import json
import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.rules import Match, PreparationStep, Rule
from forewarn.agent.core.values import (
    ApprovalEnded,
    ApproveIntent,
    CancelIntent,
    CheckIntent,
    DocumentPolled,
    HookEnded,
    HookIntent,
    Intent,
    PeersSeen,
    PrepareIntent,
    RecoverIntent,
    Resumed,
    Stimulus,
    StopIntent,
    TimePassed,
)
from forewarn_base.protocol.documents import Document, ScheduledEvent
from tests.agent.making import ME, NOTICE_MS, NOW, event

STEPS = (
    (PreparationStep("a", timeout_s=30), PreparationStep("b", timeout_s=400, repeatable=True)),
    (PreparationStep("c", on_failure="go-on"), PreparationStep("d", undoes=False)),
)
RULES = (
    Rule("now", Match(types=("Freeze",)), action="approve"),
    Rule("all", Match(types=("Redeploy",)), action="prepare", steps=STEPS[:1], coordination="all"),
    Rule("two", Match(), action="prepare", steps=STEPS, checks=(PreparationStep("ask"),)),
)
#: Steps whose failure is allowed, or that nothing undoes: not watched as strictly.
FREE = {"c", "d"}
TYPES = ("Freeze", "Reboot", "Redeploy")
STATUSES = (0, 0, 0, 0, 1, 75, 77, -9)


def durable(core: AgentCore) -> tuple[object, object]:
    """Return what must outlive a crash."""
    journal = core.journal()
    return journal["events"], journal["steps"]


class World:
    """A service, a VM with hooks and a disk, and the core between them."""

    def __init__(self) -> None:
        """Begin with nothing scheduled and an agent just started."""
        self.now_ms = NOW
        self.incarnation = 1
        self.announced: list[ScheduledEvent] = []
        self.count = 0
        self.disk: str | None = None
        self.running: dict[str, HookIntent] = {}
        self.unseen: dict[int, int] = {}
        self.done: dict[str, str] = {}
        self.approvals: list[str] = []
        self.core = AgentCore(ME, RULES)
        self.written = 0
        self.full = False
        self.undone: list[Intent] = []
        self.late = False
        self.owed: set[tuple[str, str]] = set()
        self.started: set[str] = set()
        self.recovered: set[tuple[str, str]] = set()

    # -- the service --

    def odd(self, number: int) -> None:
        """Answer twice what is not so: nothing scheduled, at whatever incarnation."""
        incarnation = (0, self.incarnation, self.incarnation + 1000)[number % 3]
        for _ in range(number % 2 + 1):
            self.give(DocumentPolled(Document(incarnation)))

    def fill(self, number: int) -> None:
        """Let the disk be full, or free again."""
        self.full = number % 3 > 0
        self.late = self.late or self.full
        if not self.full:
            self.give(TimePassed())

    def announce(self, number: int) -> None:
        """Schedule a further event for this VM and perhaps another one."""
        self.count += 1
        names = ("vm_0",) if number % 2 else ("vm_0", "vm_1")
        kind = TYPES[number % 3]
        due = self.now_ms + NOTICE_MS
        self.announced.append(
            event(f"E{self.count}", event_type=kind, resources=names, not_before_ms=due)
        )
        self.incarnation += 1

    def start(self, number: int) -> None:
        """Start one of the scheduled events."""
        if self.announced:
            place = number % len(self.announced)
            before = self.announced[place]
            self.announced[place] = event(
                before.event_id,
                event_type=before.event_type,
                resources=before.resources,
                status="Started",
            )
            self.started.add(before.event_id)
            self.incarnation += 1

    def end(self, number: int) -> None:
        """End or cancel one of the events."""
        if self.announced:
            del self.announced[number % len(self.announced)]
            self.incarnation += 1

    # -- the agent --

    def give(self, stimulus: Stimulus, crash: int = -1) -> None:
        """Step the core, write, and do what it says; or fall over after `crash` of that."""
        before, generation = durable(self.core), self.core.generation
        intents = self.core.step(stimulus, self.now_ms)
        marked = self.core.generation != generation
        assert marked or durable(self.core) == before, "what must be durable is not written"
        self.undone += intents
        if crash == 0:
            self.restart()
            return
        if self.full and self.core.generation != self.written:
            return
        intents, self.undone = tuple(self.undone), []
        if self.core.generation != self.written:
            self.written = self.core.generation
            self.disk = json.dumps(self.core.journal())
        for place, intent in enumerate(intents):
            if crash == place + 1:
                self.restart()
                return
            self.do(intent)

    def poll(self, crash: int = -1) -> None:
        """Read the document; what is first seen started must recover once it is over."""
        known = {record.event_id for record in self.core.events}
        self.give(DocumentPolled(Document(self.incarnation, tuple(self.announced))), crash)
        for record in self.core.events if crash < 0 else ():
            if record.event_id not in known and record.started and not self.full:
                plan = [step.name for group in record.plan for step in group if step.undoes]
                self.owed.update((name, record.event_id) for name in plan)

    def restart(self) -> None:
        """Be killed and come back with what is on disk; the hooks survive, or have ended."""
        journal = json.loads(self.disk) if self.disk else None
        self.core = AgentCore(ME, RULES, journal=journal)
        self.written = self.core.generation
        self.undone.clear()
        if journal:
            found = {}
            for key, run in self.core.running().items():
                if key in self.running and self.running[key].run == run:
                    found[key] = "running"
                elif self.unseen.get(run, -1) >= 0:
                    found[key] = str(self.unseen[run])
                else:
                    found[key] = "interrupted" if run in self.unseen else "never"
            self.give(Resumed(found))

    def do(self, intent: Intent) -> None:
        """Do what the core wants done, watching that it may want it."""
        if isinstance(intent, HookIntent):
            assert intent.key not in self.running, "two hooks of a step at once"
            assert self.late or self.now_ms < intent.deadline_ms
            if isinstance(intent, PrepareIntent):
                assert intent.key in FREE or self.done.get(intent.key) != "done", "prepared twice"
                assert self.late or self.has(intent.event), "prepared for an event that is gone"
            elif isinstance(intent, (RecoverIntent, CancelIntent)) and intent.key not in self.done:
                owed = (intent.key, intent.event.event_id)
                assert intent.phase == "recover", "cancelled though not begun, or twice"
                assert intent.event.event_id in self.started, "recovers from what did not start"
                assert owed not in self.recovered, "recovers twice"
            self.running[intent.key] = intent
            if isinstance(intent, PrepareIntent):
                self.done[intent.key] = "begun"
        elif isinstance(intent, ApproveIntent):
            records = {r.event_id: r for r in self.core.events}
            record = records.get(intent.event.event_id)
            if record is None or record.gone:
                assert self.late, "approved what is gone"
                return
            wanted = [step.name for group in record.plan for step in group if step.name not in FREE]
            ready = all(self.done.get(name) == "done" for name in wanted)
            assert self.late or ready, "approved unprepared"
            self.approvals.append(intent.event.event_id)
        elif isinstance(intent, StopIntent):
            assert self.late or intent.key in self.running, "a hook stopped that does not run"

    def has(self, wanted: ScheduledEvent) -> bool:
        """Tell whether the core still follows the event as announced."""
        return any(r.event_id == wanted.event_id and not r.gone for r in self.core.events)

    def end_hook(self, number: int, crash: int = -1) -> None:
        """Let one of the hooks end, seen or unseen."""
        if not self.running:
            return
        key = tuple(self.running)[number % len(self.running)]
        intent = self.running.pop(key)
        status = STATUSES[number % len(STATUSES)]
        if isinstance(intent, PrepareIntent):
            self.done[key] = "done" if status in (0, 75) else "begun"
        elif status == 0 and not isinstance(intent, CheckIntent):
            self.recover(intent)
        elif not isinstance(intent, CheckIntent):
            self.done[key] = "begun"  # half undone: it may be prepared again for another event
        self.unseen[intent.run] = status
        if crash == 0:
            self.restart()
        else:
            self.give(HookEnded(key, status), crash)

    def recover(self, intent: HookIntent) -> None:
        """Let a step be undone, for each event that is over by now."""
        self.done.pop(intent.key, None)
        self.recovered.add((intent.key, intent.event.event_id))
        shown = {event.event_id for event in self.announced}
        self.owed -= {one for one in self.owed if one[0] == intent.key and one[1] not in shown}

    def heal(self) -> None:
        """End everything and let every hook succeed."""
        self.fill(0)
        self.announced.clear()
        self.incarnation += 1
        self.poll()
        for _ in range(200):
            if not self.core.events:
                return
            for key in tuple(self.running):
                intent = self.running.pop(key)
                if isinstance(intent, PrepareIntent):
                    self.done[key] = "done"
                elif not isinstance(intent, CheckIntent):
                    self.recover(intent)
                self.give(HookEnded(key, 0))
            self.now_ms += 901_000
            self.give(TimePassed())
            self.poll()


ACTIONS = [
    "announce",
    "start",
    "end",
    "poll",
    "poll",
    "poll",
    "hook",
    "hook",
    "hook",
    "hook",
    "answer",
    "time",
]
FAULTS = [*ACTIONS, "odd", "fill", "fill"]
MOVES = 80


def moves_of(
    seed: int, crashes: int, *, actions: list[str] = ACTIONS, moves: int = MOVES
) -> list[tuple[str, int, int]]:
    """Return the moves of a world: action, a number for it, and where the agent falls over.

    A list drawn by hypothesis is mostly too short to get anywhere; a seed is long at once.
    """
    draw = random.Random(seed)
    return [
        (draw.choice(actions), draw.randrange(60), draw.randrange(-crashes, 4) if crashes else -1)
        for _ in range(moves)
    ]


def run(world: World, moves: list[tuple[str, int, int]]) -> None:
    """Make the moves."""
    for action, number, crash in moves:
        if action in ("announce", "start", "end", "odd", "fill"):
            getattr(world, action)(number)
        elif action == "poll":
            world.poll(crash)
        elif action == "hook":
            world.end_hook(number, crash)
        elif action == "answer" and world.approvals:
            world.give(ApprovalEnded(world.approvals.pop(), accepted=number % 3 > 0), crash)
        elif action == "answer":
            world.give(PeersSeen("E1", ("vm_1",)), crash)
        else:
            world.now_ms += number * 1000
            world.give(TimePassed(), crash)


@settings(max_examples=3 * settings().max_examples)
@given(st.integers(0, 1 << 32), st.sampled_from([0, 4, 20]))
def test_random_world_is_prepared_once_and_recovers(seed: int, crashes: int) -> None:
    """No step prepared or undone twice, none forgotten. Source: C-9, C-10, invariant 14."""
    world = World()
    run(world, moves_of(seed, crashes))
    world.heal()
    assert world.core.events == ()
    assert world.core.steps == ()
    assert world.running == {}
    assert set(world.done) - FREE == set()
    assert world.core.next_deadline() is None
    assert world.owed == set(), "did not recover from what was first seen started"


@given(st.integers(0, 1 << 32))
def test_world_of_odd_answers_and_full_disks_recovers(seed: int) -> None:
    """Nothing is forgotten or done twice, whatever is read and whenever the disk is full."""
    world = World()
    run(world, moves_of(seed, 8, actions=FAULTS, moves=2 * MOVES))
    world.heal()
    assert (world.core.events, world.core.steps, world.running) == ((), (), {})
    assert set(world.done) - FREE == set()
    assert world.owed == set()


#: What a record says of requests under way, which end with the process.
PASSING = {"asked_ms", "deciding", "missing_ms", "next_ms", "peers", "tries", "why"}


def facts(records: Iterable[object]) -> list[dict[str, object]]:
    """All that records say, but for what ends with the process."""
    return [
        {name: getattr(record, name) for name in record.__slots__ if name not in PASSING}  # type: ignore[attr-defined]
        for record in records
    ]


@given(st.integers(0, 1 << 32))
def test_journal_tells_the_whole_state(seed: int) -> None:
    """At any moment a core read from the journal knows what the running one knows."""
    world = World()
    run(world, moves_of(seed, 0))
    again = AgentCore(ME, RULES, journal=json.loads(json.dumps(world.core.journal())))
    assert facts(again.events) == facts(world.core.events)
    assert facts(again.steps) == facts(world.core.steps)
    assert again.running() == world.core.running()
