"""The notice that a maintenance owes, by the policy and by its impact. See N-1, T-6.

`rules/notice.py` judges whether an announcement is in time.
"""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.notice import NOTICE, notice_of_impact_s

#: Time between the plan's announcement of a wave and the effective notice, in seconds: for the
#: clock, the store and portions of a large wave. A host that takes longer is done in a later wave.
ANNOUNCING_S = 60
#: The same time as a number of notice margins, if longer: the emulator's clock runs fast.
MARGINS = 5


def notice_owed_s(base: MaintenancePolicy, policy: NoticePolicy, work: Maintenance) -> int:
    """Return the notice that the impact of a maintenance requires, in seconds."""
    return notice_of_impact_s(base, work.exemption, policy.notice_s[work.shown_impact])


def planning_notice_s(base: MaintenancePolicy, policy: NoticePolicy, work: Maintenance) -> int:
    """Return the required notice of a wave, with the time to announce it, in seconds."""
    margin_s = -(-policy.notice_margin_ms // SECOND_MS)
    return notice_owed_s(base, policy, work) + margin_s + max(ANNOUNCING_S, MARGINS * margin_s)


def planning_policy(
    base: MaintenancePolicy, policy: NoticePolicy, work: Maintenance, *, planning_ms: int = 0
) -> MaintenancePolicy:
    """Return the policy for a plan: its notice has the time to plan and to announce the waves."""
    planning_s = -(-planning_ms // SECOND_MS)
    return replace(base, notice_s=planning_notice_s(base, policy, work) + planning_s)


def starts_without_notice(work: Maintenance) -> bool:
    """Whether the work may start as soon as it is shown."""
    return work.exemption.waives(NOTICE)
