"""When declared work may begin on a host: its hand-back deadline, or what its owners chose. T-3."""

from __future__ import annotations

from forewarn.core.deferrals import Deferral
from forewarn.core.lifecycle import Operation
from forewarn.core.maintenance import Maintenance
from forewarn.core.owner_choices import Decision, OwnerChoice, choice_key
from forewarn.core.state import State

#: What declared work waits for while an owner on the host has not chosen.
DEADLINE = "the hand-back deadline"
#: The same, if a deferral was granted.
DEFERRED = "the deferred hand-back deadline"
#: What it waits for once all have chosen the same start.
CHOSEN = "the time that its owners have chosen"


def hand_back_of(state: State, maintenance: Maintenance, host: str) -> tuple[int, str]:
    """Return the earliest start of declared work on a host, and what that time is; O(its VMs).

    In ms since the epoch UTC; 0: any time, because the work is not declared, disturbs nobody, or
    every owner agreed. Owners who chose different times wait for the latest of their deadlines;
    one who chose a time after the deadlines of the others need not wait for them.
    """
    declaration = maintenance.declaration
    owners = owners_on(state, host) if declaration is not None else ()
    if declaration is None or not owners:
        return 0, ""
    if maintenance.exemption.emergency:  # a choice may only bring it forward
        waits = any(
            choice_of(state, maintenance.number, host, owner=each) is None for each in owners
        )
        return (declaration.deadline_ms, DEADLINE) if waits else (0, "")
    waits_ms, chosen_ms, starts_ms = 0, 0, set()
    for owner in owners:
        choice = choice_of(state, maintenance.number, host, owner=owner)
        deadline_ms = deadline_of(state, maintenance, host, owner=owner)
        if choice is None:
            waits_ms = max(waits_ms, deadline_ms)
        elif choice.decision is Decision.AT:
            starts_ms.add(choice.start_ms)
            chosen_ms = max(chosen_ms, deadline_ms)
    if len(starts_ms) == 1 and (start_ms := starts_ms.pop()) > waits_ms:
        return start_ms, CHOSEN
    latest_ms = max(waits_ms, chosen_ms)
    deferred = latest_ms > declaration.deadline_ms
    return latest_ms, (DEFERRED if deferred else DEADLINE) if latest_ms else ""


def hand_backs_of(state: State, maintenance: Maintenance) -> tuple[tuple[str, int, str], ...]:
    """Return the hosts of declared work, each with its earliest start and what that time is."""
    if maintenance.declaration is None:
        return ()
    every = ((host, *hand_back_of(state, maintenance, host)) for host in maintenance.hosts)
    return tuple([each for each in every if each[1]])


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
    known = state.topology.groups[group]
    choice = choice_of(state, operation.maintenance, operation.host, owner=known.owner)
    if choice is None or not choice.approves or known.strict_approval:
        return False
    at_once = choice.decision is Decision.NOW
    return at_once or operation.requested_start_ms == choice.start_ms
