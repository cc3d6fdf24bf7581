"""Converts the state to the planner's inputs, and the planner's plan to the core's.

The only module with both the core's records and the planner's values. Inputs are copied on a thread
that owns the state or a copy of the state. Everything else may run on any thread, and `made` in any
process. The module never changes the state.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import TypeAlias, TypeVar

from forewarn_base.errors import OurError
from forewarn_base.values import replace, value
from forewarn_core.fleet.durations import span_s
from forewarn_core.fleet.hand_back import hand_backs_of
from forewarn_core.fleet.host_orders import orders_of
from forewarn_core.fleet.impact import SECOND_MS, TRAITS
from forewarn_core.fleet.indexes import disturbed_groups, is_disturbing
from forewarn_core.fleet.lifecycle import Alert, Operation
from forewarn_core.fleet.maintenance import (
    Declaration,
    Maintenance,
    MaintenancePlan,
    postponed_hosts,
)
from forewarn_core.fleet.naming import RACK, Labels
from forewarn_core.fleet.notices import planning_policy
from forewarn_core.fleet.policy import AppliedPolicy, NoticePolicy, maintenance_policy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import PlanMade
from forewarn_core.fleet.topology import Health, Topology
from forewarn_core.fleet.usage import disturbed_owners, owners_of
from forewarn_core.planning import fleet as planned
from forewarn_core.planning.checker import check
from forewarn_core.planning.plan import FleetState, Live, Plan, PlanRequest
from forewarn_core.planning.plan_text import PlanBody
from forewarn_core.planning.planner import plan as make_plan
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules import depends_on_waves
from forewarn_server.control.zone_sources import sources_text

#: Least expected remaining time of late work, in seconds; the work's duration if longer.
LATE_S = 300
#: Maximum steps of the planner's search for fewer waves.
STEPS_MAX = 200_000
#: Records handled before other threads may run: about half a millisecond.
PORTION = 4096

_T = TypeVar("_T")
_NONE_KEPT: KeptLabels = ((), ())


class PlanRefused(OurError):
    """The checker found that a plan breaks a rule; the plan does not come into force."""

    code = "plan-refused"
    message = "The plan of {maintenance} breaks a rule: {finding}."
    advice = "This is a bug in the planner: report it with the topology and the policy."


#: The labels by which a group is kept apart, and together.
KeptLabels: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"
#: The distinct values, and for each record the index of its value.
Column: TypeAlias = "tuple[tuple[_T, ...], array[int]]"


@value
class FleetColumns:
    """A fleet as texts and arrays, so that no object per host is created or pickled.

    Python's garbage collection would scan a list of hosts three times.
    """

    #: Names, separated by spaces.
    hosts: str
    zones: Column[str]
    fault_domains: array[int]
    labels: Column[Labels]
    groups: str
    owners: Column[str]
    #: For each VM the indexes of its host and its group.
    vm_hosts: array[int]
    vm_groups: array[int]
    #: None if no VM is to be moved.
    room: RoomColumns | None = None


@value
class RoomColumns:
    """Further inputs of a plan that moves VMs. Memory in MiB; 0: unknown."""

    host_memory: array[int]
    drivers: Column[str]
    #: Drivers whose own scheduler chooses destinations.
    scheduling: frozenset[str]
    #: Names, separated by spaces.
    vms: str
    vm_memory: array[int]
    #: For each group its labels `keep_apart` and `keep_together`.
    kept: Column[KeptLabels]


#: A function that makes a plan, such as `made`.
Planner: TypeAlias = "Callable[[PlannerTask], MaintenancePlan]"


@value
class PlannerTask:
    """The inputs of one plan, in the planner's own values."""

    #: Number of the maintenance; 0 for a preview.
    maintenance: int
    fleet: FleetColumns
    #: State without the plan in force, which is stored beside it as text a tenth as long.
    state: FleetState
    in_force: MaintenancePlan | None
    policy: MaintenancePolicy
    request: PlanRequest
    now_ms: int
    #: Time after which no caller waits for the plan any more, in seconds; 0: no limit.
    patience_s: float = 0
    #: The applied policy at the time of the snapshot.
    applied: AppliedPolicy | None = None
    #: The declaration at that time.
    declaration: Declaration | None = None

    @property
    def size(self) -> int:
        """Hosts and VMs together."""
        return len(self.fleet.fault_domains) + len(self.fleet.vm_hosts)


