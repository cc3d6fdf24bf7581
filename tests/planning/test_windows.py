"""When windows are open: each case a span, and each span read from a clock on the wall."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_core.planning.wall_clock import open_throughout
from forewarn_core.rules.local_time import Unit, Window, WindowInvalid, open_spans, without
from tests.planning.worlds import DAY_MS, MINUTE_MS, NOW_MS, windows

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC") -> int:
    """Return a time written as `2026-03-29 01:00`, in a time zone."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def shown(span: tuple[int, int]) -> tuple[str, ...]:
    """Return a span as day and time, UTC."""
    return tuple(dt.datetime.fromtimestamp(at / 1000, dt.UTC).strftime("%d %H:%M") for at in span)


def window(start: str, end: str, **more: object) -> Window:
    """Return a window from local times."""
    from_min, to_min = (int(text[:2]) * 60 + int(text[3:]) for text in (start, end))
    return Window("w", from_min=from_min, to_min=to_min, **more)  # type: ignore[arg-type]


CASES = {
    "ordinary": (window("01:00", "02:30"), "2026-07-01", [("01 01:00", "01 02:30")]),
    "local": (window("01:00", "02:30", time_zone=BERLIN), "2026-07-02", [("01 23:00", "02 00:30")]),
    "over midnight": (
        window("22:00", "04:00", weekdays=(2,)), "2026-07-02", [("01 22:00", "02 04:00")],
    ),
    "spring, closes in the gap": (
        window("01:00", "02:30", time_zone=BERLIN), "2026-03-29", [("29 00:00", "29 01:00")],
    ),
    "spring, opens in the gap": (
        window("02:30", "04:00", time_zone=BERLIN), "2026-03-29", [("29 01:00", "29 02:00")],
    ),
    "spring, all in the gap": (window("02:10", "02:50", time_zone=BERLIN), "2026-03-29", []),
    "autumn, the hour twice": (
        window("02:15", "02:45", time_zone=BERLIN),
        "2026-10-25",
        [("25 00:15", "25 00:45"), ("25 01:15", "25 01:45")],
    ),
    "autumn, closed in between": (
        window("02:30", "04:00", time_zone=BERLIN),
        "2026-10-25",
        [("25 00:30", "25 01:00"), ("25 01:30", "25 03:00")],
    ),
    "leap day": (window("01:00", "02:00"), "2028-02-29", [("29 01:00", "29 02:00")]),
    "leap day left out": (
        window("01:00", "02:00", except_dates=("2028-02-29",)), "2028-02-29", [],
    ),
    "half an hour of daylight saving": (
        window("01:45", "03:00", time_zone="Australia/Lord_Howe"),
        "2026-10-04",
        [("03 15:15", "03 16:00")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_window_opens(case: str) -> None:
    """A window is open when a clock on the wall shows a time within it. Source: F-7."""
    opened, day, expected = CASES[case]
    start = ms(f"{day} 00:00") - DAY_MS // 2
    found = open_spans([opened], start, start + DAY_MS)
    assert [shown(span) for span in found] == expected


#: Words for a day of the month, and the days of October 2026, whose first is a Thursday.
DAYS_OF_OCTOBER = {
    "1": "1",
    "last": "31",
    "first mon": "5",
    "first thu": "1",
    "third wed": "21",
    "fourth thu": "22",
    "last thu": "29",
    "last fri": "30",
    "last sun": "25",
    "last sun-3": "22",
    "second sat+6": "16",
}


@pytest.mark.parametrize("word", DAYS_OF_OCTOBER)
def test_window_opens_on_a_day_of_the_month(word: str) -> None:
    """Counted on a calendar of paper, for October 2026. Source: Z-7."""
    monthly = window("01:00", "02:00", unit=Unit.MONTH, month_days=(word,))
    start = ms("2026-10-01 00:00")
    found = open_spans([monthly], start, start + 31 * DAY_MS)
    assert [shown(span)[0].split()[0].lstrip("0") for span in found] == [DAYS_OF_OCTOBER[word]]


def test_window_opens_in_the_month_after_its_own_if_its_day_does() -> None:
    """Six days after the last Saturday of February 2027 is in March. Source: Z-7."""
    monthly = window("01:00", "02:00", unit=Unit.MONTH, month_days=("last sat+6",))
    start = ms("2027-03-01 00:00")
    [found] = open_spans([monthly], start, start + 10 * DAY_MS)
    assert shown(found)[0].startswith("05 ")


def test_window_opens_from_its_first_to_its_last_date() -> None:
    """On both dates, too, and what opens on the last one closes at its own time. Z-7, F-7."""
    dated = window("22:00", "04:00", first_date="2026-07-02", last_date="2026-07-03")
    start = ms("2026-07-01 00:00")
    found = open_spans([dated], start, start + 6 * DAY_MS)
    assert [shown(span) for span in found] == [("02 22:00", "03 04:00"), ("03 22:00", "04 04:00")]


def test_window_over_midnight_ends_where_a_date_is_left_out() -> None:
    """Nothing runs on a date left out, whenever the window opened. Source: F-7."""
    night = window("22:00", "04:00", except_dates=("2026-07-03",))
    start = ms("2026-07-02 12:00")
    assert open_spans([night], start, start + 2 * DAY_MS) == (
        (ms("2026-07-02 22:00"), ms("2026-07-03 00:00")),
    )


def test_no_window_is_always_open() -> None:
    """Where no window is for a host, no time is closed. Source: F-7."""
    assert open_spans([], 5, 10) == ((5, 10),)
    assert open_spans([], 10, 10) == ()


def test_windows_are_open_together() -> None:
    """Time is open when one of the windows is."""
    both = [window("01:00", "02:00"), window("01:30", "03:00")]
    start = ms("2026-07-01 00:00")
    assert open_spans(both, start, start + DAY_MS) == (
        (ms("2026-07-01 01:00"), ms("2026-07-01 03:00")),
    )


def test_freeze_is_taken_out() -> None:
    """What is left of a span has a hole where a freeze is."""
    assert without([(0, 10), (20, 30)], [(3, 5), (9, 21)]) == ((0, 3), (5, 9), (21, 30))


@pytest.mark.parametrize(
    "wrong",
    [
        {"weekdays": (7,)},
        {"weekdays": ()},
        {"from_min": 60, "to_min": 60},
        {"to_min": 1441},
        {"except_dates": ("2027-02-29",)},
    ],
    ids=str,
)
def test_window_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    """A window that cannot be meant is refused, with its name. Source: F-7."""
    with pytest.raises(WindowInvalid, match="'w'"):
        Window("w", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../passwd", "America", ""])
def test_window_of_an_unknown_time_zone_is_closed(zone: str) -> None:
    """People may not write it; one that was stored on another machine is read. Source: F-7."""
    unknown = window("00:00", "24:00", time_zone=zone)
    start = ms("2026-07-01 00:00")
    assert open_spans([unknown], start, start + DAY_MS) == ()
    assert not open_throughout((unknown,), start, start + 60_000)
    assert unknown.contradiction() == f"the time zone {zone!r} is unknown"
    other = window("01:00", "02:00")
    assert open_spans([unknown, other], start, start + DAY_MS) == open_spans(
        [other], start, start + DAY_MS
    )


periods: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.builds(dict, every=st.integers(1, 5), unit=st.just(Unit.DAY)),
    st.builds(dict, every=st.integers(1, 5), weekdays=st.sampled_from([(0,), (2, 6)])),
    st.builds(
        dict,
        every=st.integers(1, 3),
        unit=st.just(Unit.MONTH),
        month_days=st.sampled_from(
            [(), ("1", "31"), ("last",), ("first mon",), ("last sun-6", "fourth sat+6"), ("29",)]
        ),
    ),
)


@given(periods, st.integers(0, 800), st.dates(dt.date(2026, 1, 1), dt.date(2028, 12, 31)))
def test_period_opens_on_the_days_that_a_calendar_has(
    period: dict[str, object], first: int, day: dt.date
) -> None:
    """Every n-th day, week or month, and the named days of a month. Source: F-7."""
    began = dt.date(2026, 1, 1) + dt.timedelta(days=first)
    opened = Window("w", first_date=str(began), **period)  # type: ignore[arg-type]
    assert opened.contradiction() == ""
    noon = ms(f"{day} 12:00")
    found = open_spans([opened], noon, noon + MINUTE_MS)
    assert bool(found) == open_throughout((opened,), noon, noon + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 2},
        {"unit": Unit.MONTH},
        {"month_days": ("1",)},
        {"unit": Unit.DAY, "weekdays": (1,)},
        {"first_date": "2026-07-02", "last_date": "2026-07-01"},
        *(
            {"unit": Unit.MONTH, "month_days": (day,)}
            for day in ("0", "32", "fifth mon", "last sun-7")
        ),
    ],
    ids=str,
)
def test_period_that_cannot_be_meant_is_named(wrong: dict[str, object]) -> None:
    """A window whose period contradicts itself is refused where people write it. Source: F-7."""
    assert Window("w", **wrong).contradiction()  # type: ignore[arg-type]


@pytest.mark.slow
@given(windows)
def test_spans_are_what_the_wall_clock_reads(opened: Window) -> None:
    """Every minute of two days is in a span exactly when the clock on the wall says so."""
    for start in (NOW_MS, ms("2026-03-28 12:00"), ms("2026-10-24 12:00"), ms("2026-10-03 12:00")):
        found = open_spans([opened], start, start + 2 * DAY_MS)
        for at in range(start, start + 2 * DAY_MS, 15 * MINUTE_MS):
            inside = any(opens <= at < closes for opens, closes in found)
            assert inside == open_throughout((opened,), at, at + 1), at
