"""A maintenance, the hosts it works on, its plan in force, and the table of legal moves.

Source: F-1. Other modules decide when a move is due.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import IllegalMove
from forewarn_core.planning.plan import Wave
from forewarn_core.planning.plan_text import PlanBody
from forewarn_core.planning.policy import Budget
from forewarn_core.rules.exempt import NONE, Exemption
from forewarn_core.rules.hand_back import Severity


@value
class Planning:
    """A plan is being made; without it no wave is announced."""

    #: When planning is due, ms since the epoch UTC; None: now.
    at_ms: int | None = None
    #: Why the last planning failed; empty: it did not fail.
    reason: str = ""


@value
class Due:
    """The next wave is scheduled."""

    wave: int
    #: When the wave is announced, ms since the epoch UTC.
    at_ms: int


@value
class Announcing:
    """The hosts of a wave are being announced, in portions."""

    wave: int
    #: When the wave became due, ms since the epoch UTC.
    at_ms: int


@value
class Working:
    """The wave's hosts are announced, and the wave waits until their work ends."""

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

    #: The reason, for people; may be empty.
    reason: str = ""
    #: The wave during which it was halted.
    wave: int | None = None
    #: The gate that was due.
    gate: str | None = None
    #: Planning in progress for the budgets of hosts that stay announced.
    plan: Planning | None = None
    #: Whether announced hosts stay announced. Source: F-6.
    keeps_announced: bool = False


Phase: TypeAlias = Planning | Due | Announcing | Working | Checking | Halted

PHASES: tuple[type[Phase], ...] = (Planning, Due, Announcing, Working, Checking, Halted)

#: Each legal move with its name. Every phase can be halted; a maintenance that has ended stays
#: halted.
PHASE_MOVES: dict[tuple[type[Phase], type[Phase]], str] = {
    (Planning, Planning): "no wave, or no plan",
    (Planning, Due): "planned",
    (Due, Planning): "planned again",
    (Due, Announcing): "due",
    (Announcing, Planning): "blocked, or planned again",
    (Announcing, Working): "announced",
    (Announcing, Checking): "wave over",
    (Working, Working): "budgets planned again",
    (Working, Planning): "wave over",
    (Working, Checking): "wave over, gate due",
    (Checking, Planning): "passed",
    (Halted, Planning): "resumed",
    (Halted, Working): "resumed in a wave",
    (Halted, Checking): "resumed before a check",
    **{(phase, Halted): "halted" for phase in PHASES},
}


#: Maximum number of hosts of one maintenance.
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
class FirstGroup:
    """The test group of an owner: its hosts come before the owner's other hosts. Source: T-8."""

    owner: str
    group: str
    #: Time between the work on the hosts of the group and on the others, in seconds.
    observation_s: int
    #: Why the owner holds its other hosts until their hand-back deadline; empty: it does not.
    held: str = ""
    #: When work on a host with VMs of the group last ended, ms since the epoch UTC; 0: not yet.
    #: VMs that leave such a host later take their observation period with them.
    tested_ms: int = 0
    #: When the owner last named the group, or held or resumed its hosts, ms since the epoch UTC.
    changed_ms: int = 0


@value
class Declaration:
    """How owners learned of a maintenance before any event, and until when they decide. T-1."""

    declared_ms: int
    #: Hand-back deadline of the hosts, ms since the epoch UTC.
    deadline_ms: int
    severity: Severity
    #: Grows with each change of the declaration.
    version: int = 1
    #: Grows with each choice of an owner; a plan made before is not put in force.
    answers: int = 0
    #: Rules that an emergency need not keep. Source: T-6.
    waived: tuple[str, ...] = ()
    #: Test groups, at most one for each owner. Source: T-8.
    first_groups: tuple[FirstGroup, ...] = ()


