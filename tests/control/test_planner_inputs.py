"""The planner's inputs are those of the state, read a second time in drawn states.

The planner and its checker get the same inputs, so that a wrong conversion deceives both. The
second reading here uses records alone, no function that `control/planning.py` uses.
"""

import random

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Alert, Execution, Notice, Operation, OperationState
from forewarn_core.fleet.maintenance import (
    Declaration,
    Maintenance,
    Postponement,
    Target,
    TargetState,
    target_key,
)
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy, NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Group, Health, Host, Topology, Vm
from forewarn_core.planning.durations import DurationSample
from forewarn_core.planning.plan import FleetState, Live
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.hand_back import Severity
from forewarn_server.control.planning import fleet_of, planner_task, task_under
from tests.simulator.checkers.plan_inputs import fleet_of_state

NOW_MS = 1_800_000_000_000
LATE_MS = 300_000
OWNERS = ("", "ann", "bob")
STATES = 300


def drawn_topology(dice: random.Random) -> Topology:
    """Return five hosts, four groups and eleven VMs."""
    hosts = [
        Host(
            f"h{n}",
            fault_domain=n % 3,
            zone=dice.choice(("z1", "z2")),
            labels=tuple(sorted({("rack", dice.choice("rs")), ("row", dice.choice("12"))})),
            memory_mib=dice.choice((0, 4096, 9000)),
            driver=dice.choice(("", "nova")),
            health=dice.choice((Health.HEALTHY, Health.HEALTHY, Health.HEALTHY, Health.FAILED)),
        )
        for n in range(5)
    ]
    groups = [
        Group(
            f"g{n}",
            owner=dice.choice(OWNERS),
            keep_apart=dice.choice(((), ("rack",))),
            keep_together=dice.choice(((), ("row",))),
        )
        for n in range(4)
    ]
    vms = [
        Vm(f"v{n}", f"h{dice.randrange(5)}", f"g{n % 4}", memory_mib=dice.choice((0, 512, 700)))
        for n in range(11)
    ]
    return Topology(
        {each.name: each for each in hosts},
        {each.name: each for each in groups},
        {each.name: each for each in vms},
    )


def drawn_operation(dice: random.Random, number: int) -> Operation:
    """Return live work on a host or a VM, which may be gone."""
    of_vm = dice.random() < 0.5
    host = f"h{dice.randrange(5)}"
    causes = (Cause.LIVE_MIGRATION, Cause.REDEPLOY, Cause.EVICTION, Cause.REBOOT)
    if not of_vm:
        causes = (Cause.LIVE_MIGRATION, Cause.HOST_UPDATE, Cause.HARDWARE_FAILURE, Cause.HOST_LOST)
    vms = tuple(sorted({f"v{dice.randrange(12)}" for _ in range(1 if of_vm else 3)}))
    state = dice.choice((OperationState.PLANNED, OperationState.ANNOUNCED, OperationState.RUNNING))
    runs = state is OperationState.RUNNING
    execution = Execution(
        NOW_MS - dice.randrange(10) * 60_000 if runs else None,
        placements=((vms[0], f"h{dice.randrange(5)}"),) if dice.random() < 0.3 else (),
    )
    return Operation(
        number,
        number,
        dice.choice(causes),
        Impact.FREEZE,
        dice.choice((Source.PLATFORM, Source.USER)),
        dice.random() < 0.7,
        host,
        vms,
        of_vm,
        "",
        duration_s=dice.choice((-1, 0, 60, 400, 900)),
        state=state,
        notice=Notice(NOW_MS - 900_000, NOW_MS + dice.randrange(-5, 10) * 60_000),
        execution=execution,
        alert=dice.choice((Alert.NONE, Alert.NONE, Alert.BLOCKED, Alert.OVERDUE, Alert.STUCK)),
        destination=f"h{dice.randrange(5)}" if dice.random() < 0.4 else "",
        maintenance=dice.choice((0, 7, 8)),
    )


