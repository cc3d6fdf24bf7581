"""Stimuli of the control plane as values: requests, approvals, reports, time.

`step.py` decides on the effects of each stimulus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from forewarn_base.values import value
from forewarn_core.access.stimulus import AccessStimulus
from forewarn_core.fleet.impact import TRAITS, Cause, Impact, Source
from forewarn_core.fleet.maintenance import Declaration, Maintenance, MaintenancePlan
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.policy import AppliedPolicy
from forewarn_core.fleet.ticket import (
    HardwareCategory,
    Ticket,
    TicketMove,
    TicketTarget,
    TicketType,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, ConfirmedAct, MaintenancePolicy
from forewarn_core.requests import ApprovalRequest
from forewarn_core.rules.hand_back import Severity


class CoreStimulus:
    """A request, an approval, a report or the passing of time."""

    __slots__ = ()


@value
class CreateMaintenance(CoreStimulus):
    """An operator creates a maintenance as a draft. Source: F-1."""

    cause: Cause
    hosts: tuple[str, ...]
    duration_s: int
    impact: Impact | None = None
    reason: str = ""
    description: str = ""
    earliest_ms: int | None = None
    deadline_ms: int | None = None
    priority: int = 0
    budgets: tuple[Budget, ...] = ()
    canary_hosts: tuple[str, ...] = ()
    max_failures: int = 0
    #: Name of the gate that is checked after each wave; empty: none.
    gate: str = ""
    #: VMs leave each host first, within this many seconds; 0: they stay on the host.
    move_s: int = 0
    #: Whether VMs that left a host return to it after its work.
    return_vms: bool = False
    #: Key of the label whose values are failure domains, worked on one at a time; empty: none.
    failure_domain: str = ""

    def maintenance(self, number: int, now_ms: int, actor: str) -> Maintenance:
        """Return the draft of the maintenance."""
        described = {name: getattr(self, name) for name in self.__match_args__}
        del described["return_vms"]
        described["impact"] = self.impact or TRAITS[self.cause].impact
        described["hosts"] = tuple(sorted(self.hosts))
        return Maintenance(
            number=number, created_ms=now_ms, moved_ms=now_ms, actor=actor, **described
        )


@value
class StartMaintenance(CoreStimulus):
    """An operator starts a draft. Source: F-1."""

    maintenance: int


@value
class DeclareMaintenance(CoreStimulus):
    """An operator declares a draft to the owners of its VMs, and starts it. Source: T-1."""

    maintenance: int
    severity: Severity
    #: Time in which owners choose, in seconds; None: the least time that the policy allows.
    hand_back_s: int | None = None
    #: Reason of an emergency, and the rules that it waives. Source: T-6.
    reason: str = ""
    waived: tuple[str, ...] = ()


@value
class HostChoice:
    """When declared work may disturb an owner's VMs on a host."""

    host: str
    owner: str
    decision: Decision
    #: The chosen start, ms since the epoch UTC; 0: none.
    start_ms: int = 0
    #: Whether the choice approves the event.
    approves: bool = False
    #: Whether it is left out where the owner has a choice already that the plan keeps.
    gives_way: bool = False


@value
class ChooseStarts(CoreStimulus):
    """Owners, or an operator for them, choose when declared work starts. Source: T-2."""

    maintenance: int
    choices: tuple[HostChoice, ...]
    #: The principal who chooses, for people.
    by: str


@value
class NameFirstGroup(CoreStimulus):
    """An owner, or an operator for it, names its test group for declared work. Source: T-8."""

    maintenance: int
    owner: str
    #: Empty: the owner wants no order of its hosts any more.
    group: str
    #: Time between the work on the hosts of the group and on the others, in seconds.
    observation_s: int
    #: The principal who names it, for people.
    by: str


@value
class HoldHosts(CoreStimulus):
    """An owner, or an operator for it, holds its hosts after the test, or no longer. T-8."""

    maintenance: int
    owner: str
    #: Why; empty: the owner no longer holds them.
    reason: str
    #: The principal who asks, for people.
    by: str


