"""Where VMs go that leave a host, if neither a request nor a driver's scheduler says it."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import ChangeTopology, Enable
from forewarn_core.fleet.topology import Group, Health, Host, Vm
from tests.core.rig import Rig

CHOOSES = NoticePolicy(unscheduled_drivers=frozenset({"simulated"}))
GROWS = replace(CHOOSES, adds_hosts=True)


def fleet(*hosts: Host, policy: NoticePolicy = CHOOSES, **vms: str) -> Rig:
    """A rig whose driver chooses no destinations, with VMs of one group on their hosts."""
    rig = Rig(policy=policy)
    own = tuple(replace(host, driver="simulated") for host in hosts)
    there = tuple(Vm(name, host, "web", memory_mib=1024) for name, host in vms.items())
    rig.tell(ChangeTopology(hosts=own, groups=(Group("web"),), vms=there), Enable("web"))
    return rig


def moved(rig: Rig, cause: Cause, target: str) -> tuple[Operation, dict[str, str]]:
    """Have work done; return it as it ran, and where the VMs are afterwards."""
    work = rig.ask(cause, target)
    for event_id in rig.now(work).events:
        if rig.events[event_id].state.value == "scheduled":
            rig.approve(rig.events[event_id].resources[0], work)
    running = rig.now(work)
    rig.finish(work)
    rig.check_replay()
    return running, {name: vm.host for name, vm in rig.state.topology.vms.items()}


@pytest.mark.parametrize(
    ("cause", "target"),
    [
        (Cause.REDEPLOY, "web_0"),
        (Cause.LIVE_MIGRATION, "h0"),
        (Cause.HARDWARE_DEGRADED, "h0"),
        (Cause.HOST_LOST, "h0"),
    ],
)
def test_vm_moves_to_a_host_with_room(cause: Cause, target: str) -> None:
    """Every work that moves VMs does so, and its task names the destinations. Source: L-11."""
    rig = fleet(Host("h0"), Host("h1"), web_0="h0")
    running, hosts = moved(rig, cause, target)
    assert running.execution.placements == (("web_0", "h1"),)
    assert hosts == {"web_0": "h1"}


@pytest.mark.parametrize("cause", [Cause.REBOOT, Cause.HARDWARE_FAILURE, Cause.HOST_REBOOT])
def test_vm_that_is_only_restarted_stays(cause: Cause) -> None:
    """Only causes that move VMs have destinations. Source: L-11."""
    rig = fleet(Host("h0"), Host("h1"), web_0="h0")
    target = "web_0" if cause is Cause.REBOOT else "h0"
    assert moved(rig, cause, target)[1] == {"web_0": "h0"}


def test_given_destination_is_kept() -> None:
    """A request that names a destination decides. Source: L-11."""
    rig = fleet(Host("h0"), Host("h1"), Host("h2"), web_0="h0")
    work = rig.ask(Cause.REDEPLOY, "web_0", destination="h2")
    rig.approve("web_0", work)
    rig.finish(work)
    assert rig.state.topology.vms["web_0"].host == "h2"


@pytest.mark.parametrize(
    "closed",
    [
        Host("h1", memory_mib=1023),
        Host("h1", health=Health.DEGRADED),
        Host("h1", zone="2"),
    ],
    ids=["no-room", "degraded", "another-zone"],
)
def test_host_that_cannot_be_a_destination_is_passed_over(closed: Host) -> None:
    """The other host is the destination; without one, the VM stays. Source: L-11."""
    rig = fleet(Host("h0"), closed, Host("h2"), web_0="h0")
    assert moved(rig, Cause.REDEPLOY, "web_0")[1] == {"web_0": "h2"}
    rig = fleet(Host("h0"), closed, web_0="h0")
    running, hosts = moved(rig, Cause.REDEPLOY, "web_0")
    assert running.execution.progress == "VM web_0 stays, because no other host has room"
    assert hosts == {"web_0": "h0"}


def test_no_vm_moves_to_a_host_with_work() -> None:
    """Announced work is avoided, too: its VMs have notice, and the newcomer has none. F-3."""
    rig = fleet(Host("h0"), Host("h1"), Host("h2"), web_0="h0")
    rig.ask(Cause.HOST_REBOOT, "h1", not_before_ms=rig.now_ms + 3_600_000)
    rig.tell(ChangeTopology(vms=(Vm("web_1", "h2", "web"),)))
    assert moved(rig, Cause.REDEPLOY, "web_0")[1]["web_0"] == "h2"


def test_fault_domains_of_a_group_stay_apart() -> None:
    """Its own fault domain first, then one without VMs of its group. Source: L-11."""
    others = Host("h1", 1), Host("h2", 2), Host("h3", 0)
    rig = fleet(Host("h0", 0), *others, web_0="h0", web_1="h1")
    assert moved(rig, Cause.REDEPLOY, "web_0")[1]["web_0"] == "h3"
    rig = fleet(Host("h0", 0), *others[:2], web_0="h0", web_1="h1")
    assert moved(rig, Cause.REDEPLOY, "web_0")[1]["web_0"] == "h2"
    rig = fleet(Host("h0", 0), *others[:1], web_0="h0", web_1="h1")
    assert moved(rig, Cause.REDEPLOY, "web_0")[1]["web_0"] == "h1"


def test_vms_of_one_host_share_what_room_there_is() -> None:
    """Each takes its memory; those without room stay where they are. Source: L-11."""
    room = Host("h1", memory_mib=2048), Host("h2", memory_mib=1024)
    rig = fleet(Host("h0"), *room, web_0="h0", web_1="h0", web_2="h0", web_3="h0")
    running, hosts = moved(rig, Cause.LIVE_MIGRATION, "h0")
    assert sorted(hosts.values()) == ["h0", "h1", "h1", "h2"]
    assert running.execution.progress == "VM web_3 stays, because no other host has room"


def test_emulated_fleet_grows_where_no_host_is_right() -> None:
    """A new host is like the VM's own, so that its fault domain is kept. Source: L-11, B-4."""
    rig = fleet(
        Host("host-1", 1, 2), Host("host-2", 0), policy=GROWS, web_0="host-1", web_1="host-2"
    )
    assert moved(rig, Cause.REDEPLOY, "web_0")[1] == {"web_0": "host-3", "web_1": "host-2"}
    assert rig.state.topology.hosts["host-3"] == Host("host-3", 1, 2, driver="simulated")
    assert moved(rig, Cause.REDEPLOY, "web_0")[1]["web_0"] == "host-1"
    assert len(rig.state.topology.hosts) == 3


def test_new_host_of_a_lost_one_is_healthy() -> None:
    """All VMs of the lost host start there. Source: L-11, L-4."""
    rig = fleet(Host("host-2"), policy=GROWS, web_0="host-2", web_1="host-2")
    _, hosts = moved(rig, Cause.HOST_LOST, "host-2")
    assert hosts == {"web_0": "host-3", "web_1": "host-3"}
    assert (rig.health("host-2"), rig.health("host-3")) == (Health.FAILED, Health.HEALTHY)
