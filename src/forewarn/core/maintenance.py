"""A maintenance, the hosts it has touched and the plan in force: values, and the table of moves.

Source: F-1. When a move is due is decided beside this, never here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from forewarn.core.impact import Cause, Impact
from forewarn.core.lifecycle import IllegalMove
from forewarn.values import Word, replace, value

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Operation
    from forewarn.planning.plan import Wave
    from forewarn.planning.plan_text import PlanBody
    from forewarn.planning.policy import Budget


@value
class Planning:
    """A plan is being made, without which no wave is announced."""

    #: When it is to be made, ms since the epoch UTC; None: now.
    at_ms: int | None = None
    #: Why none could be made before; empty: nothing went wrong.
    reason: str = ""


@value
class Due:
    """The next wave has its time."""

    wave: int
    #: When it is announced, ms since the epoch UTC.
    at_ms: int


@value
class Announcing:
    """The hosts of a wave are being announced, in portions."""

    wave: int
    #: When it came due, ms since the epoch UTC.
    at_ms: int


@value
class Working:
    """Every host of a wave that may be is announced; they are waited for."""

    wave: int
    #: The plan being made meanwhile, for new budgets of announced hosts; None: not needed.
    plan: Planning | None = None


@value
class Checking:
    """The wave is over; the maintenance waits for the result of its gate. Source: F-5."""

    gate: str


@value
class Halted:
    """The maintenance is paused or stopped, or has ended. Source: F-5, F-6."""

    #: Why, for people; empty: no reason was given.
    reason: str = ""
    #: The wave that it stood in.
    wave: int | None = None
    #: The gate that was to be checked.
    gate: str | None = None
    #: The plan being made all the same, for the budgets of hosts that stay announced.
    plan: Planning | None = None
    #: Whether announced hosts stay announced. Source: F-6.
    keeps_announced: bool = False


Phase: TypeAlias = Planning | Due | Announcing | Working | Checking | Halted

PHASES: tuple[type[Phase], ...] = (Planning, Due, Announcing, Working, Checking, Halted)

#: Each legal move with what it is called. Every phase can be halted; there it stays once ended.
PHASE_MOVES: dict[tuple[type[Phase], type[Phase]], str] = {
    (Planning, Planning): "no wave, or no plan",
    (Planning, Due): "planned",
    (Due, Planning): "planned again",
    (Due, Announcing): "due",
    (Announcing, Planning): "blocked, or planned again",
    (Announcing, Working): "announced",
    (Announcing, Checking): "over",
    (Working, Working): "its budgets planned again",
    (Working, Planning): "over",
    (Working, Checking): "over, with a gate",
    (Checking, Planning): "passed",
    (Halted, Planning): "resumed",
    (Halted, Working): "resumed in a wave",
    (Halted, Checking): "resumed before a check",
    **{(phase, Halted): "halted" for phase in PHASES},
}


#: Hosts that one maintenance may name.
HOSTS_MAX = 100_000


class MaintenanceState(Word):
    """The state of a maintenance."""

    DRAFT = "draft"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    CANCELLED = "cancelled"


class MaintenanceMove(Word):
    """A cause of a state change of a maintenance."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    FINISH = "finish"
    CANCEL = "cancel"


MAINTENANCE_MOVES: dict[tuple[MaintenanceState, MaintenanceMove], MaintenanceState] = {
    (MaintenanceState.DRAFT, MaintenanceMove.START): MaintenanceState.RUNNING,
    (MaintenanceState.DRAFT, MaintenanceMove.CANCEL): MaintenanceState.CANCELLED,
    (MaintenanceState.RUNNING, MaintenanceMove.PAUSE): MaintenanceState.PAUSED,
    (MaintenanceState.RUNNING, MaintenanceMove.STOP): MaintenanceState.STOPPED,
    (MaintenanceState.RUNNING, MaintenanceMove.FINISH): MaintenanceState.DONE,
    (MaintenanceState.RUNNING, MaintenanceMove.CANCEL): MaintenanceState.CANCELLED,
    (MaintenanceState.PAUSED, MaintenanceMove.RESUME): MaintenanceState.RUNNING,
    (MaintenanceState.PAUSED, MaintenanceMove.CANCEL): MaintenanceState.CANCELLED,
    (MaintenanceState.STOPPED, MaintenanceMove.RESUME): MaintenanceState.RUNNING,
    (MaintenanceState.STOPPED, MaintenanceMove.CANCEL): MaintenanceState.CANCELLED,
}
ENDED_MAINTENANCE = frozenset({MaintenanceState.DONE, MaintenanceState.CANCELLED})


