"""Owners ask for a later hand-back deadline; policy or an operator answers. Source: T-4.

A request is answered in the step that asks: granted within the policy's limit, otherwise left for
an operator until a time, or refused. A granted request takes the place of the owner's choice.
"""

from __future__ import annotations

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.declarations import work_at_hand
from forewarn_core.fleet.deferrals import Deferral, DeferralState, answered
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.hand_back import choice_of, deadline_of, deferral_of, owners_on
from forewarn_core.fleet.host_admission import known_maintenance, plan_remaining_again
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import Maintenance, pluralized
from forewarn_core.fleet.owner_choices import OwnerChoice, choice_key
from forewarn_core.fleet.refusals import DeferralRefused, DeferralUndecided
from forewarn_core.fleet.transitions import with_reason

#: Who answers by the policy, for people.
POLICY = "policy"


def ask(draft: Draft, word: stimuli.AskDeferral) -> tuple[int, ...]:
    """Record requests of owners with the policy's answer, all or none. Source: T-4.

    Raises:
        DeferralRefused: the deadline of a host cannot be moved to this time, whatever the policy.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    until_ms = -(-word.until_ms // SECOND_MS) * SECOND_MS
    for host, owner in word.places:
        problem = _problem(draft, maintenance, host=host, owner=owner, until_ms=until_ms)
        if problem:
            raise _refusal(maintenance, host, problem)
    requests = []
    for host, owner in word.places:
        before = deferral_of(draft.state, maintenance.number, host, owner=owner)
        requests.append(
            Deferral(
                choice_key(maintenance.number, host, owner),
                maintenance.number,
                host,
                owner,
                draft.now_ms,
                word.by,
                until_ms,
                word.reason,
                granted_ms=before.granted_ms if before else None,
            )
        )
    answers = [_by_policy(draft, maintenance, each) for each in requests]
    waits = answers[0].state is _ASKED
    text = f"{word.by} asks to defer {pluralized(len(requests))} of {maintenance.id} until"
    text = with_reason(f"{text} {iso8601(until_ms)}", word.reason)
    draft.put("deferral.asked", text, *(answers if waits else requests))
    if not waits:
        _answer(draft, maintenance, answers)
    return (word.maintenance,)


def decide(draft: Draft, word: stimuli.DecideDeferral) -> tuple[int, ...]:
    """Grant or refuse the undecided requests of an owner, on one host or on all. Source: T-4.

    Raises:
        DeferralUndecided: there is no such request.
        DeferralRefused: it cannot be granted any more.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    undecided = [
        each
        for each in draft.state.deferrals.values()
        if each.maintenance == maintenance.number
        and each.state is _ASKED
        and each.owner == word.owner
        and word.host in {"", each.host}
    ]
    if not undecided:
        owner = f"owner {word.owner}" if word.owner else "VMs without an owner"
        where = f" on host {word.host}" if word.host else ""
        raise DeferralUndecided(maintenance=maintenance.id, whose=owner + where)
    for each in undecided if word.grants else ():
        problem = _problem(
            draft, maintenance, host=each.host, owner=each.owner, until_ms=each.until_ms
        )
        if problem:
            raise _refusal(maintenance, each.host, problem)
    state = DeferralState.GRANTED if word.grants else DeferralState.REFUSED
    by, text = word.by, word.reason
    _answer(
        draft,
        maintenance,
        [answered(each, state, draft.now_ms, by=by, answer=text) for each in undecided],
    )
    return (word.maintenance,)


