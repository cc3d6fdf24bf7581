"""Declared maintenances as their owners see them: the VMs in scope, and until when they decide.

Source: T-1. A caller who may see only some owners passes their part of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.hand_back import (
    choice_of,
    deadline_of,
    deferral_of,
    hand_back_of,
    is_held,
    owners_on,
)
from forewarn_core.fleet.host_orders import OwnerOrder, owner_orders
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import (
    Declaration,
    Maintenance,
    TargetState,
    Working,
    target_key,
)
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.state import State
from forewarn_core.fleet.topology import Topology
from forewarn_core.rules.hand_back import CHOSEN


class ResourceState(Word):
    """What stands between an owner's VMs on a host and declared work."""

    #: The owner has not chosen.
    OPEN = "open"
    CHOSEN = "chosen"
    #: Other owners on the host have not chosen the same.
    WAITING = "waiting-for-other-work"
    #: No plan can keep the chosen start.
    DISPLACED = "displaced"
    #: The owner has handed its VMs back.
    RELEASED = "released"
    #: The hand-back deadline has passed, and no work is announced.
    DUE = "due"
    #: The owner holds its VMs there, after a test on other hosts.
    HELD = "held"
    ANNOUNCED = "announced"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    #: The maintenance has ended without work on the host.
    WITHDRAWN = "withdrawn"


class HostPlace(Word):
    """The place of a host in the order that its owner asked for. Source: T-8."""

    #: The owner asked for no order, or its order contradicts another one.
    ANY = "any"
    #: The host has VMs of the owner's test group.
    FIRST = "first"
    AFTER = "after"


@value
class DeclaredResource:
    """One owner's VMs on a host of a declared maintenance. Times are ms since the epoch UTC."""

    host: str
    owner: str
    vms: tuple[str, ...]
    state: ResourceState
    deadline_ms: int
    #: When the work starts if nobody does anything: announced, planned, or 0 if unknown.
    start_ms: int
    choice: OwnerChoice | None = None
    deferral: Deferral | None = None
    #: When the plan, the work on the host, or a choice or order for it last changed.
    changed_ms: int = 0
    #: Whether other owners have VMs on the host.
    shared: bool = False
    order: HostPlace = HostPlace.ANY
    #: The failure domain of the host, where the work is on one at a time, such as `rack=r7`. T-12.
    failure_domain: str = ""


@value
class DeclaredMaintenance:
    """A declared maintenance with the part of its resources that a caller may see."""

    maintenance: Maintenance
    declaration: Declaration
    resources: tuple[DeclaredResource, ...]
    #: The orders that owners of these resources asked for. Source: T-8.
    orders: tuple[OwnerOrder, ...] = ()


def declared(
    state: State,
    fleet: Topology,
    now_ms: int,
    *,
    only: int | None = None,
    host: str | None = None,
) -> tuple[DeclaredMaintenance, ...]:
    """Return live declared maintenances with VMs of a part of the fleet, newest first.

    `only`: the number of the only one. Costs the hosts of these maintenances and their VMs.
    `host`: only its maintenances, with this host alone; costs its VMs, a search among the hosts,
    and the orders of owners.
    """
    every = sorted(state.maintenances.items(), reverse=True)
    declarations = [
        _declared(state, each, fleet, now_ms, hosts=each.hosts if host is None else (host,))
        for number, each in every
        if each.declaration is not None
        and only in {None, number}
        and (host is None or host in each.hosts)
    ]
    return tuple([each for each in declarations if each.resources])


def ended_declaration(
    maintenance: Maintenance, fleet: Topology, work: Mapping[str, ResourceState]
) -> DeclaredMaintenance | None:
    """Return an ended declared maintenance with the VMs that are on its hosts now; None: no VMs.

    `work` has the state of the work on each host that was touched.
    """
    declaration = maintenance.declaration
    resources = [
        DeclaredResource(
            host,
            owner,
            tuple(vms),
            work.get(host, ResourceState.WITHDRAWN),
            declaration.deadline_ms,
            0,
            failure_domain=fleet.failure_domain(host, maintenance.failure_domain),
        )
        for host in (maintenance.hosts if declaration is not None else ())
        for owner, vms in sorted(_vms_by_owner(fleet, host).items())
        if declaration is not None
    ]
    if declaration is None or not resources:
        return None
    return DeclaredMaintenance(maintenance, declaration, tuple(resources))


