"""Work whose notice VMs could not read because their metadata node is cut off.

Policy decides for each impact whether such work waits; history and `why` name the VMs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.planning.blockers import Blocker, Code
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.lifecycle import Operation
    from forewarn.core.stimulus import NotShown

#: Maximum VMs that one sentence of history names.
NAMED_MAX = 20


def waits_until_shown(draft: Draft, operation: Operation, vms: tuple[str, ...]) -> bool:
    """Whether work waits because VMs could not be shown its notice. Source: H-7.

    The policy lists the impacts that wait. The notice period starts once the VMs can read the
    notice. The work starts earlier if every group, or an operator for the group, approves it. Work
    whose notice was shown does not wait again before it begins: its VMs know its NotBefore.

    Args:
        draft: the draft to read.
        operation: a live operation.
        vms: its VMs that were not shown the notice.
    """
    waiting_impacts = draft.maintenance_policy.wait_until_shown
    return bool(vms) and operation.unnoticed and operation.impact.value in waiting_impacts


def unseen_vms(draft: Draft, operation: Operation, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return an operation's VMs of enabled groups on these hosts; an empty list: all hosts."""
    vms = draft.topology.vms
    return tuple(
        name
        for name in operation.vms
        if name in vms and (not hosts or vms[name].host in hosts) and draft.enabled(vms[name].group)
    )


def not_shown(draft: Draft, report: NotShown) -> tuple[int, ...]:
    """Record which VMs were not shown an operation in time; repeats are left out. M-4, H-7."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None:
            continue
        vms = unseen_vms(draft, operation, report.hosts)
        waited = waits_until_shown(draft, operation, operation.unseen_vms)
        known = operation.unseen_vms if operation.unnoticed else ()
        if known and (vms == known or (waited and not vms)):
            continue
        names = (
            f"vm {_some(vms)}" if vms else f"other VMs of its groups on host {_some(report.hosts)}"
        )
        nodes = "nodes" if len(report.nodes) > 1 else "node"
        text = (
            f"{nodes} {_some(report.nodes)} did not show {operation.id} in time: "
            f"{names} may not know of it"
        )
        if waits_until_shown(draft, operation, vms):
            text += ", and it waits for them"
        draft.put("operation.not-shown", text, replace(operation, unseen_vms=vms))
    return ()


def unseen_blocker(draft: Draft, operation: Operation) -> Blocker | None:
    """Return a blocker that names the VMs not shown the work; None if it does not wait."""
    if not waits_until_shown(draft, operation, operation.unseen_vms):
        return None
    return _blocker(
        operation,
        f"vm {_some(operation.unseen_vms)} cannot see {operation.id}, because a metadata node is "
        f"disconnected: {operation.id} waits for the node, or for an approval",
    )


def unseen_note(operation: Operation) -> Blocker | None:
    """Return a note on VMs that may not know of work that continues; None: all VMs know."""
    if not operation.unseen_vms:
        return None
    vms = _some(operation.unseen_vms)
    text = f"vm {vms} may not know of {operation.id}: a metadata node was disconnected"
    return _blocker(operation, text)


def _blocker(operation: Operation, text: str) -> Blocker:
    since_ms = operation.notice.announced_ms or operation.created_ms
    return Blocker(Code.UNSEEN, ", ".join(operation.unseen_vms), since_ms, text=text)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
