"""What happens to maintenances, as values: an operator's words, plans made, checks reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.core.impact import Cause, Impact
    from forewarn.core.maintenance import MaintenancePlan
    from forewarn.core.policy import AppliedPolicy
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
#: What an operator may say of one that is there -> what it is then, for a refusal.
WORDS: dict[type[object], str] = {
    StartMaintenance: "started",
    PauseMaintenance: "paused",
    ResumeMaintenance: "resumed",
    CancelMaintenance: "cancelled",
    PostponeHosts: "postponed",
}

#: What work beside the writer brings back.
PlannerReport: TypeAlias = PlanMade | PlanFailed | GatePassed | GateFailed
MaintenanceStimulus: TypeAlias = CreateMaintenance | OperatorWord | PlannerReport | ApplyPolicy
