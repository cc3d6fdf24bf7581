"""When declared work may begin on a host: its hand-back deadline, or what its owners chose. T-3."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice, choice_key
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import HostChoice
from forewarn_core.planning.plan import HandBack
from forewarn_core.rules.hand_back import CHOSEN, DEADLINE, DEFERRED


def hand_back_of(
    state: State,
    maintenance: Maintenance,
    host: str,
    *,
    now_ms: int,
    supposed: Mapping[str, HostChoice] | None = None,
) -> HandBack:
    """Return when declared work may begin on a host; O(its VMs).

    `supposed`: choices by owner that count instead of those that were made.

    At any time if the work is not declared, disturbs nobody, or every owner agreed. Owners who
    chose different times wait for the latest of their deadlines; one who chose a time after the
    deadlines of the others need not wait for them. A chosen start that is past counts for nothing.
    """
    declaration = maintenance.declaration
    owners = owners_on(state, host) if declaration is not None else ()
    if declaration is None or not owners:
        return HandBack(host)
    if maintenance.exemption.emergency:  # a choice may only bring it forward
        waits = any(
            choice_of(state, maintenance.number, host, owner=each) is None
            for each in owners
            if each not in (supposed or ())
        )
        return HandBack(host, declaration.deadline_ms, DEADLINE) if waits else HandBack(host)
    waits_ms, chosen_ms, starts_ms = 0, 0, set()
    for owner in owners:
        choice: OwnerChoice | HostChoice | None = (supposed or {}).get(owner)
        if choice is None and not is_held(state, maintenance, host, owner=owner):
            choice = choice_of(state, maintenance.number, host, owner=owner)
        deadline_ms = deadline_of(state, maintenance, host, owner=owner)
        if choice is None:
            waits_ms = max(waits_ms, deadline_ms)
        elif choice.decision is Decision.AT:
            starts_ms.add(choice.start_ms)
            chosen_ms = max(chosen_ms, deadline_ms)
    latest_ms = max(waits_ms, chosen_ms)
    if len(starts_ms) == 1 and (start_ms := starts_ms.pop()) > max(waits_ms, now_ms - 1):
        return HandBack(host, start_ms, CHOSEN, latest_ms)
    if not latest_ms:
        return HandBack(host)
    deferred = latest_ms > declaration.deadline_ms
    return HandBack(host, latest_ms, DEFERRED if deferred else DEADLINE)


def is_held(state: State, maintenance: Maintenance, host: str, *, owner: str) -> bool:
    """Whether an owner holds its VMs on a host after a test on others; O(VMs on it). T-8.

    A hold stays if the test group leaves the owner: then it is about all of its hosts.
    """
    declaration, topology = maintenance.declaration, state.topology
    first_groups = declaration.first_groups if declaration is not None else ()
    held = next((each.group for each in first_groups if each.owner == owner and each.held), None)
    if held is None:
        return False
    groups = {topology.vms[name].group for name in topology.vms_on(host)}
    return held not in groups or topology.groups[held].owner != owner


def hand_backs_of(state: State, maintenance: Maintenance, now_ms: int) -> tuple[HandBack, ...]:
    """Return when declared work may begin on each host where it may not begin at any time."""
    if maintenance.declaration is None:
        return ()
    every = (hand_back_of(state, maintenance, host, now_ms=now_ms) for host in maintenance.hosts)
    return tuple([each for each in every if each.at_ms])


def owners_on(state: State, host: str) -> tuple[str, ...]:
    """Return the owners of VMs on a host; the empty name stands for VMs without an owner."""
    groups, vms = state.topology.groups, state.topology.vms
    return tuple({groups[vms[name].group].owner: None for name in state.topology.vms_on(host)})


def choice_of(state: State, maintenance: int, host: str, *, owner: str) -> OwnerChoice | None:
    """Return an owner's choice for its VMs on a host; None: it has not chosen."""
    return state.choices.get(choice_key(maintenance, host, owner))


def deferral_of(state: State, maintenance: int, host: str, *, owner: str) -> Deferral | None:
    """Return an owner's request for a later deadline of a host; None: it asked for none."""
    return state.deferrals.get(choice_key(maintenance, host, owner))


def deadline_of(state: State, maintenance: Maintenance, host: str, *, owner: str) -> int:
    """Return the hand-back deadline of an owner's VMs on a host of declared work. Source: T-4.

    In ms since the epoch UTC.
    """
    assert maintenance.declaration is not None, maintenance
    deferral = deferral_of(state, maintenance.number, host, owner=owner)
    granted_ms = deferral.granted_ms if deferral is not None else None
    return max(maintenance.declaration.deadline_ms, granted_ms or 0)


def approved_by_choice(state: State, operation: Operation, group: str) -> bool:
    """Whether an owner approved the event of a group by choosing this start. Source: T-2.

    Never for groups with strict approval (A-7).
    """
    record = state.topology.groups[group]
    choice = choice_of(state, operation.maintenance, operation.host, owner=record.owner)
    if choice is None or not choice.approves or record.strict_approval:
        return False
    at_once = choice.decision is Decision.NOW
    return at_once or operation.requested_start_ms == choice.start_ms
