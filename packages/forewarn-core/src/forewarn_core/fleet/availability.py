"""The availability of VMs over a period, as a pure function of records. Source: T-13.

Theory of operation
===================

1.  *Tenures.* An owner has a VM from the record `arrived` to the record `left`. A VM without
    either was there all the time, since records older than 400 days are deleted.
2.  *Disturbances.* An event disturbs each of its VMs from Started until it has left its document,
    or from Started for as long as the interruption that its driver measured, if that is shorter.
    Where the clock was set back, two tenures of an owner may overlap; each instant counts once.
3.  *Pieces.* Within the tenures and the period, each millisecond in which a VM is disturbed
    belongs to one event: the one that started first.

Intervals are half-open, in whole milliseconds UTC. `docs/howto/check-availability.md` has a second
implementation, with which an owner checks the figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import value
from forewarn_core.fleet.availability_records import AvailabilityKind, AvailabilityRecord
from forewarn_core.fleet.outcomes import EventResult

#: A VM, its group and its owner.
TenureKey: TypeAlias = tuple[str, str, str]
#: From the first to before the second time, ms since the epoch UTC.
Span: TypeAlias = tuple[int, int]

#: Later than every time.
NEVER_MS = 1 << 62
#: Percentages have four decimals, and are rounded down.
DECIMALS = 10_000


class PeriodInvalid(CallerError):
    """A period is empty, or lies outside the time for which there are records."""

    code = "period-invalid"
    status = 422
    message = "There is no availability of the period from {begin} to {end}."
    advice = "Choose a period that begins before now and ends after its beginning."


@value
class Period:
    """A period that can be reported. Times are ms since the epoch UTC."""

    from_ms: int
    #: At most `at_ms`.
    to_ms: int
    #: When the records were read.
    at_ms: int


@value
class Disturbance:
    """Time in which one event disturbs one VM, and no event that started earlier does."""

    vm: str
    group: str
    owner: str
    from_ms: int
    to_ms: int
    #: The record of the event.
    event: AvailabilityRecord

    @property
    def ms(self) -> int:
        """The length."""
        return self.to_ms - self.from_ms

    @property
    def measured(self) -> bool:
        """Whether the driver has measured the interruption."""
        return self.event.interruption_ms >= 0


@value
class VmAvailability:
    """The availability of one VM while one owner had it in one group."""

    vm: str
    group: str
    owner: str
    #: Time that counts, and how much of it was disturbed; in ms.
    counted_ms: int
    disturbed_ms: int

    @property
    def available_percent(self) -> float | None:
        """The share of undisturbed time; None without time that counts."""
        return percent(self.counted_ms - self.disturbed_ms, self.counted_ms)


@value
class Availability:
    """The availability of some VMs over a period."""

    period: Period
    #: Sorted by name.
    vms: tuple[VmAvailability, ...]
    #: By VM and time.
    disturbances: tuple[Disturbance, ...]

    @property
    def counted_ms(self) -> int:
        """The time of all VMs that counts, in ms."""
        return sum(each.counted_ms for each in self.vms)

    @property
    def disturbed_ms(self) -> int:
        """The disturbed part of it, in ms."""
        return sum(each.disturbed_ms for each in self.vms)

    @property
    def available_percent(self) -> float | None:
        """The share of undisturbed time; None without time that counts."""
        return percent(self.counted_ms - self.disturbed_ms, self.counted_ms)


def period_of(from_ms: int, to_ms: int, *, since_ms: int, at_ms: int) -> Period:
    """Return the part of a period for which there are records.

    Args:
        from_ms: begin and end of the wanted period.
        to_ms: the same.
        since_ms: the beginning of the records.
        at_ms: now.

    Raises:
        PeriodInvalid: nothing is left.
    """
    begin_ms, end_ms = max(from_ms, since_ms), min(to_ms, at_ms)
    if begin_ms >= end_ms:
        raise PeriodInvalid(begin=iso8601(begin_ms), end=iso8601(end_ms))
    return Period(begin_ms, end_ms, at_ms)


def availability(
    records: Iterable[AvailabilityRecord], present: Iterable[TenureKey], period: Period
) -> Availability:
    """Return the availability of VMs; O(records and VMs, times log of a VM's events).

    Args:
        records: those since the beginning of the period, also later ones, in the order of their
            commits, with the events that are Started at `period.at_ms`.
        present: the VMs at a time not later than the newest record.
        period: the period.
    """
    every = list(records)
    tenures = _tenures(every, present)
    events: defaultdict[TenureKey, list[AvailabilityRecord]] = defaultdict(list)
    for record in events_of(every):
        for vm in record.vms:
            events[vm, record.group, record.owner].append(record)
    vms, disturbances = [], []
    for key in sorted(tenures):
        spans = _union(span for each in tenures[key] if (span := _clip(each, period)))
        if not spans:
            continue
        pieces = list(_pieces(key, events.get(key, ()), spans, period))
        disturbances += pieces
        counted_ms = sum(end - begin for begin, end in spans)
        vms.append(VmAvailability(*key, counted_ms, sum(each.ms for each in pieces)))
    return Availability(period, tuple(vms), tuple(disturbances))


def percent(part: int, whole: int) -> float | None:
    """Return a share in percent, rounded down to four decimals; None of nothing."""
    return part * 100 * DECIMALS // whole / DECIMALS if whole else None


def disturbed_span(event: AvailabilityRecord, at_ms: int) -> Span:
    """Return when an event disturbs its VMs, as is known at a time."""
    gone_ms = event.at_ms or at_ms
    if event.at_ms and event.interruption_ms >= 0:
        gone_ms = min(gone_ms, event.started_ms + event.interruption_ms)
    return event.started_ms, gone_ms


def events_of(records: Iterable[AvailabilityRecord]) -> Iterator[AvailabilityRecord]:
    """Yield the records of events, once each: an event may be both Started and ended in a list.

    A handover does not end an event: the group may have come back to the owner since.
    """
    events = [each for each in records if each.kind is AvailabilityKind.EVENT]
    ended = {
        (each.event, each.owner)
        for each in events
        if each.at_ms and each.result is not EventResult.UNKNOWN
    }
    for each in events:
        if each.at_ms or (each.event, each.owner) not in ended:
            yield each


def _tenures(
    records: Iterable[AvailabilityRecord], present: Iterable[TenureKey]
) -> Mapping[TenureKey, list[Span]]:
    """Return when owners had VMs."""
    tenures: defaultdict[TenureKey, list[Span]] = defaultdict(list)
    arrived: dict[TenureKey, int] = {}
    for record in records:
        for vm in record.vms:
            key = vm, record.group, record.owner
            if record.kind is AvailabilityKind.ARRIVED:
                arrived[key] = record.at_ms
            elif record.kind is AvailabilityKind.LEFT:
                tenures[key].append((arrived.pop(key, 0), record.at_ms))
    for key, at_ms in arrived.items():
        tenures[key].append((at_ms, NEVER_MS))
    for key in present:
        if key not in tenures:
            tenures[key].append((0, NEVER_MS))
    return tenures


def _clip(span: Span, period: Period) -> Span | None:
    begin, end = max(span[0], period.from_ms), min(span[1], period.to_ms)
    return (begin, end) if begin < end else None


def _union(spans: Iterable[Span]) -> list[Span]:
    """Return spans without overlaps: the clock may be set back between two tenures of an owner."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((begin, end))
    return union


def _pieces(
    key: TenureKey, events: Iterable[AvailabilityRecord], spans: Iterable[Span], period: Period
) -> Iterator[Disturbance]:
    """Yield the disturbances of a VM in order; each millisecond belongs to the first event."""
    ordered = sorted(
        ((disturbed_span(each, period.at_ms), each) for each in events),
        key=lambda pair: (pair[0], pair[1].event),
    )
    for tenure_begin, tenure_end in spans:
        counted_to = tenure_begin
        for (begin, end), event in ordered:
            piece_begin, piece_end = max(begin, counted_to), min(end, tenure_end)
            if piece_begin < piece_end:
                yield Disturbance(*key, piece_begin, piece_end, event)
                counted_to = piece_end
