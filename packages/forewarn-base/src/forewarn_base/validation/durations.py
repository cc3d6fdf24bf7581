"""Parsers of times and durations in operators' input; pure.

Callers pass the current time, `now_ms`, for relative times.
"""

from __future__ import annotations

import re

from forewarn_base.protocol import timestamps

#: Pattern of a duration: seconds, `1h30m`, `1 h 30 min` or ISO 8601 (`PT15M`, `P1DT2H`).
DURATION_PATTERN = (
    r"[0-9]{1,9}( ?s)?|(?=[0-9])([0-9]{1,5} ?d)?( ?[0-9]{1,6} ?h)?( ?[0-9]{1,7} ?m(in)?)?"
    r"( ?[0-9]{1,9} ?s)?"
    r"|P(?=[0-9T])([0-9]{1,5}D)?(T(?=[0-9])([0-9]{1,6}H)?([0-9]{1,7}M)?([0-9]{1,9}S)?)?"
)
#: Pattern of a time: RFC 3339, also without seconds, or `+` and a duration from now.
TIME_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
    rf"([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})|\+({DURATION_PATTERN})"
)
_DURATION = re.compile(DURATION_PATTERN)
_TIME = re.compile(TIME_PATTERN)
_PART = re.compile(r"([0-9]+) ?([dhms]?)")
_SIZE_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "": 1}


def read_duration_s(text: str) -> int:
    """Parse a duration such as `90`, `90s`, `1h30m`, `1 h 30 min` or `PT1H30M` into seconds.

    Raises:
        ValueError: the text is not a duration in one of these formats.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    parts: list[tuple[str, str]] = _PART.findall(text.lower())
    return sum(int(count) * _SIZE_S[unit] for count, unit in parts)


def iso_duration(seconds: int) -> str:
    """Format seconds as ISO 8601, such as `PT15M` or `PT0S`."""
    assert seconds >= 0, seconds
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    parts = [(hours, "H"), (minute, "M"), (second, "S")]
    return "PT" + ("".join(f"{count}{unit}" for count, unit in parts if count) or "0S")


def read_time_ms(text: str, now_ms: int) -> int:
    """Parse RFC 3339, or `+15m` relative to `now_ms`, into ms since the epoch UTC.

    Raises:
        ValueError: the text is not a valid time in either format.
    """
    if not _TIME.fullmatch(text):
        raise ValueError(text)
    if text[0] == "+":
        return now_ms + read_duration_s(text[1:]) * 1000
    return timestamps.parse(text)


def written(at_ms: int | None) -> str | None:
    """Format a time as RFC 3339; return None for None or 0, which mean "not yet"."""
    return timestamps.iso8601(at_ms) if at_ms else None
