"""Work that VMs could not be shown, because their metadata node or its process is cut off.

Policy says for each impact whether such work waits or goes on; history and `why` name the VMs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.planning.blockers import Blocker, Code
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.lifecycle import Operation
    from forewarn.core.stimulus import NotShown

#: VMs that one sentence of history names.
NAMED_MAX = 20


def waits_until_shown(draft: Draft, operation: Operation, vms: tuple[str, ...]) -> bool:
    """Work whose notice VMs could not be shown waits if policy lists its impact. Source: H-7.

    Its notice does not count until they are shown it. It starts without if every group approves
    it, or a person does for the group. Work whose notice was shown does not wait again before it
    begins: its VMs know from when on it may.

    Args:
        draft: the draft to read.
        operation: a live operation.
        vms: those of its VMs that are not shown it.
    """
    waiting_impacts = draft.maintenance_policy.wait_until_shown
    return bool(vms) and operation.unnoticed and operation.impact.value in waiting_impacts


def unseen_vms(draft: Draft, operation: Operation, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the VMs of an operation that listen on these hosts; without hosts, on any."""
    vms = draft.topology.vms
    return tuple(
        name
        for name in operation.vms
        if name in vms and (not hosts or vms[name].host in hosts) and draft.enabled(vms[name].group)
    )


def not_shown(draft: Draft, report: NotShown) -> tuple[int, ...]:
    """Report which VMs were not shown an operation in time; repeats are left out. M-4, H-7."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None:
            continue
        vms = unseen_vms(draft, operation, report.hosts)
        waited = waits_until_shown(draft, operation, operation.unseen_vms)
        if waited and vms in {(), operation.unseen_vms}:
            continue
        names = (
            f"vm {_some(vms)}" if vms else f"other VMs of its groups on host {_some(report.hosts)}"
        )
        text = (
            f"node {_some(report.nodes)} did not show {operation.id} in time: "
            f"{names} may not know of it"
        )
        if waits_until_shown(draft, operation, vms):
            text += ", and it waits for them"
        draft.put("operation.not-shown", text, replace(operation, unseen_vms=vms))
    return ()


def unseen_blocker(draft: Draft, operation: Operation) -> Blocker | None:
    """Return what work waits for that VMs could not be shown; None if it does not wait."""
    if not waits_until_shown(draft, operation, operation.unseen_vms):
        return None
    return _blocker(
        operation,
        f"vm {_some(operation.unseen_vms)} cannot be shown {operation.id}: their metadata node is "
        "cut off; it waits until they are shown it, or until it is approved for them",
    )


def unseen_note(operation: Operation) -> Blocker | None:
    """Return which VMs may not know of work that goes on without them; None: all know."""
    if not operation.unseen_vms:
        return None
    text = f"vm {_some(operation.unseen_vms)} may not know of it: their metadata node was cut off"
    return _blocker(operation, text)


def _blocker(operation: Operation, text: str) -> Blocker:
    since_ms = operation.notice.announced_ms or operation.created_ms
    return Blocker(Code.UNSEEN, ", ".join(operation.unseen_vms), since_ms, text=text)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
