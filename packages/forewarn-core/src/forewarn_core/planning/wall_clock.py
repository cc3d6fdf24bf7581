"""Checks windows minute by minute in local time, independently of `rules/local_time.py`.

Source: F-7.
"""

from __future__ import annotations

import datetime as dt
import functools

from forewarn_base.time_zones import zone_of
from forewarn_core.planning.policy import Unit, Window

_MINUTE_MS = 60_000


@functools.lru_cache(4096)
def open_throughout(windows: tuple[Window, ...], start_ms: int, end_ms: int) -> bool:
    """Whether at every minute of a span at least one of the windows is open.

    Cost: grows with the minutes.
    """
    moments = {start_ms, *range(start_ms - start_ms % _MINUTE_MS, end_ms, _MINUTE_MS)}
    return all(any(_reads_open(window, at) for window in windows) for at in moments)


def _reads_open(window: Window, at_ms: int) -> bool:
    """Whether the local time at a moment is within a window."""
    zone = zone_of(window.time_zone)
    if zone is None:
        return False
    wall = dt.datetime.fromtimestamp(at_ms / 1000, zone)
    minute, today, shut = wall.hour * 60 + wall.minute, wall.date(), set(window.except_dates)
    over_midnight = window.to_min <= window.from_min
    begun = (
        [today] if window.from_min <= minute and (over_midnight or minute < window.to_min) else []
    )
    if over_midnight and minute < window.to_min:
        begun = [today - dt.timedelta(days=1)]
    opening = f"{window.from_min // 60:02}:{window.from_min % 60:02}"
    first, last = window.first_date, window.last_date or str(dt.date.max)
    days = [day for day in begun if first <= str(day) and f"{day} {opening}"[: len(last)] <= last]
    days = [day for day in days if str(day) not in shut and _in_period(window, day)]
    return bool(days) and str(today) not in shut


def _in_period(window: Window, day: dt.date) -> bool:
    """Whether a day is one on which the window opens, apart from its first and last date."""
    first = dt.date.fromisoformat(window.first_date or "2000-01-03")
    if window.unit is Unit.DAY:
        return (day - first).days % window.every == 0
    if window.unit is Unit.WEEK:
        monday = first - dt.timedelta(days=first.weekday())
        return day.weekday() in window.weekdays and (day - monday).days // 7 % window.every == 0
    return any(_is_month_day(window, first, day, word) for word in window.month_days or ("",))


def _is_month_day(window: Window, first: dt.date, day: dt.date, word: str) -> bool:
    place, _, weekday = word.partition(" ")
    named = day - dt.timedelta(days=int(weekday[3:] or 0))
    months = (named.year - first.year) * 12 + named.month - first.month
    next_week = named + dt.timedelta(days=7)
    if months % window.every:
        return False
    if not weekday:
        tomorrow = named + dt.timedelta(days=1)
        return tomorrow.day == 1 if place == "last" else named.day == int(place or first.day)
    if ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[named.weekday()] != weekday[:3]:
        return False
    if place == "last":
        return next_week.month != named.month
    return (named.day - 1) // 7 == ("first", "second", "third", "fourth").index(place)
