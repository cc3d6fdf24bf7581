"""When Scheduled Events is enabled for a group, and when it is disabled. Source: B-1, B-2."""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.approvals import wake_coupled
from forewarn_core.fleet.document import Enrolment, fresh
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import MINUTE_S, SECOND_MS
from forewarn_core.fleet.indexes import deletion_key
from forewarn_core.fleet.refusals import Unknown

#: Polls are recorded to the minute to save writes; the time limit is a day (B-2).
POLL_RECORD_INTERVAL_S = MINUTE_S
#: Absences of the service shorter than this, in seconds, are not recorded for each group.
AWAY_S_MIN = 2 * POLL_RECORD_INTERVAL_S


def enable(draft: Draft, enabling: stimuli.Enable) -> None:
    """Enable Scheduled Events for a group, at its first GET, or earlier. Source: B-1."""
    group = draft.topology.groups.get(enabling.group)
    if group is None:
        raise Unknown(kind="group", name=enabling.group)
    if draft.enabled(group.name):
        return
    enabled_ms = 0 if enabling.early else draft.now_ms
    enrolment = Enrolment(group.name, enabled_ms=enabled_ms, polled_ms=draft.now_ms)
    last = draft.changes.last_number
    views = [fresh(key, group.name, last) for key in draft.topology.views_of(group.name)]
    text = f"Scheduled Events is enabled for {group.name}"
    draft.put("group.enabled", text, enrolment, *views)
    draft.show(group.name)
    for event in draft.live_events_in(group.name):  # it may be approved already: N-3
        draft.look_at(event.operation)


def polled(draft: Draft, report: stimuli.GroupsPolled) -> None:
    """Record polls of groups to the minute, even after the clock was set back. See B-2, F-5.

    The first poll after a notice is recorded at once, because it shows that the group knows of it.
    """
    at_ms, operations = draft.now_ms - report.age_ms, draft.state.operations
    for group in sorted(report.groups):
        enrolment = draft.enrolment(group)
        if enrolment is None:
            continue
        if not enrolment.enabled_ms and not report.forgiven:
            draft.mark(replace(enrolment, enabled_ms=at_ms, polled_ms=at_ms))
        elif enrolment.polled_ms > draft.now_ms:
            draft.mark(replace(enrolment, polled_ms=draft.now_ms))
        elif enrolment.polled_ms <= at_ms - POLL_RECORD_INTERVAL_S * SECOND_MS or any(
            enrolment.polled_ms < (operations[event.operation].notice.shown_ms or 0) <= at_ms
            for event in draft.live_events_in(group)
        ):
            draft.mark(replace(enrolment, polled_ms=at_ms))


def disable_silent(draft: Draft) -> None:
    """Disable the groups whose VMs have not polled for a day. Source: B-2."""
    silent_ms = draft.now_ms - disabled_ms(0, draft.policy.disable_after_s)
    for group in draft.state.polls.due(silent_ms):
        enrolment = draft.enrolment(group)
        if enrolment is not None and enrolment.polled_ms <= silent_ms:
            _disable(draft, enrolment)


def _disable(draft: Draft, enrolment: Enrolment) -> None:
    """Disable a group, and look at the work that waits for its VMs."""
    group = enrolment.group
    views = draft.views_in(group)
    text = f"Scheduled Events is disabled for {group}: nobody asked"
    draft.remove("group.disabled", text, enrolment, *views)
    for event in draft.live_events_in(group):
        operation = draft.state.operations[event.operation]
        draft.look_at(operation.number)
        wake_coupled(draft, operation, deletion_key(operation))


def forgive(draft: Draft, away_ms: int) -> None:
    """Do not count downtime of the service as silence of its VMs. See B-2.

    Poll times ahead of this clock are set back, so that they do not look recent later. See F-5.
    """
    forgiven_ms = away_ms if away_ms > AWAY_S_MIN * SECOND_MS else 0
    for enrolment in tuple(draft.state.enrolments.values()):
        polled_ms = min(enrolment.polled_ms + forgiven_ms, draft.now_ms)
        if polled_ms != enrolment.polled_ms:
            draft.mark(replace(enrolment, polled_ms=polled_ms))


def disabled_ms(polled_ms: int, after_s: int) -> int:
    """Return when a group is disabled after its last poll, ms since the epoch UTC.

    See B-2.
    """
    return polled_ms + (after_s + POLL_RECORD_INTERVAL_S) * SECOND_MS
