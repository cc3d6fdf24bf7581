"""What a plan would mean for each group: how many of its VMs are disturbed at once, and when.

Source: F-2.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forewarn.core.topology import Health
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Collection

    from forewarn.core.topology import Topology
    from forewarn.planning.plan import Plan


@value
class GroupOutlook:
    """How a group fares while a plan is carried out."""

    group: str
    owner: str
    vms: int
    #: VMs whose host works undisturbed now.
    up_before: int
    #: VMs that are left in the worst wave, if nothing else fails.
    up_least: int
    #: Waves that disturb it.
    waves: int
    #: When its VMs get notice for the first and for the last time, ms since the epoch UTC.
    first_notice_ms: int
    last_notice_ms: int


def outlook(plan: Plan, topology: Topology, occupied: Collection[str]) -> tuple[GroupOutlook, ...]:
    """Return what a plan means for each group that it disturbs, the worst first.

    Costs the VMs of the groups it disturbs, and the hosts it names. The VMs of `occupied` hosts are
    disturbed now.
    """
    disturbed: dict[str, Counter[int]] = {}
    notices: dict[str, list[int]] = {}
    for entry in plan.entries:
        for name in topology.vms_on(entry.host):
            group = topology.vms[name].group
            disturbed.setdefault(group, Counter())[entry.wave] += 1
            notices.setdefault(group, []).append(entry.shown_ms)
    groups = []
    for group, waves in disturbed.items():
        names = topology.vms_in(group)
        down = sum(1 for name in names if _is_down(topology, topology.vms[name].host, occupied))
        up = len(names) - down
        groups.append(
            GroupOutlook(
                group,
                topology.groups[group].owner,
                len(names),
                up,
                max(up - max(waves.values()), 0),
                len(waves),
                min(notices[group]),
                max(notices[group]),
            )
        )
    groups.sort(key=lambda each: (each.up_least / each.vms, each.group))
    return tuple(groups)


def _is_down(topology: Topology, host: str, occupied: Collection[str]) -> bool:
    return host in occupied or topology.hosts[host].health is Health.FAILED
