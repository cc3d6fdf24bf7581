"""Maintenance windows in local time, and the spans they open.

Source: F-7. A moment is open if its local time is within the window. Daylight saving can therefore
shorten or lengthen a window, but never opens closed time. Time zones come from `time_zones.py`, and
count as data: the same name gives the same answers. A window whose time zone is unknown is closed.
"""

from __future__ import annotations

import datetime as dt
import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from forewarn_base.errors import CallerError
from forewarn_base.time_zones import zone_of
from forewarn_base.values import Word, value

_EPOCH = dt.date(1970, 1, 1)
_DAY_S = 86_400
_DAY_MIN = 1440
#: Distance of compared UTC offsets, in seconds; no zone changes its offset twice within it.
_SAMPLE_S = 6 * 3600
#: Maximum length of a requested time, in days; a little more than a year.
SPANS_DAYS_MAX = 800
#: Length of the blocks, in seconds, for which open time is computed and cached.
_BLOCK_S = 32 * _DAY_S
#: Maximum cached blocks, each of one window; the longest allowed time has 26 blocks.
_CACHED_BLOCKS_MAX = 1024
#: Maximum cached results of `_spans_of_blocks`.
_CACHED_RUNS_MAX = 32

Span = tuple[int, int]

#: Start of the reason why a window is closed whose time zone this machine does not know.
UNREADABLE = "closed, as this machine has no time zone"

#: Words of `month_days` that name a weekday of the month, and their places; -1: the last one.
PLACES = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": -1}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: Longest period between two days on which a window opens, in its unit.
EVERY_MAX = 999


class WindowInvalid(CallerError):
    """The maintenance window contradicts itself."""

    code = "window-invalid"
    message = "Window {name!r} is invalid: {problem}."
    advice = "Correct the window in the policy file and apply it again."


class Unit(Word):
    """The unit of a window's period."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@value
class Window:
    """A recurring time in which routine work may run on certain hosts.

    Raises:
        WindowInvalid: its weekdays, times or dates are not valid.
    """

    name: str
    #: IANA name.
    time_zone: str = "UTC"
    #: Days on which the window opens, 0 for Monday to 6 for Sunday.
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    #: Minutes after local midnight, 0 to 1439.
    from_min: int = 0
    #: Minutes after local midnight, 1 to 1440; if not above `from_min`, on the following day.
    to_min: int = _DAY_MIN
    #: Local dates without work, such as `2028-02-29`, even in a window that opened the day before.
    except_dates: tuple[str, ...] = ()
    #: Labels of the window's hosts, as `key=value`; empty: all hosts.
    hosts: tuple[str, ...] = ()
    #: Groups that a host must have VMs of; None: no restriction; empty: no host. Source: Z-7.
    groups: tuple[str, ...] | None = None
    #: First and last local date on which the window opens, such as `2028-02-29`; empty: no limit.
    first_date: str = ""
    #: Or the last local time at which it opens, such as `2028-02-29 22:00`.
    last_date: str = ""
    #: The window opens in every n-th day, week or month from that of the first date on; weeks
    #: begin on Monday.
    every: int = 1
    unit: Unit = Unit.WEEK
    #: Days of the month: `1` to `31`, `last`, or a weekday such as `first mon`, `last sun` or
    #: `last sun-3` (three days before it). Empty: the day of the first date. A month without such
    #: a day has none.
    month_days: tuple[str, ...] = ()
    #: Names and texts for other tools, which have no effect. Source: Z-7.
    tags: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse an invalid window."""
        problem = ""
        if not self.weekdays or not set(self.weekdays) <= set(range(7)):
            problem = "weekdays are 0 (Monday) to 6 (Sunday), at least one"
        elif not (0 <= self.from_min < _DAY_MIN and 0 < self.to_min <= _DAY_MIN):
            problem = "it opens at 00:00 to 23:59 and closes at 00:01 to 24:00"
        elif self.from_min == self.to_min:
            problem = "its closing time equals its opening time"
        if problem:
            raise WindowInvalid(name=self.name, problem=problem)
        try:
            for date in (*self.except_dates, *filter(None, (self.first_date,))):
                dt.date.fromisoformat(date)
            if self.last_date:
                dt.datetime.fromisoformat(self.last_date)
        except (ValueError, OSError) as error:
            raise WindowInvalid(name=self.name, problem=f"{error}") from error

    def contradiction(self) -> str:
        """Return what contradicts itself in the window; empty if nothing does.

        Where people write windows, they are refused for it. A stored window is read all the same.
        """
        if not self.is_readable:
            return f"the time zone {self.time_zone!r} is unknown"
        anchored = self.every > 1 or (self.unit is Unit.MONTH and not self.month_days)
        if self.last_date and self.first_date > self.last_date:
            return f"its last opening, {self.last_date}, is before its first, {self.first_date}"
        if not 1 <= self.every <= EVERY_MAX:
            return f"it opens every 1 to {EVERY_MAX} days, weeks or months"
        if anchored and not self.first_date:
            return "its period needs the date of the first opening"
        if self.month_days and self.unit is not Unit.MONTH:
            return "days of the month need a period of months"
        if self.unit is not Unit.WEEK and len(self.weekdays) < len(WEEKDAYS):
            return "weekdays need a period of weeks"
        wrong = next((each for each in self.month_days if not is_month_day(each)), "")
        return f"{wrong!r} is not a day of the month" if wrong else ""

    def is_for(self, words: frozenset[str]) -> bool:
        """Whether the window applies to a host with these `key=value` pairs and groups."""
        if self.groups is not None and words.isdisjoint(map(group_word, self.groups)):
            return False
        return words.issuperset(self.hosts)

    @property
    def is_readable(self) -> bool:
        """Whether this machine knows the window's time zone; otherwise the window is closed."""
        return zone_of(self.time_zone) is not None

    @property
    def label(self) -> str:
        """The window's name, with the reason if it is closed because its zone is unknown."""
        return self.name if self.is_readable else f"{self.name} ({UNREADABLE} {self.time_zone})"

    @property
    def length_min(self) -> int:
        """How long the window is open on an ordinary day, in minutes."""
        return (self.to_min - self.from_min) % _DAY_MIN or _DAY_MIN


