"""The order of hosts that owners of declared work ask for: their test group first. Source: T-8.

Orders that contradict each other do not count: the declaration's order remains.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_base.values import replace, value
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import span_s
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import FirstGroup, Maintenance, target_key
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Topology
from forewarn_core.planning.plan import HostOrder

#: Longest time between a hand-back deadline and the end of a test that others wait for, in seconds.
TEST_S = 86_400


@value
class OwnerOrder:
    """The hosts of an owner of declared work, with its test group."""

    first_group: FirstGroup
    #: Hosts with VMs of the test group, and the owner's other hosts.
    first: tuple[str, ...]
    after: tuple[str, ...]
    #: Why the order does not count; empty: it does.
    problem: str = ""


def owner_orders(state: State, maintenance: Maintenance) -> tuple[OwnerOrder, ...]:
    """Return the orders that owners asked for; O(VMs on the declared hosts), 0 without orders."""
    first_groups = maintenance.declaration.first_groups if maintenance.declaration else ()
    if not first_groups:
        return ()
    topology = state.topology
    group_of = {each.owner: each.group for each in first_groups if is_own(topology, each)}
    first: dict[str, list[str]] = {each.owner: [] for each in first_groups}
    after: dict[str, list[str]] = {each.owner: [] for each in first_groups}
    for host in maintenance.hosts:
        groups = {topology.vms[name].group for name in topology.vms_on(host)}
        for owner in {topology.groups[each].owner for each in groups} & group_of.keys():
            (first if group_of[owner] in groups else after)[owner].append(host)
    contradicting = _contradicting(first, after)
    canaries = set(maintenance.canary_hosts)
    orders = []
    for each in first_groups:
        problem = ""
        if not is_own(topology, each):
            problem = f"group {each.group} is no longer a group of the owner"
        elif each.owner in contradicting:
            problem = "other owners of its hosts asked for the contrary"
        elif canaries.intersection(after[each.owner]):
            problem = "the maintenance names another host for its first wave"
        orders.append(OwnerOrder(each, tuple(first[each.owner]), tuple(after[each.owner]), problem))
    return tuple(orders)


def is_own(topology: Topology, first_group: FirstGroup) -> bool:
    """Whether a test group is still a group of the owner that named it."""
    group = topology.groups.get(first_group.group)
    return group is not None and group.owner == first_group.owner


def with_end_of_test(draft: Draft, number: int, host: str) -> tuple[Maintenance, ...]:
    """Return the declared maintenance with the end of the work on a test host; O(VMs on it).

    Empty if the host has no VM of a test group. Source: T-8.
    """
    maintenance, topology = draft.maintenances.get(number), draft.topology
    declaration = maintenance.declaration if maintenance is not None else None
    first_groups = declaration.first_groups if declaration is not None else ()
    groups = {topology.vms[name].group for name in topology.vms_on(host)} if first_groups else set()
    after = tuple(
        [
            replace(each, tested_ms=draft.now_ms)
            if each.group in groups and is_own(topology, each)
            else each
            for each in first_groups
        ]
    )
    if maintenance is None or declaration is None or after == first_groups:
        return ()
    return (replace(maintenance, declaration=replace(declaration, first_groups=after)),)


def _contradicting(first: dict[str, list[str]], after: dict[str, list[str]]) -> set[str]:
    """Return the owners whose orders form a circle.

    The test of an owner comes before that of another if the other tests on one of its other hosts.
    """
    testing: dict[str, list[str]] = {}
    for owner, hosts in first.items():
        for host in hosts:
            testing.setdefault(host, []).append(owner)
    later = {
        owner: {other for host in hosts for other in testing.get(host, ())}
        for owner, hosts in after.items()
    }
    return {owner for owner in later if owner in _reached(owner, later)}


def _reached(owner: str, later: dict[str, set[str]]) -> set[str]:
    """Return the owners whose tests come after that of an owner."""
    reached: set[str] = set()
    left = [owner]
    while left:
        new = later[left.pop()] - reached
        reached |= new
        left.extend(new)
    return reached


def orders_of(state: State, maintenance: Maintenance, now_ms: int) -> tuple[HostOrder, ...]:
    """Return the orders that count, for the planner and the rules; as `owner_orders`.

    No host waits for a test longer than `TEST_S` and its observation after the deadline.
    """
    orders = []
    for each in owner_orders(state, maintenance):
        tested_ms = each.first_group.tested_ms
        begins = each.first or tested_ms
        if each.problem or not begins or _has_lapsed(maintenance, each, now_ms):
            continue
        targets = state.progress(maintenance.number).targets
        ends_ms = [_ends_ms(state, maintenance, host) for host in each.first if host in targets]
        orders.append(
            HostOrder(
                tuple([host for host in each.first if host not in targets]),
                each.after,
                each.first_group.observation_s,
                max([tested_ms, *ends_ms]),
            )
        )
    return tuple(orders)


def _has_lapsed(maintenance: Maintenance, order: OwnerOrder, now_ms: int) -> bool:
    """Whether the time for a test and its observation is over."""
    assert maintenance.declaration is not None
    left_ms = (TEST_S + order.first_group.observation_s) * SECOND_MS
    return now_ms >= maintenance.declaration.deadline_ms + left_ms


def orders_by_host(orders: tuple[HostOrder, ...]) -> dict[str, list[HostOrder]]:
    """Return the orders by which each host comes after a test; O(these hosts)."""
    orders_on: dict[str, list[HostOrder]] = {}
    for order in orders:
        for host in order.after:
            orders_on.setdefault(host, []).append(order)
    return orders_on


def tests_over_ms(orders: Iterable[HostOrder]) -> tuple[int, ...]:
    """Return when each test is over and observed, ms since the epoch UTC; 0: unknown."""
    return tuple([0 if each.first else each.until_ms for each in orders])


def _ends_ms(state: State, maintenance: Maintenance, host: str) -> int:
    """Return the end of the work on a touched host, past or expected, ms since the epoch UTC."""
    target = state.targets[target_key(maintenance.number, host)]
    operation = state.operations.get(target.operation)
    if target.ended_ms is not None or operation is None:
        return target.ended_ms or 0
    notice_ends_ms = operation.notice.not_before_ms or operation.created_ms
    from_ms = operation.execution.started_ms or notice_ends_ms
    return from_ms + span_s(state, maintenance, operation) * SECOND_MS