@value
class AskDeferral(CoreStimulus):
    """Owners, or an operator for them, ask for a later hand-back deadline. Source: T-4."""

    maintenance: int
    #: Hosts, each with the owner of the VMs there; at least one.
    places: tuple[tuple[str, str], ...]
    #: The hand-back deadline asked for, ms since the epoch UTC.
    until_ms: int
    reason: str
    #: The principal who asks, for people.
    by: str


@value
class WithdrawDeferral(CoreStimulus):
    """Owners, or an operator for them, withdraw undecided requests. Source: T-4."""

    maintenance: int
    #: Hosts, each with the owner of the VMs there; at least one.
    places: tuple[tuple[str, str], ...]
    #: The principal who withdraws, for people.
    by: str


@value
class DecideDeferral(CoreStimulus):
    """An operator grants or refuses the undecided requests of an owner. Source: T-4."""

    maintenance: int
    owner: str
    grants: bool
    #: The principal who decides, for people.
    by: str
    reason: str = ""
    #: Only the request for this host; empty: for all.
    host: str = ""


@value
class PauseMaintenance(CoreStimulus):
    """An operator pauses a maintenance. Source: F-6."""

    maintenance: int
    reason: str = ""
    #: Whether announced hosts stay announced.
    keep_announced: bool = False


@value
class ResumeMaintenance(CoreStimulus):
    """An operator resumes a paused or stopped maintenance. Source: F-1."""

    maintenance: int


@value
class CancelMaintenance(CoreStimulus):
    """An operator ends a maintenance for good. Source: F-6."""

    maintenance: int
    reason: str = ""


@value
class PostponeHosts(CoreStimulus):
    """An owner, or an operator for the owner, asks for a later start of some hosts. Source: F-8."""

    maintenance: int
    hosts: tuple[str, ...]
    #: Earliest start of the hosts, ms since the epoch UTC.
    until_ms: int
    #: The requesting principal, for people.
    by: str
    reason: str = ""


@value
class PlanMade(CoreStimulus):
    """A plan passed the checker; it takes force if its parent is in force. F-2."""

    maintenance: int
    #: The plan to be stored.
    plan: MaintenancePlan
    #: The plan's inputs: postponements as the planner reads them, the end of the pause in ms since
    #: the epoch UTC, and the applied policy.
    postponed: tuple[tuple[str, int, str], ...]
    rests_until_ms: int | None
    policy: AppliedPolicy | None
    #: The declaration of the maintenance when the plan was made.
    declaration: Declaration | None = None
    #: The data that decided about the time zones of the policy's windows, for history.
    time_zones: str = ""


@value
class PlanFailed(CoreStimulus):
    """Planning failed; it is tried again later."""

    maintenance: int
    reason: str


@value
class GateFailed(CoreStimulus):
    """Checks after a wave have failed. Source: F-5."""

    maintenance: int
    reason: str


@value
class GatePassed(CoreStimulus):
    """Checks after a wave have passed. Source: F-5."""

    maintenance: int


@value
class ApplyPolicy(CoreStimulus):
    """An operator replaces the maintenance policy in force. Source: F-3."""

    policy: MaintenancePolicy


@value
class HostValidated(CoreStimulus):
    """The validation of a host after its work has passed. Source: T-7."""

    operation: int
    attempt: int


@value
class HostRejected(CoreStimulus):
    """The validation of a host after its work has failed. Source: T-7."""

    operation: int
    attempt: int
    reason: str


OperatorWord: TypeAlias = (
    StartMaintenance | PauseMaintenance | ResumeMaintenance | CancelMaintenance | PostponeHosts
)
#: Results of planning and checks, which run outside the writer.
PlannerReport: TypeAlias = (
    PlanMade | PlanFailed | GatePassed | GateFailed | HostValidated | HostRejected
)


#: Maximum hosts or VMs in one request; one step decides on all of them.
TARGETS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaintenance(CoreStimulus):
    """A principal requests work: on all of its targets, or on none. Source: O-2."""

    cause: Cause
    #: Names of hosts or of VMs, depending on the cause.
    targets: tuple[str, ...]
    #: Empty values mean the defaults of the cause (`impact.TRAITS`).
    impact: Impact | None = None
    source: Source | None = None
    description: str | None = None
    #: Expected interruption in seconds; -1 unknown, 0 none.
    duration_s: int | None = None
    #: Earliest start, ms since the epoch UTC; None: as early as the notice allows.
    not_before_ms: int | None = None
    #: Host of the VMs afterwards; empty: unchanged.
    destination: str = ""
    #: Whether routine work waits if the same work is under way on a target; otherwise it is
    #: refused.
    queue: bool = False


