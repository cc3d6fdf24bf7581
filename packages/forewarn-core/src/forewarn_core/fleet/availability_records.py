"""Records from which the availability of VMs is computed, far beyond the limits of history.

A step writes them in the commit of the change itself. Pure. Source: T-13.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from forewarn_base.values import Word, value
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Event, EventState, Operation
from forewarn_core.fleet.outcomes import EventOutcome, EventResult
from forewarn_core.fleet.topology import Group, Vm


class AvailabilityKind(Word):
    """What a record is about."""

    #: VMs were handed over to the owner of their group.
    ARRIVED = "arrived"
    #: VMs were deleted, or left their group or its owner.
    LEFT = "left"
    #: An event has left its document after it was Started.
    EVENT = "event"


@value
class AvailabilityRecord:
    """A change that the availability of VMs depends on.

    Times are ms since the epoch UTC; 0: never. The members after `vms` are those of an event.
    """

    #: When it happened; of an event, when it left its document, and 0 while it is Started.
    at_ms: int
    kind: AvailabilityKind
    group: str
    owner: str
    #: Sorted names.
    vms: tuple[str, ...]
    event: str = ""
    #: Numbers; 0: none.
    operation: int = 0
    maintenance: int = 0
    cause: Cause | None = None
    impact: Impact | None = None
    source: Source | None = None
    result: EventResult | None = None
    #: Required notice, in seconds.
    notice_s: int = 0
    announced_ms: int = 0
    #: When the notice was known to be published.
    shown_ms: int = 0
    not_before_ms: int = 0
    approved_ms: int = 0
    started_ms: int = 0
    #: Longest interruption that the driver measured; -1: not measured.
    interruption_ms: int = -1


def event_record(
    event: Event, operation: Operation, owner: str, *, at_ms: int
) -> AvailabilityRecord:
    """Return the record of an event that has ended at a time; `at_ms` 0: it is Started."""
    notice = operation.notice
    started_ms = event.started_ms or operation.execution.started_ms
    assert started_ms is not None, event
    return AvailabilityRecord(
        at_ms,
        AvailabilityKind.EVENT,
        event.group,
        owner,
        event.resources,
        event.id,
        operation.number,
        operation.maintenance,
        operation.cause,
        operation.impact,
        operation.source,
        EventOutcome(event, operation).result,
        operation.notice_s,
        notice.announced_ms or 0,
        notice.shown_ms or 0,
        notice.not_before_ms or 0,
        event.approved_ms or 0,
        started_ms,
        operation.execution.interruption_ms,
    )


def started_events(
    events: Iterable[Event], operations: Mapping[int, Operation], groups: Mapping[str, Group]
) -> list[AvailabilityRecord]:
    """Return the records of events that are Started now."""
    return [
        event_record(each, operations[each.operation], groups[each.group].owner, at_ms=0)
        for each in events
        if each.state is EventState.STARTED and each.group in groups
    ]


def tenure_records(
    vms: Mapping[str, tuple[Vm | None, Vm | None]],
    owners: Mapping[str, tuple[str, str]],
    at_ms: int,
) -> Iterator[AvailabilityRecord]:
    """Yield the records of VMs whose group or owner changes; first those that leave.

    Args:
        vms: name -> the VM before and after.
        owners: the owner of each of their groups before and after.
        at_ms: the time of the change, ms since the epoch UTC.
    """
    left: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    arrived: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (before, after) in vms.items():
        old = (before.group, owners[before.group][0]) if before else None
        new = (after.group, owners[after.group][1]) if after else None
        if old == new:
            continue
        if old is not None:
            left[old].append(name)
        if new is not None:
            arrived[new].append(name)
    for kind, places in ((AvailabilityKind.LEFT, left), (AvailabilityKind.ARRIVED, arrived)):
        for (group, owner), names in places.items():
            yield AvailabilityRecord(at_ms, kind, group, owner, tuple(sorted(names)))
