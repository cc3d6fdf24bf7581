"""A fleet at 80 % of its memory is emptied and refilled, host by host, in simulated time."""

from collections import Counter
from contextlib import closing

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    CreateMaintenance,
    DriverDone,
    StartMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_core.rules.blockers import code_of
from forewarn_server.control import planner_host
from tests.simulator.transcripts.commands import CommandRunner
from tests.simulator.transcripts.scripted_deployment import ScriptedDeployment

MEMORY_MIB = 10_240
#: Memory of the VMs of each host, in MiB: together 80 %.
SIZES_MIB = (2048, 2048, 2048, 1024, 1024)
STEPS_MAX = 5_000


def fleet(hosts: int, sizes_mib: tuple[int, ...]) -> ChangeTopology:
    """Return hosts in five fault domains, with VMs whose groups have one on every second host."""
    names = [(n, place) for n in range(hosts) for place in range(len(sizes_mib))]
    return ChangeTopology(
        hosts=tuple(Host(f"h{n}", n % 5, n % 20, memory_mib=MEMORY_MIB) for n in range(hosts)),
        groups=tuple(Group(f"g{n}") for n in range(hosts)),
        vms=tuple(
            Vm(
                *(f"v{n}_{place}", f"h{n}", f"g{(n + 2 * place) % hosts}"),
                addresses=(f"vm-{n}-{place}",),
                memory_mib=sizes_mib[place],
            )
            for n, place in names
        ),
    )


def fullest(state: State) -> int:
    """Return the most memory that VMs take of a host, with those on their way there, in MiB."""
    used: Counter[str] = Counter()
    for vm in state.topology.vms.values():
        used[vm.host] += vm.memory_mib
    for operation in state.operations.values():
        under_way = operation.state is not OperationState.PLANNED
        for name in operation.vms if under_way else ():
            vm, to = state.topology.vms[name], operation.destination_of(name)
            used[to] += vm.memory_mib if to not in {"", vm.host} else 0
    return max(used.values())


def carried_out(deployment: ScriptedDeployment, *hosts: str, return_vms: bool = False) -> set[str]:
    """Have hosts emptied and rebooted; return those that were empty when their reboot began."""
    service, checker, queue = deployment.service, deployment.checker, deployment.queue
    asked = CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, move_s=600, return_vms=return_vms)
    created = service.submit(asked, "operator").result().maintenance
    assert created is not None
    service.submit(StartMaintenance(created.number), "operator").result()
    emptied: set[str] = set()
    for _ in range(STEPS_MAX):
        assert fullest(checker.state) <= MEMORY_MIB
        running = [
            each
            for each in checker.state.operations.values()
            if each.state is OperationState.RUNNING
        ]
        for each in running:
            emptied |= set() if each.vms else {each.host}
            checker.reported[each.number, each.execution.attempt] = queue.now_ms
            service.submit(DriverDone(each.number, each.execution.attempt), "driver").result()
            assert fullest(checker.state) <= MEMORY_MIB
        if not checker.state.maintenances:
            return emptied
        assert queue.step(queue.now_ms + 3_600_000) or running
    raise AssertionError("it does not end")


def homes(topology: Topology) -> dict[str, int]:
    """Return how many VMs are on each host that has any."""
    return Counter(vm.host for vm in topology.vms.values())


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_hosts_at_80_percent_are_emptied_and_refilled(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every host is empty when it reboots; at every moment all VMs fit where they are. F-3."""
    monkeypatch.setattr(planner_host, "APART_MIN", 10_000)  # simulated time has one thread
    deployment = CommandRunner().deployment
    with closing(deployment.disk), deployment.captured_logs():
        change = fleet(count, SIZES_MIB)
        deployment.service.submit(change, "operator").result()
        hosts = [host.name for host in change.hosts]
        assert carried_out(deployment, *hosts) == set(hosts)
        after = homes(deployment.checker.state.topology)
        assert sum(after.values()) == count * len(SIZES_MIB)
        assert len(after) > count * 3 // 4  # refilled, but for those that were done last


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_vms_return_to_hosts_at_80_percent(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host is emptied, rebooted and refilled with its own VMs; they always fit. F-1, F-3."""
    monkeypatch.setattr(planner_host, "APART_MIN", 10_000)  # simulated time has one thread
    deployment = CommandRunner().deployment
    with closing(deployment.disk), deployment.captured_logs():
        change = fleet(count, SIZES_MIB)
        deployment.service.submit(change, "operator").result()
        hosts = [host.name for host in change.hosts]
        assert carried_out(deployment, *hosts, return_vms=True) == set(hosts)
        after = deployment.checker.state.topology.vms
        assert {vm.name: vm.host for vm in change.vms} == {
            name: vm.host for name, vm in after.items()
        }


def test_fleet_without_room_says_capacity_for_the_hosts_concerned() -> None:
    """Full hosts have nowhere to go; an empty one is done, and then takes in the next. F-4."""
    deployment = CommandRunner().deployment
    with closing(deployment.disk), deployment.captured_logs():
        change = fleet(4, (8192, 2048))
        deployment.service.submit(change, "operator").result()
        hosts = ("h0", "h1")
        asked = CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, move_s=600)
        deployment.service.submit(asked, "operator").result()
        [plan] = deployment.checker.state.plans.values()
        assert {host: each.code for host, each in plan.body.blocked} == dict.fromkeys(
            hosts, code_of("capacity")
        )
        assert not plan.waves
