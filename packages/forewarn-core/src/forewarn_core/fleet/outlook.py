"""Effects of a plan: how many VMs of a group it disturbs at once, and how full hosts get.

Source: F-2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from forewarn_base.values import value
from forewarn_core.fleet.maintenance import MaintenancePlan
from forewarn_core.fleet.topology import Health, Topology
from forewarn_core.planning.plan import Wave
from forewarn_core.planning.plan_text import PlanBody


@value
class GroupOutlook:
    """The effect of a plan on one group."""

    group: str
    owner: str
    vms: int
    #: VMs on hosts without work now.
    up_before: int
    #: VMs left undisturbed in the worst wave, if nothing else fails.
    up_least: int
    #: Waves that disturb the group.
    waves: int
    #: First and last notice for its VMs, ms since the epoch UTC.
    first_notice_ms: int
    last_notice_ms: int


def outlook(
    body: PlanBody, topology: Topology, occupied: Collection[str], *, returning: bool = False
) -> tuple[GroupOutlook, ...]:
    """Return a plan's effect on each group that it disturbs, worst first.

    Each wave disturbs the VMs that are on its hosts once the moves of earlier waves are over.
    Costs the VMs of the disturbed groups, and the hosts of the plan.

    Args:
        body: the plan.
        topology: the fleet.
        occupied: hosts whose VMs count as disturbed now.
        returning: whether VMs that move return to their hosts before the next wave.
    """
    disturbed: dict[str, Counter[int]] = {}
    notices: dict[str, list[int]] = {}
    for wave, vms in _disturbed_by_wave(body, topology, returning=returning):
        for name in vms:
            group = topology.vms[name].group
            disturbed.setdefault(group, Counter())[wave.number] += 1
            notices.setdefault(group, []).append(wave.shown_ms)
    groups = []
    for group, waves in disturbed.items():
        names = topology.vms_in(group)
        hosts = [topology.hosts[topology.vms[name].host] for name in names]
        down = sum(each.name in occupied or each.health is Health.FAILED for each in hosts)
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


def _disturbed_by_wave(
    body: PlanBody, topology: Topology, *, returning: bool
) -> Iterator[tuple[Wave, list[str]]]:
    """Yield each wave with the VMs on its hosts at that time."""
    on: dict[str, set[str]] = {}
    for wave in body.waves:
        hosts = (on[host] if host in on else topology.vms_on(host) for host in wave.hosts)
        yield wave, [name for names in hosts for name in names]
        moves = ((host, *move) for host in wave.hosts for move in body.moves.get(host, ()))
        for host, name, to in moves if not returning else ():
            if to and name in topology.vms:
                for place in (host, to):
                    on.setdefault(place, set(topology.vms_on(place)))
                on[host].discard(name)
                on[to].add(name)


@value
class HostRoom:
    """The memory that the VMs of one host use during one wave, in MiB."""

    wave: int
    host: str
    #: Capacity; 0: unknown.
    memory_mib: int
    before_mib: int
    #: Memory in use, with all arriving VMs and all VMs that have not left.
    during_mib: int
    after_mib: int


def memory_by_wave(plan: MaintenancePlan, topology: Topology, *, returning: bool) -> list[HostRoom]:
    """Return the use of hosts and destinations in each wave, ordered by wave and name.

    VMs that have left already count on their new hosts, unless they return before the next wave.
    Costs the VMs on those hosts.
    """
    used: dict[str, int] = {}
    room = []
    for wave in plan.waves:
        arriving, leaving = Counter[str](), Counter[str]()
        for host in wave.hosts:
            leaving[host] = 0
            for name, to in plan.body.moves.get(host, ()):
                vm = topology.vms.get(name)
                if vm is not None and vm.host != to:
                    leaving[host] += vm.memory_mib
                    arriving[to] += vm.memory_mib
        for host in sorted({*arriving, *leaving} & topology.hosts.keys()):
            if host not in used:
                vms = map(topology.vms.__getitem__, topology.vms_on(host))
                used[host] = sum(vm.memory_mib for vm in vms)
            during_mib = used[host] + arriving[host]
            after_mib = used[host] if returning else during_mib - leaving[host]
            memory_mib = topology.hosts[host].memory_mib
            room.append(HostRoom(wave.number, host, memory_mib, used[host], during_mib, after_mib))
            used[host] = after_mib
    return room