@value
class Maintenance:
    """Work on many hosts that an operator asked for. Times are ms since the epoch UTC or None."""

    #: Of the same sequence as the numbers of operations.
    number: int
    cause: Cause
    impact: Impact
    #: Names, sorted.
    hosts: tuple[str, ...]
    created_ms: int
    #: Who asked for it.
    actor: str
    #: Time that the work on each host takes, in seconds.
    duration_s: int
    #: Why, for people.
    reason: str = ""
    #: What VMs are shown in place of the usual text.
    description: str = ""
    earliest_ms: int | None = None
    deadline_ms: int | None = None
    #: Of two maintenances whose waves are due at the same time the higher one comes first.
    priority: int = 0
    #: Added to those of the policy.
    budgets: tuple[Budget, ...] = ()
    canary_hosts: tuple[str, ...] = ()
    #: Hosts that may fail before it is stopped. Source: F-5.
    max_failures: int = 0
    state: MaintenanceState = MaintenanceState.DRAFT
    started_ms: int | None = None
    ended_ms: int | None = None
    #: Id of the plan in force; empty: none yet.
    plan: str = ""
    #: What it does now, with what belongs to that.
    phase: Phase = Planning()
    #: Earliest end of the pause after the last wave.
    rests_until_ms: int | None = None
    #: When it came into its state.
    moved_ms: int = 0
    #: Failures that an operator has seen and let pass.
    forgiven: int = 0
    #: Name of the gate that is checked after each wave; empty: none. Source: F-5.
    gate: str = ""
    #: Hosts that may not start before a later time, by name. Source: F-8.
    postponed: tuple[Postponement, ...] = ()
    #: VMs leave each host first, within this many seconds; 0: they stay on it.
    move_s: int = 0
    #: They return after the work on it, within this many seconds, notice included; 0: they do not.
    return_s: int = 0

    @property
    def id(self) -> str:
        """The maintenance's name for people and commands: `m-12`."""
        return f"m-{self.number}"

    @property
    def shown_impact(self) -> Impact:
        """The impact that VMs get notice of: a live migration where they leave first."""
        return Impact.FREEZE if self.move_s else self.impact

    @property
    def host_s(self) -> int:
        """How long a host is under work, its VMs' moves included, in seconds."""
        return self.move_s + self.duration_s + self.return_s

    def span_s(self, operation: Operation) -> int:
        """Return how long a host is under work from the start of an operation, in seconds.

        Where its VMs leave by a live migration, the maintenance's own work follows.
        """
        if operation.is_return:
            return self.move_s
        return self.host_s if operation.cause is Cause.LIVE_MIGRATION else self.duration_s

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state not in ENDED_MAINTENANCE

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self.state is MaintenanceState.RUNNING

    @property
    def planning(self) -> Planning | None:
        """The plan that is being made, or will be; None: the one in force is kept."""
        if isinstance(self.phase, Planning):
            return self.phase
        return self.phase.plan if isinstance(self.phase, Working | Halted) else None

    @property
    def plan_wanted(self) -> bool:
        """Whether a plan is to be made now."""
        return self.planning is not None and self.planning.at_ms is None

    @property
    def wave(self) -> int | None:
        """Number of the wave whose hosts are announced or worked on; None: between waves."""
        phase = self.phase
        return phase.wave if isinstance(phase, Announcing | Working | Halted) else None

    @property
    def due_ms(self) -> int | None:
        """When its wave is announced, or it is planned again; None: not by time alone."""
        if isinstance(self.phase, Due | Announcing):
            return self.phase.at_ms
        return self.planning.at_ms if self.planning is not None else None

    @property
    def keeps_announced(self) -> bool:
        """Whether announced hosts stay announced while it is paused. See F-6."""
        return isinstance(self.phase, Halted) and self.phase.keeps_announced

    @property
    def halt_reason(self) -> str:
        """Why it is halted, or why it could not be planned; empty: nothing is wrong."""
        if isinstance(self.phase, Halted):
            return self.phase.reason
        return self.planning.reason if self.planning is not None else ""


@value
class Postponement:
    """A later start that was granted for one host, on request. Source: F-8."""

    host: str
    #: It does not start before, ms since the epoch UTC.
    until_ms: int
    #: When it was to start at the latest before it was first postponed: the limit counts from here.
    from_ms: int
    #: Who requested it.
    by: str
    #: Why, for people.
    reason: str = ""


