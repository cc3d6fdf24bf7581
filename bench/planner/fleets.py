"""Generates the fleets of the benchmark from a seed."""

from __future__ import annotations

import random

from bench.planner.ganeti import Cluster, Instance
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import FleetState, PlanRequest
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window

RACK_HOSTS = 40
FAULT_DOMAINS = 20
#: Fraction of groups, with their minimum and maximum number of VMs: pairs and threes, quorums,
#: services, scale sets.
SHAPES = ((40, 2, 3), (30, 5, 9), (20, 20, 40), (10, 60, 140))
ZONES = ("z1", "z2", "z3", "z4")
TIME_ZONES = ("Europe/Berlin", "Europe/Dublin", "America/New_York", "Asia/Tokyo")


def paired(hosts: int, per_group: int, seed: int, vms: int = 10) -> Cluster:
    """Return hosts with VMs, each with a copy on another host of the same node group."""
    draw = random.Random(seed)
    instances: list[Instance] = []
    for host in range(hosts):
        first = host // per_group * per_group
        last = min(hosts, first + per_group)
        for _ in range(vms if last - first > 1 else 0):
            other = host
            while other == host:
                other = draw.randrange(first, last)
            name = f"vm{len(instances)}"
            instances.append(Instance(name, 128, f"node{host:05}", f"node{other:05}"))
    nodes = tuple((f"node{host:05}", f"group{host // per_group}") for host in range(hosts))
    return Cluster(nodes, tuple(instances))


def mixed(hosts: int, groups: int, seed: int) -> Fleet:
    """Return hosts in four zones with groups of mixed shapes, about 20 VMs each."""
    draw = random.Random(seed)
    places = [
        FleetHost(
            f"h{n:06}",
            zone=ZONES[n * 4 // hosts],
            rack=f"r{n // RACK_HOSTS:04}",
            fault_domain=n // RACK_HOSTS % FAULT_DOMAINS,
            capacity=32,
        )
        for n in range(hosts)
    ]
    fleet = Fleet(
        tuple(places), tuple(FleetGroup(f"g{n:05}", f"o{n % 500}") for n in range(groups))
    )
    shapes = draw.choices(SHAPES, [shape[0] for shape in SHAPES], k=groups)
    for group, (_, fewest, most) in enumerate(shapes):
        across = draw.random() < 0.3
        first, last = 0, hosts
        if not across:
            zone = draw.randrange(4)
            first, last = zone * hosts // 4, (zone + 1) * hosts // 4
        for _ in range(draw.randint(fewest, most)):
            fleet.vm_hosts.append(draw.randrange(first, last))
            fleet.vm_groups.append(group)
            fleet.vm_sizes.append(1)
    return fleet


def loaded(hosts: int, seed: int) -> Fleet:
    """Return hosts in four zones at 80 % of their capacity, with groups of four VMs."""
    draw = random.Random(seed)
    places = [
        FleetHost(
            f"h{n:04}", ZONES[n * 4 // hosts], fault_domain=n % FAULT_DOMAINS, capacity=1_048_576
        )
        for n in range(hosts)
    ]
    groups = tuple(FleetGroup(f"g{n:05}") for n in range(hosts * 5))
    fleet = Fleet(tuple(places), groups)
    for host, place in enumerate(places):
        left = place.capacity * 4 // 5
        while left:
            size = min(left, draw.choice((16_384, 32_768, 65_536)))
            fleet.vm_hosts.append(host)
            fleet.vm_groups.append(draw.randrange(len(groups)))
            fleet.vm_sizes.append(size)
            left -= size
    return fleet


#: Policy for the mixed fleets: one window for each zone, in the zone's night.
POLICY = MaintenancePolicy(
    budgets=(
        Budget(Scope.FLEET, 2, percent=True),
        Budget(Scope.ZONE, 2, percent=True),
        Budget(Scope.RACK, 50, percent=True),
        Budget(Scope.OWNER, 10, percent=True),
        Budget(Scope.GROUP, 20, percent=True),
    ),
    windows=tuple(
        Window(f"night-{zone}", time_zone, (0, 1, 2, 3, 4), 22 * 60, 6 * 60, (), (f"zone={zone}",))
        for zone, time_zone in zip(ZONES, TIME_ZONES, strict=True)
    ),
    pause_s=300,
    canary_count=10,
)


def everyone(fleet: Fleet, steps: int) -> tuple[FleetState, PlanRequest]:
    """Return a maintenance of all hosts of a fleet without other work."""
    return FleetState(), PlanRequest(tuple(host.name for host in fleet.hosts), 1200, steps=steps)
