"""Breakages of the core, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

STEP, WORK, ACTS = "forewarn.core.step", "forewarn.core.transitions", "forewarn.core.handlers"
PLANNER, DOCUMENT = "forewarn.core.admission", "forewarn.core.document"
STATE, APPROVALS = "forewarn.core.state", "forewarn.core.approvals"
MACHINES = "forewarn.core.lifecycle"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "early",
        "an operation starts five minutes before NotBefore",
        (
            (
                STEP,
                "operation.not_before_ms <= draft.now_ms:",
                "operation.not_before_ms - 300_000 <= draft.now_ms:",
            ),
            (
                "forewarn.core.draft",
                "        return [*self._state.starts.due(self.now_ms), ",
                "        return [*self._state.starts.due(self.now_ms + 300_000), ",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "one-group-forgotten",
        "one group's approval is enough for all groups on a host",
        (
            (
                STEP,
                "    if any(event.state is EventState.SCHEDULED for event in asked)",
                "    if all(event.state is EventState.SCHEDULED for event in asked)",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "incarnation-stands-still",
        "the incarnation does not move when the events change",
        (
            (
                DOCUMENT,
                (
                    "    incarnation = view.document.incarnation + 1\n"
                    "    assert incarnation > view.document.incarnation >= 0, view\n"
                ),
                "    incarnation = view.document.incarnation\n",
            ),
        ),
        caught_by="world 1: 2",
    ),
    Mutant(
        "incarnation-moves-twice",
        "the incarnation moves by two",
        ((DOCUMENT, "view.document.incarnation + 1", "view.document.incarnation + 2"),),
        caught_by="world 1: 2",
    ),
    Mutant(
        "incarnation-moves-without-change",
        "the incarnation moves although the events are the same",
        ((DOCUMENT, ("    if events == view.document.events:\n        return view\n"), ""),),
        caught_by="world 1: 2",
    ),
    Mutant(
        "foreign-event-shown",
        "events are shown to every group",
        (
            (STATE, "return tuple(self._by_group.get(group, ()))", "return tuple(self.events)"),
            (MACHINES, "return self.group == group and (", "return (True) and ("),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "own-document-of-a-gpu-vm-shows-all",
        "a GPU VM of one fault domain is shown events that do not name it",
        ((MACHINES, "(not vm or vm in self.resources)", "(True)"),),
        caught_by="world 1: 13",
    ),
    Mutant(
        "approval-answered-first",
        "an approval is answered 200 although it was not written",
        (
            (
                APPROVALS,
                "                approve_event(draft, event, by=(approval.vm,))\n",
                "                pass\n",
            ),
        ),
        caught_by="world 1: 11",
    ),
    Mutant(
        "second-fault-domain",
        "routine work disturbs two fault domains of a group",
        ((PLANNER, "if elsewhere != zone and", "if elsewhere == () and"),),
        caught_by="world 1: 5",
    ),
    Mutant(
        "second-fault-domain-at-the-start",
        "a second fault domain is looked at when work is announced, not when it starts",
        (
            (
                STEP,
                "    blocked = admission.obstacle(draft, operation) if reason else None\n",
                "    blocked = None\n",
            ),
        ),
        caught_by="transcript L-6-later-than-approval",
    ),
    Mutant(
        "coupling-dropped",
        "an approved deletion does not wait for the others of its request",
        (
            (
                APPROVALS,
                ("    if operation.impact is not Impact.TERMINATE:\n        return False\n"),
                ("    if operation:\n        return False\n"),
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "driver-begun-twice",
        "a driver is called to begin twice",
        (
            (
                "forewarn.control.driver_calls",
                "        driver.begin(call.task)\n",
                ("        driver.begin(call.task)\n        driver.begin(call.task)\n"),
            ),
        ),
        caught_by="world 1: 9",
    ),
    Mutant(
        "started-for-ever",
        "the events of an ended operation stay Started",
        (
            (
                WORK,
                ("    gone = [move_event(event, move) for event in draft.events_of(operation)]\n"),
                "    gone = []\n",
            ),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "cancelled-for-ever",
        "the events of a cancelled operation stay Scheduled",
        (
            (
                WORK,
                (
                    "    gone = [move_event(event, Move.CANCEL) for event in "
                    "draft.events_of(operation)]\n"
                ),
                "    gone = []\n",
            ),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "late-notice-kept",
        "a notice that is shown late is not given again",
        (
            (
                ACTS,
                (
                    "        if operation.not_before_ms - draft.now_ms < "
                    "operation.notice_s * SECOND_MS:\n"
                ),
                "        if not operation:\n",
            ),
        ),
        caught_by="world 3: 6",
    ),
    Mutant(
        "unseen-notice-kept",
        "a notice that a crash kept from being shown is not given again",
        (
            (
                ACTS,
                (
                    "        if operation.state is OperationState.ANNOUNCED and not "
                    "operation.shown_ms:\n"
                    "            transitions.renew"
                ),
                ("        if not operation:\n            transitions.renew"),
            ),
        ),
        caught_by="transcript L-7-crash-after-commit",
    ),
    Mutant(
        "beginning-forgotten",
        "what a crash kept from being begun is not begun after the restart",
        (
            (
                ACTS,
                ("            draft.begin.append(operation.number)\n    draft.abort +="),
                ("            pass\n    draft.abort +="),
            ),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "disabled-group-waited-for",
        "work waits for groups that are not enabled",
        (
            (
                STEP,
                "SCHEDULED for event in asked)",
                "SCHEDULED for event in draft.events_of(operation))",
            ),
        ),
        caught_by="transcript B-2-silent-during-an-event",
    ),
    Mutant(
        "silent-group-stays",
        "a group that is silent for a day is not disabled",
        (
            (
                ACTS,
                ("            _disable(draft, enrolment)\n    draft"),
                ("            pass\n    draft"),
            ),
        ),
        caught_by="transcript B-2-silent-day",
    ),
    Mutant(
        "strictness-ignored",
        "one approval is enough in a strict group",
        (
            (
                APPROVALS,
                ("            if draft.topology.groups[event.group].strict_approval:\n"),
                "            if not event:\n",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "foreign-event-approved",
        "a VM can approve any event",
        (
            (
                APPROVALS,
                "        if not event.belongs_in(vm.group, own):\n",
                "        if not event:\n",
            ),
        ),
        caught_by="transcript A-3-unknown",
    ),
    Mutant(
        "unknown-id-accepted",
        "an approval of an unknown id is answered 200",
        (
            (
                APPROVALS,
                (
                    "        if vm is None or event is None or not event.live:\n"
                    "            raise UnknownEvent(event_id=event_id)\n"
                ),
                (
                    "        if vm is None or event is None or not event.live:\n"
                    "            continue\n"
                ),
            ),
        ),
        caught_by="world 1: 7",
    ),
    Mutant(
        "limit-dropped",
        "there is no limit on scheduled user-initiated work",
        (
            (
                PLANNER,
                "        if before + count > limit:\n",
                "        if not owner and not count:\n",
            ),
        ),
        caught_by="transcript O-1-limit",
    ),
    Mutant(
        "everything-approved-by-policy",
        "automatic approval covers everybody's work",
        (
            (
                WORK,
                "    for event in approved:\n",
                "    for event in events:\n",
            ),
        ),
        caught_by="world 1: 1",
    ),
    Mutant(
        "failure-leaves-work",
        "a host's failure does not end what runs on it",
        (
            (
                WORK,
                "            end(draft, other, failed=True, reason=reason, abort=True)\n",
                "            pass\n",
            ),
        ),
        caught_by="transcript L-4-fails-under-maintenance",
    ),
    Mutant(
        "failure-announced",
        "a host failure is first shown as Scheduled",
        (
            (
                WORK,
                (
                    '    draft.put("operation.started", f"{running.id} is running", '
                    "running, *started)\n"
                ),
                ('    draft.put("operation.started", f"{running.id} is running", running)\n'),
            ),
        ),
        caught_by="world 1: 8",
    ),
    Mutant(
        "retry-without-number",
        "a retry is not a new attempt",
        (
            (
                ACTS,
                "again = replace(operation, attempt=operation.attempt + 1, ",
                "again = replace(operation, attempt=operation.attempt, ",
            ),
        ),
        caught_by="world 2: 9",
    ),
    Mutant(
        "incarnation-lost-on-restart",
        "incarnations start over when the service does",
        (
            (
                "forewarn.core.records",
                "    return read_document(str(value))\n",
                "    return Document(0, read_document(str(value)).events)\n",
            ),
        ),
        caught_by="world 2: 2",
    ),
    Mutant(
        "arrivals-without-notice",
        "VMs that arrive on a host get no notice of the work announced there",
        ((WORK, "            _announce_anew(draft, other)\n", "            pass\n"),),
        caught_by="transcript L-5-nothing-more-without-an-event",
    ),
    Mutant(
        "alert-dropped",
        "an operation that runs too long raises no alert",
        (
            (
                ACTS,
                "        late = replace(operation, alerted=True)\n        draft.put",
                "        late = operation\n        (lambda *_: None)",
            ),
        ),
        caught_by="world 1: 13",
    ),
    Mutant(
        "notice-cut",
        "a Redeploy gets nine minutes of notice",
        (
            (
                "forewarn.core.impact",
                "    Impact.REDEPLOY: 10 * MINUTE_S,\n",
                "    Impact.REDEPLOY: 9 * MINUTE_S,\n",
            ),
        ),
        caught_by="world 1: 6",
    ),
    Mutant(
        "two-works-on-a-host",
        "work begins on a host that is worked on already",
        (
            (
                PLANNER,
                "        if other is not None:\n            text",
                "        if other is not None and not operation:\n            text",
            ),
        ),
        caught_by="transcript G-1-users-own-host-work",
    ),
)
