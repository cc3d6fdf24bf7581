"""Where VMs go that leave their hosts: apart from their group, by the placement of each wave."""

from dataclasses import replace

import pytest
from hypothesis import given

from forewarn_core.planning.checker import check
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import FleetState, HostOrder, Plan
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.local_time import Window
from tests.planning.worlds import DAY_MS, NOW_MS, World, everyone, fleet_of, worlds

WEB = fleet_of("web", "web", "web", "")


def planned(fleet: Fleet, *hosts: str, policy: MaintenancePolicy | None = None) -> Plan:
    """Plan hosts of a fleet, all if none is named, whose VMs leave; the checker has passed it."""
    policy = policy or MaintenancePolicy()
    request = everyone(fleet, move_s=600)
    request = replace(request, hosts=hosts or request.hosts)
    found = plan(fleet, FleetState(), policy, now_ms=NOW_MS, request=request)
    assert check(found, fleet, state=FleetState(), policy=policy) == ()
    return found


def moves(found: Plan) -> list[str]:
    """Return each host with the destinations of its VMs, as `h0>h3`, in order."""
    return [
        f"{entry.host}>{','.join(move.to_host for move in entry.moves)}"
        for entry in found.entries
        if entry.moves
    ]


def waves(found: Plan) -> list[str]:
    """Return the hosts of each wave, as `h0 h2`."""
    return [" ".join(wave.hosts) for wave in found.waves]


def racks(*racks: str, capacity: int = 2, group: FleetGroup) -> Fleet:
    """Return hosts of one fault domain in racks; `a*` has a VM of the group."""
    hosts = [FleetHost(f"h{n}", rack=rack[0], capacity=capacity) for n, rack in enumerate(racks)]
    vms = [(f"h{n}", group.name, 1) for n, rack in enumerate(racks) if "*" in rack]
    return Fleet.of(hosts, [group], vms)


def test_vm_moves_to_a_fault_domain_without_its_group() -> None:
    """The empty host is less full than those with VMs of the group. Source: F-3."""
    assert moves(planned(WEB, "h0")) == ["h0>h3"]


def test_group_stays_in_its_fault_domains_while_every_host_is_emptied() -> None:
    """Each VM moves to the host that the wave before has emptied. Source: F-3, G-1."""
    found = planned(WEB)
    assert (waves(found), moves(found)) == (
        ["h3", "h0", "h1", "h2"],
        ["h0>h3", "h1>h0", "h2>h1"],
    )


def test_moves_leave_room_in_a_budget_of_their_group() -> None:
    """Two VMs of a group on one host could not leave it under a budget of one. Source: F-3."""
    policy = MaintenancePolicy((Budget(Scope.GROUP, 1),))
    found = planned(WEB, policy=policy)
    assert (len(found.waves), found.blocked) == (4, ())


def test_moves_leave_room_in_a_budget_of_their_owner() -> None:
    """VMs of two groups of one owner count together. Source: F-3."""
    fleet = fleet_of("a", "b", "c", "", owners=dict.fromkeys("abc", "ann"))
    policy = MaintenancePolicy((Budget(Scope.OWNER, 1),))
    found = planned(fleet, policy=policy)
    assert (len(found.waves), found.blocked) == (4, ())


def test_moves_that_would_block_a_host_are_named() -> None:
    """Without a spare host, two VMs of the group end on one host, in any order. Source: F-4."""
    policy = MaintenancePolicy((Budget(Scope.GROUP, 1),))
    found = planned(fleet_of("web", "web", "web"), policy=policy)
    [(host, blocker)] = found.blocked
    assert (blocker.code, blocker.subject) == (code_of("own-moves"), "the budget of group web")
    text = f"other moves of the plan keep host {host} from being done: the budget of group web"
    assert blocker.sentence(host) == text


def test_vm_moves_beside_no_vm_of_its_group_within_a_fault_domain() -> None:
    """Of hosts in one fault domain, one without the group is better than a fuller one. F-3."""
    hosts = [FleetHost(f"h{n}", capacity=9) for n in range(3)]
    fleet = Fleet.of(hosts, [FleetGroup("web")], [("h0", "web", 1), ("h1", "web", 1)])
    assert moves(planned(fleet, "h0")) == ["h0>h2"]


