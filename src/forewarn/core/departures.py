"""Records the hosts that VMs left recently, to check approvals from the old hosts' nodes.

The topology records the current hosts of VMs. Source: M-3, M-5.
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
"""Maximum departures stored per group, the latest ones; each recorded poll of the group writes all
of them."""

OLD_NODE_SERVES_S_MAX = 3600
"""Seconds after a VM has left a host in which the old host's node may show the VM new events.

The old node serves the VM until the new host's node takes over, even if that node is cut off.
"""


def note(draft: Draft, left: Iterable[tuple[Vm, str]]) -> None:
    """Record the hosts that VMs have just left, if a live event may depend on them.

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
    """Record the destinations that an ended move's VMs did not reach."""
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
    """Return the earliest departure that matters to an operation; 0 for faults (no notice)."""
    return (operation.notice.announced_ms or 0) - OLD_NODE_SERVES_S_MAX * SECOND_MS
