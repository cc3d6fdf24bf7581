"""Times as text, converted to and from ms since the epoch UTC; pure.

`datetime` would cost the agent half a MiB, so the module computes the calendar in integers.
"""

from __future__ import annotations

from functools import lru_cache

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

#: Maximum cached conversions; documents repeat the times of their events.
TIMES_REMEMBERED = 128

#: Maximum length of a cached text, well above the 29 characters of RFC 1123.
TIME_CHARACTERS = 40


@lru_cache(TIMES_REMEMBERED)
def rfc1123(at_ms: int) -> str:
    """Return `Mon, 19 Sep 2016 18:29:47 GMT`; milliseconds are truncated."""
    days, second = divmod(at_ms // 1000, 86_400)
    year, month, day = _date_of(days)
    weekday = _WEEKDAYS[(days + 3) % 7]  # the epoch was a Thursday
    return f"{weekday}, {day:02} {_MONTHS[month - 1]} {year:04} {_clock_of(second)} GMT"


@lru_cache(TIMES_REMEMBERED)  # thousands of hosts in one answer share a few times
def iso8601(at_ms: int) -> str:
    """Return `2016-09-19T18:29:47.250Z`; a fraction of zero is omitted."""
    days, second = divmod(at_ms // 1000, 86_400)
    year, month, day = _date_of(days)
    milli = at_ms % 1000
    fraction = f".{milli:03}" if milli else ""
    return f"{year:04}-{month:02}-{day:02}T{_clock_of(second)}{fraction}Z"


def duration_text(seconds: int, milli: int = 0) -> str:
    """Return a duration for people, without units that are zero: `1 h 30 min`, `4.250 s`, `0 s`."""
    sign, seconds = "-" if seconds < 0 else "", abs(seconds)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    parts = [
        f"{count} {unit}" for count, unit in ((day, "d"), (hour, "h"), (minute, "min")) if count
    ]
    if second or milli or not parts:
        parts.append(f"{second}.{milli:03} s" if milli else f"{second} s")
    return sign + " ".join(parts)


def parse(text: str) -> int:
    """Return ms since the epoch UTC from RFC 1123 (GMT) or ISO 8601.

    ISO 8601 may omit the seconds; without an offset it is UTC.

    Raises:
        ValueError: the text has neither form, or is not a possible time.
    """
    return (_parse_known if len(text) <= TIME_CHARACTERS else _parse)(text)


def _parse(text: str) -> int:
    text = text.strip()
    return _parse_iso(text) if text[4:5] == "-" else _parse_rfc1123(text)


_parse_known = lru_cache(TIMES_REMEMBERED)(_parse)


def _clock_of(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _parse_rfc1123(text: str) -> int:
    weekday_end = text.index(",") + 1 if "," in text else 0
    day, month, year, clock, zone = text[weekday_end:].split()
    if zone not in ("GMT", "UTC", "+0000"):
        raise ValueError(zone)
    return _ms_of((year, str(_MONTHS.index(month.title()) + 1), day), clock)


def _parse_iso(text: str) -> int:
    date, _, rest = text.replace(" ", "T").upper().partition("T")
    clock, sign, offset = rest.removesuffix("Z").replace("-", "+-").partition("+")
    if clock.count(":") == 1 and "." not in clock:
        clock += ":00"
    year, month, day = date.split("-")
    at_ms = _ms_of((year, month, day), clock)
    return at_ms - _offset_ms(offset) if sign else at_ms


def _offset_ms(text: str) -> int:
    """Return an offset from UTC, `05:30` or `-0800`, in ms."""
    digits = text.removeprefix("-").replace(":", "")
    hours, minutes = _number_of(digits[:2]), _number_of(digits[2:])
    if len(digits) != 4 or hours > 23 or minutes > 59:
        raise ValueError(text)
    minutes += hours * 60
    return (-minutes if text.startswith("-") else minutes) * 60_000


def _ms_of(date: tuple[str, str, str], clock: str) -> int:
    """Return ms since the epoch from year, month, day and `HH:MM:SS[.fraction]`."""
    year, month, day = (_number_of(part) for part in date)
    whole, _, fraction = clock.partition(".")
    hour, minute, second = (_number_of(part) for part in whole.split(":"))
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 61):
        raise ValueError(clock)
    days = _days_of(year, month, day)
    if _date_of(days) != (year, month, day):
        raise ValueError(date)
    milli = _number_of(fraction.ljust(3, "0")[:3])
    return ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + milli


def _number_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ValueError(text)
    return int(text)


# The proleptic Gregorian calendar in integers, after Howard Hinnant's "chrono-compatible
# low-level date algorithms". Years are counted from March, eras are 400 years or 146,097 days.


def _days_of(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return year, month, day_of_year - (153 * shifted + 2) // 5 + 1
