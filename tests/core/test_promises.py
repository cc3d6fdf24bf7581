"""How promises were kept: the figures of a period, and of its parts."""

import pytest

from forewarn_base.protocol.timestamps import parse
from forewarn_base.values import replace
from forewarn_core.fleet.availability import Availability, Period, availability
from forewarn_core.fleet.availability_records import AvailabilityKind, AvailabilityRecord
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.outcomes import EventResult
from forewarn_core.fleet.promises import Promises, PromisesBy, divided, promises, quantile, spans
from tests.core.rig import MINUTE_MS, START_MS, small
from tests.core.test_availability import of_rig

DAY_MS = 1440 * MINUTE_MS
PERIOD = Period(1_000_000, 9_000_000, 9_000_000)
#: An event announced at 1,000 s with 900 s of notice, which started on time.
ON_TIME = AvailabilityRecord(
    2_500_000, AvailabilityKind.EVENT, "web", "shop", ("a",), "A", maintenance=1, notice_s=900,
    announced_ms=1_000_000, shown_ms=1_000_100, not_before_ms=2_000_000, started_ms=2_000_000,
)  # fmt: skip


def event(name: str, **changes: object) -> AvailabilityRecord:
    """The event on time, with changes."""
    return replace(ON_TIME, event=name, **changes)


def report_of(period: Period, *records: AvailabilityRecord) -> Availability:
    """The report of the VM `a`."""
    return availability(records, [("a", "web", "shop")], period)


def of(*records: AvailabilityRecord) -> Promises:
    """The figures of some events."""
    return promises("", records, report_of(PERIOD, *records))


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"started_ms": 1_500_000, "approved_ms": 1_400_000}, True),
        ({"started_ms": 1_500_000}, False),
        ({"started_ms": 2_000_000, "shown_ms": 0}, False),
        ({"started_ms": 2_000_000, "approved_ms": 1_400_000, "shown_ms": 2_100_000}, False),
    ],
    ids=["on time", "approved", "nobody asked", "never shown", "shown too late"],
)
def test_notice_is_kept_until_not_before_or_an_approval(
    changes: dict[str, object], *, kept: bool
) -> None:
    """An early start that nobody approved had not its notice. Source: T-15, N-1, B-3."""
    figures = of(event("A", **changes))
    assert (figures.promised, figures.with_notice) == (1, kept)
    assert figures.notice_percent == (100.0 if kept else 0.0)


def test_failure_was_not_announced_and_promised_nothing() -> None:
    """It counts as an event without announcement, and not as one without notice. T-15, L-4."""
    failure = event("B", announced_ms=0, shown_ms=0, not_before_ms=0, notice_s=0, maintenance=0)
    figures = of(ON_TIME, failure)
    assert (figures.events, figures.announced, figures.promised) == (2, 1, 1)
    assert (figures.announced_percent, figures.notice_percent) == (50.0, 100.0)


def test_approvals_are_counted_from_the_announcement() -> None:
    """Median and 95th percentile by nearest rank; a policy's approval is none. Source: T-15."""
    waits_s = (10, 20, 30, 2000)
    waits = [event(str(each), approved_ms=1_000_000 + each * 1000) for each in waits_s]
    by_policy = event("P", approved_ms=1_000_000)
    figures = of(*waits, by_policy, ON_TIME)
    assert (figures.approved, figures.approved_in_time, figures.approved_by_policy) == (4, 3, 1)
    assert (figures.approval_median_ms, figures.approval_p95_ms) == (20_000, 2_000_000)
    assert figures.approved_percent == 60.0


def test_events_count_where_they_started() -> None:
    """Once each, also while they are Started. Source: T-15."""
    before, after = event("B", started_ms=999_999), event("C", started_ms=9_000_000)
    running = event("D", at_ms=0)
    assert of(before, after, ON_TIME, running).events == 2
    assert of(ON_TIME, event("A", at_ms=0)).events == 1


def test_event_of_a_group_that_was_handed_over_counts_once() -> None:
    """For each owner, and for all of them; also if the group comes back to an owner. T-15, T-13."""
    sold = event("A", at_ms=2_100_000, result=EventResult.UNKNOWN)
    bought_back = event("A", at_ms=2_200_000, owner="bank", result=EventResult.UNKNOWN)
    records = [sold, bought_back, event("A", result=EventResult.COMPLETED)]
    report = report_of(PERIOD, *records)
    parts = divided(PromisesBy.OWNER, records, report, report_of=report_of)
    counts = {each.name: each.events for each in parts} | {"all": of(*records).events}
    assert counts == {"shop": 1, "all": 1}, f"T-15: one event counts as {counts}"
    started = [sold, event("A", at_ms=0, result=EventResult.UNKNOWN)]
    assert of(*started).events == 1
    assert of(*started).last_host_ms == PERIOD.at_ms - ON_TIME.announced_ms


def test_maintenance_lasts_from_its_first_announcement_to_its_last_end() -> None:
    """The longest one is shown. Source: T-15."""
    later = event("B", at_ms=4_000_000, started_ms=3_000_000)
    figures = of(ON_TIME, later, event("C", maintenance=2))
    assert (figures.maintenances, figures.last_host_ms) == (2, 3_000_000)


def test_parts_add_up() -> None:
    """Owners, days and months divide events and disturbed time. Source: T-15."""
    day = Period(0, 3 * DAY_MS, 3 * DAY_MS)
    second = event("B", started_ms=DAY_MS + 1000, at_ms=DAY_MS + 61_000, announced_ms=DAY_MS)
    overnight = event("C", started_ms=2 * DAY_MS - 5000, at_ms=2 * DAY_MS + 5000, vms=("a",))
    records = [ON_TIME, second, overnight]
    report = report_of(day, *records)
    whole = promises("", records, report)
    for by in PromisesBy:
        parts = divided(by, records, report, report_of=lambda each: report_of(each, *records))
        assert sum(each.events for each in parts) == whole.events == 3
        assert sum(each.disturbed_ms for each in parts) == whole.disturbed_ms == 570_000
    days = divided(
        PromisesBy.DAY, records, report, report_of=lambda each: report_of(each, *records)
    )
    assert [each.name for each in days] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert [each.disturbed_ms for each in days] == [500_000, 65_000, 5000]


def test_months_are_those_of_the_calendar() -> None:
    """In UTC, the first and the last cut at the period. Source: T-15."""
    times = "2026-11-15T12:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"
    begin, december, january = map(parse, times)
    end = january + DAY_MS
    found = [
        (each.from_ms, each.to_ms) for each in spans(PromisesBy.MONTH, Period(begin, end, end))
    ]
    assert found == [(begin, december), (december, january), (january, end)]


def test_quantile_is_a_value_that_occurred() -> None:
    """By nearest rank. Source: T-15."""
    values = list(range(1, 101))
    assert [quantile(values, each) for each in (1, 50, 95, 100)] == [1, 50, 95, 100]
    assert quantile([7], 95) == 7
    assert quantile([], 50) is None


def test_figures_come_from_what_happened() -> None:
    """A step's records have all that the figures need. Source: T-15."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.wait(3 * MINUTE_MS)
    rig.approve("web_0", operation)
    rig.wait(60 * MINUTE_MS)
    rig.finish(operation)
    figures = promises("", rig.availability, of_rig(rig))
    assert (figures.events, figures.announced, figures.with_notice) == (2, 2, 2)
    assert (figures.approved, figures.approval_median_ms) == (1, 3 * MINUTE_MS)
    assert figures.period.from_ms == START_MS
