"""What a maintenance is planned from: the fleet, live work, rests and notice, and the plan back."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Alert, Execution, Notice, Operation, OperationState
from forewarn_core.fleet.maintenance import (
    Maintenance,
    Postponement,
    Target,
    TargetState,
    target_key,
)
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Group, Health, Host, Topology, Vm
from forewarn_core.planning.checker import check
from forewarn_core.planning.planner import plan as make_plan
from forewarn_server.control import planning
from forewarn_server.control.planning import (
    PlannerTask,
    columns_of,
    fleet_of,
    made,
    plan_of,
    plan_request,
    planner_task,
)

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
HOSTS = (
    Host("h0", fault_domain=0, zone="z1", labels=(("rack", "r7"), ("row", "2"))),
    Host("h1", fault_domain=1, zone="z2"),
    Host("h2", fault_domain=2, zone="z2", health=Health.FAILED),
)
GROUPS = (Group("web", owner="shop"), Group("db", owner="bank"), Group("free"))
VMS = (
    Vm("web_0", "h0", "web"),
    Vm("db_0", "h0", "db"),
    Vm("web_1", "h1", "web"),
    Vm("free_0", "h1", "free"),
    Vm("db_1", "h2", "db"),
)
TOPOLOGY = Topology(
    {each.name: each for each in HOSTS},
    {each.name: each for each in GROUPS},
    {each.name: each for each in VMS},
)
MAINTENANCE = Maintenance(
    7,
    Cause.HOST_UPDATE,
    Impact.FREEZE,
    ("h0", "h1", "h2"),
    created_ms=1,
    actor="operator",
    duration_s=600,
    earliest_ms=NOW_MS + 1,
    deadline_ms=NOW_MS + 10**9,
    canary_hosts=("h1",),
    postponed=(Postponement("h0", NOW_MS + 5, NOW_MS, "shop"),),
    rests_until_ms=NOW_MS + 2,
)
OPERATION = Operation(
    4,
    4,
    Cause.HOST_REBOOT,
    Impact.REBOOT,
    Source.PLATFORM,
    True,
    "h1",
    ("web_1", "free_0"),
    False,
    "",
    duration_s=300,
    state=OperationState.ANNOUNCED,
    notice=Notice(NOW_MS, NOW_MS + MINUTE_MS),
)


def task(
    *operations: Operation,
    maintenance: Maintenance = MAINTENANCE,
    policy: NoticePolicy | None = None,
    last_disturbed_ms: dict[str, int] | None = None,
    **options: int,
) -> PlannerTask:
    """The planner's task in a fleet with these operations."""
    state = State(topology=TOPOLOGY, last_disturbed_ms=last_disturbed_ms or {})
    state.operations.update(enumerate(operations))
    policy = policy or NoticePolicy()
    return planner_task(state, maintenance, policy=policy, now_ms=NOW_MS, **options)


def test_planner_sees_the_fleet_as_it_is() -> None:
    """Places, labels, racks, and whose VMs are where. Source: F-2."""
    fleet = fleet_of(columns_of(TOPOLOGY))
    first, second, _ = fleet.hosts
    assert (first.name, first.zone, first.fault_domain) == ("h0", "z1", 0)
    assert (first.rack, first.labels) == ("r7", ("rack=r7", "row=2"))
    assert (second.rack, second.labels) == ("", ())
    assert [(each.name, each.owner) for each in fleet.groups] == [
        ("web", "shop"),
        ("db", "bank"),
        ("free", ""),
    ]
    assert [*fleet.vm_hosts] == [0, 0, 1, 1, 2]
    assert [*fleet.vm_groups] == [0, 1, 0, 2, 1]


def test_size_of_a_task_counts_hosts_and_vms() -> None:
    """By it a plan is made on a thread or in a process of its own. Source: F-2."""
    assert task().size == len(TOPOLOGY.hosts) + len(TOPOLOGY.vms) == 8


