"""What the checker of plans is given, read from the state apart from `control.planning`.

The planner and its checker get the same input in the product, so a wrong conversion deceives both.
"""

from collections import Counter

from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Host
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import HandBack, HostOrder, Plan, PlanRequest
from forewarn_core.planning.plan_text import PlanBody


def fleet_of_state(state: State, maintenance: Maintenance, policy: NoticePolicy) -> Fleet:
    """Return the fleet; hosts have room only if VMs leave their host for the maintenance."""
    hosts, vms = state.topology.hosts, state.topology.vms
    sizes = {vm.name: vm.memory_mib if maintenance.move_s else 0 for vm in vms.values()}
    unsized = {vm.host for vm in vms.values() if not sizes[vm.name]}
    reserved = Counter[str]()
    for each in state.operations.values():
        vm = vms.get(each.target)
        if each.is_return and vm is not None and vm.host != each.destination:
            reserved[each.destination] += sizes[vm.name]
    return Fleet.of(
        [
            FleetHost(
                host.name,
                zone=host.zone,
                rack=dict(host.labels).get("rack", ""),
                fault_domain=host.fault_domain,
                labels=tuple(map("=".join, host.labels)),
                capacity=(
                    max(host.memory_mib - reserved[host.name], 0)
                    if maintenance.move_s and host.name not in unsized
                    else 0
                ),
                driver=host.driver,
                scheduled=bool(maintenance.move_s) and host.driver in policy.scheduling_drivers,
            )
            for host in hosts.values()
        ],
        [
            FleetGroup(group.name, group.owner, group.keep_apart, group.keep_together)
            for group in state.topology.groups.values()
        ],
        [(vm.host, vm.group, sizes[vm.name]) for vm in vms.values()],
    )


def host_s(maintenance: Maintenance, host: Host | None, plan: PlanBody | None) -> int:
    """Return how long a host is under work by a plan, its VMs' moves included. Source: F-9."""
    words = {"", *(f"{key}={text}" for key, text in host.labels)} if host else {""}
    words |= {f"zone={host.zone}"} if host else set()
    stated = plan.learned if plan else ()
    work_s = next((e.duration_s for e in stated if e.label in words), maintenance.duration_s)
    return maintenance.move_s + work_s + maintenance.return_s


def plan_of_record(
    plan: MaintenancePlan,
    maintenance: Maintenance,
    hand_backs: tuple[HandBack, ...],
    orders: tuple[HostOrder, ...],
) -> Plan:
    """Return a stored plan as the checker reads it, without entries."""
    request = PlanRequest(
        maintenance.hosts,
        duration_s=maintenance.duration_s,
        move_s=maintenance.move_s,
        return_s=maintenance.return_s,
        earliest_ms=maintenance.earliest_ms or 0,
        deadline_ms=maintenance.deadline_ms or 0,
        budgets=maintenance.budgets,
        canary_hosts=maintenance.canary_hosts,
        postponed=tuple((each.host, each.until_ms, each.by) for each in maintenance.postponed),
        hand_backs=hand_backs,
        exemption=maintenance.exemption,
        failure_domain=maintenance.failure_domain,
        orders=orders,
    )
    body = plan.body
    return Plan(
        plan.id,
        plan.parent,
        plan.made_ms,
        request,
        entries=(),
        blocked=body.blocked,
        waves=body.waves,
        bound=body.bound,
        learned=body.learned,
    )