@value
class Acknowledge(CoreStimulus):
    """An operator approves events on behalf of their VMs, all or none. Source: A-9."""

    event_ids: tuple[str, ...]


@value
class Cancel(CoreStimulus):
    """An operator or user cancels an operation that has not started. Source: L-3."""

    operation: int
    reason: str = ""


@value
class Complete(CoreStimulus):
    """An operator reports that a running operation has succeeded or failed. Source: L-8."""

    operation: int
    failed: bool = False
    reason: str = ""


@value
class Retry(CoreStimulus):
    """An operator retries a running operation. Source: L-8."""

    operation: int


@value
class Repair(CoreStimulus):
    """An operator marks a host as repaired."""

    host: str


@value
class OpenTicket(CoreStimulus):
    """A principal opens a ticket about a VM, a host or a rack. Source: T-9."""

    type: TicketType
    target_kind: TicketTarget
    target: str
    #: Owners whom it concerns; None: those with a VM on the target.
    owners: frozenset[str] | None = None
    category: HardwareCategory = HardwareCategory.OTHER
    description: str = ""
    evidence: str = ""
    account: str = ""
    external: str = ""
    #: When the target leaves, ms since the epoch UTC.
    due_ms: int | None = None


@value
class MoveTicket(CoreStimulus):
    """A principal asks, answers, resolves, refuses or closes a ticket, with a text. Source: T-9."""

    ticket: int
    move: TicketMove
    text: str = ""
    #: What was done; empty: as before.
    action: str = ""
    #: Operation that the ticket has become; 0: as before.
    operation: int = 0
    #: Who says it, as the ticket's readers see it; empty: the actor.
    by: str = ""


@value
class ReopenTicket(CoreStimulus):
    """A principal reopens an ended ticket, with the reason. Source: T-9."""

    ticket: int
    text: str
    #: Who says it, as the ticket's readers see it; empty: the actor.
    by: str = ""
    #: The ended ticket: the state has only live ones, so the control plane adds it from the store.
    ended: Ticket | None = None


@value
class LiftConfirmation(CoreStimulus):
    """A principal lifts a confirmation for its own calls, for a time. Source: T-14."""

    act: ConfirmedAct
    #: When a second person is needed again, ms since the epoch UTC.
    until_ms: int
    reason: str


@value
class LinkTicket(CoreStimulus):
    """Another system has given a ticket an id. Source: T-10."""

    ticket: int
    external: str
    #: Whether an id that the ticket has already stays.
    keeps: bool = False


@value
class DriverBegun(CoreStimulus):
    """A driver confirms that it has begun an attempt."""

    operation: int
    attempt: int


@value
class DriverProgressed(CoreStimulus):
    """A driver reports the progress of an attempt."""

    operation: int
    attempt: int
    #: The current work, as a clause for people; empty: not reported.
    text: str = ""
    #: Percentage done, 0 to 100; -1: not reported.
    percent: int = -1
    #: Destinations of VMs, as (VM, host); earlier reports need not be repeated.
    placements: tuple[tuple[str, str], ...] = ()


@value
class DriverDone(CoreStimulus):
    """A driver reports that an attempt has succeeded."""

    operation: int
    attempt: int
    #: Interruption of the VMs, in ms; -1: not measured. Source: X-1.
    interruption_ms: int = -1


@value
class DriverFailed(CoreStimulus):
    """A driver reports that an attempt has failed, and why. Source: L-8."""

    operation: int
    attempt: int
    #: The reason, in one short printable line.
    reason: str


@value
class DriverAborted(CoreStimulus):
    """A driver was notified that an operation ended without it. Source: L-7."""

    operation: int
    #: Why the driver could not be notified, with no further try; empty if it was.
    failed: str = ""


