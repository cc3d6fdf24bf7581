"""Everything that can happen to the control plane, as values: requests, approvals, reports, time.

Values only; what follows from each is decided in `step.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from forewarn.core.access import AccessStimulus
from forewarn.core.impact import TRAITS
from forewarn.core.maintenance import Maintenance
from forewarn.protocol.identity import CallerIdentity
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.core.access import Confirmation
    from forewarn.core.impact import Cause, Impact, Source
    from forewarn.core.maintenance import MaintenancePlan
    from forewarn.core.policy import AppliedPolicy
    from forewarn.core.topology import Group, Host, Vm
    from forewarn.planning.policy import Budget, MaintenancePolicy


@value
class CreateMaintenance:
    """An operator describes a maintenance; nothing begins yet. Source: F-1."""

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
    #: VMs leave each host first, within this many seconds; 0: they stay on it.
    move_s: int = 0
    #: Whether VMs that left a host return to it after its work.
    return_vms: bool = False

    def maintenance(self, number: int, now_ms: int, actor: str) -> Maintenance:
        """Return the draft that it describes."""
        described = {name: getattr(self, name) for name in self.__match_args__}
        del described["return_vms"]
        described["impact"] = self.impact or TRAITS[self.cause].impact
        described["hosts"] = tuple(sorted(self.hosts))
        return Maintenance(
            number=number, created_ms=now_ms, moved_ms=now_ms, actor=actor, **described
        )


@value
class StartMaintenance:
    """An operator starts a draft. Source: F-1."""

    maintenance: int


@value
class PauseMaintenance:
    """An operator pauses a maintenance. Source: F-6."""

    maintenance: int
    reason: str = ""
    #: Whether announced hosts stay announced.
    keep_announced: bool = False


@value
class ResumeMaintenance:
    """An operator resumes a paused or stopped maintenance. Source: F-1."""

    maintenance: int


@value
class CancelMaintenance:
    """An operator ends a maintenance for good. Source: F-6."""

    maintenance: int
    reason: str = ""


@value
class PostponeHosts:
    """An owner, or an operator for one, asks for a later start of some hosts. Source: F-8."""

    maintenance: int
    hosts: tuple[str, ...]
    #: They do not start before, ms since the epoch UTC.
    until_ms: int
    #: Who requests it, for people.
    by: str
    reason: str = ""


@value
class PlanMade:
    """A plan was made and passed the checker; it takes force if its parent is in force. F-2."""

    maintenance: int
    #: As it will be kept.
    plan: MaintenancePlan
    #: What it was made by: postponements as the planner reads them, the end of the pause, ms since
    #: the epoch UTC, and the policy applied.
    postponed: tuple[tuple[str, int, str], ...]
    rests_until_ms: int | None
    policy: AppliedPolicy | None


@value
class PlanFailed:
    """No plan could be made; it is tried again later."""

    maintenance: int
    reason: str


@value
class GateFailed:
    """Checks after a wave have found that the work does harm. Source: F-5."""

    maintenance: int
    reason: str


@value
class GatePassed:
    """Checks after a wave have found nothing wrong. Source: F-5."""

    maintenance: int


@value
class ApplyPolicy:
    """An operator puts a maintenance policy in place of the one in force. Source: F-3."""

    policy: MaintenancePolicy


OperatorWord: TypeAlias = (
    StartMaintenance | PauseMaintenance | ResumeMaintenance | CancelMaintenance | PostponeHosts
)
#: What work beside the writer brings back.
PlannerReport: TypeAlias = PlanMade | PlanFailed | GatePassed | GateFailed
MaintenanceStimulus: TypeAlias = CreateMaintenance | OperatorWord | PlannerReport | ApplyPolicy


#: Hosts or VMs that one request may name of which all is decided in one step.
TARGETS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaintenance:
    """Somebody asks for maintenance; all of its targets, or none. Source: O-2."""

    cause: Cause
    #: Names of hosts or of VMs, depending on the cause.
    targets: tuple[str, ...]
    #: Empty values: what the cause says (`impact.TRAITS`).
    impact: Impact | None = None
    source: Source | None = None
    description: str | None = None
    #: Expected interruption in seconds; -1 unknown, 0 none.
    duration_s: int | None = None
    #: Earliest start, ms since the epoch UTC; None: as early as the notice allows.
    not_before_ms: int | None = None
    #: Host the VMs are on afterwards; empty: where they are.
    destination: str = ""
    #: Whether routine work waits where the same is under way on a target; else it is refused.
    queue: bool = False


@value
class Approve:
    """A VM approves events of its document. Source: A-1."""

    vm: str
    event_ids: tuple[str, ...]
    #: How the caller was known to be this VM.
    identity: CallerIdentity = CallerIdentity()
    #: Hosts of the node that hands it on where the VM is not that node's now: it must have been
    #: when the event was there. Empty: the VM is. Source: M-3, M-5.
    node_hosts: tuple[str, ...] = ()


@value
class Acknowledge:
    """An operator approves events from outside their VMs, all or none. Source: A-9."""

    event_ids: tuple[str, ...]


@value
class Cancel:
    """An operator or user withdraws an operation that has not started. Source: L-3."""

    operation: int
    reason: str = ""


@value
class Complete:
    """An operator says that a running operation has ended, well or not. Source: L-8."""

    operation: int
    failed: bool = False
    reason: str = ""


@value
class Retry:
    """An operator retries a running operation. Source: L-8."""

    operation: int


@value
class Repair:
    """An operator marks a host as repaired."""

    host: str


@value
class DriverBegun:
    """A driver confirms that it has begun an attempt."""

    operation: int
    attempt: int


@value
class DriverProgressed:
    """A driver reports how far an attempt is."""

    operation: int
    attempt: int
    #: What it does now, as a clause for people; empty: it did not say.
    text: str = ""
    #: How much is done, 0 to 100; -1: it did not say.
    percent: int = -1
    #: Where it takes VMs, as (VM, host); those it has reported before need not be named again.
    placements: tuple[tuple[str, str], ...] = ()


@value
class DriverDone:
    """A driver reports that an attempt has ended well."""

    operation: int
    attempt: int
    #: How long VMs were interrupted, in ms; -1: it was not measured. Source: X-1.
    interruption_ms: int = -1


@value
class DriverFailed:
    """A driver reports that an attempt has failed, and why. Source: L-8."""

    operation: int
    attempt: int
    #: One line, printable and short enough for history, as all that drivers say.
    reason: str


@value
class DriverAborted:
    """A driver was notified that an operation ended without it. Source: L-7."""

    operation: int
    #: Why it could not be notified, and will not be tried again; empty if it was.
    failed: str = ""


#: What a driver says of an operation.
DriverReport: TypeAlias = DriverBegun | DriverProgressed | DriverDone | DriverFailed | DriverAborted


@value
class NoticeShown:
    """What these operations announce is shown. Source: L-7."""

    operations: tuple[int, ...]


@value
class NotShown:
    """Some nodes did not show in time what becomes of these operations. Source: M-4."""

    operations: tuple[int, ...]
    nodes: tuple[str, ...]
    #: Whose VMs they serve; empty: all.
    hosts: tuple[str, ...] = ()


@value
class ClockMarked:
    """The service's clock has this mark from now on. Source: N-4."""

    #: See `clock.SystemClock.mark`.
    boot: str
    ahead_ms: int


