"""The fleet for the planner: hosts, groups and placements in flat arrays.

Adapters above this package map VM names and addresses to these arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from forewarn_base.values import value
from forewarn_core.rules.exempt import NONE, Exemption
from forewarn_core.rules.fault_domain import FAULT_DOMAIN


@value
class FleetHost:
    """A physical machine that runs virtual machines."""

    name: str
    zone: str = ""
    rack: str = ""
    fault_domain: int = 0
    #: Labels as `key=value`.
    labels: tuple[str, ...] = ()
    #: Total size of VMs that fit, in the unit of the VMs' sizes; 0: no VM fits.
    capacity: int = 0
    #: Name of its driver; VMs move only between hosts of one driver and zone.
    driver: str = ""
    #: Whether the scheduler of the host's driver chooses destinations.
    scheduled: bool = False

    @property
    def fault_zone(self) -> tuple[str, int]:
        """The fault domain, distinct across zones."""
        return (self.zone, self.fault_domain)

    @property
    def pool(self) -> tuple[str, str]:
        """VMs can move between hosts with equal values."""
        return (self.zone, self.driver)

    @property
    def words(self) -> frozenset[str]:
        """All labels of the host as `key=value`, with `zone` and `rack`."""
        return frozenset((f"zone={self.zone}", f"rack={self.rack}", *self.labels))


@value
class FleetGroup:
    """Virtual machines that share a document, with their owner."""

    name: str
    owner: str = ""
    #: Labels of hosts, such as `rack`: its VMs are kept on hosts with different values.
    keep_apart: tuple[str, ...] = ()
    #: Labels of hosts: its VMs are kept on hosts with the same value.
    keep_together: tuple[str, ...] = ()


@dataclass(slots=True)
class Fleet:
    """Hosts, groups, and the host, group (by index) and size of each VM.

    A fleet never changes. The number of a VM is its position in the three arrays.
    """

    hosts: tuple[FleetHost, ...]
    groups: tuple[FleetGroup, ...] = ()
    vm_hosts: array[int] = field(default_factory=lambda: array("i"))
    vm_groups: array[int] = field(default_factory=lambda: array("i"))
    #: Size of each VM; 0: unknown, and the VM is not moved.
    vm_sizes: array[int] = field(default_factory=lambda: array("i"))

    @classmethod
    def of(
        cls,
        hosts: Iterable[FleetHost],
        groups: Iterable[FleetGroup],
        vms: Iterable[tuple[str, str, int]] = (),
    ) -> Fleet:
        """Return a fleet from names: each VM is (host, group, size)."""
        fleet = cls(tuple(hosts), tuple(groups))
        host_of = {host.name: number for number, host in enumerate(fleet.hosts)}
        group_of = {group.name: number for number, group in enumerate(fleet.groups)}
        for host, group, size in vms:
            fleet.vm_hosts.append(host_of[host])
            fleet.vm_groups.append(group_of[group])
            fleet.vm_sizes.append(size)
        return fleet


class Index:
    """Lookup tables of a fleet, built once per plan.

    Cost: one pass over all VMs; 1,000,000 take about two seconds and 200 MiB.
    """

    def __init__(self, fleet: Fleet, exemption: Exemption = NONE) -> None:
        """Count the VMs of each group on each host, and number the fault domains.

        `exemption`: what an emergency waives: hosts in different fault domains are kept apart in
        time (G-1) unless it waives that.
        """
        self.fleet = fleet
        self.number: dict[str, int] = {host.name: n for n, host in enumerate(fleet.hosts)}
        zones: dict[tuple[str, int], int] = {}
        #: Host -> number of its fault domain.
        self.fault_zone: list[int] = [
            zones.setdefault(host.fault_zone, len(zones)) for host in fleet.hosts
        ]
        #: The same for G-1; one number for all hosts where G-1 is waived. Source: T-6.
        waived = exemption.waives(FAULT_DOMAIN)
        self.guarded_zone = [0] * len(fleet.hosts) if waived else self.fault_zone
        #: Host -> group -> number of VMs of that group on the host.
        self.groups_on: list[dict[int, int]] = [{} for _ in fleet.hosts]
        for host, group in zip(fleet.vm_hosts, fleet.vm_groups, strict=True):
            on = self.groups_on[host]
            on[group] = on.get(group, 0) + 1
        #: Group -> its VMs.
        self.group_sizes: list[int] = [0] * len(fleet.groups)
        for group in fleet.vm_groups:
            self.group_sizes[group] += 1

    def owners(self, host: int) -> set[str]:
        """Return the owners of VMs on a host."""
        groups = self.fleet.groups
        return {groups[group].owner for group in self.groups_on[host]} - {""}


class WaveDomains:
    """The fault domain in which each group is disturbed by the hosts of one wave. Source: G-1."""

    def __init__(self, index: Index) -> None:
        """Begin with no host."""
        self._zones, self._zone_of = index.guarded_zone, dict[int, int]()

    def admits(self, host: int, groups: Iterable[int]) -> bool:
        """Whether a host with these groups disturbs no group in a second fault domain."""
        zone, zone_of = self._zones[host], self._zone_of
        return all(zone_of.get(group, zone) == zone for group in groups)

    def add(self, host: int, groups: Iterable[int]) -> None:
        """Add a host with these groups to the wave."""
        for group in groups:
            self._zone_of[group] = self._zones[host]
