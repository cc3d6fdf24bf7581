"""Whether a host of a maintenance may be done later, as an owner asks; and what follows.

Source: F-8. When it is done instead is decided by the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import transitions
from forewarn.core.impact import SECOND_MS
from forewarn.core.labels import words_of
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance.records import Maintenance, MaintenanceState, Postponement
from forewarn.core.maintenance.refusals import PostponementRefused, UnknownMaintenance
from forewarn.planning.eligible import HORIZON_MS
from forewarn.planning.windows import open_spans, without
from forewarn.protocol.timestamps import iso8601
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.maintenance.stimuli import PostponeHosts

#: Postponements that one maintenance keeps.
POSTPONED_MAX = 1000


def postpone(draft: Draft, word: PostponeHosts) -> None:
    """Grant a later start for some hosts, all or none; costs the hosts of the maintenance.

    What is announced for them is withdrawn, and announced again with its whole notice.

    Raises:
        PostponementRefused: the policy, the deadline or the state of a host forbids it.
        UnknownMaintenance: there is no such live maintenance.
    """
    maintenance = draft.maintenances.get(word.maintenance)
    if maintenance is None or not maintenance.live:
        raise UnknownMaintenance(name=f"m-{word.maintenance}")
    known = {each.host: each for each in maintenance.postponed}
    for host in word.hosts:
        from_ms = (
            known[host].from_ms if host in known else _first_start_ms(draft, maintenance, host)
        )
        problem = _problem(draft, maintenance, host, from_ms=from_ms, until_ms=word.until_ms)
        if problem:
            raise PostponementRefused(host=host, maintenance=maintenance.id, problem=problem)
        known[host] = Postponement(host, word.until_ms, from_ms, word.by, word.reason)
    if len(known) > POSTPONED_MAX:
        problem = f"a maintenance keeps {POSTPONED_MAX} postponements at most"
        raise PostponementRefused(host=word.hosts[0], maintenance=maintenance.id, problem=problem)
    postponed = replace(maintenance, postponed=tuple(known[host] for host in sorted(known)))
    until = iso8601(word.until_ms)
    text = f"{', '.join(word.hosts)} of {postponed.id} postponed until {until} for {word.by}"
    draft.put("maintenance.postponed", f"{text}: {word.reason}" if word.reason else text, postponed)
    for host in word.hosts:
        target = draft.maintenances.target(postponed.number, host)
        operation = draft.operation(target.operation) if target else None
        if operation is not None and operation.state is OperationState.ANNOUNCED:
            transitions.cancel(draft, operation, f"postponed for {word.by}")
    plan_rest_again(draft, postponed, f"{postponed.id} is planned again: hosts were postponed")


def plan_rest_again(draft: Draft, maintenance: Maintenance, text: str) -> None:
    """Have planned again what is not announced, unless that is to come anyway."""
    planned = maintenance.running or maintenance.state is MaintenanceState.DRAFT
    if maintenance.plan_wanted or not maintenance.due_ms or not planned:
        return
    again = replace(maintenance, wave=0, plan_wanted=True, plan_due=False, due_ms=0)
    draft.put("maintenance.replanning", text, again)
    draft.unplanned.add(again.number)


def _first_start_ms(draft: Draft, maintenance: Maintenance, host: str) -> int:
    """Return when a host would start at the latest as things are, ms since the epoch UTC."""
    target = draft.maintenances.target(maintenance.number, host)
    operation = draft.operation(target.operation) if target else None
    if operation is not None:
        return operation.not_before_ms
    plan = draft.maintenances.plan(maintenance.plan)
    for wave in plan.waves if plan else ():
        if host in wave.hosts:
            return wave.latest_start_ms
    return max(draft.now_ms, maintenance.earliest_ms)


def _problem(
    draft: Draft, maintenance: Maintenance, host: str, *, from_ms: int, until_ms: int
) -> str:
    """Say why a host may not be postponed until then; empty if it may."""
    if host not in maintenance.hosts:
        return "it is not among its hosts"
    target = draft.maintenances.target(maintenance.number, host)
    operation = draft.operation(target.operation) if target else None
    if target and (operation is None or operation.state is not OperationState.ANNOUNCED):
        return "its work has started already"
    if until_ms <= draft.now_ms:
        return f"{iso8601(until_ms)} has passed"
    limit_s = draft.maintenance_policy.postpone_max_s
    if not limit_s:
        return "the policy does not allow postponing"
    latest_ms = from_ms + limit_s * SECOND_MS
    if until_ms > latest_ms:
        return f"the policy allows {iso8601(latest_ms)} at the latest"
    duration_ms = maintenance.duration_s * SECOND_MS
    if maintenance.deadline_ms and until_ms + duration_ms > maintenance.deadline_ms:
        return f"it would end after the deadline, {iso8601(maintenance.deadline_ms)}"
    end_ms = maintenance.deadline_ms or until_ms + HORIZON_MS
    if not _has_opening(draft, host, (until_ms, end_ms), duration_ms):
        return "no window is open long enough after that time"
    return ""


def _has_opening(draft: Draft, host: str, span: tuple[int, int], duration_ms: int) -> bool:
    """Whether the windows and freezes of a host leave one opening in a span that is long enough."""
    known = draft.topology.hosts.get(host)
    policy = draft.maintenance_policy
    labels = words_of(known) if known else frozenset[str]()
    windows = [each for each in policy.windows if labels.issuperset(each.hosts)]
    spans = without(open_spans(windows, *span), policy.freezes)
    return any(min(end, span[1]) - max(start, span[0]) >= duration_ms for start, end in spans)
