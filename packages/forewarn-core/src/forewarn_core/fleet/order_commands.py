"""Owners name a test group for declared work, and hold their other hosts. Source: T-8."""

from __future__ import annotations

from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.durations import host_s
from forewarn_core.fleet.hand_back import choice_of, deadline_of, hand_back_of, owners_on
from forewarn_core.fleet.host_admission import known_maintenance, plan_remaining_again
from forewarn_core.fleet.host_orders import owner_orders
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import Declaration, FirstGroup, Maintenance
from forewarn_core.fleet.openings import Openings
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.refusals import OrderRefused
from forewarn_core.fleet.topology import Topology
from forewarn_core.fleet.transitions import with_reason
from forewarn_core.rules.hand_back import CHOSEN


def name_first_group(draft: Draft, word: stimuli.NameFirstGroup) -> tuple[int, ...]:
    """Record the test group of an owner, and plan by it. Source: T-8.

    Raises:
        OrderRefused: the maintenance, the policy or the group does not allow it.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    declaration = _declaration_of(draft, maintenance, word.owner, ends=not word.group)
    before = _asked_by(declaration, word.owner)
    problem = _problem(draft, maintenance, word) if word.group else ""
    if not (word.group or before):
        problem = "no test group is named"
    if problem:
        raise OrderRefused(maintenance=maintenance.id, problem=problem)
    if not word.group:
        text = f"{word.by} wants no test first in {maintenance.id}"
        return _record(draft, maintenance, word.owner, None, text=text)
    held = before.held if before else ""
    tested_ms = before.tested_ms if before and before.group == word.group else 0
    first_group = FirstGroup(
        word.owner, word.group, word.observation_s, held, tested_ms, changed_ms=draft.now_ms
    )
    _check_agreed(draft, _ordered(maintenance, word.owner, first_group), word.owner)
    text = f"{word.by} wants group {word.group} to be the first in {maintenance.id}"
    text = f"{text}, and observes it for {duration_text(word.observation_s)}"
    numbers = _record(draft, maintenance, word.owner, first_group, text=text)
    _displace(draft, known_maintenance(draft, word.maintenance), word.owner)
    return numbers


def hold(draft: Draft, word: stimuli.HoldHosts) -> tuple[int, ...]:
    """Hold an owner's hosts after its test until their hand-back deadline, or no longer. T-8.

    Choices for these hosts do not count meanwhile.

    Raises:
        OrderRefused: the owner has named no test group, or the hand-back deadline has passed.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    before = _asked_by(_declaration_of(draft, maintenance, word.owner), word.owner)
    if before is None:
        problem = "name a test group first"
        raise OrderRefused(maintenance=maintenance.id, problem=problem)
    does = "holds" if word.reason else "no longer holds"
    text = f"{word.by} {does} the hosts after the test in {maintenance.id}"
    first_group = replace(before, held=word.reason, changed_ms=draft.now_ms)
    return _record(draft, maintenance, word.owner, first_group, text=with_reason(text, word.reason))


def early_choices(draft: Draft, maintenance: Maintenance, owner: str) -> list[OwnerChoice]:
    """Return the starts, chosen on an owner's hosts, that come before its test is over; O(hosts).

    They are of all owners of these hosts.
    """
    orders = owner_orders(draft.state, maintenance)
    order = next((each for each in orders if each.first_group.owner == owner), None)
    if order is None or order.problem:
        return []
    openings, early = Openings(draft, maintenance), []
    for host in order.after:
        tested_ms = openings.tested_ms(host)
        if tested_ms == 0 or draft.target(maintenance.number, host) is not None:
            continue
        choices = (
            choice_of(draft.state, maintenance.number, host, owner=each)
            for each in owners_on(draft.state, host)
        )
        early += [
            each
            for each in choices
            if each is not None
            and each.decision is Decision.AT
            and (tested_ms is None or each.start_ms < tested_ms)
        ]
    return early


def _check_agreed(draft: Draft, ordered: Maintenance, owner: str) -> None:
    """Refuse an order that would break a start on which several owners of a host agree.

    Raises:
        OrderRefused: it would.
    """
    for each in early_choices(draft, ordered, owner):
        if each.owner != owner and _is_agreed(draft, ordered, each):
            start = iso8601(each.start_ms)
            problem = (
                f"all owners of host {each.host} agree on {start}, before the test could be over; "
                f"choose another time for {each.host} first"
            )
            raise OrderRefused(maintenance=ordered.id, problem=problem)


def _displace(draft: Draft, maintenance: Maintenance, owner: str) -> None:
    """Mark an owner's starts that come before its test is over, without waiting for the next plan.

    No plan is made while a wave is at hand, and the owner must choose again in time. Source: T-2.
    """
    early = [
        replace(each, displaced_ms=draft.now_ms)
        for each in early_choices(draft, maintenance, owner)
        if each.owner == owner and not each.displaced_ms and _is_agreed(draft, maintenance, each)
    ]
    if early:
        text = f"{len(early)} chosen starts come before the test of {owner} in {maintenance.id}"
        draft.put("declaration.displaced", text, maintenance, *early)