def test_vm_moves_to_another_rack_than_its_group() -> None:
    """`keep_apart` names a label whose values differ where it can be. Source: F-3."""
    apart = FleetGroup("web", keep_apart=("rack",))
    assert moves(planned(racks("a*", "b*", "b", "c", group=apart), "h0")) == ["h0>h3"]


def test_vm_moves_within_the_rack_of_its_group() -> None:
    """`keep_together` names a label whose value is the same where it can be. Source: F-3."""
    together = FleetGroup("web", keep_together=("rack",))
    assert moves(planned(racks("a*", "a*", "a", "b", group=together), "h0")) == ["h0>h2"]
    assert moves(planned(racks("a*", "a*", "b", capacity=1, group=together), "h0")) == ["h0>h2"]


def test_group_is_done_in_its_window_where_its_vms_have_moved() -> None:
    """h1 waits for the next night once it has a VM of the group. Source: F-3, F-7."""
    window = Window("night", from_min=0, to_min=120, groups=("a",))
    found = planned(fleet_of("a", "b"), policy=MaintenancePolicy(windows=(window,)))
    assert moves(found) == ["h0>h1", "h1>h0,h0"]
    assert found.waves[1].earliest_start_ms == NOW_MS + DAY_MS


def test_host_that_misses_the_last_opening_waits_for_its_window() -> None:
    """The wave before takes the only opening: no move of the plan is to blame. Source: F-4."""
    once = Window("once", from_min=60, to_min=200, last_date="2026-07-01")
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), (once,))
    found = planned(fleet_of("a", "b", ""), "h0", "h1", policy=policy)
    [(host, blocker)] = found.blocked
    assert (waves(found), host) == (["h0"], "h1")
    assert (blocker.code, blocker.subject) == (code_of("window"), "window once")


@pytest.mark.slow
@given(worlds())
def test_host_that_could_be_done_alone_is_blocked_by_other_moves_alone(world: World) -> None:
    """A blocker blames the plan's own moves exactly if the host alone has a wave. Source: F-4.

    Windows have no last date: earlier waves may take their last opening, without any move.
    """
    fleet, state, policy, request = world
    windows = tuple(replace(each, last_date="") for each in policy.windows)
    policy = replace(policy, canary_count=0, windows=windows)
    request = replace(request, move_s=1200, return_s=0, deadline_ms=0)
    for host, blocker in plan(fleet, state, policy, now_ms=NOW_MS, request=request).blocked:
        only = replace(request, hosts=(host,))
        alone = plan(fleet, state, policy, now_ms=NOW_MS, request=only)
        assert bool(alone.waves) is (blocker.code is code_of("own-moves")), (host, blocker)


@pytest.mark.parametrize("size_of_tested", [1, 0])
def test_hosts_that_vms_leave_come_after_their_test(size_of_tested: int) -> None:
    """Where VMs move, too, and where the VM of the test group fits nowhere. Source: T-8."""
    hosts = [FleetHost(f"h{n}", fault_domain=n, capacity=2) for n in range(3)]
    vms = [("h2", "a", size_of_tested), ("h0", "b", 1)]
    fleet = Fleet.of(hosts, [FleetGroup("a"), FleetGroup("b")], vms)
    request = everyone(fleet, move_s=600, orders=(HostOrder(("h2",), ("h0", "h1"), 60),))
    policy, state = MaintenancePolicy(), FleetState()
    found = plan(fleet, state, policy, now_ms=NOW_MS, request=request)
    assert check(found, fleet, state=state, policy=policy) == ()
    planned_hosts = [entry.host for entry in found.entries]
    assert planned_hosts[:1] == (["h2"] if size_of_tested else []), found.entries
    codes = {host: blocker.code.value for host, blocker in found.blocked}
    tested = {} if size_of_tested else {"h0": "test-first", "h1": "test-first", "h2": "capacity"}
    assert codes == tested, found.blocked
