"""T-8 a second time: which hosts of an owner come after its test, and whose order counts.

No rule of the core or the planner is called in here.
"""

from collections.abc import Mapping

from forewarn_base.values import value
from forewarn_core.fleet.maintenance import Maintenance, Target
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Topology
from forewarn_core.planning.plan import HostOrder


@value
class Test:
    """The test of an owner, which its other hosts come after."""

    owner: str
    first: frozenset[str]
    after: frozenset[str]
    observation_ms: int
    #: When work on a host with VMs of the group last ended, which may be on other hosts now.
    tested_ms: int = 0


def tests_of(maintenance: Maintenance, topology: Topology) -> list[Test]:
    """Return the tests of owners whose orders contradict neither each other nor the first wave."""
    asked = maintenance.declaration.first_groups if maintenance.declaration else ()
    tests = []
    for each in asked:
        group = topology.groups.get(each.group)
        if group is None or group.owner != each.owner:
            continue
        own = {vm.host for vm in topology.vms.values() if _owner(topology, vm.group) == each.owner}
        in_group = {vm.host for vm in topology.vms.values() if vm.group == each.group}
        first = in_group & own & {*maintenance.hosts}
        after = (own & {*maintenance.hosts}) - first
        tests.append(
            Test(
                each.owner,
                frozenset(first),
                frozenset(after),
                each.observation_s * 1000,
                each.tested_ms,
            )
        )
    follows = {(x.owner, y.owner) for x in tests for y in tests if x.after & y.first}
    for via in tests:
        before = [x for x, y in follows if y == via.owner]
        follows |= {(x, y) for x in before for z, y in follows if z == via.owner}
    return [
        each
        for each in tests
        if (each.first or each.tested_ms)
        and (each.owner, each.owner) not in follows
        and not each.after & {*maintenance.canary_hosts}
    ]


def untested(
    targets: Mapping[str, Target | None],
    maintenance: Maintenance,
    host: str,
    topology: Topology,
    start_ms: int,
) -> str:
    """Return an owner whose test is not over and observed at a start on a host; empty: none is."""
    for test in tests_of(maintenance, topology):
        if host not in test.after:
            continue
        worked_on = [targets.get(f"{maintenance.number}/{each}") for each in test.first]
        if start_ms >= _lapses_ms(maintenance, test):
            continue
        ends = [each.ended_ms for each in worked_on if each is not None and each.ended_ms]
        over_ms = max([test.tested_ms, *ends]) + test.observation_ms
        if len(ends) < len(test.first) or over_ms > start_ms:
            return f"the test of {test.owner or 'no owner'}"
    return ""


def orders_at(state: State, maintenance: Maintenance, now_ms: int) -> tuple[HostOrder, ...]:
    """Return what a plan of this time must keep, as the checker of plans reads it.

    A plan may know when work ends that is under way; here only ends that are past count.
    """
    orders = []
    for test in tests_of(maintenance, state.topology):
        targets = {each: state.targets.get(f"{maintenance.number}/{each}") for each in test.first}
        if now_ms >= _lapses_ms(maintenance, test):
            continue
        ends = [each.ended_ms or 0 for each in targets.values() if each is not None]
        ends.append(test.tested_ms)
        orders.append(
            HostOrder(
                tuple(sorted(name for name, each in targets.items() if each is None)),
                tuple(sorted(test.after)),
                test.observation_ms // 1000,
                max([each for each in ends if each <= now_ms], default=0),
            )
        )
    return tuple(orders)


def _lapses_ms(maintenance: Maintenance, test: Test) -> int:
    """Return when nothing waits for a test any more: a day and its observation late."""
    assert maintenance.declaration is not None
    return maintenance.declaration.deadline_ms + 24 * 3_600_000 + test.observation_ms


def _owner(topology: Topology, group: str) -> str:
    return topology.groups[group].owner