@value
class Maintenance:
    """Work on many hosts that an operator requested. Times are ms since the epoch UTC or None."""

    #: Maintenances and operations share one sequence of numbers.
    number: int
    cause: Cause
    impact: Impact
    #: Host names, sorted.
    hosts: tuple[str, ...]
    created_ms: int
    #: The principal who requested it.
    actor: str
    #: Duration of the work on each host, in seconds.
    duration_s: int
    #: The reason, for people.
    reason: str = ""
    #: The description that VMs are shown instead of the usual one.
    description: str = ""
    earliest_ms: int | None = None
    deadline_ms: int | None = None
    #: Of two maintenances with waves due at the same time, the higher priority goes first.
    priority: int = 0
    #: Budgets in addition to the policy's.
    budgets: tuple[Budget, ...] = ()
    canary_hosts: tuple[str, ...] = ()
    #: Number of hosts that may fail before the maintenance is stopped. Source: F-5.
    max_failures: int = 0
    state: MaintenanceState = MaintenanceState.DRAFT
    started_ms: int | None = None
    ended_ms: int | None = None
    #: Id of the plan in force; empty: none yet.
    plan: str = ""
    #: The current phase, with its data.
    phase: Phase = Planning()
    #: Earliest end of the pause after the last wave.
    rests_until_ms: int | None = None
    #: When the maintenance entered its state.
    moved_ms: int = 0
    #: Failures that an operator has accepted.
    forgiven: int = 0
    #: Name of the gate that is checked after each wave; empty: none. Source: F-5.
    gate: str = ""
    #: Postponed hosts by name, each with its earliest start. Source: F-8.
    postponed: tuple[Postponement, ...] = ()
    #: Time to move VMs off each host before its work, in seconds; 0: they stay on the host.
    move_s: int = 0
    #: Time for VMs to return after the work, in seconds, notice included; 0: no return.
    return_s: int = 0
    #: Principal for whom its hosts count as affected without a second person's confirmation; empty:
    #: a second person has confirmed its start, or the policy does not count it. Source: P-8.
    unconfirmed_by: str = ""
    #: None: the maintenance was not declared. Source: T-1.
    declaration: Declaration | None = None
    #: Key of the label whose values are failure domains, worked on one at a time; empty: none.
    failure_domain: str = ""

    @property
    def id(self) -> str:
        """The name shown to people and used in commands: `m-12`."""
        return f"m-{self.number}"

    @property
    def shown_impact(self) -> Impact:
        """The impact that VMs get notice of: a live migration if they leave the host first."""
        return Impact.FREEZE if self.move_s else self.impact

    @property
    def exemption(self) -> Exemption:
        """The rules that the maintenance need not keep. Source: T-6."""
        declaration = self.declaration
        if declaration is None or declaration.severity is not Severity.EMERGENCY:
            return NONE
        return Exemption(emergency=True, waived=declaration.waived)

    @property
    def host_s(self) -> int:
        """How long a host is under work as it was asked for, its VMs' moves included."""
        return self.move_s + self.duration_s + self.return_s

    @property
    def live(self) -> bool:
        """Whether the maintenance has not ended."""
        return self.state not in ENDED_MAINTENANCE

    @property
    def running(self) -> bool:
        """Whether the maintenance is running."""
        return self.state is MaintenanceState.RUNNING

    @property
    def planning(self) -> Planning | None:
        """Current or due planning of the maintenance; None: the plan in force stays."""
        if isinstance(self.phase, Planning):
            return self.phase
        return self.phase.plan if isinstance(self.phase, Working | Halted) else None

    @property
    def plan_wanted(self) -> bool:
        """Whether planning is due now."""
        return self.planning is not None and self.planning.at_ms is None

    @property
    def wave(self) -> int | None:
        """Number of the wave whose hosts are announced or worked on; None: between waves."""
        phase = self.phase
        return phase.wave if isinstance(phase, Announcing | Working | Halted) else None

    @property
    def due_ms(self) -> int | None:
        """When the next wave or planning is due; None: other events decide."""
        if isinstance(self.phase, Due | Announcing):
            return self.phase.at_ms
        return self.planning.at_ms if self.planning is not None else None

    @property
    def keeps_announced(self) -> bool:
        """Whether announced hosts stay announced during the maintenance's pause. See F-6."""
        return isinstance(self.phase, Halted) and self.phase.keeps_announced

    @property
    def halt_reason(self) -> str:
        """Why the maintenance is halted, or why planning failed; empty: no problem."""
        if isinstance(self.phase, Halted):
            return self.phase.reason
        return self.planning.reason if self.planning is not None else ""


@value
class Postponement:
    """A later start that was granted for one host. Source: F-8."""

    host: str
    #: Earliest start of the host, ms since the epoch UTC.
    until_ms: int
    #: Latest planned start before the first postponement; the policy's limit counts from here.
    from_ms: int
    #: The principal who requested it.
    by: str
    #: The reason, for people.
    reason: str = ""


