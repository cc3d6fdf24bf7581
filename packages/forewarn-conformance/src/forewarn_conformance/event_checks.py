"""Checks that create an event with hooks, and follow the event to its end."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from forewarn_conformance.checks import (
    NOBODYS,
    CheckList,
    ConformanceFault,
    NotApplicable,
    approval_of,
    demand,
    expect_status,
)
from forewarn_conformance.event_trial import POLL_EVERY_S, EventTrial

#: Least notice of each type, in seconds. Source: N-1.
NOTICE_S = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}
#: Number of unchanged documents after which a refused approval counts as without effect.
LOOKS = 3

EVENT_CHECKS: CheckList[EventTrial] = CheckList()
_check = EVENT_CHECKS.add


@_check("L-1", "a new event is shown as Scheduled")
def _shown(trial: EventTrial) -> None:
    _, event = trial.scheduled()
    demand(event.get("EventStatus") == "Scheduled", f"the status is {event.get('EventStatus')!r}")


@_check("N-1", "NotBefore leaves the least notice of the type")
def _notice(trial: EventTrial) -> None:
    sight, event = trial.scheduled()
    kind = str(event.get("EventType"))
    demand(kind in NOTICE_S, f"the type {kind} is unknown")
    # The event may have appeared right after the last document without the event.
    unseen = [each for each in trial.sights if each.event(trial.event_id()) is None]
    not_before_s = parsedate_to_datetime(str(event["NotBefore"])).timestamp()
    shown_s = unseen[-1].read_s if unseen else sight.read_s
    notice_s = round(not_before_s - shown_s)
    demand(
        notice_s >= NOTICE_S[kind], f"a {kind} has a notice of {notice_s} s, not {NOTICE_S[kind]} s"
    )


@_check("S-1", "every VM of the group sees the event")
def _peer(trial: EventTrial) -> None:
    peer = trial.hooks.peer
    if peer is None:
        raise NotApplicable("no other VM of the group is known (--peer)")
    trial.scheduled()
    mine, theirs = (trial.target.get(), peer.get())
    demand(mine.body == theirs.body, "another VM of the group sees another document")


@_check("S-4", "a VM of another group can neither read nor approve the event")
def _other(trial: EventTrial) -> None:
    other = trial.hooks.other
    if other is None:
        raise NotApplicable("no VM of another group is known (--other)")
    _, event = trial.scheduled()
    demand(str(event["EventId"]).encode() not in other.get().body, "the other VM sees the event")
    unknown, foreign = (other.post(approval_of(each)) for each in (NOBODYS, event["EventId"]))
    demand(foreign.status != 200, "the other VM can approve the event")
    event_id = str(event["EventId"]).lower().encode()
    theirs = foreign.body.lower().replace(event_id, NOBODYS.encode())
    same = (foreign.status, theirs) == (unknown.status, unknown.body.lower())
    demand(same, "the refusal differs between a foreign id and an unknown id")


@_check("A-2", "a malformed approval approves none of its events")
def _all_or_nothing(trial: EventTrial) -> None:
    if not trial.hooks.approve:
        raise NotApplicable("the suite may not approve events (--approve)")
    _, event = trial.scheduled()
    event_id = str(event["EventId"])
    body = b'{"StartRequests":[{"EventId":"%s"},{}]}' % event_id.encode()
    expect_status(trial.target.post(body), 400, of="an approval with a malformed element")
    expect_status(
        trial.target.post(approval_of(event_id, NOBODYS)),
        400,
        404,
        of="an approval with an unknown id",
    )
    for _ in range(LOOKS):
        now = trial.look().event(event_id)
        demand(now and now["EventStatus"] == "Scheduled", "the event started despite the refusal")
        trial.target.pause(POLL_EVERY_S)


@_check("A-1", "an approval in any format of clients is answered 200, without a body")
def _approved(trial: EventTrial) -> None:
    trial.approved()


@_check("A-1", "a repeated approval is answered 200")
def _repeated(trial: EventTrial) -> None:
    event = trial.approved()
    trial.look()
    if trial.sights[-1].event(str(event["EventId"])) is None:
        raise NotApplicable("the event ended before the next document")
    reply = trial.target.post(approval_of(str(event["EventId"])))
    expect_status(reply, 200, of="the second approval of an event")


@_check("L-1", "an approved event starts")
def _started(trial: EventTrial) -> None:
    _, event = trial.started()
    if event is not None:
        demand(event.get("EventStatus") == "Started", f"the status is {event.get('EventStatus')!r}")


@_check("D-7", "NotBefore of a started event is empty")
def _no_time(trial: EventTrial) -> None:
    _, event = trial.started()
    if event is None:
        raise NotApplicable("the event ended before the next document")
    demand(event.get("NotBefore") == "", f"NotBefore is {event.get('NotBefore')!r}")


@_check("L-5", "an ended event disappears")
def _ended(trial: EventTrial) -> None:
    trial.ended()


@_check("A-3", "the approval of an ended event is refused")
def _finished(trial: EventTrial) -> None:
    _, event = trial.ended()
    reply = trial.target.post(approval_of(str(event["EventId"])))
    demand(400 <= reply.status < 500, f"the answer has status {reply.status}")


@_check("L-3", "a withdrawn event disappears without a start")
def _withdrawn(trial: EventTrial) -> None:
    schedule, cancel = trial.hooks.schedule, trial.hooks.cancel
    if schedule is None or cancel is None:
        raise NotApplicable("nothing can withdraw an event (--schedule, --cancel)")
    _over(trial)
    trial.announced(schedule)
    event_id = trial.event_id()
    cancel()
    for sight in trial.wait_gone(event_id, "the withdrawn event is still shown"):
        event = sight.event(event_id)
        demand(not event or event["EventStatus"] == "Scheduled", "the event has started")


@_check("L-4", "a failure is shown as Started at once")
def _failure(trial: EventTrial) -> None:
    if trial.hooks.fail is None:
        raise NotApplicable("nothing can cause a failure (--fail)")
    _over(trial)
    event = trial.announced(trial.hooks.fail).event(trial.event_id())
    assert event is not None, "the event that was announced is in the document"
    demand(event["EventStatus"] == "Started", f"the status is {event['EventStatus']!r}")
    demand(event["NotBefore"] == "", f"NotBefore is {event['NotBefore']!r}")
    if trial.hooks.approve:
        trial.wait_gone(trial.event_id(), "the failure does not end")


@_check("C-2", "Forewarn's agent prepares for an event of the server, and approves it")
def _agent(trial: EventTrial) -> None:
    run, schedule = trial.hooks.agent, trial.hooks.schedule
    if run is None or schedule is None:
        raise NotApplicable("the check with the agent was not requested (--agent, --schedule)")
    _over(trial)

    def follow() -> str:
        trial.announced(schedule)
        trial.wait_gone(trial.event_id(), "the event that the agent should approve is still shown")
        return trial.event_id()

    run(follow)


@_check("D-1", "the incarnation grows exactly when the events change")
def _incarnation(trial: EventTrial) -> None:
    if not trial.sights:
        trial.scheduled()
    for before, after in zip(trial.sights, trial.sights[1:], strict=False):
        step = after.incarnation - before.incarnation
        if after.events == before.events:
            demand(step == 0, f"the incarnation changes by {step} although no event changes")
        else:
            demand(step > 0, f"the incarnation changes by {step} although the events changed")


def _over(trial: EventTrial) -> None:
    """Wait until no event of an earlier check remains."""
    try:
        trial.finish()
    except ConformanceFault as fault:
        raise NotApplicable(f"an earlier event remains: {fault}") from fault