def drawn_maintenance(dice: random.Random) -> Maintenance:
    """Return a maintenance of all hosts, with each condition or without it."""
    moves = dice.random() < 0.5
    declared = Declaration(NOW_MS - 1000, NOW_MS + 10**6, Severity.ROUTINE)
    return Maintenance(
        7,
        Cause.HOST_UPDATE,
        Impact.REBOOT,
        tuple(f"h{n}" for n in range(5)),
        created_ms=1,
        actor="operator",
        duration_s=600,
        earliest_ms=dice.choice((None, NOW_MS + 5)),
        deadline_ms=dice.choice((None, NOW_MS + 10**9)),
        canary_hosts=dice.choice(((), ("h1",))),
        rests_until_ms=dice.choice((None, NOW_MS + 7)),
        postponed=dice.choice(((), (Postponement("h2", NOW_MS + 9, NOW_MS, "ann"),))),
        move_s=300 if moves else 0,
        return_s=dice.choice((0, 200)) if moves else 0,
        declaration=dice.choice((None, declared)),
        failure_domain=dice.choice(("", "rack")),
    )


def drawn_policy(dice: random.Random) -> MaintenancePolicy:
    """Return a policy with or without a rest of owners and learned durations."""
    return MaintenancePolicy(
        owner_rest_s=dice.choice((0, 3600)), duration_percentile=dice.choice((0, 90))
    )


def drawn_state(dice: random.Random) -> State:
    """Return a state that need not be reachable: each fact may meet each other one."""
    state = State(
        topology=drawn_topology(dice),
        last_disturbed_ms={
            owner: NOW_MS - dice.randrange(10**6) for owner in OWNERS[1:] if dice.random() < 0.5
        },
    )
    state.operations.update({number: drawn_operation(dice, number) for number in range(20, 26)})
    for number in dice.sample(range(5), dice.randrange(3)):
        host, wave = f"h{number}", dice.randrange(1, 4)
        took_s = dice.choice((0, 1200))
        state.put(
            Target(target_key(7, host), 7, host, wave, 1, TargetState.DONE, duration_s=took_s)
        )
    state.durations[Cause.HOST_UPDATE] = {
        number: DurationSample(number, ("rack=r",), 60 * number) for number in (3, 1, 2)
    }
    if dice.random() < 0.5:
        applied = AppliedPolicy(FLEET_POLICY, NOW_MS - 5, "op", drawn_policy(dice))
        state.policies[FLEET_POLICY] = applied
    return state


def end_of(each: Operation, work: Maintenance, targets: dict[str, Target]) -> int:
    """Return the latest end of live work; 0: unknown. Source: F-3."""
    is_fault = each.cause in {Cause.HARDWARE_FAILURE, Cause.HOST_LOST}
    if is_fault or each.alert in {Alert.OVERDUE, Alert.STUCK} or each.duration_s == -1:
        return 0
    takes_s = each.duration_s
    if each.maintenance == work.number:
        target = targets.get(each.host)
        own_s = (target.duration_s if target else 0) or work.duration_s
        if each.cause is Cause.LIVE_MIGRATION:
            own_s = work.move_s if each.of_vm else work.move_s + own_s + work.return_s
        takes_s = max(takes_s, own_s)
    begins_ms = each.execution.started_ms or each.notice.not_before_ms or 0
    ends_ms = begins_ms + takes_s * 1000
    return ends_ms if ends_ms > NOW_MS else NOW_MS + max(takes_s * 1000, LATE_MS)


def second_reading(state: State, work: Maintenance, policy: MaintenancePolicy) -> FleetState:
    """Return the live state as the planner must see it, from the records. Source: F-2, F-3."""
    topology = state.topology
    targets = {each.host: each for each in state.targets.values() if each.maintenance == 7}
    failed = [each.name for each in topology.hosts.values() if each.health is Health.FAILED]
    numbers = {name: number for number, name in enumerate(topology.vms)}
    owner_of = {vm.name: topology.groups[vm.group].owner for vm in topology.vms.values()}
    on = {
        host: [vm.name for vm in topology.vms.values() if vm.host == host]
        for host in topology.hosts
    }
    last_ms, live = dict(state.last_disturbed_ms), []
    hit: list[tuple[str, int]] = [(vm, NOW_MS) for host in failed for vm in on[host]]
    for each in state.operations.values():
        announced = each.routine and each.state is OperationState.ANNOUNCED
        if not (announced or each.state is OperationState.RUNNING):
            continue
        ends_ms = end_of(each, work, targets)
        if each.source is Source.PLATFORM:
            hit += [(vm, ends_ms or NOW_MS) for vm in each.vms]
            hit += [] if each.of_vm else [(vm, ends_ms or NOW_MS) for vm in on[each.host]]
        to = {host for _, host in each.execution.placements} | {each.destination}
        there = tuple(sorted(to - {""}))
        vm = topology.vms.get(each.vms[0]) if each.of_vm else None
        if vm is not None:
            of_vm = Live(each.id, vm.host, numbers[vm.name], ends_ms, there, each.routine)
            live.append(of_vm)
        elif not each.of_vm and each.host not in failed:
            live.append(Live(each.id, each.host, None, ends_ms, there, bool(on[each.host])))
    for name, ends_ms in hit:
        if owner := owner_of.get(name):
            last_ms[owner] = max(ends_ms, last_ms.get(owner, 0))
    learns = policy.duration_percentile and work.declaration is None
    samples = state.durations[Cause.HOST_UPDATE]
    return FleetState(
        live=tuple(live),
        failed=tuple(failed),
        done=tuple(sorted(targets)),
        owners_disturbed=tuple(sorted(last_ms.items())) if policy.owner_rest_s else (),
        last_wave=max([each.wave for each in targets.values()], default=0),
        paused_until_ms=work.rests_until_ms or 0,
        samples=tuple(samples[number] for number in sorted(samples)) if learns else (),
    )