def plan_made(task: PlannerTask, make: Planner | None = None) -> PlanMade:
    """Make a plan; return it with its facts.

    Raises:
        PlanRefused: the plan breaks a rule.
    """
    plan = (make or made)(task)
    rests_until_ms = task.state.paused_until_ms or None
    return PlanMade(
        task.maintenance,
        plan,
        task.request.postponed,
        rests_until_ms,
        task.applied,
        task.declaration,
        sources_text(each.time_zone for each in task.policy.windows),
    )


def planner_task(
    state: State,
    maintenance: Maintenance,
    *,
    policy: NoticePolicy,
    now_ms: int,
    planning_ms: int = 0,
) -> PlannerTask:
    """Return the planner's task, which never changes; O(hosts and VMs).

    On the thread that owns the state; other threads can run meanwhile. `planning_ms` is the
    expected time until the plan comes into force.
    """
    base = maintenance_policy(state.applied_policy, policy)
    room = _room_of(state, policy.scheduling_drivers) if maintenance.move_s else None
    return PlannerTask(
        maintenance.number,
        columns_of(state.topology, room),
        _state_of(state, maintenance, now_ms=now_ms, base=base),
        state.plans.get(maintenance.plan),
        planning_policy(base, policy, maintenance, planning_ms=planning_ms),
        plan_request(state, maintenance, now_ms),
        now_ms,
        applied=state.applied_policy,
        declaration=maintenance.declaration,
    )


def task_under(
    state: State,
    maintenance: Maintenance,
    applied: MaintenancePolicy,
    *,
    policy: NoticePolicy,
    now_ms: int,
) -> PlannerTask:
    """Return the planner's task as if a policy were applied, for a preview; as `planner_task`."""
    task = planner_task(state, maintenance, policy=policy, now_ms=now_ms)
    return replace(
        task,
        state=_state_of(state, maintenance, now_ms=now_ms, base=applied),
        policy=planning_policy(applied, policy, maintenance),
    )


def made(task: PlannerTask) -> MaintenancePlan:
    """Make a plan and check it; costs the fleet.

    Raises:
        PlanRefused: the plan breaks a rule.
    """
    fleet, policy, room = fleet_of(task.fleet), task.policy, task.fleet.room
    in_force = plan_of(task.in_force, task.request) if task.in_force else None
    state = replace(task.state, in_force=in_force)
    plan = make_plan(fleet, state, policy, now_ms=task.now_ms, request=task.request)
    findings = check(plan, fleet, state=state, policy=policy)
    if findings:
        raise PlanRefused(maintenance=f"m-{task.maintenance}", finding=findings[0].sentence)
    vms = room.vms.split() if room else []
    moves = {
        entry.host: tuple([(vms[move.vm], move.to_host) for move in entry.moves])
        for entry in plan.entries
        if entry.moves
    }
    body = PlanBody(plan.waves, moves, plan.blocked, plan.bound, dict(plan.limits), plan.learned)
    return MaintenancePlan(plan.id, task.maintenance, plan.parent, plan.made_ms, body)


def _room_of(state: State, scheduling: frozenset[str]) -> RoomColumns:
    """Return the room for VMs, in columns; costs hosts and VMs.

    Room is reserved for VMs that are yet to return to a host.
    """
    hosts, vms = state.topology.hosts, state.topology.vms
    kept: Counter[str] = Counter()
    for operation in state.operations.values():
        vm = vms.get(operation.target) if operation.is_return else None
        if vm is not None and vm.host != operation.destination:
            kept[operation.destination] += vm.memory_mib
    vm_memory = array("i")
    for some in _portions(vms.values()):
        vm_memory.extend([vm.memory_mib for vm in some])
    return RoomColumns(
        array("i", [max(host.memory_mib - kept[host.name], 0) for host in hosts.values()]),
        _column(host.driver for host in hosts.values()),
        scheduling,
        " ".join(map(" ".join, _portions(vms))),
        vm_memory,
        _column(
            (group.keep_apart, group.keep_together) for group in state.topology.groups.values()
        ),
    )


