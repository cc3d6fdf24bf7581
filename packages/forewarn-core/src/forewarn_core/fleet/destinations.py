"""Chooses destinations for VMs that leave a host, for drivers without a scheduler of their own.

A destination is a healthy host of the same zone and driver, without work on it and with room. The
fault domains of a group stay apart while any such host allows it. Source: L-11.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from forewarn_base.values import replace
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.topology import Health, Host, Vm
from forewarn_core.fleet.waiting import memory_used

#: Fault domain of a group's VMs, distinct across zones.
_FaultZone = tuple[str, int]


class Destinations:
    """The destinations of one operation's VMs, chosen one after another.

    Costs the hosts once, and for each VM the hosts and the VMs of its group.
    """

    def __init__(self, draft: Draft, operation: Operation) -> None:
        """Look at the fleet as it is when the operation starts."""
        self._draft, self._operation = draft, operation
        #: VM -> its destination; without the VMs that no host has room for.
        self.placements: dict[str, str] = {}
        #: Hosts to be added, by name.
        self.new_hosts: dict[str, Host] = {}
        self._hosts = draft.topology.hosts
        self._arriving: defaultdict[str, set[str]] = defaultdict(set)
        at_work = {name for _, name in draft.state.places.at([("host", n) for n in self._hosts])}
        self._open = [
            host
            for name, host in self._hosts.items()
            if host.health is Health.HEALTHY and name not in at_work
        ]

    def choose(self) -> tuple[str, ...]:
        """Choose a destination for each VM, large VMs first; return the VMs without one."""
        vms = [self._draft.topology.vms[name] for name in self._operation.vms]
        left = []
        for vm in sorted(vms, key=lambda each: (-each.memory_mib, each.name)):
            host = self._destination(vm)
            if host is None:
                left.append(vm.name)
                continue
            self.placements[vm.name] = host.name
            self._arriving[host.name].add(vm.name)
        return tuple(sorted(left))

    def _destination(self, vm: Vm) -> Host | None:
        own = self._hosts[vm.host]
        members = self._members(vm)
        ranked = sorted(
            (self._rank(host, own, members), host.name, host)
            for host in self._open
            if (host.zone, host.driver, host.name != own.name) == (own.zone, own.driver, True)
        )
        best = next((each for each in ranked if self._has_room(each[2], vm)), None)
        if self._draft.policy.adds_hosts and (best is None or best[0][0]):
            return self._add_host(own)
        return best[2] if best is not None else None

    def _members(self, vm: Vm) -> Counter[_FaultZone | str]:
        """Count the other VMs of a group by fault domain and by host."""
        topology = self._draft.topology
        counts: Counter[_FaultZone | str] = Counter()
        for name in topology.vms_in(vm.group):
            if name != vm.name:
                host = self.placements.get(name, topology.vms[name].host)
                counts[host] += 1
                counts[(self.new_hosts.get(host) or self._hosts[host]).fault_zone] += 1
        return counts

    def _rank(
        self, host: Host, own: Host, members: Counter[_FaultZone | str]
    ) -> tuple[bool, bool, int, int]:
        """Return what speaks against a host: its fault domain first, then its VMs."""
        elsewhere = host.fault_zone != own.fault_zone
        crowded = elsewhere and members[host.fault_zone] > 0
        there = len(self._draft.topology.vms_on(host.name)) + len(self._arriving[host.name])
        return crowded, elsewhere, members[host.name], there

    def _has_room(self, host: Host, vm: Vm) -> bool:
        """Whether a host has room; where memory is unknown, it has."""
        arriving = self._arriving[host.name] | {vm.name}
        used_mib = memory_used(self._draft, host.name, arriving, but=self._operation.number)
        return not host.memory_mib or used_mib is None or used_mib <= host.memory_mib

    def _add_host(self, own: Host) -> Host:
        """Add an empty host like a VM's own host."""
        names = self._hosts.keys() | self.new_hosts.keys()
        number = len(names) + 1
        while (name := f"host-{number}") in names:
            number += 1
        host = replace(own, name=name, health=Health.HEALTHY)
        self.new_hosts[name] = host
        self._open.append(host)
        return host