#: Reports of a driver about an operation.
DriverReport: TypeAlias = DriverBegun | DriverProgressed | DriverDone | DriverFailed | DriverAborted


@value
class NoticeShown(CoreStimulus):
    """The announcements of these operations are published. Source: L-7."""

    operations: tuple[int, ...]


@value
class NotShown(CoreStimulus):
    """Some nodes did not show these operations in time. Source: M-4."""

    operations: tuple[int, ...]
    nodes: tuple[str, ...]
    #: The hosts that the nodes serve; empty: all.
    hosts: tuple[str, ...] = ()


@value
class ClockMarked(CoreStimulus):
    """The service's clock has a new mark. Source: N-4."""

    #: See `clock.SystemClock.mark`.
    boot: str
    ahead_ms: int


@value
class PutOff(CoreStimulus):
    """The service's clock is about to be set forward. Source: N-4."""

    #: The jump in ms, by which announced work is postponed.
    by_ms: int


@value
class Enable(CoreStimulus):
    """A VM of the group polled for the first time. Source: B-1."""

    group: str
    #: The emulator enables the group before its VMs poll. Source: B-4.
    early: bool = False


#: Requests of VMs. Many may arrive at the same instant, and one commit stores them together.
VmRequest: TypeAlias = ApprovalRequest | Enable
#: Everything that the core takes.
FleetStimulus: TypeAlias = CoreStimulus | ApprovalRequest
#: Everything that a step takes.
PlaneStimulus: TypeAlias = FleetStimulus | AccessStimulus


@value
class GroupsPolled(CoreStimulus):
    """VMs of these groups polled since the last report. Source: B-2."""

    groups: frozenset[str]
    #: How long ago the VMs polled, in ms; a disconnected node reports late. Source: F-5.
    age_ms: int = 0
    #: The clock was stepped; the groups only count as polled. Source: B-2.
    forgiven: bool = False


@value
class Reports(CoreStimulus):
    """Several reports, in order, in one transaction."""

    reports: tuple[DriverReport | GroupsPolled, ...]


@value
class ChangeTopology(CoreStimulus):
    """The fleet's layout changes: records are written and removed, all or none."""

    hosts: tuple[Host, ...] = ()
    groups: tuple[Group, ...] = ()
    vms: tuple[Vm, ...] = ()
    #: (kind, name) pairs; kinds are `host`, `group` and `vm`.
    removed: tuple[tuple[str, str], ...] = ()
    #: Pairs of the same form that must not exist yet.
    absent: tuple[tuple[str, str], ...] = ()
    #: Revision of the file with the records, such as a git commit, for history; empty: unknown.
    revision: str = ""


@value
class Tick(CoreStimulus):
    """Time has passed, and everything due happens."""


@value
class Proceed(CoreStimulus):
    """Work that exceeded an earlier step's portion continues."""

    #: Operations to announce or start, and maintenances with more hosts.
    operations: tuple[int, ...]


@value
class Recover(CoreStimulus):
    """The service has restarted and continues work that a crash interrupted. Source: L-7."""

    #: How long VMs could not poll the service, in ms; this time does not count as silence. B-2.
    away_ms: int = 0


@value
class Restored(CoreStimulus):
    """The state comes from a backup and lacks all later changes. Source: U-2, U-3."""

    #: Base of all incarnations, higher than any incarnation that VMs have read.
    incarnation: int


@value
class Confirmed(CoreStimulus):
    """The caller confirms another principal's call, and the call is executed. Source: P-8."""

    number: int
    act: PlaneStimulus


def act_of(stimulus: PlaneStimulus) -> PlaneStimulus:
    """Return the stimulus that a confirmed call executes; any other one is its own act."""
    return stimulus.act if isinstance(stimulus, Confirmed) else stimulus


#: Command about a maintenance or an operation -> its participle, for a refusal.
WORDS: dict[type[object], str] = {
    StartMaintenance: "started",
    DeclareMaintenance: "declared",
    DecideDeferral: "deferred",
    PauseMaintenance: "paused",
    ResumeMaintenance: "resumed",
    CancelMaintenance: "cancelled",
    PostponeHosts: "postponed",
    Cancel: "cancelled",
    Complete: "completed",
    Retry: "retried",
}