_WORK = {
    ResourceState.ANNOUNCED: "its work is announced already",
    ResourceState.STARTED: "its work has started",
    ResourceState.DONE: "its work is done",
    ResourceState.FAILED: "its work has failed",
}


def work_at_hand(state: State, maintenance: Maintenance, host: str) -> str:
    """Return why owners no longer decide about a host; empty: its work is not announced."""
    stands, _ = _stands(state, maintenance, host)
    return _WORK[stands] if stands else ""


def _vms_by_owner(fleet: Topology, host: str) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for vm in fleet.vms_on(host):
        owners.setdefault(fleet.groups[fleet.vms[vm].group].owner, []).append(vm)
    return owners


def _declared(
    state: State, maintenance: Maintenance, fleet: Topology, now_ms: int, *, hosts: tuple[str, ...]
) -> DeclaredMaintenance:
    assert maintenance.declaration is not None
    orders = owner_orders(state, maintenance)
    if hosts is not maintenance.hosts:
        orders = tuple([_on_hosts(each, frozenset(hosts)) for each in orders])
    places = {
        (host, each.first_group.owner): place
        for each in orders
        if not each.problem
        for hosts, place in ((each.first, HostPlace.FIRST), (each.after, HostPlace.AFTER))
        for host in hosts
    }
    resources = [
        replace(each, order=places.get((each.host, each.owner), HostPlace.ANY))
        for each in _resources(state, maintenance, fleet, now_ms, hosts=hosts)
    ]
    owners = {each.owner for each in resources}
    return DeclaredMaintenance(
        maintenance,
        maintenance.declaration,
        tuple(resources),
        tuple([each for each in orders if each.first_group.owner in owners]),
    )


def _on_hosts(order: OwnerOrder, hosts: frozenset[str]) -> OwnerOrder:
    """Return the part of an order on some hosts."""
    first, after = (
        tuple([host for host in every if host in hosts]) for every in (order.first, order.after)
    )
    return replace(order, first=first, after=after)


def _resources(
    state: State, maintenance: Maintenance, fleet: Topology, now_ms: int, *, hosts: tuple[str, ...]
) -> Iterator[DeclaredResource]:
    assert maintenance.declaration is not None
    plan, wanted = state.plans.get(maintenance.plan), frozenset(hosts)
    planned_ms = {
        host: wave.latest_start_ms
        for wave in (plan.waves if plan else ())
        for host in wave.hosts
        if host in wanted
    }
    for host in hosts:
        owners = _vms_by_owner(fleet, host)
        if not owners:
            continue
        stands, start_ms = _stands(state, maintenance, host)
        if not stands:
            start_ms = _start_ms(
                state, maintenance, host, planned_ms=planned_ms.get(host, 0), now_ms=now_ms
            )
        shared = len(owners_on(state, host)) > 1
        changed_ms = _changed_ms(state, maintenance, host)
        for owner, vms in sorted(owners.items()):
            choice = choice_of(state, maintenance.number, host, owner=owner)
            deadline_ms = deadline_of(state, maintenance, host, owner=owner)
            past = now_ms >= deadline_ms
            own = stands or _chosen(state, maintenance, host, choice=choice, now_ms=now_ms)
            if own is ResourceState.OPEN and past:
                own = ResourceState.DUE
            held = is_held(state, maintenance, host, owner=owner)
            if held and stands is None and not past:
                own = ResourceState.HELD
            deferral = deferral_of(state, maintenance.number, host, owner=owner)
            vms_there = tuple(vms)
            yield DeclaredResource(
                host,
                owner,
                vms_there,
                own,
                deadline_ms,
                start_ms,
                choice,
                deferral,
                changed_ms,
                shared,
                failure_domain=state.topology.failure_domain(host, maintenance.failure_domain),
            )


