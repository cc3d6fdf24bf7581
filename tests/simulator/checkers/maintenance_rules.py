"""The rules of maintenances, written a second time: what a budget counts, and when time is open.

Plain functions over records: nothing of the planner and of the core's admission is called in here.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from forewarn_base.values import replace
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Host, Topology
from forewarn_core.planning.policy import Budget, MaintenancePolicy
from forewarn_core.planning.wall_clock import open_throughout

#: What a budget counts for: its scope, and the name in it.
Key = tuple[str, str]
#: Disturbed hosts, and disturbed VMs.
Disturbed = tuple[set[str], set[str]]


def binding(policy: MaintenancePolicy, maintenance: Maintenance) -> MaintenancePolicy:
    """Return a policy without what an emergency overrides and waives. Source: T-6."""
    declaration = maintenance.declaration
    if declaration is None or declaration.severity.value != "emergency":
        return policy
    kept = () if _waives_budgets(maintenance) else policy.budgets
    none = {"windows": (), "freezes": (), "pause_s": 0, "owner_rest_s": 0, "postpone_max_s": 0}
    return replace(policy, budgets=kept, **none)


def own_budgets(maintenance: Maintenance) -> tuple[Budget, ...]:
    """Return the budgets that a maintenance adds, unless it waives them. Source: T-6."""
    return () if _waives_budgets(maintenance) else maintenance.budgets


def _waives_budgets(maintenance: Maintenance) -> bool:
    declaration = maintenance.declaration
    return declaration is not None and "budgets" in declaration.waived


def closed(policy: MaintenancePolicy, host: Host, *, start_ms: int, end_ms: int) -> bool:
    """Whether a time is not wholly open for a host. Source: F-7."""
    if any(start_ms < to_ms and from_ms < end_ms for from_ms, to_ms in policy.freezes):
        return True
    labels = words(host)
    windows = tuple(each for each in policy.windows if set(each.hosts) <= labels)
    return bool(windows) and not open_throughout(windows, start_ms, end_ms)


def words(host: Host) -> set[str]:
    """What a policy may call a host."""
    return {f"zone={host.zone}", *(f"{key}={text}" for key, text in host.labels)}


def keys_of_host(host: Host) -> set[Key]:
    """What one disturbed host counts for."""
    rack = dict(host.labels).get("rack", "")
    keys = {("fleet", ""), ("zone", host.zone), ("rack", rack)}
    return keys | {("label", word) for word in words(host)}


def over_budget(
    state: State,
    budgets: Iterable[Budget],
    *,
    operation: Operation,
    beside: Disturbed,
    limits: Literal["now", "least", "most"] = "now",
) -> str:
    """Name a budget that the work on a host is beyond, with all that is disturbed beside it.

    Args:
        state: what is durable.
        budgets: those of the policy and of the maintenance.
        operation: the work.
        beside: what is disturbed then, this host included.
        limits: what a percentage is of: what there is now; or the least of that and of what there
            was when the plan was made, where it is asked if work may wait; or the most of both.
    """
    topology, (hosts, vms) = state.topology, beside
    used = Counter(key for name in hosts for key in keys_of_host(topology.hosts[name]))
    for name in vms:
        used.update(_keys_of_vm(topology, name))
    ours = keys_of_host(topology.hosts[operation.host])
    for name in topology.vms_on(operation.host):
        ours |= _keys_of_vm(topology, name)
    planned = _planned_limits(state, operation)
    for budget in budgets:
        for key in sorted(ours):
            if key[0] == budget.scope.value and budget.name in {"", key[1]}:
                limit = _limit(budget, key, topology)
                if limits == "least":
                    limit = min(limit, planned.get(key, limit))
                elif limits == "most" and budget.percent:
                    limit = max(limit, planned.get(key, used[key]))
                if used[key] > limit:
                    return f"{key[0]} {key[1]}: {used[key]} at once, {limit} may be"
    return ""


def disturbed(state: State, ignored: set[int], *more: str) -> Disturbed:
    """Return the hosts and VMs that are disturbed, announced by routine work, or failed.

    Args:
        state: what is durable.
        ignored: operations that do not count.
        more: hosts that count besides.
    """
    topology = state.topology
    hosts = {*more} | {
        name for name, host in topology.hosts.items() if host.health.value == "failed"
    }
    vms: set[str] = set()
    for operation in state.operations.values():
        running = operation.state.value == "running"
        if operation.number in ignored or not (
            running or (operation.routine and operation.state.value == "announced")
        ):
            continue
        if operation.of_vm:
            vms.update(name for name in operation.vms if name in topology.vms)
        else:
            hosts.add(operation.host)
    on_hosts = {vm for name in hosts for vm in topology.vms_on(name)}
    return hosts, vms | on_hosts


def _keys_of_vm(topology: Topology, name: str) -> set[Key]:
    group = topology.groups[topology.vms[name].group]
    return {("group", group.name), ("owner", group.owner)}


def _planned_limits(state: State, operation: Operation) -> dict[Key, int]:
    maintenance = state.maintenances.get(operation.maintenance)
    plan = state.plans.get(maintenance.plan) if maintenance else None
    limits = plan.body.limits if plan else {}
    return {(scope.value, name): limit for (scope, name), limit in limits.items()}


def _limit(budget: Budget, key: Key, topology: Topology) -> int:
    """How many a budget allows, of all that there are now."""
    if not budget.percent:
        return budget.limit
    if key[0] in {"group", "owner"}:
        total = sum(key in _keys_of_vm(topology, name) for name in topology.vms)
    else:
        total = sum(key in keys_of_host(host) for host in topology.hosts.values())
    return max(1, total * budget.limit // 100)