@value
class PutOff:
    """The service's clock is about to go ahead while no time passes. Source: N-4."""

    #: By how much, in ms; announced work is put off by it.
    by_ms: int


@value
class Enable:
    """A VM of the group asked for the first time. Source: B-1."""

    group: str


@value
class GroupsPolled:
    """VMs of these groups asked since the last such report. Source: B-2."""

    groups: frozenset[str]
    #: How long ago they did, in ms: a node that was away reports late. Source: F-5.
    age_ms: int = 0


@value
class Reports:
    """Several reports, in order; they cost one transaction."""

    reports: tuple[DriverReport | GroupsPolled, ...]


@value
class ChangeTopology:
    """The fleet's layout changes: records put, and names taken out, all or nothing."""

    hosts: tuple[Host, ...] = ()
    groups: tuple[Group, ...] = ()
    vms: tuple[Vm, ...] = ()
    #: (kind, name) pairs; kinds are `host`, `group` and `vm`.
    removed: tuple[tuple[str, str], ...] = ()
    #: Such pairs again, of what must not be there yet.
    absent: tuple[tuple[str, str], ...] = ()


@value
class Tick:
    """Time has passed: whatever is due happens."""


@value
class Proceed:
    """The work that an earlier step left for later, since its portion was full, goes on."""

    #: Operations that may be announced or started, maintenances that have more hosts.
    operations: tuple[int, ...]


@value
class Recover:
    """The service has started again: what a crash cut off is taken up. Source: L-7."""

    #: How long the service could not be polled, in ms; it counts as silence of no group. B-2.
    away_ms: int = 0


@value
class Restored:
    """The state comes from a backup: what was seen since is not in it. Source: U-2, U-3."""

    #: What every document goes on from: more than any that was read.
    incarnation: int


@value
class AskConfirmation:
    """A call is kept until a second principal confirms it. Source: P-8."""

    call: Confirmation


@value
class DropConfirmation:
    """A call that waits is withdrawn by its principal, or refused by another one. Source: P-8."""

    number: int
    principal: str


@value
class Confirmed:
    """A second principal confirms a call, and what it asks is done. Source: P-8."""

    number: int
    principal: str
    act: SingleStimulus


#: Command about a maintenance or an operation -> what that would be afterwards, for a refusal.
WORDS: dict[type[object], str] = {
    StartMaintenance: "started",
    PauseMaintenance: "paused",
    ResumeMaintenance: "resumed",
    CancelMaintenance: "cancelled",
    PostponeHosts: "postponed",
    Cancel: "cancelled",
    Complete: "completed",
    Retry: "retried",
}

SingleStimulus: TypeAlias = (
    RequestMaintenance
    | Approve
    | Acknowledge
    | Cancel
    | Complete
    | Retry
    | Repair
    | DriverReport
    | NoticeShown
    | NotShown
    | ClockMarked
    | PutOff
    | Enable
    | GroupsPolled
    | ChangeTopology
    | Tick
    | Proceed
    | Recover
    | Restored
    | MaintenanceStimulus
    | AccessStimulus
    | AskConfirmation
    | DropConfirmation
)
#: What one step decides on.
Stimulus: TypeAlias = SingleStimulus | Reports | Confirmed
