"""Text of a plan: calendar of waves, notice times, availability of groups.

The functions yield lines of at most `WIDTH` characters.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

from forewarn_base.protocol import timestamps
from forewarn_server.cli.api_client import Answer

WIDTH = 80
#: Characters per day in the calendar, one for each half hour.
SLOTS = 48
SLOT_MS = 1_800_000
DAY_MS = SLOTS * SLOT_MS
#: Most days drawn; later days are omitted.
DAYS_MAX = 14
#: Most groups listed, the worst first.
GROUPS_MAX = 10
#: Characters of the chart of waves, and most waves in it.
CHART, CHARTED_MAX = 56, 30
#: State of a wave -> its bar; other waves are to come.
_BARS = {"done": "█", "running": "▓", "announced": "▒"}
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


def chart_lines(waves: Iterable[Answer], now_ms: int) -> Iterator[str]:
    """Yield a chart of waves over time, one line each: done, running, to come, and now.

    Of many waves, those around the first unfinished one are drawn.
    """
    timed = [(each, *_span(each)) for each in waves if _span(each)[1]]
    if not timed:
        return
    start_ms = min(start for _, start, _ in timed)
    end_ms = max(end for _, _, end in timed)
    size_ms = max(end_ms - start_ms, 1)
    now_at = CHART * (now_ms - start_ms) // size_ms
    first = next((at for at, (each, *_) in enumerate(timed) if each["state"] != "done"), 0)
    first = max(0, min(first - 2, len(timed) - CHARTED_MAX))
    ends = [f"{_clock(ms)}" for ms in (start_ms, end_ms)]
    yield f"{'wave':<16} {ends[0]:<{CHART - len(ends[1])}}{ends[1]} UTC"
    for each, wave_ms, last_ms in timed[first : first + CHARTED_MAX]:
        left = min(CHART * (wave_ms - start_ms) // size_ms, CHART - 1)
        length = max(CHART * (last_ms - wave_ms) // size_ms, 1)
        cells = [" "] * CHART
        cells[left : left + length] = _BARS.get(each["state"], "░") * length
        if 0 <= now_at < CHART and cells[now_at] == " ":
            cells[now_at] = "┊"
        label = f"{each['number']:>4} {each['state']:<11}"
        yield f"{label} {''.join(cells[:CHART])}".rstrip()
    if len(timed) > CHARTED_MAX:
        yield f"{CHARTED_MAX} of {len(timed)} waves"


def _span(wave: Answer) -> tuple[int, int]:
    """Return when a wave starts and ends, planned or real; (0, 0): not known."""
    start = wave["started"] or wave["latest_start"]
    end = wave["ended"] or wave["latest_end"]
    if not (start and end):
        return 0, 0
    return timestamps.parse(start), timestamps.parse(end)


def _clock(ms: int) -> str:
    return f"{dt.datetime.fromtimestamp(ms // 1000, dt.UTC):%a %d %H:%M}"


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
