"""Which hosts VMs left recently, to judge approvals that a metadata node accepted before.

The topology alone records where VMs are now. Source: M-3, M-5.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from forewarn.core.document import Departure
from forewarn.core.impact import SECOND_MS
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from forewarn.core.draft import Draft
    from forewarn.core.lifecycle import Event, Operation
    from forewarn.core.topology import Vm

DEPARTURES_MAX = 100
"""Maximum departures stored per group, the latest ones; each poll mark of the group writes them."""

HAND_OVER_S_MAX = 3600
"""Seconds after a VM has left a host in which that host's node may show it something new.

The old node serves the VM until the new node does, which may be cut off.
"""


def note(draft: Draft, left: Iterable[tuple[Vm, str]]) -> None:
    """Record which hosts VMs have just left, if an event may still depend on it.

    Costs the departures and live events of each enabled group.
    """
    by_group: defaultdict[str, list[Departure]] = defaultdict(list)
    for vm, host in left:
        by_group[vm.group].append(Departure(vm.name, host, draft.now_ms))
    for group, new in by_group.items():
        enrolment = draft.enrolment(group)
        if enrolment is None:
            continue
        live = draft.live_events_in(group)
        since_ms = min([_since_ms(operation) for operation, _ in live], default=draft.now_ms)
        kept = [each for each in enrolment.departures if each.left_ms >= since_ms]
        draft.mark(replace(enrolment, departures=tuple((*kept, *new)[-DEPARTURES_MAX:])))


def note_end(draft: Draft, ended: Operation) -> None:
    """Record the destinations of an ended move where the VMs did not arrive."""
    assert not ended.live, ended
    if ended.destinations:
        vms = draft.topology.vms
        there = [vms[name] for name in ended.vms if name in vms]
        note(
            draft,
            [
                (vm, to)
                for vm in there
                if (to := ended.destination_of(vm.name)) not in {"", vm.host}
            ],
        )


def was_shown(draft: Draft, event: Event, *, vm: Vm, hosts: Collection[str]) -> bool:
    """Whether a node of these hosts serves a VM, or did while an event could be approved."""
    if vm.host in hosts:
        return True
    enrolment, operation = draft.enrolment(event.group), draft.operation(event.operation)
    assert operation is not None, event
    if enrolment is None:
        return False
    since_ms = _since_ms(operation)
    return any(
        each.vm == vm.name and each.host in hosts and each.left_ms >= since_ms
        for each in enrolment.departures
    )


def _since_ms(operation: Operation) -> int:
    """Return from when on a departure matters to an operation; a fault has no notice: 0."""
    return (operation.notice.announced_ms or 0) - HAND_OVER_S_MAX * SECOND_MS