def _start_ms(
    state: State, maintenance: Maintenance, host: str, *, planned_ms: int, now_ms: int
) -> int:
    """Return the start of work that is not announced, ms since the epoch UTC; 0: not known yet.

    While a wave is at hand or a plan is made, choices may be newer than the plan in force: of
    these, a start on which all owners agree counts.
    """
    plan = state.plans.get(maintenance.plan)
    newest = not maintenance.plan_wanted and not isinstance(maintenance.phase, Working)
    answered_ms = 0 if newest else _answered_ms(state, maintenance, host)
    if plan is not None and plan.made_ms > answered_ms:
        return planned_ms
    hand_back = hand_back_of(state, maintenance, host, now_ms=now_ms)
    return hand_back.at_ms if hand_back.subject == CHOSEN else 0


def _answered_ms(state: State, maintenance: Maintenance, host: str) -> int:
    """Return when an owner last chose or got a later deadline for a host; O(its VMs)."""
    times = [0]
    for owner in owners_on(state, host):
        choice = choice_of(state, maintenance.number, host, owner=owner)
        deferral = deferral_of(state, maintenance.number, host, owner=owner)
        times += [choice.made_ms] if choice else []
        times += [deferral.answered_ms or 0] if deferral else []
    return max(times)


def _changed_ms(state: State, maintenance: Maintenance, host: str) -> int:
    """Return when something about the declared work on a host last changed; O(its VMs)."""
    assert maintenance.declaration is not None
    number, plan = maintenance.number, state.plans.get(maintenance.plan)
    times = [maintenance.declaration.declared_ms, plan.made_ms if plan else 0]
    owners, first_groups = owners_on(state, host), maintenance.declaration.first_groups
    times += [each.changed_ms for each in first_groups if each.owner in owners]
    for owner in owners:
        choice = choice_of(state, number, host, owner=owner)
        times += [choice.made_ms, choice.displaced_ms or 0] if choice else []
        deferral = deferral_of(state, number, host, owner=owner)
        times.append((deferral.answered_ms or 0) if deferral else 0)
    target = state.targets.get(target_key(number, host))
    operation = state.operations.get(target.operation) if target else None
    if operation is not None:
        announced_ms = operation.notice.announced_ms
        times += [announced_ms or 0, operation.execution.started_ms or 0]
    return max(times)


def _stands(state: State, maintenance: Maintenance, host: str) -> tuple[ResourceState | None, int]:
    """Return the state of announced work on a host, and its start; None and 0: not announced."""
    target = state.targets.get(target_key(maintenance.number, host))
    if target is None:
        return None, 0
    if target.state is not TargetState.WORKING:
        failed = target.state is TargetState.FAILED
        return (ResourceState.FAILED if failed else ResourceState.DONE), 0
    operation = state.operations.get(target.operation)
    if operation is None:
        return ResourceState.DONE, 0
    if operation.state is OperationState.ANNOUNCED:
        return ResourceState.ANNOUNCED, operation.not_before_ms
    # The return of VMs may still wait to be announced; the host's own work is over by then.
    return ResourceState.STARTED, operation.execution.started_ms or 0


def _chosen(
    state: State, maintenance: Maintenance, host: str, *, choice: OwnerChoice | None, now_ms: int
) -> ResourceState:
    """Return the state of an owner's VMs on a host that is not announced."""
    if choice is None:
        return ResourceState.OPEN
    if choice.decision is Decision.RELEASE:
        return ResourceState.RELEASED
    late = choice.decision is Decision.AT and choice.start_ms <= now_ms
    if choice.displaced_ms or late:
        return ResourceState.DISPLACED
    hand_back = hand_back_of(state, maintenance, host, now_ms=now_ms)
    agreed = hand_back.subject == CHOSEN or not hand_back.at_ms
    return ResourceState.CHOSEN if agreed else ResourceState.WAITING