class TargetState(Word):
    """The state of a host in a maintenance that has touched it."""

    WORKING = "working"
    DONE = "done"
    FAILED = "failed"


@value
class Target:
    """A host that a maintenance works on or has worked on; a host still to be done has none."""

    #: `12/h7`: the maintenance's number and the host.
    key: str
    maintenance: int
    host: str
    #: Number of the wave it was done in.
    wave: int
    #: Number of the operation that carries it out.
    operation: int
    state: TargetState = TargetState.WORKING
    #: When the operation ended, ms since the epoch UTC; None: not yet.
    ended_ms: int | None = None
    #: Why it failed.
    reason: str = ""


@value
class MaintenancePlan:
    """A plan that has taken force, as it is kept: never changed, replaced by a child. F-2."""

    id: str
    maintenance: int
    #: The plan in force before it; empty for a first one.
    parent: str
    made_ms: int
    body: PlanBody

    @property
    def waves(self) -> tuple[Wave, ...]:
        """The waves that were to come when it was made."""
        return self.body.waves


def target_key(maintenance: int, host: str) -> str:
    """Return the key of a host in a maintenance."""
    return f"{maintenance}/{host}"


def move_phase(maintenance: Maintenance, phase: Phase) -> Maintenance:
    """Return the maintenance in its next phase.

    Raises:
        IllegalMove: the table has no such move; nothing is changed.
    """
    before, after = type(maintenance.phase), type(phase)
    if (before, after) not in PHASE_MOVES:
        state, move = before.__name__, f"become {after.__name__}"
        raise IllegalMove(subject=maintenance.id, state=state, move=move)
    return replace(maintenance, phase=phase)


def move_maintenance(maintenance: Maintenance, move: MaintenanceMove, now_ms: int) -> Maintenance:
    """A maintenance moves by its table only; return it after a move. Source: F-1.

    Raises:
        IllegalMove: the table has no such move; nothing is changed.
    """
    state = MAINTENANCE_MOVES.get((maintenance.state, move))
    if state is None:
        before = maintenance.state.value
        raise IllegalMove(subject=maintenance.id, state=before, move=move.value)
    assert maintenance.live, maintenance
    return replace(maintenance, state=state, moved_ms=now_ms)


def postponed_hosts(maintenance: Maintenance) -> tuple[tuple[str, int, str], ...]:
    """Return its postponements as the planner reads them: host, not before, at whose request."""
    return tuple((each.host, each.until_ms, each.by) for each in maintenance.postponed)


def counted(count: int, noun: str = "host") -> str:
    """Return a count with its noun: `1 host`, `2 hosts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(slots=True)
class TargetProgress:
    """The hosts that one maintenance has touched."""

    targets: dict[str, Target] = field(default_factory=dict)
    working: dict[str, None] = field(default_factory=dict)
    #: Hosts that failed, and those whose drivers have, by name.
    failed: dict[str, None] = field(default_factory=dict)

    def put(self, target: Target) -> None:
        """Count a host in its current state."""
        self.drop(target.host)
        self.targets[target.host] = target
        if target.state is TargetState.WORKING:
            self.working[target.host] = None
        if is_failed(target):
            self.failed[target.host] = None

    def drop(self, host: str) -> None:
        """Remove a host from the counts."""
        self.targets.pop(host, None)
        self.working.pop(host, None)
        self.failed.pop(host, None)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many hosts it has touched, works on, and has seen fail."""
        return len(self.targets), len(self.working), len(self.failed)

    @property
    def worked_on(self) -> list[Target]:
        """The hosts it works on; costs them."""
        return [self.targets[host] for host in self.working]


def is_failed(target: Target) -> bool:
    """Whether a host counts against its maintenance's limit of failures."""
    return target.state is TargetState.FAILED or bool(target.reason)


class Maintenances:
    """The progress of every maintenance that has not ended; a change costs its host."""

    def __init__(self) -> None:
        """Begin with none."""
        self._of: dict[int, TargetProgress] = {}

    def of(self, number: int) -> TargetProgress:
        """Return the progress of a maintenance; callers must not change it."""
        return self._of.get(number) or TargetProgress()

    def put(self, before: Target | None, after: Target | None) -> None:
        """Take a change in."""
        if after is not None:
            self._of.setdefault(after.maintenance, TargetProgress()).put(after)
        elif before is not None:
            self._of[before.maintenance].drop(before.host)
