"""Which hosts VMs have left lately, for approvals that a metadata node there accepted before that.

The topology alone says where VMs are. Source: M-3, M-5.
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
"""Departures that are kept of a group, the latest ones: they are written with each of its marks."""

HAND_OVER_S_MAX = 3600
"""How long after a VM has left a host, in seconds, the node there may have shown it something new:
it serves the VM until that VM's next node does, and that one may be away."""


def note(draft: Draft, left: Iterable[tuple[Vm, str]]) -> None:
    """Keep which hosts VMs have left now, while something may hang on it.

    Costs, for each group that is enabled, its departures and its live events.
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
    """Keep which hosts VMs were being moved to and are not on now; call once it has ended."""
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
    """Whether a node of these hosts serves a VM, or did when an event was there to be approved."""
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
    """Return from when a departure counts for an operation; of a fault, which has no notice: 0."""
    return (operation.notice.announced_ms or 0) - HAND_OVER_S_MAX * SECOND_MS
