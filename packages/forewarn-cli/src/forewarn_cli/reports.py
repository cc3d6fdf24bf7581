"""Reports of event outcomes as a table, CSV, JSON, or HTML. Source: X-1."""

from __future__ import annotations

import csv
import html
import io
from collections import Counter
from collections.abc import Sequence

from forewarn_server.cli.api_client import Answer, ApiClient
from forewarn_server.cli.listing import records
from forewarn_server.cli.output import noun, print_facts, print_file, print_table
from forewarn_server.cli.structured import no_formula

COLUMNS = {
    "event": "event",
    "group": "group",
    "host": "host",
    "type": "type",
    "result": "result",
    "start": "start",
    "notice_given_s": "notice given (s)",
    "notice_promised_s": "promised (s)",
    "approved_by": "approved by",
    "started": "started",
    "ended": "ended",
    "lasted_s": "Started for (s)",
    "interruption_ms": "interruption (ms)",
    "reason": "reason",
}
#: Columns of a report as text; other formats have all columns.
_SHORT = (
    *("group", "host", "type", "result", "start", "notice_given_s", "approved_by", "ended"),
    *("lasted_s", "interruption_ms"),
)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:14px sans-serif}}table{{border-collapse:collapse}}
td,th{{border:1px solid #999;padding:.3em .5em;text-align:left}}</style>
<h1>{title}</h1>
<p>{summary}</p>
<p>Times are UTC.</p>
<table><tr>{heads}</tr>
{rows}
</table></html>"""


def all_outcomes(client: ApiClient, path: str, **query: object) -> list[Answer]:
    """Return all outcomes of a route, from all pages."""
    return list(records(client, path, "outcomes", cursor="before", **query))


def print_outcomes(outcomes: Sequence[Answer], form: str, *, title: str) -> None:
    """Print outcomes in one of `FORMATS`."""
    if form == "csv":
        print_file(as_csv(outcomes))
    elif form == "html":
        print_file(f"{as_html(outcomes, title)}\n")
    else:
        print(f"{title}: {summary(outcomes)}")
        heads = [COLUMNS[name] for name in _SHORT]
        if outcomes:
            print_table(heads, [[_cell(each, name) for name in _SHORT] for each in outcomes])


def _cell(outcome: Answer, name: str) -> object:
    if name == "approved_by" and outcome.get("not_asked"):  # a server of 0.1.0 does not say it
        return "not asked"
    return _cell_text(outcome[name])


def print_outcome(outcome: Answer) -> None:
    """Print the outcome of one event."""
    print_facts([(head, _cell(outcome, name)) for name, head in COLUMNS.items()])


def summary(outcomes: Sequence[Answer]) -> str:
    """Return a summary of the results, starts and notices of events."""
    if not outcomes:
        return "No events have ended."
    results = Counter(each["result"] for each in outcomes)
    starts = Counter(each["start"] for each in outcomes if each["start"] != "never")
    parts = [f"{len(outcomes)} {noun(len(outcomes), 'event')}"]
    parts.append(", ".join(f"{count} {word}" for word, count in sorted(results.items())))
    if starts:
        words = ", ".join(f"{count} {word}" for word, count in sorted(starts.items()))
        parts.append(f"started {words}")
    short = [
        each
        for each in outcomes
        if each["start"] in {"on-time", "late"}
        and (each["notice_given_s"] or 0) < each["notice_promised_s"]
    ]
    parts.append(f"{len(short)} with less notice than promised")
    measured = [each["interruption_ms"] for each in outcomes if each["interruption_ms"] is not None]
    if measured:
        parts.append(f"longest measured interruption {max(measured)} ms")
    return "; ".join(parts) + "."


def as_csv(outcomes: Sequence[Answer]) -> str:
    """Return outcomes as CSV, one row per event, with the API's names as headings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([no_formula(_cell_text(each[name])) for name in COLUMNS] for each in outcomes)
    return text.getvalue()


def as_html(outcomes: Sequence[Answer], title: str) -> str:
    """Return outcomes as a self-contained HTML page."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in COLUMNS.values())
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_cell_text(each[name]))}</td>" for name in COLUMNS)
        + "</tr>"
        for each in outcomes
    )
    words = html.escape(summary(outcomes))
    return _PAGE.format(title=html.escape(title), summary=words, heads=heads, rows=rows)


def _cell_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
