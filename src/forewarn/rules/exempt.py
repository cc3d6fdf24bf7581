"""Emergency: the rules that it overrides, and those that a request waives by name. Source: T-6.

The only list of both. The planner and the core judge an emergency by the policy that `policy_for`
returns; work in other fault domains and the notice of an impact, which are not in the policy, are
left out where `Exemption.waives` says so. Choices and postponements are left out by
`core/hand_back.py` and `core/host_admission.py`.
"""

from __future__ import annotations

from forewarn.rules.policy import MaintenancePolicy
from forewarn.values import Word, replace, value

#: Members of the policy that never delay an emergency, with the values of a policy without them.
_OVERRIDDEN: dict[str, object] = {
    "windows": (),
    "freezes": (),
    "pause_s": 0,
    "owner_rest_s": 0,
    "postpone_max_s": 0,
}


class Waiver(Word):
    """A rule that an emergency keeps unless its request waives it."""

    #: One fault domain of a group at a time. Source: G-1.
    FAULT_DOMAIN = "fault-domain"
    #: Budgets of the policy and of the maintenance.
    BUDGETS = "budgets"
    #: The notice of the impact. Source: N-1.
    NOTICE = "notice"


@value
class Exemption:
    """The rules that work need not keep."""

    emergency: bool = False
    waived: tuple[Waiver, ...] = ()

    def waives(self, waiver: Waiver) -> bool:
        """Whether the work need not keep a rule."""
        return self.emergency and waiver in self.waived


NONE = Exemption()


def policy_for(policy: MaintenancePolicy, exemption: Exemption) -> MaintenancePolicy:
    """Return the policy without the members that do not bind work."""
    if not exemption.emergency:
        return policy
    changes = dict(_OVERRIDDEN)
    if exemption.waives(Waiver.BUDGETS):
        changes["budgets"] = ()
    if exemption.waives(Waiver.NOTICE):
        changes["notice_s"] = 0
    return replace(policy, **changes)
