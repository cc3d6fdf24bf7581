"""Owners choose when declared work starts on their hosts, and plans that break a choice. T-2."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import replace, value
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.declarations import work_at_hand
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.hand_back import choice_of, deadline_of, hand_back_of, is_held, owners_on
from forewarn_core.fleet.host_admission import known_maintenance, plan_remaining_again
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan, pluralized
from forewarn_core.fleet.openings import Opening, Openings
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice, choice_key
from forewarn_core.fleet.refusals import ChoiceRefused
from forewarn_core.fleet.state import State
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.hand_back import CHOSEN, HAND_BACK
from forewarn_core.rules.other_waits import OPERATOR
from forewarn_core.rules.test_first import TEST_FIRST


@value
class ChoiceResult:
    """The answer to one choice."""

    choice: stimuli.HostChoice
    #: None: the choice is possible.
    blocker: Blocker | None = None
    #: The nearest openings of a choice that is not possible.
    openings: tuple[Opening, ...] = ()
    #: Whether the other owners on the host agree to a start before the deadline.
    agreed: bool = True
    #: Whether the owner holds the host after its test, so that no choice counts. Source: T-8.
    held: bool = False
    #: The earliest start of work that may start at any time, ms since the epoch UTC.
    earliest_ms: int = 0


def choose(draft: Draft, word: stimuli.ChooseStarts) -> tuple[int, ...]:
    """Record choices of owners, all or none, and plan by them. Source: T-2.

    Raises:
        ChoiceRefused: a choice would break a rule, or comes too late.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    records = []
    for each in results(draft, word):
        chosen = each.choice
        if chosen.gives_way and stands(
            draft.state, maintenance.number, chosen.host, owner=chosen.owner
        ):
            continue
        if each.blocker is not None:
            raise ChoiceRefused(
                host=chosen.host,
                maintenance=maintenance.id,
                problem=each.blocker.text,
                remedy=_remedy(maintenance, each),
            )
        start_ms = (
            _whole_seconds(chosen.start_ms) if chosen.decision is Decision.AT else draft.now_ms
        )
        records.append(
            OwnerChoice(
                choice_key(maintenance.number, chosen.host, chosen.owner),
                maintenance.number,
                chosen.host,
                chosen.owner,
                draft.now_ms,
                word.by,
                chosen.decision,
                start_ms,
                chosen.approves,
            )
        )
    if not records:
        return ()
    assert maintenance.declaration is not None
    answers = maintenance.declaration.answers + 1
    answered = replace(maintenance, declaration=replace(maintenance.declaration, answers=answers))
    text = f"{word.by} chose for {pluralized(len(records))} of {maintenance.id}"
    draft.put("declaration.chosen", text, answered, *records)
    plan_remaining_again(draft, answered, f"{answered.id} is planned again: an owner chose")
    return (word.maintenance,)


def stands(state: State, maintenance: int, host: str, *, owner: str) -> bool:
    """Whether an owner has a choice for its VMs on a host, and the plan can keep it."""
    choice = choice_of(state, maintenance, host, owner=owner)
    return choice is not None and not choice.displaced_ms


