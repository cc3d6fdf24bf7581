"""Checks windows minute by minute in local time, independently of `windows.py`.

Source: F-7.
"""

from __future__ import annotations

import datetime as dt
import functools

from forewarn.planning.windows import Window

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
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where there are windows

    wall = dt.datetime.fromtimestamp(at_ms / 1000, ZoneInfo(window.time_zone))
    minute, today, shut = wall.hour * 60 + wall.minute, wall.date(), set(window.except_dates)
    over_midnight = window.to_min <= window.from_min
    begun = (
        [today] if window.from_min <= minute and (over_midnight or minute < window.to_min) else []
    )
    if over_midnight and minute < window.to_min:
        begun = [today - dt.timedelta(days=1)]
    first, last = window.first_date or str(dt.date.min), window.last_date or str(dt.date.max)
    days = [day for day in begun if day.weekday() in window.weekdays and str(day) not in shut]
    days = [day for day in days if first <= str(day) <= last]
    return bool(days) and str(today) not in shut
