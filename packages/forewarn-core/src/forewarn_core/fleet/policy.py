"""Fleet-wide rules of the operator: least notice and limits. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.values import value
from forewarn_core.fleet.impact import DAY_S, NOTICE_S, PREDICTION_S, Impact
from forewarn_core.planning.policy import MaintenancePolicy

#: The name under which the fleet's one policy is stored.
FLEET_POLICY = "fleet"


@value
class AppliedPolicy:
    """The maintenance policy that an operator has applied, as stored. Source: F-3."""

    #: Always `FLEET_POLICY`.
    name: str
    #: When the policy was applied, ms since the epoch UTC.
    applied_ms: int
    #: The principal who applied the policy.
    actor: str
    policy: MaintenancePolicy


@value
class NoticePolicy:
    """Fleet-wide rules; every duration is in seconds unless the name says otherwise.

    Raises:
        ValueError: a notice is below the contract's minimum, or a limit below 1.
    """

    #: Least notice per impact; it may exceed the contract's minimum, never fall below it. Source:
    #: N-1.
    notice_s: Mapping[Impact, int] = field(default_factory=lambda: MappingProxyType(NOTICE_S))
    #: Added to each notice, in ms, so that the time from commit to first view does not shorten it.
    notice_margin_ms: int = 0
    #: How early predicted failure is announced if the request gives no time. Source: N-2.
    prediction_s: int = PREDICTION_S
    #: Maximum scheduled user-initiated operations per owner that have not started; 0: no limit.
    #: Source: O-1.
    max_user_operations: int = 0
    #: Maximum live operations, planned ones included; failures are recorded beyond it.
    max_operations: int = 200_000
    #: A group that has not polled for this long is disabled. Source: B-2.
    disable_after_s: int = DAY_S
    #: An operation running longer than its duration plus this raises an alert. Source: L-8.
    overdue_after_s: int = 3600
    #: Drivers whose own scheduler chooses destinations; an empty text means the default driver.
    scheduling_drivers: frozenset[str] = frozenset()
    #: Drivers without a scheduler, for whose VMs the service chooses destinations. Source: L-11.
    unscheduled_drivers: frozenset[str] = frozenset()
    #: Whether a host is added where no host can be a destination; only the emulator's fleet grows.
    adds_hosts: bool = False
    #: Budgets, windows and pauses until an operator applies a maintenance policy. Source: F-3.
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)

    def __post_init__(self) -> None:
        """Refuse a policy that would break a promise."""
        for impact, least_s in NOTICE_S.items():
            given_s = self.notice_s.get(impact, 0)
            if given_s < least_s:
                notice, required = duration_text(given_s), duration_text(least_s)
                raise ValueError(
                    f"gives {impact.value} {notice} of notice; the least is {required}"
                )
        limits = ("max_operations", "disable_after_s", "overdue_after_s")
        for name, least in (("max_user_operations", 0), *((name, 1) for name in limits)):
            if getattr(self, name) < least:
                raise ValueError(f"sets {name} to {getattr(self, name)}; the least is {least}")
        if self.notice_margin_ms < 0 or self.prediction_s < NOTICE_S[Impact.FREEZE]:
            raise ValueError("would shorten notice by notice_margin_ms or prediction_s")


def maintenance_policy(applied: AppliedPolicy | None, policy: NoticePolicy) -> MaintenancePolicy:
    """Return the budgets, windows and pauses in force: the applied policy's, else the defaults."""
    return applied.policy if applied else policy.maintenance
