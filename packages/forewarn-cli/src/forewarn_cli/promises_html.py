"""The report of a month as one HTML file with inline charts, for people without an account."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

from forewarn_server.cli.api_client import Answer

MINUTE_MS = 60_000
#: Size of a chart, in units of its own coordinates.
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 44, 24
#: Most owners in a chart; the table has all of them.
CHARTED_MAX = 20

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --text: #1b2733; --soft: #5b6b7a; --line: #d5dde5;
  --card: #f6f8fa; --bar: #1f6f8b; --gap: #b3541e; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e8eef3; --soft: #9fb0be;
  --line: #33414d; --card: #1c252d; --bar: #58b0cc; --gap: #e3935f; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--text); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0; }}
h2 {{ font-size: 1.15rem; margin: 2rem 0 .5rem; }}
p, figcaption {{ color: var(--soft); margin: .25rem 0; }}
dl {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .75rem; }}
dl div {{ background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem 1rem; break-inside: avoid; }}
dt {{ color: var(--soft); font-size: .9rem; }}
dd {{ margin: 0; font-size: 1.4rem; font-weight: 600; }}
dd small {{ display: block; font-size: .85rem; font-weight: 400; color: var(--soft); }}
figure {{ margin: 0; break-inside: avoid; }}
svg {{ width: 100%; height: auto; }}
svg text {{ fill: var(--soft); font: 11px system-ui, sans-serif; }}
svg line {{ stroke: var(--line); }}
.bar {{ fill: var(--bar); }}
.gap {{ fill: var(--gap); }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .95rem; }}
th, td {{ text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{period}</p>
<dl>
{cards}
</dl>
{charts}
<h2>By owner</h2>
{owners}
<h2>By day</h2>
{days}
<h2>How to read it</h2>
<p>An event counts when it started in the period. It was announced if VMs were shown it before.
Promised notice was kept if the event started at NotBefore or later, or after an approval.
Approved in time is the share of announced events that VMs or operators approved by NotBefore.
Disturbed time is the time for which events were Started, or the interruption that was measured.
Times are UTC, and shares are rounded down.</p>
<p>Made by Forewarn at {at}.</p>
</body>
</html>
"""


def promises_html(report: Answer) -> str:
    """Return a report of `promises.month_report` as a page without references to other files."""
    total, days = report["total"], report["days"]
    owners = sorted(report["owners"], key=lambda each: -(each["approval_median_ms"] or 0))
    day_names = [str(int(each["name"][8:])) for each in days]
    charts = [
        _chart(
            "Announced before the start",
            "Share of a day's events that were announced, in percent; days without events are "
            "empty.",
            list(zip(day_names, [each["announced_percent"] for each in days], strict=True)),
            most=100,
        ),
        _chart(
            "Time to approval by owner",
            f"Median minutes from announcement to approval; the slowest {CHARTED_MAX} owners.",
            [
                (each["name"] or "(none)", each["approval_median_ms"] / MINUTE_MS)
                for each in owners[:CHARTED_MAX]
                if each["approval_median_ms"] is not None
            ],
        ),
        _chart(
            "Disturbed time",
            "Minutes for which VMs were disturbed on a day, of all VMs together.",
            list(zip(day_names, [each["disturbed_ms"] / MINUTE_MS for each in days], strict=True)),
            look="gap",
        ),
    ]
    return _PAGE.format(
        title=escape(report["title"]),
        period=escape(f"{total['from']} to {total['to']}, {total['events']} events"),
        cards="\n".join(_cards(total)),
        charts="\n".join(charts),
        owners=_table("Owner", report["owners"]),
        days=_table("Day", days),
        at=escape(report["at"]),
    )


def share(percentage: float | None) -> str:
    """Return a share for people; empty of nothing."""
    return "" if percentage is None else f"{percentage:.4g} %"


def minutes(ms: int | None) -> str:
    """Return a time in minutes; empty if it is unknown."""
    return "" if ms is None else f"{ms / MINUTE_MS:,.1f} min"


def _cards(total: Answer) -> list[str]:
    cards = [
        ("Announced before", share(total["announced_percent"]), "of all events"),
        ("Promised notice", share(total["notice_percent"]), "of events that need it"),
        ("Approved in time", share(total["approved_percent"]), "by NotBefore"),
        (
            "Approved after",
            minutes(total["approval_median_ms"]),
            f"median; 95 %: {minutes(total['approval_p95_ms'])}",
        ),
        ("Disturbed", minutes(total["disturbed_per_vm_ms"]), f"each of {total['vms']} VMs"),
        ("Longest maintenance", minutes(total["last_host_ms"]), f"of {total['maintenances']}"),
    ]
    return [
        f"<div><dt>{escape(name)}</dt><dd>{escape(shown or '—')}<small>{escape(more)}</small></dd>"
        "</div>"
        for name, shown, more in cards
    ]


def _table(first: str, parts: Sequence[Answer]) -> str:
    heads = (
        *(first, "Events", "Announced", "Notice", "Approved in time", "Approved after"),
        *("VMs", "Disturbed"),
    )
    rows = [
        (
            each["name"] or "(none)",
            each["events"],
            share(each["announced_percent"]),
            share(each["notice_percent"]),
            share(each["approved_percent"]),
            minutes(each["approval_median_ms"]),
            each["vms"],
            minutes(each["disturbed_ms"]),
        )
        for each in parts
    ]
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}\n</table></div>'


def _chart(
    title: str,
    text: str,
    bars: Sequence[tuple[str, float | None]],
    *,
    most: float = 0,
    look: str = "bar",
) -> str:
    """Return a bar chart with its title; the tables of the report have the same figures."""
    most = most or _rounded_up(max([each or 0 for _, each in bars], default=0))
    step = (WIDTH - LEFT) / max(len(bars), 1)
    shown = []
    for at, (label, height) in enumerate(bars):
        left = LEFT + at * step
        if height is not None:
            size = height / most * (HEIGHT - BOTTOM - 10)
            shown.append(
                f'<rect class="{look}" x="{left + step * 0.15:.1f}"'
                f' y="{HEIGHT - BOTTOM - size:.1f}" width="{step * 0.7:.1f}" height="{size:.1f}">'
                f"<title>{escape(label)}: {height:.4g}</title></rect>"
            )
        shown.append(
            f'<text x="{left + step / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
            f"{escape(_short(label, step))}</text>"
        )
    axis = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * part:.4g}</text>'
        for part in (0, 0.5, 1)
        for y in [HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - 10)]
    )
    return (
        f"<h2>{escape(title)}</h2>\n<figure>\n"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{axis}{''.join(shown)}</svg>\n<figcaption>{escape(text)}</figcaption>\n</figure>"
    )


def _rounded_up(most: float) -> float:
    """Return 1, 2 or 5 times a power of ten that is at least as large; 1 of nothing."""
    size = 10.0 ** floor(log10(most)) if most > 0 else 1.0
    return next(size * each for each in (1, 2, 5, 10) if size * each >= most)


def _short(label: str, step: float) -> str:
    """Return a label that fits under its bar."""
    most = max(int(step / 6.5), 1)
    return label if len(label) <= most else f"{label[: most - 1]}…"