def columns_of(topology: Topology, room: RoomColumns | None = None) -> FleetColumns:
    """Return the fleet in columns; O(hosts and VMs)."""
    hosts, groups = topology.hosts, topology.groups
    host_of = {name: number for number, name in enumerate(hosts)}
    group_of = {name: number for number, name in enumerate(groups)}
    fault_domains = array("i")
    vm_hosts, vm_groups = array("i"), array("i")
    for some in _portions(hosts.values()):
        fault_domains.extend([host.fault_domain for host in some])
    for part in _portions(topology.vms.values()):
        vm_hosts.extend([host_of[vm.host] for vm in part])
        vm_groups.extend([group_of[vm.group] for vm in part])
    return FleetColumns(
        " ".join(map(" ".join, _portions(hosts))),
        _column(host.zone for host in hosts.values()),
        fault_domains,
        _column(host.labels for host in hosts.values()),
        " ".join(map(" ".join, _portions(groups))),
        _column(group.owner for group in groups.values()),
        vm_hosts,
        vm_groups,
        room,
    )


def _portions(records: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(records)
    while portion := list(islice(rest, PORTION)):
        yield portion


def _column(values: Iterable[_T]) -> Column[_T]:
    numbers: dict[_T, int] = {}
    column = array("i")
    for portion in _portions(values):
        column.extend([numbers.setdefault(each, len(numbers)) for each in portion])
    return (*numbers,), column


def _values(column: Column[_T]) -> Iterator[_T]:
    values, numbers = column
    return map(values.__getitem__, numbers)


def fleet_of(columns: FleetColumns) -> planned.Fleet:
    """Return the fleet as the planner sees it; O(hosts and VMs).

    A host with a VM of unknown memory has no known room, so it counts as full.
    """
    room, count = columns.room, len(columns.fault_domains)
    capacity = array("i", room.host_memory) if room else array("i", [0]) * count
    for host, size in zip(columns.vm_hosts, room.vm_memory, strict=True) if room else ():
        if not size:
            capacity[host] = 0
    drivers = _values(room.drivers) if room else iter([""] * count)
    scheduling = room.scheduling if room else frozenset[str]()
    hosts = zip(
        columns.hosts.split(),
        _values(columns.zones),
        columns.fault_domains,
        _values(columns.labels),
        capacity,
        drivers,
        strict=True,
    )
    return planned.Fleet(
        tuple(
            planned.FleetHost(
                name,
                zone=zone,
                fault_domain=fault_domain,
                rack=dict(labels).get(RACK, ""),
                labels=tuple(f"{key}={text}" for key, text in labels),
                capacity=memory_mib,
                driver=driver,
                scheduled=driver in scheduling,
            )
            for name, zone, fault_domain, labels, memory_mib, driver in hosts
        ),
        tuple(
            planned.FleetGroup(name, owner, *kept)
            for name, owner, kept in zip(
                columns.groups.split(),
                _values(columns.owners),
                _values(room.kept) if room else repeat(_NONE_KEPT),
                strict=False,
            )
        ),
        columns.vm_hosts,
        columns.vm_groups,
        room.vm_memory if room else array("i", [0]) * len(columns.vm_hosts),
    )


def plan_request(state: State, maintenance: Maintenance, now_ms: int) -> PlanRequest:
    """Return the request of a maintenance to the planner; O(VMs on hosts of declared work)."""
    return PlanRequest(
        maintenance.hosts,
        maintenance.duration_s,
        maintenance.move_s,
        maintenance.return_s,
        earliest_ms=maintenance.earliest_ms or 0,
        deadline_ms=maintenance.deadline_ms or 0,
        budgets=maintenance.budgets,
        canary_hosts=maintenance.canary_hosts,
        postponed=postponed_hosts(maintenance),
        hand_backs=hand_backs_of(state, maintenance, now_ms),
        exemption=maintenance.exemption,
        failure_domain=maintenance.failure_domain,
        orders=orders_of(state, maintenance, now_ms),
        seed=maintenance.number,
        steps=STEPS_MAX,
    )


def _state_of(
    state: State, maintenance: Maintenance, *, now_ms: int, base: MaintenancePolicy
) -> FleetState:
    """Return the fleet's state without VM placements and without the plan in force."""
    rests = depends_on_waves(base)
    learns = bool(base.duration_percentile) and maintenance.declaration is None
    topology, targets = state.topology, state.progress(maintenance.number).targets
    failed = tuple(host.name for host in topology.hosts.values() if host.health is Health.FAILED)
    disturbing = [
        (each, _ends_ms(state, each, maintenance, now_ms))
        for each in state.operations.values()
        if is_disturbing(each)
    ]
    names = {each.target for each, _ in disturbing if each.of_vm}
    numbers = {name: n for n, name in enumerate(topology.vms) if name in names} if names else {}
    live = [
        _live(topology, each, ends_ms=ends_ms, vm=numbers.get(each.target))
        for each, ends_ms in disturbing
        if not each.of_vm or each.target in numbers
    ]
    return FleetState(
        live=tuple(each for each in live if each.host not in failed or each.vm is not None),
        failed=failed,
        done=tuple(sorted(targets)),
        owners_disturbed=_owners_disturbed(state, disturbing, failed, now_ms) if rests else (),
        last_wave=max((each.wave for each in targets.values()), default=0),
        paused_until_ms=maintenance.rests_until_ms or 0,
        samples=state.samples_of(maintenance.cause) if learns else (),
    )


def _live(topology: Topology, operation: Operation, *, ends_ms: int, vm: int | None) -> Live:
    return Live(
        operation.id,
        topology.vms[operation.target].host if operation.of_vm else operation.host,
        vm,
        ends_ms,
        operation.destinations,
        disturbs_groups=bool(disturbed_groups(topology, operation)),
    )


def _ends_ms(state: State, operation: Operation, maintenance: Maintenance, now_ms: int) -> int:
    """Return the latest end of live work; 0: unknown."""
    endless = operation.alert in {Alert.OVERDUE, Alert.STUCK} or TRAITS[operation.cause].fault
    if endless or operation.duration_s < 0:
        return 0
    duration_s = operation.duration_s
    if operation.maintenance == maintenance.number:
        duration_s = max(duration_s, span_s(state, maintenance, operation))
    from_ms = operation.execution.started_ms or operation.not_before_ms
    ends_ms = from_ms + duration_s * SECOND_MS
    late_ms = now_ms + max(duration_s, LATE_S) * SECOND_MS
    return ends_ms if ends_ms > now_ms else late_ms


def _owners_disturbed(
    state: State, disturbing: Iterable[tuple[Operation, int]], failed: Iterable[str], now_ms: int
) -> tuple[tuple[str, int], ...]:
    """Return the last disturbance of each owner, past or expected.

    Work with an unknown end and failed hosts count as disturbing until now. A user's own work
    disturbs only its owner.
    """
    topology, last_ms = state.topology, dict(state.last_disturbed_ms)
    ends = [(disturbed_owners(each, topology), end_ms) for each, end_ms in disturbing]
    ends += [(tuple(owners_of(topology, topology.vms_on(host))), now_ms) for host in failed]
    for owners, end_ms in ends:
        for owner in owners:
            last_ms[owner] = max(end_ms or now_ms, last_ms.get(owner, 0))
    return tuple(sorted(last_ms.items()))


def plan_of(kept: MaintenancePlan, request: PlanRequest) -> Plan:
    """Return a plan in force in the planner's values; its waves have the hosts and their times."""
    body = kept.body
    return Plan(
        kept.id, kept.parent, kept.made_ms, request, (), body.blocked, body.waves, body.bound
    )