def _is_agreed(draft: Draft, maintenance: Maintenance, choice: OwnerChoice) -> bool:
    """Whether the work on the host starts as the owner chose, because no other owner objects."""
    hand_back = hand_back_of(draft.state, maintenance, choice.host, now_ms=draft.now_ms)
    return hand_back.subject == CHOSEN and hand_back.at_ms == choice.start_ms


def _declaration_of(
    draft: Draft, maintenance: Maintenance, owner: str, *, ends: bool = False
) -> Declaration:
    """Return the declaration of work whose order an owner can change; raises `OrderRefused`.

    `ends`: whether the order ends, which is possible also after the deadline.
    """
    declaration = maintenance.declaration
    problem = ""
    if declaration is None:
        problem = "it is not declared"
    elif maintenance.exemption.emergency:
        problem = "it is an emergency"
    elif maintenance.move_s:
        problem = "VMs leave their hosts before the work"
    elif not ends and draft.now_ms >= _last_deadline_ms(draft, maintenance, owner):
        problem = "the hand-back deadline has passed"
    if declaration is None or problem:
        raise OrderRefused(maintenance=maintenance.id, problem=problem)
    return declaration


def _last_deadline_ms(draft: Draft, maintenance: Maintenance, owner: str) -> int:
    """Return the latest hand-back deadline of an owner, ms since the epoch UTC; O(the hosts)."""
    hosts = maintenance.hosts
    deadlines = (deadline_of(draft.state, maintenance, each, owner=owner) for each in hosts)
    return max(deadlines, default=0)


def _asked_by(declaration: Declaration, owner: str) -> FirstGroup | None:
    return next((each for each in declaration.first_groups if each.owner == owner), None)


def _problem(draft: Draft, maintenance: Maintenance, word: stimuli.NameFirstGroup) -> str:
    """Return why a group cannot be the test group; empty if it can.

    Costs the VMs on the declared hosts.
    """
    topology, longest_s = draft.topology, draft.maintenance_policy.observation_max_s
    group = topology.groups.get(word.group)
    if group is None or group.owner != word.owner:
        return f"{word.owner or 'nobody'} has no group {word.group}"
    groups_on = [_own_groups(topology, host, word.owner) for host in maintenance.hosts]
    if not any(group.name in each for each in groups_on):
        return f"group {word.group} has no VM on its hosts"
    if all(group.name in each for each in groups_on if each):
        return f"group {word.group} is on all of the owner's hosts, so that none would follow"
    if not longest_s:
        return "the policy allows no test groups"
    if not 1 <= word.observation_s <= longest_s:
        return f"the policy allows an observation of at most {duration_text(longest_s)}"
    assert maintenance.declaration is not None
    # The test begins at the hand-back deadline at the latest, and the others come after it.
    twice_s = 2 * max(host_s(draft.state, maintenance, host) for host in maintenance.hosts)
    least_ms = maintenance.declaration.deadline_ms + (word.observation_s + twice_s) * SECOND_MS
    if maintenance.deadline_ms and least_ms > maintenance.deadline_ms:
        return "its observation could end after the deadline of the maintenance"
    return ""


def _own_groups(topology: Topology, host: str, owner: str) -> set[str]:
    """Return an owner's groups with VMs on a host; O(its VMs)."""
    groups = {topology.vms[name].group for name in topology.vms_on(host)}
    return {each for each in groups if topology.groups[each].owner == owner}


def _record(
    draft: Draft, maintenance: Maintenance, owner: str, first_group: FirstGroup | None, *, text: str
) -> tuple[int, ...]:
    """Replace what an owner asked for, and plan again; the entry is about the test group."""
    assert maintenance.declaration is not None
    named = first_group or _asked_by(maintenance.declaration, owner)
    group = draft.topology.groups.get(named.group) if named else None
    ordered = _ordered(maintenance, owner, first_group)
    draft.put("declaration.ordered", text, ordered, about=group)
    plan_remaining_again(draft, ordered, f"{ordered.id} is planned again: an order was asked for")
    return (maintenance.number,)


def _ordered(maintenance: Maintenance, owner: str, first_group: FirstGroup | None) -> Maintenance:
    """Return declared work with what an owner asked for instead of what it asked for before."""
    declaration = maintenance.declaration
    assert declaration is not None
    others = [each for each in declaration.first_groups if each.owner != owner]
    every = sorted([*others, *([first_group] if first_group else [])], key=lambda each: each.owner)
    answers = declaration.answers + 1
    return replace(
        maintenance,
        declaration=replace(declaration, answers=answers, first_groups=tuple(every)),
    )