def results(draft: Draft, word: stimuli.ChooseStarts) -> list[ChoiceResult]:
    """Return the answer to each choice, in order, without recording any.

    Raises:
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = known_maintenance(draft, word.maintenance)
    if maintenance.declaration is None:
        problem = Blocker(OPERATOR, "", draft.now_ms, text="the maintenance is not declared")
        return [ChoiceResult(each, problem) for each in word.choices]
    openings = Openings(draft, maintenance)
    hosts = frozenset(maintenance.hosts)
    beside: dict[str, dict[str, stimuli.HostChoice]] = {}
    for each in word.choices:
        beside.setdefault(each.host, {})[each.owner] = each
    answers = []
    for each in word.choices:
        late = _why_too_late(draft, maintenance, each, hosts=hosts)
        if late:
            too_late = Blocker(HAND_BACK, "", draft.now_ms, text=late)
            answers.append(ChoiceResult(each, too_late))
            continue
        agreed = _is_agreed(draft, maintenance, each, beside=beside[each.host])
        held = is_held(draft.state, maintenance, each.host, owner=each.owner)
        until_ms = deadline_of(draft.state, maintenance, each.host, owner=each.owner)
        if each.decision is not Decision.AT:
            spans = openings.of(each.host, until_ms=until_ms)
            earliest_ms = spans[0].start_ms if spans else 0
            none = each.decision is Decision.NOW and not spans
            blocker = _no_opening(openings, each, until_ms=until_ms) if none else None
            answers.append(ChoiceResult(each, blocker, (), agreed, held, earliest_ms))
            continue
        start_ms = _whole_seconds(each.start_ms)
        blocker = openings.blocker(each.host, start_ms, until_ms=until_ms)
        nearest = tuple(openings.nearest(each.host, start_ms, until_ms=until_ms)) if blocker else ()
        if blocker is not None and blocker.code is TEST_FIRST:
            blocker = _of_other_owner(openings, each, blocker)
        answers.append(ChoiceResult(each, blocker, nearest, agreed, held))
        if blocker is None:
            openings.take(each.host, start_ms)
    return answers


def _is_agreed(
    draft: Draft,
    maintenance: Maintenance,
    choice: stimuli.HostChoice,
    *,
    beside: Mapping[str, stimuli.HostChoice],
) -> bool:
    """Whether the other owners on a host agree to a start before the hand-back deadline.

    `beside`: the call's choices for the host, by owner. A hold of the chooser is left out.
    """
    state, host = draft.state, choice.host
    supposed = {
        owner: replace(each, start_ms=_whole_seconds(each.start_ms))
        for owner, each in beside.items()
        if owner == choice.owner or not is_held(state, maintenance, host, owner=owner)
    }
    hand_back = hand_back_of(state, maintenance, host, now_ms=draft.now_ms, supposed=supposed)
    return not hand_back.at_ms or hand_back.subject == CHOSEN


def _of_other_owner(openings: Openings, choice: stimuli.HostChoice, blocker: Blocker) -> Blocker:
    """Return the blocker of a test in words for an owner that has not asked for the test."""
    if (choice.owner, choice.host) in openings.after_own_test:
        return blocker
    text = (
        "another owner of the host tests on other hosts first; choose an opening after that test, "
        "or release the host: then the work may start once the test is over"
    )
    return replace(blocker, text=text)


def _no_opening(openings: Openings, choice: stimuli.HostChoice, *, until_ms: int) -> Blocker | None:
    """Return why work on a host cannot start before a deadline; None in an emergency."""
    maintenance, host = openings.maintenance, choice.host
    if maintenance.exemption.emergency:
        return None
    tested_ms = openings.tested_ms(host) or 0
    soonest_ms = max(openings.soonest_ms, maintenance.earliest_ms or 0, tested_ms)
    blocker = openings.blocker(host, _whole_seconds(soonest_ms), until_ms=until_ms)
    if blocker is not None and blocker.code is TEST_FIRST:
        return _of_other_owner(openings, choice, blocker)
    if blocker is not None and blocker.code is not HAND_BACK:
        return blocker
    text = "no start is possible before the hand-back deadline"
    return Blocker(HAND_BACK, "", openings.now_ms, text=text)


def _why_too_late(
    draft: Draft, maintenance: Maintenance, choice: stimuli.HostChoice, *, hosts: Collection[str]
) -> str:
    """Return why nothing can be chosen for a host any more; empty if something can.

    `hosts`: those of the maintenance.
    """
    if choice.host not in hosts:
        return "it is not among the declared hosts"
    if choice.owner not in owners_on(draft.state, choice.host):
        return "the owner has no VM there"
    if work := work_at_hand(draft.state, maintenance, choice.host):
        return work
    if maintenance.exemption.emergency and choice.decision is Decision.AT:
        return "it is an emergency, for which only now and release can be chosen"
    deadline_ms = deadline_of(draft.state, maintenance, choice.host, owner=choice.owner)
    if draft.now_ms >= deadline_ms:
        return "the hand-back deadline has passed"
    return ""


def _whole_seconds(at_ms: int) -> int:
    """Return a time in whole seconds, as events have it."""
    return -(-at_ms // SECOND_MS) * SECOND_MS


def _remedy(maintenance: Maintenance, result: ChoiceResult) -> str:
    """Return what an owner can do about a choice that is not possible."""
    if maintenance.exemption.emergency:
        return "Choose with --now, or hand back with `forewarn declaration release`."
    command = f"forewarn declaration openings {maintenance.id} --host {result.choice.host}"
    return f"{_in_words(result.openings)}. See `{command}`."


def _in_words(openings: tuple[Opening, ...]) -> str:
    if not openings:
        return "There is no opening before the hand-back deadline"
    spans = [
        iso8601(each.start_ms)
        if each.start_ms == each.latest_ms
        else f"{iso8601(each.start_ms)} to {iso8601(each.latest_ms)}"
        for each in openings
    ]
    return f"The nearest openings are {', '.join(spans)}"


def note_displaced(draft: Draft, maintenance: Maintenance, plan: MaintenancePlan) -> None:
    """Mark the chosen starts that a plan cannot keep, and those that it keeps again. T-2.

    Costs the choices of the maintenance and the hosts of the plan.
    """
    if maintenance.declaration is None:
        return
    state, number = draft.state, maintenance.number
    starts_ms = {host: wave.latest_start_ms for wave in plan.waves for host in wave.hosts}
    changed = []
    for each in state.choices.values():
        if each.maintenance != number or each.decision is not Decision.AT:
            continue
        if draft.target(number, each.host) is not None:
            continue
        hand_back = hand_back_of(state, maintenance, each.host, now_ms=draft.now_ms)
        agreed = hand_back.subject == CHOSEN and hand_back.at_ms == each.start_ms
        displaced = agreed and starts_ms.get(each.host) != each.start_ms
        displaced = displaced or each.start_ms < draft.now_ms
        if displaced is not bool(each.displaced_ms):
            changed.append(replace(each, displaced_ms=draft.now_ms if displaced else None))
    if changed:
        text = f"the plan of {maintenance.id} changes whether {len(changed)} chosen starts are kept"
        draft.put("declaration.displaced", text, maintenance, *changed)
