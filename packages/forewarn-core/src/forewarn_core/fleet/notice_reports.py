"""What the metadata service reports about notices: VMs can read them, or cannot. M-4, N-1."""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import transitions
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.waiting import some_names, unseen_vms, waits_until_shown


def shown(draft: Draft, report: stimuli.NoticeShown) -> None:
    """Record that a notice is published; restart a late notice. See N-1."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None or not operation.unnoticed:  # a report may be repeated
            continue
        delay_ms = draft.now_ms - operation.announced_ms
        if waits_until_shown(draft, operation, operation.unseen_vms):  # these VMs see the work now
            operation, delay_ms = replace(operation, unseen_vms=()), 0
        if operation.not_before_ms - draft.now_ms < operation.notice_s * SECOND_MS:
            transitions.renew(draft, operation, delay_ms=delay_ms)
            continue
        notice = replace(operation.notice, shown_ms=draft.now_ms)
        shown = replace(operation, notice=notice)
        draft.put("operation.shown", f"the notice of {shown.id} is published", shown)
        draft.look_at(number)


def not_shown(draft: Draft, report: stimuli.NotShown) -> None:
    """Record which VMs were not shown an operation in time; repeats are left out. M-4, H-7."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None:
            continue
        vms = unseen_vms(draft, operation, report.hosts)
        waited = waits_until_shown(draft, operation, operation.unseen_vms)
        recorded = operation.unseen_vms if operation.unnoticed else ()
        is_repeat = vms == recorded or (waited and not vms)
        if recorded and is_repeat:
            continue
        names = (
            f"VM {some_names(vms)}"
            if vms
            else f"other VMs of its groups on host {some_names(report.hosts)}"
        )
        nodes = "nodes" if len(report.nodes) > 1 else "node"
        text = (
            f"{nodes} {some_names(report.nodes)} did not show {operation.id} in time: "
            f"{names} may not know of it"
        )
        if waits_until_shown(draft, operation, vms):
            text += ", and it waits for them"
        draft.put("operation.not-shown", text, replace(operation, unseen_vms=vms))