def test_large_fleet_is_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in which of them, the planner sees the same."""
    whole = fleet_of(columns_of(TOPOLOGY))
    monkeypatch.setattr(planning, "PORTION", 2)
    assert fleet_of(columns_of(TOPOLOGY)) == whole
    assert fleet_of(columns_of(Topology())) == fleet_of(columns_of(Topology({}, {}, {})))


def test_planner_is_asked_for_what_the_maintenance_says() -> None:
    """Every part of it reaches the planner. Source: F-1."""
    request = plan_request(State(), MAINTENANCE, NOW_MS)
    assert (request.hosts, request.duration_s, request.seed) == (("h0", "h1", "h2"), 600, 7)
    assert (request.earliest_ms, request.deadline_ms) == (NOW_MS + 1, NOW_MS + 10**9)
    assert request.canary_hosts == ("h1",)
    assert request.postponed == (("h0", NOW_MS + 5, "shop"),)


@pytest.mark.parametrize(
    ("facts", "ends_ms"),
    [
        ({}, NOW_MS + 6 * MINUTE_MS),
        ({"duration_s": 0}, NOW_MS + MINUTE_MS),
        ({"duration_s": -1}, 0),
        ({"alert": Alert.OVERDUE, "state": OperationState.RUNNING}, 0),
        ({"alert": Alert.BLOCKED, "state": OperationState.ANNOUNCED}, NOW_MS + 6 * MINUTE_MS),
        ({"cause": Cause.HARDWARE_FAILURE}, 0),
        ({"maintenance": 7}, NOW_MS + 11 * MINUTE_MS),
        ({"maintenance": 7, "duration_s": 900}, NOW_MS + 16 * MINUTE_MS),
        ({"maintenance": 8}, NOW_MS + 6 * MINUTE_MS),
        (
            {"state": OperationState.RUNNING, "execution": Execution(NOW_MS - MINUTE_MS)},
            NOW_MS + 4 * MINUTE_MS,
        ),
        (
            {"state": OperationState.RUNNING, "execution": Execution(NOW_MS - 5 * MINUTE_MS + 1)},
            NOW_MS + 1,
        ),
        (
            {"state": OperationState.RUNNING, "execution": Execution(NOW_MS - 5 * MINUTE_MS)},
            NOW_MS + 5 * MINUTE_MS,
        ),
        (
            {"state": OperationState.RUNNING, "execution": Execution(1), "duration_s": 60},
            NOW_MS + 5 * MINUTE_MS,
        ),
        (
            {"state": OperationState.RUNNING, "execution": Execution(1), "duration_s": 900},
            NOW_MS + 15 * MINUTE_MS,
        ),
    ],
)
def test_live_work_ends_when_it_is_expected_to(facts: dict[str, object], ends_ms: int) -> None:
    """By its start and length; what is late takes its time once more; stuck work: nobody knows.

    Source: F-3.
    """
    [live] = task(replace(OPERATION, **facts)).state.live
    assert (live.operation, live.host, live.ends_ms) == ("op-4", "h1", ends_ms)


def test_host_whose_vms_leave_first_is_under_work_until_they_are_back() -> None:
    """Their move, the work that follows, and their return: not the work alone. Source: F-3."""
    moves = replace(MAINTENANCE, move_s=300, return_s=240)
    leave = replace(OPERATION, cause=Cause.LIVE_MIGRATION, impact=Impact.FREEZE, maintenance=7)
    [live] = task(replace(leave, duration_s=7), maintenance=moves).state.live
    ends_ms = NOW_MS + MINUTE_MS + (300 + 600 + 240) * 1000
    assert live.ends_ms == ends_ms, (
        f"F-3: the planner has the host free {ends_ms - live.ends_ms} ms early"
    )


@pytest.mark.parametrize(
    ("facts", "counts"),
    [
        ({}, True),
        ({"state": OperationState.PLANNED}, False),
        ({"routine": False}, False),
        ({"routine": False, "state": OperationState.RUNNING}, True),
        ({"host": "h2"}, False),
        ({"host": "h2", "of_vm": True, "vms": ("db_1",)}, True),
    ],
)
def test_work_that_disturbs_is_planned_around(facts: dict[str, object], counts: bool) -> None:
    """On a host that has failed the whole host counts already. Source: F-3, G-1."""
    state = task(replace(OPERATION, **facts)).state
    assert bool(state.live) is counts
    assert state.failed == ("h2",)


def test_live_work_says_whom_it_disturbs() -> None:
    """The host, or a VM where it is now; a VM that is gone is not disturbed. Source: F-3."""
    [whole] = task(OPERATION).state.live
    assert (whole.host, whole.vm, whole.destinations) == (OPERATION.host, None, ())
    moved = replace(OPERATION, of_vm=True, host="h1", vms=("db_0",), destination="h1")
    [one] = task(moved).state.live
    assert (one.host, one.vm, one.destinations) == ("h0", list(TOPOLOGY.vms).index("db_0"), ("h1",))
    assert task(replace(moved, vms=("gone",))).state.live == ()


def test_room_is_reserved_for_vms_that_are_yet_to_return() -> None:
    """The planner does not see it as free, and its checker has no other figures. Source: F-3."""
    state = State(topology=TOPOLOGY)
    hosts = {name: replace(each, memory_mib=4096) for name, each in TOPOLOGY.hosts.items()}
    vms = {name: replace(each, memory_mib=1024) for name, each in TOPOLOGY.vms.items()}
    state.topology = Topology(hosts, dict(TOPOLOGY.groups), vms)
    back = replace(OPERATION, cause=Cause.LIVE_MIGRATION, of_vm=True, host="h1", destination="h0")
    there = replace(back, vms=("web_0",))
    moves = replace(MAINTENANCE, move_s=600, return_s=600)
    for operations, room in (((), 4096), ((there,), 4096), ((there, back), 3072)):
        state.operations = dict(enumerate(replace(each, vms=each.vms[:1]) for each in operations))
        made_for = planner_task(state, moves, policy=NoticePolicy(), now_ms=NOW_MS).fleet.room
        assert made_for is not None
        rooms = [*made_for.host_memory]
        assert rooms == [room, 4096, 4096], f"F-3: {len(operations)} returns to h0, room {rooms}"


def test_hosts_that_were_touched_are_done() -> None:
    """By name, and the last of their waves is known. Source: F-2."""
    state = State(topology=TOPOLOGY)
    for name, wave in (("h1", 4), ("h0", 2)):
        state.put(Target(target_key(7, name), 7, name, wave, 1, TargetState.DONE))
    touched = planner_task(state, MAINTENANCE, policy=NoticePolicy(), now_ms=NOW_MS).state
    assert (touched.done, touched.last_wave) == (("h0", "h1"), 4)
    assert touched.paused_until_ms == NOW_MS + 2
    assert task().state.last_wave == 0


def resting(rest_s: int) -> NoticePolicy:
    """A policy by which owners rest."""
    return replace(
        NoticePolicy(), maintenance=replace(NoticePolicy().maintenance, owner_rest_s=rest_s)
    )


def test_owners_rest_after_what_disturbs_them_last() -> None:
    """Live work until its end, failures and what nobody knows until now; the later counts. F-3."""
    rested = {"shop": NOW_MS + 10**6, "bank": 5, "other": 7}
    of_vm = replace(OPERATION, of_vm=True, vms=("web_0",), duration_s=3600)

    def disturbed(*operations: Operation, rest_s: int = 1, last: dict[str, int]) -> dict[str, int]:
        request = task(*operations, policy=resting(rest_s), last_disturbed_ms=last)
        return dict(request.state.owners_disturbed)

    assert disturbed(rest_s=0, last=rested) == {}
    quiet = {**rested, "bank": NOW_MS}  # a host with a VM of theirs has failed
    assert disturbed(last=rested) == quiet
    busy = {**quiet, "shop": NOW_MS + 61 * MINUTE_MS}
    assert disturbed(OPERATION, of_vm, last=rested) == busy
    stuck = replace(of_vm, state=OperationState.RUNNING, alert=Alert.OVERDUE)
    assert disturbed(stuck, last={}) == {"shop": NOW_MS, "bank": NOW_MS}
    whole = replace(OPERATION, host="h0", vms=("web_0", "db_0"))
    ends_ms = NOW_MS + 6 * MINUTE_MS
    assert disturbed(whole, last={}) == {"shop": ends_ms, "bank": ends_ms}


@pytest.mark.parametrize(
    ("margin_ms", "planning_ms", "least_s", "notice_s"),
    [
        (0, 0, 0, 900 + 60),
        (1, 0, 0, 900 + 1 + 60),
        (12_000, 0, 0, 900 + 12 + 60),
        (12_001, 0, 0, 900 + 13 + 65),
        (0, 1, 0, 900 + 60 + 1),
        (0, 20_000, 0, 900 + 60 + 20),
        (0, 20_001, 0, 900 + 60 + 21),
        (0, 0, 5000, 5000 + 60),
    ],
)
def test_plan_leaves_time_to_announce(
    margin_ms: int, planning_ms: int, least_s: int, notice_s: int
) -> None:
    """The notice that is owed, its margin, a minute or five margins, and the planning. N-1, F-2."""
    policy = replace(
        NoticePolicy(),
        notice_margin_ms=margin_ms,
        maintenance=replace(NoticePolicy().maintenance, notice_s=least_s),
    )
    found = task(policy=policy, planning_ms=planning_ms).policy
    assert found == replace(policy.maintenance, notice_s=notice_s)


def test_plan_that_was_kept_is_the_one_that_was_made() -> None:
    """Id, parent, waves, blockers and bound. Source: F-2."""
    maintenance = replace(MAINTENANCE, earliest_ms=None, postponed=(), rests_until_ms=None)
    first = task(maintenance=maintenance)
    request = plan_request(State(), maintenance, NOW_MS)
    fleet = fleet_of(first.fleet)
    plan = make_plan(fleet, first.state, first.policy, now_ms=NOW_MS, request=request)
    assert check(plan, fleet, state=first.state, policy=first.policy) == ()
    kept = made(first)
    again = plan_of(kept, request)
    assert (again.id, again.parent, again.made_ms) == (plan.id, "", NOW_MS)
    assert (again.waves, again.blocked, again.bound) == (plan.waves, plan.blocked, plan.bound)
    assert [host for host, _ in again.blocked] == ["h0", "h2"]  # one failed, one shares a group
    child = made(replace(first, in_force=kept))
    assert (child.parent, child.maintenance, child.made_ms) == (kept.id, 7, NOW_MS)