def difference(seen: FleetState, wanted: FleetState) -> dict[str, tuple[object, object]]:
    """Return the facts that differ, by name: as the planner sees them, and as they are."""
    names = FleetState.__match_args__
    pairs = ((name, getattr(seen, name), getattr(wanted, name)) for name in names)
    return {name: (one, other) for name, one, other in pairs if one != other}


@pytest.mark.parametrize("block", range(6))
def test_planner_and_state_agree(block: int) -> None:
    """Each fact of the state reaches the planner, also beside any other. Source: F-2, F-3, F-9."""
    for seed in range(block * STATES // 6, (block + 1) * STATES // 6):
        dice = random.Random(seed)
        state, work = drawn_state(dice), drawn_maintenance(dice)
        policy = NoticePolicy(
            scheduling_drivers=frozenset({"nova"}) if dice.random() < 0.5 else frozenset(),
            maintenance=drawn_policy(dice),
        )
        applied = state.policies.get(FLEET_POLICY)
        task = planner_task(state, work, policy=policy, now_ms=NOW_MS)
        wanted = second_reading(state, work, applied.policy if applied else policy.maintenance)
        assert difference(task.state, wanted) == {}, (
            f"F-3: in state {seed} the planner sees the first"
        )
        fleet, other = fleet_of(task.fleet), fleet_of_state(state, work, policy)
        moves = work.move_s > 0  # only then drivers and the labels of groups count
        hosts = [each if moves else replace(each, driver="") for each in other.hosts]
        assert [*fleet.hosts] == hosts, f"F-3: hosts of state {seed}: {fleet.hosts}, not {hosts}"
        unkept = {"keep_apart": (), "keep_together": ()}
        groups = [each if moves else replace(each, **unkept) for each in other.groups]
        assert [*fleet.groups] == groups, f"F-3: groups of state {seed}"
        vms = [[*each] for each in (fleet.vm_hosts, fleet.vm_groups, fleet.vm_sizes)]
        assert vms == [[*each] for each in (other.vm_hosts, other.vm_groups, other.vm_sizes)]
        asked = task.request
        assert (asked.hosts, asked.canary_hosts) == (work.hosts, work.canary_hosts)
        assert (asked.duration_s, asked.move_s, asked.return_s) == (
            *(work.duration_s, work.move_s, work.return_s),
        )
        assert (asked.earliest_ms or None, asked.deadline_ms or None) == (
            *(work.earliest_ms, work.deadline_ms),
        )
        assert asked.postponed == tuple((e.host, e.until_ms, e.by) for e in work.postponed)
        assert (asked.failure_domain, asked.exemption) == (work.failure_domain, work.exemption)


def test_preview_of_a_policy_has_the_inputs_that_it_needs() -> None:
    """The policy in force needs neither the disturbed owners nor samples, the other does. F-2."""
    for seed in range(STATES // 6):
        dice = random.Random(seed)
        state, work = drawn_state(dice), drawn_maintenance(dice)
        state.policies[FLEET_POLICY] = AppliedPolicy(FLEET_POLICY, 1, "op", MaintenancePolicy())
        other = MaintenancePolicy(owner_rest_s=60, duration_percentile=50)
        task = task_under(state, work, other, policy=NoticePolicy(), now_ms=NOW_MS)
        wanted = second_reading(state, work, other)
        assert difference(task.state, wanted) == {}, f"F-2: preview of state {seed} sees the first"
        assert task.policy.owner_rest_s == 60
