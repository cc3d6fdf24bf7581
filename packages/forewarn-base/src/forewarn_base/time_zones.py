"""Time zones by their IANA names, from the machine's data or else from the package `tzdata`.

A name that was valid when a policy was applied may be unknown to another machine or after an
upgrade: Debian keeps old names such as `US/Eastern` in a package of its own. Its windows then count
as closed (`rules/window.py`). The answers are cached, so new data counts after a restart.
"""

from __future__ import annotations

import datetime as dt
import functools

#: Maximum cached answers.
ZONES_MAX = 1024


@functools.lru_cache(ZONES_MAX)
def zone_of(name: str) -> dt.tzinfo | None:
    """Return a time zone; None if there is none of this name, or its data cannot be read."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where there are windows

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
