"""What follows from a policy that is applied while maintenances run. Source: F-2, F-3.

Whether announced work still lies in open time is decided in `operation_requests.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.host_admission import plan_rest_again
from forewarn.core.impact import SECOND_MS
from forewarn.core.maintenance import counted, move_phase
from forewarn.core.phase import Planning, Working
from forewarn.core.policy import FLEET_POLICY, AppliedPolicy
from forewarn.core.waves import withdraw
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.maintenance_stimuli import ApplyPolicy
    from forewarn.planning.policy import MaintenancePolicy


def apply_policy(draft: Draft, word: ApplyPolicy) -> None:
    """Put a policy in force and plan hosts again that are not announced yet.

    Announced work stays, unless its time is no longer open, and starts once the new budgets have
    room. Costs the hosts that maintenances work on.
    """
    if word.policy == draft.maintenance_policy:
        return
    longer_ms = (word.policy.pause_s - draft.maintenance_policy.pause_s) * SECOND_MS
    applied = AppliedPolicy(FLEET_POLICY, draft.now_ms, draft.actor, word.policy)
    draft.put("policy.applied", _sentence(draft.maintenance_policy, word.policy), applied)
    for number in tuple(draft.maintenances):
        maintenance = draft.maintenances.get(number)
        if maintenance is None or not maintenance.live:
            continue
        withdraw(draft, maintenance)
        if maintenance.rests_until_ms and longer_ms:
            rests_until_ms = max(maintenance.rests_until_ms + longer_ms, 0) or None
            maintenance = replace(maintenance, rests_until_ms=rests_until_ms)
            text = f"{maintenance.id} pauses as long as the new policy says"
            draft.put("maintenance.pause-changed", text, maintenance)
        text = f"{maintenance.id} is planned by the new policy"
        plan_rest_again(draft, maintenance, text)
        _plan_limits_again(draft, number, text)


def _plan_limits_again(draft: Draft, number: int, text: str) -> None:
    """Request a plan for the budgets of announced work, even if every host is announced."""
    maintenance = draft.maintenances.get(number)
    if maintenance is None or maintenance.plan_wanted or not draft.progress(number).counts[1]:
        return
    phase = maintenance.phase
    if isinstance(phase, Working) or maintenance.keeps_announced:
        planned = move_phase(maintenance, replace(phase, plan=Planning()))
        draft.put("maintenance.replanning", text, planned)


def _sentence(before: MaintenancePolicy, policy: MaintenancePolicy) -> str:
    parts = (
        counted(len(policy.budgets), "budget"),
        counted(len(policy.windows), "window"),
        counted(len(policy.freezes), "freeze"),
    )
    text = f"the maintenance policy has {', '.join(parts)}"
    if policy.confirm != before.confirm:
        acts = ", ".join(act.value for act in policy.confirm) or "nothing"
        text += f"; a second person confirms {acts} from now on"
    return text