def is_month_day(text: str) -> bool:
    """Whether a text names a day of the month, as `Window.month_days` explains."""
    if text == "last" or (text.isascii() and text.isdecimal()):
        return text == "last" or (text[0] != "0" and len(text) <= 2 and int(text) <= 31)
    place, _, day = text.partition(" ")
    distance = day[3:]
    return (
        place in PLACES
        and day[:3] in WEEKDAYS
        and (not distance or (distance[0] in "+-" and distance[1:] in "123456"))
        and len(distance) in {0, 2}
    )


def group_word(group: str) -> str:
    """Return the pair that marks a host as having VMs of a group."""
    return f"group {group}"


def open_spans(windows: Iterable[Window], from_ms: int, to_ms: int) -> tuple[Span, ...]:
    """Return when at least one of some windows is open: sorted, separate spans in ms UTC.

    Args:
        windows: the windows; an empty list means always open.
        from_ms: ms since the epoch UTC.
        to_ms: the same; a span of more than `SPANS_DAYS_MAX` days is cut off there.
    """
    to_ms = min(to_ms, from_ms + SPANS_DAYS_MAX * _DAY_S * 1000)
    if from_ms >= to_ms:
        return ()
    everything = tuple(windows)
    if not everything:
        return ((from_ms, to_ms),)
    block_ms = _BLOCK_S * 1000
    around = _spans_of_blocks(everything, from_ms // block_ms, -(-to_ms // block_ms))
    first = bisect_right(around, from_ms, key=itemgetter(1))
    last = bisect_left(around, to_ms, key=itemgetter(0))
    spans = list(around[first:last])
    if spans:
        spans[0] = (max(spans[0][0], from_ms), spans[0][1])
        spans[-1] = (spans[-1][0], min(spans[-1][1], to_ms))
    return tuple(spans)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return sorted spans; spans that touch or overlap are merged."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def without(spans: Iterable[Span], closed: Sequence[Span]) -> tuple[Span, ...]:
    """Return spans without the parts that other spans cover."""
    left: list[Span] = []
    closed = merged(closed)
    for start, end in spans:
        for closed_from, closed_to in closed:
            if closed_to <= start or closed_from >= end:
                continue
            left.append((start, closed_from))
            start = closed_to
        left.append((start, end))
    return merged(left)


@functools.lru_cache(_CACHED_RUNS_MAX)
def _spans_of_blocks(windows: tuple[Window, ...], first: int, end: int) -> tuple[Span, ...]:
    """Return the spans with an open window in the blocks from `first` to `end`, `end` excluded."""
    return merged(
        span for window in windows for block in range(first, end) for span in _spans(window, block)
    )


@functools.lru_cache(_CACHED_BLOCKS_MAX)
def _spans(window: Window, block: int) -> tuple[Span, ...]:
    """Return the spans of a window in one block, where each piece has a constant offset."""
    spans: list[Span] = []
    for start_s, end_s, offset_s in _stretches(window.time_zone, block):
        first_day = (start_s + offset_s) // _DAY_S - 1
        last_day = (end_s + offset_s) // _DAY_S
        for day in range(first_day, last_day + 1):
            for local_from, local_to in _local_spans(window, day):
                opens = max(start_s, local_from - offset_s)
                closes = min(end_s, local_to - offset_s)
                if opens < closes:
                    spans.append((opens * 1000, closes * 1000))
    return tuple(spans)


def _local_spans(window: Window, day: int) -> list[Span]:
    """Return the time that a window opens from one local day on, in seconds of local time."""
    left_out = _days(window.except_dates)
    if day in left_out or not _recurs_on(window, day):
        return []
    if any(day < each for each in _days((window.first_date,) if window.first_date else ())):
        return []
    start = day * _DAY_S + window.from_min * 60
    if window.last_date and start > _last_opening_s(window.last_date):
        return []
    end = start + window.length_min * 60
    if day + 1 in left_out:
        end = min(end, (day + 1) * _DAY_S)
    return [(start, end)]


def _recurs_on(window: Window, day: int) -> bool:
    """Whether a local day, as days since the epoch, is one of the window's period."""
    [first] = _days((window.first_date or "1970-01-05",))  # a Monday
    if window.unit is Unit.DAY:
        return (day - first) % window.every == 0
    if window.unit is Unit.WEEK:
        weeks = (day + 3) // 7 - (first + 3) // 7  # day 0 was a Thursday
        return (day + 3) % 7 in window.weekdays and weeks % window.every == 0
    date, start = (_EPOCH + dt.timedelta(days=each) for each in (day, first))
    words = window.month_days or (str(start.day),)
    month, begun = (each.year * 12 + each.month - 1 for each in (date, start))
    # A distance of some days may lead into the month before or after.
    return any(
        (near - begun) % window.every == 0 and date in _days_of_month(near, words)
        for near in range(month - 1, month + 2)
    )


@functools.lru_cache(1024)
def _days_of_month(month: int, words: tuple[str, ...]) -> frozenset[dt.date]:
    """Return the dates of a month, counted from year 0, that words such as `last sun-3` name."""
    first = dt.date(month // 12, month % 12 + 1, 1)
    length = ((first + dt.timedelta(days=31)).replace(day=1) - first).days
    dates = set()
    for word in words:
        place, _, weekday = word.partition(" ")
        if not weekday:
            number = length if place == "last" else int(place)
            if number <= length:
                dates.add(first.replace(day=number))
            continue
        number = 1 + (WEEKDAYS.index(weekday[:3]) - first.weekday()) % 7
        number += (length - number) // 7 * 7 if place == "last" else (PLACES[place] - 1) * 7
        dates.add(first.replace(day=number) + dt.timedelta(days=int(weekday[3:] or 0)))
    return frozenset(dates)


@functools.lru_cache(64)
def _last_opening_s(last: str) -> int:
    """Return the last local time at which a window opens, in seconds of local time."""
    time = dt.datetime.fromisoformat(last if " " in last else f"{last} 23:59")
    return (time - dt.datetime.combine(_EPOCH, dt.time())) // dt.timedelta(seconds=1)


@functools.lru_cache(64)
def _days(dates: tuple[str, ...]) -> frozenset[int]:
    """Return dates as days since the epoch."""
    return frozenset((dt.date.fromisoformat(date) - _EPOCH).days for date in dates)


@functools.lru_cache(_CACHED_BLOCKS_MAX)
def _stretches(name: str, block: int) -> tuple[tuple[int, int, int], ...]:
    """Return a block's stretches of constant UTC offset: (from, to, offset), in seconds."""
    zone = zone_of(name)
    if zone is None:
        return ()
    from_s, to_s = block * _BLOCK_S, (block + 1) * _BLOCK_S
    stretches: list[tuple[int, int, int]] = []
    begun, offset = from_s, _offset_s(zone, from_s)
    at = from_s
    while at < to_s:
        after = min(at + _SAMPLE_S, to_s)
        if _offset_s(zone, after) != offset:
            change = _change_s(zone, at, after)
            stretches.append((begun, change, offset))
            begun, offset = change, _offset_s(zone, change)
            after = change
        at = after
    stretches.append((begun, to_s, offset))
    return tuple(stretch for stretch in stretches if stretch[0] < stretch[1])


def _change_s(zone: dt.tzinfo, before_s: int, after_s: int) -> int:
    """Return the first second with another offset, by bisection."""
    old = _offset_s(zone, before_s)
    while after_s - before_s > 1:
        middle = (before_s + after_s) // 2
        if _offset_s(zone, middle) == old:
            before_s = middle
        else:
            after_s = middle
    return after_s


def _offset_s(zone: dt.tzinfo, at_s: int) -> int:
    offset = dt.datetime.fromtimestamp(at_s, zone).utcoffset()
    assert offset is not None, zone
    return offset.days * _DAY_S + offset.seconds
