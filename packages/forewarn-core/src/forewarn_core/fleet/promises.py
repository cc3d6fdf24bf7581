"""How promises were kept over a period: notice, announcement, approval, disturbance.

Pure, from the records and the report of availability. Source: T-15.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.availability import Availability, Period, events_of, percent
from forewarn_core.fleet.availability_records import AvailabilityRecord


class PromisesBy(Word):
    """The parts into which promises are divided."""

    OWNER = "owner"
    GROUP = "group"
    #: Days and months in UTC.
    DAY = "day"
    MONTH = "month"


@value
class Promises:
    """Figures of some events and VMs over a period. Percentages are None of nothing."""

    #: Owner or group, or the first day; empty: everything.
    name: str
    period: Period
    #: Events that became Started in the period.
    events: int
    #: Events that VMs were shown as Scheduled before.
    announced: int
    #: Events that need notice, and those of them that started at NotBefore or after an approval.
    promised: int
    with_notice: int
    #: Announced events that VMs or operators approved, and those that were approved by NotBefore.
    #: An approval by the group's policy does not count, since it takes no time.
    approved: int
    approved_in_time: int
    #: Events that a group's policy approved.
    approved_by_policy: int
    #: From announcement to approval, in ms; None without an approval.
    approval_median_ms: int | None
    approval_p95_ms: int | None
    #: VMs that count, and their disturbed time in ms.
    vms: int
    disturbed_ms: int
    #: Maintenances whose events are among them, and the longest time from the first announcement of
    #: one to the end of its last event so far, in ms; None without one.
    maintenances: int
    last_host_ms: int | None

    @property
    def announced_percent(self) -> float | None:
        """The share of events that were announced."""
        return percent(self.announced, self.events)

    @property
    def notice_percent(self) -> float | None:
        """The share of events that need notice, and had it."""
        return percent(self.with_notice, self.promised)

    @property
    def approved_percent(self) -> float | None:
        """The share of announced events that were approved by NotBefore, policies aside."""
        return percent(self.approved_in_time, self.announced - self.approved_by_policy)

    @property
    def disturbed_per_vm_ms(self) -> int | None:
        """The mean disturbed time of a VM, rounded up."""
        return -(-self.disturbed_ms // self.vms) if self.vms else None


def promises(name: str, records: Iterable[AvailabilityRecord], report: Availability) -> Promises:
    """Return the figures of events and of the VMs in a report; O(records).

    An event whose group was handed over has several records, of which the last counts.
    """
    period = report.period
    newest = {each.event: each for each in events_of(list(records))}
    events = [each for each in newest.values() if period.from_ms <= each.started_ms < period.to_ms]
    announced = [each for each in events if 0 < each.announced_ms < each.started_ms]
    promised = [each for each in events if each.notice_s]
    by_policy = [each for each in announced if each.approved_ms == each.announced_ms]
    approved = [each for each in announced if each.approved_ms > each.announced_ms]
    waits_ms = sorted(each.approved_ms - each.announced_ms for each in approved)
    spans_ms = _maintenance_spans_ms(events, period)
    return Promises(
        name,
        period,
        events=len(events),
        announced=len(announced),
        promised=len(promised),
        with_notice=sum(map(_has_notice, promised)),
        approved=len(approved),
        approved_in_time=sum(each.approved_ms <= each.not_before_ms for each in approved),
        approved_by_policy=len(by_policy),
        approval_median_ms=quantile(waits_ms, 50),
        approval_p95_ms=quantile(waits_ms, 95),
        vms=len({each.vm for each in report.vms}),
        disturbed_ms=report.disturbed_ms,
        maintenances=len(spans_ms),
        last_host_ms=max(spans_ms, default=None),
    )


def divided(
    by: PromisesBy,
    records: Sequence[AvailabilityRecord],
    report: Availability,
    *,
    report_of: Callable[[Period], Availability],
) -> list[Promises]:
    """Return the figures of each part, sorted by name.

    Args:
        by: what a part is.
        records: of the whole period.
        report: of the whole period.
        report_of: returns the report of a part of the period.
    """
    if by in {PromisesBy.DAY, PromisesBy.MONTH}:
        parts = spans(by, report.period)
        return [promises(iso8601(each.from_ms)[:10], records, report_of(each)) for each in parts]
    name = by.value
    by_name: defaultdict[str, list[AvailabilityRecord]] = defaultdict(list)
    for record in records:
        by_name[getattr(record, name)].append(record)
    reports: dict[str, Availability] = {}
    for part in ("vms", "disturbances"):
        members: defaultdict[str, list[object]] = defaultdict(list)
        for each in getattr(report, part):
            members[getattr(each, name)].append(each)
        for each, items in members.items():
            base = reports.get(each) or Availability(report.period, (), ())
            reports[each] = replace(base, **{part: tuple(items)})
    return [promises(each, by_name[each], reports[each]) for each in sorted(reports)]


def spans(by: PromisesBy, period: Period) -> Iterator[Period]:
    """Yield the days or months of a period; the first and the last may be cut."""
    from_ms = period.from_ms
    while from_ms < period.to_ms:
        to_ms = min(_next_ms(by, from_ms), period.to_ms)
        yield replace(period, from_ms=from_ms, to_ms=to_ms)
        from_ms = to_ms


def quantile(values: Sequence[int], percentage: int) -> int | None:
    """Return the nearest-rank quantile of sorted values; None without a value."""
    if not values:
        return None
    return values[max(-(-percentage * len(values) // 100), 1) - 1]


def _next_ms(by: PromisesBy, at_ms: int) -> int:
    day_ms = 86_400_000
    if by is PromisesBy.DAY:
        return at_ms - at_ms % day_ms + day_ms
    text = iso8601(at_ms)
    year, month = int(text[:4]), int(text[5:7])
    year, month = year + month // 12, month % 12 + 1
    return parse(f"{year:04}-{month:02}-01T00:00:00Z")


def _has_notice(event: AvailabilityRecord) -> bool:
    """Whether an event started at NotBefore or later, or its group agreed to an earlier start."""
    if not event.shown_ms or event.shown_ms > event.started_ms:
        return False
    return event.started_ms >= event.not_before_ms or 0 < event.approved_ms <= event.started_ms


def _maintenance_spans_ms(events: Iterable[AvailabilityRecord], period: Period) -> list[int]:
    first_ms: dict[int, int] = {}
    last_ms: dict[int, int] = {}
    for each in events:
        if each.maintenance and each.announced_ms:
            number, end_ms = each.maintenance, each.at_ms or period.at_ms
            first_ms[number] = min(each.announced_ms, first_ms.get(number, each.announced_ms))
            last_ms[number] = max(end_ms, last_ms.get(number, 0))
    return [last_ms[number] - at_ms for number, at_ms in first_ms.items()]
