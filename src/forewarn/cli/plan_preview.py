"""Text of a plan: calendar of waves, notice times, availability of groups.

The functions yield lines of at most `WIDTH` characters.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

from forewarn.cli.api_client import Answer
from forewarn.protocol import timestamps

WIDTH = 80
#: Characters per day in the calendar, one for each half hour.
SLOTS = 48
SLOT_MS = 1_800_000
DAY_MS = SLOTS * SLOT_MS
#: Most days drawn; later days are omitted.
DAYS_MAX = 14
#: Most groups listed, the worst first.
GROUPS_MAX = 10
_NONE, _SEVERAL = ".", "*"


def calendar_lines(waves: Iterable[Answer]) -> Iterator[str]:
    """Yield a calendar of waves (UTC) that shows the last digit of a wave's number per half hour.

    The calendar extends from the first start of a wave to the last end. `*` marks a half hour with
    several waves.
    """
    days: dict[int, list[str]] = {}
    for wave in waves:
        if not wave["earliest_start"] or not wave["latest_end"]:
            continue
        start_ms = timestamps.parse(wave["earliest_start"])
        end_ms = max(timestamps.parse(wave["latest_end"]), start_ms + 1)
        for slot in range(start_ms // SLOT_MS, -(-end_ms // SLOT_MS)):
            drawn = days.setdefault(slot // SLOTS, [_NONE] * SLOTS)
            free = drawn[slot % SLOTS] == _NONE
            drawn[slot % SLOTS] = str(wave["number"] % 10) if free else _SEVERAL
            if len(days) > DAYS_MAX:
                break
    if not days:
        return
    yield (
        f"{'UTC':<15} "
        + "".join(f"{hour:<6}" for hour in ("00", "03", "06", "09"))
        + "".join(f"{hour:<6}" for hour in ("12", "15", "18", "21")).rstrip()
    )
    before = min(days)
    for day in sorted(days)[:DAYS_MAX]:
        if day > before + 1:
            yield f"{'':<15} ({day - before - 1} days without work)"
        at = dt.datetime.fromtimestamp(day * DAY_MS // 1000, dt.UTC)
        yield f"{at:%a %Y-%m-%d}  {''.join(days[day])}"
        before = day
    if len(days) > DAYS_MAX:
        yield f"{'':<15} and further days"


def group_lines(groups: list[Answer]) -> Iterator[str]:
    """Yield each group's availability and first notice; the most affected groups come first."""
    if not groups:
        return
    yield f"{'GROUP':<24}  {'VMS':>5}  {'UP NOW':>6}  {'MIN UP':>6}  {'WAVES':>5}  FIRST NOTICE UTC"
    for each in groups[:GROUPS_MAX]:
        notice = (each["first_notice"] or "").replace("T", " ")[:16]
        now, least = (_share(each[name], each["vms"]) for name in ("up_before", "up_least"))
        name = each["group"] if len(each["group"]) <= 24 else each["group"][:23] + "…"
        yield f"{name:<24}  {each['vms']:>5}  {now:>6}  {least:>6}  {each['waves']:>5}  {notice}"
    if len(groups) > GROUPS_MAX:
        rest = groups[GROUPS_MAX:]
        least = min(each["up_least"] / each["vms"] for each in rest)
        yield f"and {len(rest)} more groups, each at least {int(least * 100)}% available"


def _share(part: int, whole: int) -> str:
    """Return a percentage, rounded down."""
    return f"{part * 100 // whole}%"