def withdraw(draft: Draft, word: stimuli.WithdrawDeferral) -> tuple[int, ...]:
    """End undecided requests as their owner wishes; deadlines and choices stay. Source: T-4.

    Raises:
        DeferralUndecided: there is no such request.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    requests = [
        deferral_of(draft.state, maintenance.number, host, owner=owner)
        for host, owner in word.places
    ]
    undecided = [each for each in requests if each is not None and each.state is _ASKED]
    if not undecided:
        hosts = ", ".join(sorted({host for host, _ in word.places}))
        raise DeferralUndecided(maintenance=maintenance.id, whose=f"the owner on {hosts}")
    text = f"{word.by} withdraws the request to defer {pluralized(len(undecided))}"
    ended = [
        answered(each, DeferralState.WITHDRAWN, draft.now_ms, by=word.by, answer="")
        for each in undecided
    ]
    draft.put("deferral.withdrawn", f"{text} of {maintenance.id}", *ended)
    return (word.maintenance,)


def refuse_due(draft: Draft) -> None:
    """Refuse the requests that nobody has decided in time; O(these)."""
    due: dict[int, list[Deferral]] = {}
    for key in draft.state.decisions.due(draft.now_ms):
        each = draft.state.deferrals[key]
        text = "no operator decided in time"
        refused = answered(each, DeferralState.REFUSED, draft.now_ms, by=POLICY, answer=text)
        due.setdefault(each.maintenance, []).append(refused)
    for number, refusals in due.items():
        _answer(draft, known_maintenance(draft, number), refusals)


_ASKED = DeferralState.ASKED


def _refusal(maintenance: Maintenance, host: str, problem: str) -> DeferralRefused:
    remedy = "Ask for another time, or choose a start with `forewarn declaration choose`."
    if maintenance.exemption.emergency:
        remedy = "Only `forewarn declaration choose --now` and `declaration release` are possible."
    return DeferralRefused(host=host, maintenance=maintenance.id, problem=problem, remedy=remedy)


def _second(at_ms: int) -> str:
    """Return a time to the second, for people."""
    return iso8601(at_ms // SECOND_MS * SECOND_MS)


def _problem(
    draft: Draft, maintenance: Maintenance, *, host: str, owner: str, until_ms: int
) -> str:
    """Return why a deadline cannot be moved, whatever the policy; empty if it can."""
    declaration, policy = maintenance.declaration, draft.maintenance_policy
    if declaration is None:
        return "the maintenance is not declared"
    if maintenance.exemption.emergency:
        return "it is an emergency"
    if host not in maintenance.hosts:
        return "it is not among the declared hosts"
    if owner not in owners_on(draft.state, host):
        return "the owner has no VM there"
    if work := work_at_hand(draft.state, maintenance, host):
        later = "; ask for a later start with `forewarn maintenance postpone`"
        return work + (later if work.endswith("already") else "")
    deadline_ms = deadline_of(draft.state, maintenance, host, owner=owner)
    longest_ms = declaration.declared_ms + policy.hand_back_max_s * SECOND_MS
    if draft.now_ms >= deadline_ms:
        return "the hand-back deadline has passed"
    if until_ms <= deadline_ms:
        return f"the hand-back deadline is {_second(deadline_ms)} already"
    if until_ms > longest_ms:
        return f"the policy allows no hand-back deadline after {_second(longest_ms)}"
    if maintenance.deadline_ms and until_ms + maintenance.host_s * SECOND_MS > (
        maintenance.deadline_ms
    ):
        return "the work would end after the deadline of the maintenance"
    return ""


def _by_policy(draft: Draft, maintenance: Maintenance, deferral: Deferral) -> Deferral:
    """Return a request as the policy answers it."""
    assert maintenance.declaration is not None
    policy, now_ms = draft.maintenance_policy, draft.now_ms
    latest_ms = maintenance.declaration.deadline_ms + policy.deferral_limit_s * SECOND_MS
    if deferral.until_ms <= latest_ms:
        text = f"the policy allows deadlines until {_second(latest_ms)}"
        return answered(deferral, DeferralState.GRANTED, now_ms, by=POLICY, answer=text)
    if policy.deferral_decision_s:
        deadline_ms = deadline_of(draft.state, maintenance, deferral.host, owner=deferral.owner)
        decide_by_ms = min(now_ms + policy.deferral_decision_s * SECOND_MS, deadline_ms)
        return replace(deferral, decide_by_ms=decide_by_ms)
    text = "the policy allows none"
    if policy.deferral_limit_s:
        text = f"the policy allows deadlines until {_second(latest_ms)} only"
    return answered(deferral, DeferralState.REFUSED, now_ms, by=POLICY, answer=text)


def _answer(draft: Draft, maintenance: Maintenance, answers: list[Deferral]) -> None:
    """Record answers of one kind; granted ones move deadlines, and choices fall."""
    assert maintenance.declaration is not None
    first, number = answers[0], maintenance.number
    text = f"{first.answered_by} {'grants' if first.state is DeferralState.GRANTED else 'refuses'}"
    text = f"{text} the deferral of {pluralized(len(answers))} of {maintenance.id}"
    text = with_reason(f"{text} until {iso8601(first.until_ms)}", first.answer)
    if first.state is not DeferralState.GRANTED:
        draft.put("deferral.refused", text, *answers)
        return
    count = maintenance.declaration.answers + 1
    moved = replace(maintenance, declaration=replace(maintenance.declaration, answers=count))
    draft.put("deferral.granted", text, *answers, moved)
    choices = [
        choice
        for each in answers
        if (choice := choice_of(draft.state, number, each.host, owner=each.owner))
    ]
    if choices:
        draft.remove("declaration.withdrawn", _withdrawn(moved, choices), *choices)
    plan_remaining_again(draft, moved, f"{moved.id} is planned again: a deadline was moved")


def _withdrawn(maintenance: Maintenance, choices: list[OwnerChoice]) -> str:
    count = pluralized(len(choices), "choice")
    return f"{count} of {maintenance.id} no longer count: a deferral was granted"
