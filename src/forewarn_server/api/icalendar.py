"""Writes iCalendar objects. Source: RFC 5545."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

#: Media type of an iCalendar object.
CALENDAR = "text/calendar"
#: Longest line, in octets without its end. Source: RFC 5545 3.1.
LINE_OCTETS_MAX = 75

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def calendar(name: str, components: Iterable[Iterable[str]]) -> bytes:
    """Return a calendar of components, each as its lines without line ends."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Forewarn//Declared maintenance//EN",
        "CALSCALE:GREGORIAN",
        f"X-WR-CALNAME:{text(name)}",
        "REFRESH-INTERVAL;VALUE=DURATION:PT15M",  # RFC 7986 5.7
        *(line for component in components for line in component),
        "END:VCALENDAR",
    ]
    return b"".join(part + b"\r\n" for line in lines for part in _fold(line.encode()))


def utc(at_ms: int) -> str:
    """Return a time, ms since the epoch UTC, in the form of RFC 5545 3.3.5 with UTC."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def text(value: str) -> str:
    """Return a value of the type TEXT, without control characters. Source: RFC 5545 3.3.11."""
    whole = _CONTROLS.sub("", value.replace("\r\n", "\n"))
    for plain, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,"), ("\n", "\\n")):
        whole = whole.replace(plain, escaped)
    return whole


def _fold(line: bytes) -> Iterator[bytes]:
    """Yield the parts of a line, none of which cuts a character of UTF-8."""
    start, limit, head = 0, LINE_OCTETS_MAX, b""
    while len(line) - start > limit:
        cut = start + limit
        while line[cut] & 0xC0 == 0x80:
            cut -= 1
        yield head + line[start:cut]
        start, limit, head = cut, LINE_OCTETS_MAX - 1, b" "
    yield head + line[start:]