class TargetState(Word):
    """The state of a host in a maintenance that has touched it."""

    WORKING = "working"
    DONE = "done"
    FAILED = "failed"


@value
class Target:
    """A host that a maintenance works on or has worked on; untouched hosts have no such record."""

    #: `12/h7`: the maintenance's number and the host.
    key: str
    maintenance: int
    host: str
    #: Number of the host's wave.
    wave: int
    #: Number of the operation that carries the work out.
    operation: int
    state: TargetState = TargetState.WORKING
    #: When the operation ended, ms since the epoch UTC; None: not yet.
    ended_ms: int | None = None
    #: Why the host failed.
    reason: str = ""
    #: Duration of the work in seconds, as it was announced; 0: as asked. Source: F-9.
    duration_s: int = 0


@value
class MaintenancePlan:
    """A plan that came into force, as stored: never changed, only replaced by a child. F-2."""

    id: str
    maintenance: int
    #: The plan that was in force before; empty for a first plan.
    parent: str
    made_ms: int
    body: PlanBody

    @property
    def waves(self) -> tuple[Wave, ...]:
        """The remaining waves at the time of planning."""
        return self.body.waves


def target_key(maintenance: int, host: str) -> str:
    """Return the key of a host's record in a maintenance."""
    return f"{maintenance}/{host}"


def move_phase(maintenance: Maintenance, phase: Phase) -> Maintenance:
    """Return the maintenance in its next phase; raises `IllegalMove` if the table has no move."""
    before, after = type(maintenance.phase), type(phase)
    if (before, after) not in PHASE_MOVES:
        state, move = before.__name__, f"become {after.__name__}"
        raise IllegalMove(subject=maintenance.id, state=state, move=move)
    return replace(maintenance, phase=phase)


def phase_with(phase: Phase, plan: Planning | None) -> Phase:
    """Return a phase during or after this planning; hosts at work stay at work meanwhile."""
    if isinstance(phase, Working | Halted):
        return replace(phase, plan=plan)
    assert plan is not None, phase
    return plan


def move_maintenance(
    maintenance: Maintenance, move: MaintenanceMove, phase: Phase, *, now_ms: int
) -> Maintenance:
    """Return a maintenance in its next state and phase; raises `IllegalMove`. Source: F-1."""
    state = MAINTENANCE_MOVES.get((maintenance.state, move))
    if state is None:
        before = maintenance.state.value
        raise IllegalMove(subject=maintenance.id, state=before, move=move.value)
    moved = replace(move_phase(maintenance, phase), state=state, moved_ms=now_ms)
    if move is MaintenanceMove.START:
        return replace(moved, started_ms=now_ms)
    return moved if moved.live else replace(moved, ended_ms=now_ms)


def postponed_hosts(maintenance: Maintenance) -> tuple[tuple[str, int, str], ...]:
    """Return a maintenance's postponements: host, earliest start, requesting principal."""
    return tuple((each.host, each.until_ms, each.by) for each in maintenance.postponed)


def pluralized(count: int, noun: str = "host") -> str:
    """Return a count with its noun: `1 host`, `2 hosts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(slots=True)
class TargetProgress:
    """The hosts that one maintenance works on or has worked on."""

    targets: dict[str, Target] = field(default_factory=dict)
    working: dict[str, None] = field(default_factory=dict)
    #: Failed hosts, and hosts whose drivers have failed, by name.
    failed: dict[str, None] = field(default_factory=dict)

    def put(self, target: Target) -> None:
        """Count a host in its current state."""
        self.drop(target.host)
        self.targets[target.host] = target
        if target.state is TargetState.WORKING:
            self.working[target.host] = None
        if target.state is TargetState.FAILED or target.reason:
            self.failed[target.host] = None

    def drop(self, host: str) -> None:
        """Remove a host from the counts."""
        self.targets.pop(host, None)
        self.working.pop(host, None)
        self.failed.pop(host, None)

    def has_begun(self, wave: int | None) -> bool:
        """Whether work on a host of a wave has begun; O(touched hosts)."""
        return any(each.wave == wave for each in self.targets.values())

    @property
    def worked_on(self) -> list[Target]:
        """Return the hosts on which work runs; O(those hosts)."""
        return [self.targets[host] for host in self.working]
