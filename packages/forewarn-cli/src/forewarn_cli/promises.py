"""`forewarn promises`: how promises were kept over a period, and the report of a month."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Literal

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_cli.availability import REPORTED, ReportedVms, in_words
from forewarn_cli.events import month_span
from forewarn_cli.promises_html import promises_html, share
from forewarn_server.cli.api_client import Answer, ApiClient, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.completed_names import suggest_owner
from forewarn_server.cli.output import (
    Column,
    print_facts,
    print_file,
    print_json,
    print_list,
    print_structured,
    show_list,
)
from forewarn_server.cli.parameters import COMMON, LISTED, ListOptions, ServerOptions
from forewarn_server.cli.structured import no_formula

promises = noun_app("promises")


@promises.default
@promises.command(name="show")
def _show(
    *,
    reported: ReportedVms = REPORTED,
    by: Annotated[
        Literal["owner", "group", "day", "month"] | None,
        Parameter(help="also show the figures of each part"),
    ] = None,
    common: ListOptions = LISTED,
) -> int:
    """Show how promises were kept over a period."""
    client = client_of(common)
    answer = client.get("/v1/promises", **reported.query(client.now_ms), by=by)
    if by and common.form in {"csv", "name"}:
        return print_structured(common, {"parts": answer["parts"]})
    if common.structured:
        return print_structured(common, answer)
    print_facts(facts(answer["total"]))
    if not answer["total"]["vms"]:
        suggest_owner(reported.owner, common)
    if by is None:
        return OK
    print()
    return show_list(common, answer, (by_column(by), *_COLUMNS), name="parts", empty="No parts.")


@promises.command(name="report")
def _report(
    *,
    month: Annotated[str, Parameter(metavar="YYYY-MM", help="the month, in UTC")],
    owner: Annotated[str | None, Parameter(metavar="NAME", help="only of this owner")] = None,
    format_: Annotated[
        Literal["text", "csv", "html", "json"],
        Parameter(name="--format", help="format of the report (default: text)"),
    ] = "text",
    common: ServerOptions = COMMON,
) -> int:
    """Report how promises were kept in a month: in total, by owner and by day."""
    report = month_report(client_of(common), month, owner)
    if format_ == "html":
        print_file(promises_html(report))
    elif format_ == "csv":
        print_file(as_csv(report))
    elif format_ == "json":
        return print_json(report)
    elif common.structured:
        return print_structured(common, report)
    else:
        print(report["title"])
        print()
        print_facts(facts(report["total"]))
        print()
        print_list(report["owners"], (by_column("owner"), *_COLUMNS))
    return OK


def month_report(client: ApiClient, month: str, owner: str | None) -> Answer:
    """Return the figures of a month: in total, by owner and by day."""
    begin, end = month_span(month)
    query = {"from": begin, "to": end, "owner": owner}
    by_owner = client.get("/v1/promises", **query, by="owner")
    by_day = client.get("/v1/promises", **query, by="day")
    of = f" to {owner}" if owner is not None else ""
    return {
        "title": f"Promises{of} in {month}",
        "at": by_owner["at"],
        "total": by_owner["total"],
        "owners": by_owner["parts"],
        "days": by_day["parts"],
    }


def facts(part: Answer) -> list[tuple[str, object]]:
    """Return the figures of some events for people."""
    return [
        ("period", f"{part['from']} to {part['to']}"),
        ("events", part["events"]),
        ("announced before", _of(part, "announced", "events")),
        ("promised notice", _of(part, "notice", "promised", count="with_notice")),
        ("approved in time", share(part["approved_percent"])),
        ("approved after", _latency(part)),
        ("VMs", part["vms"]),
        ("disturbed", in_words(part["disturbed_ms"])),
        ("disturbed, each VM", _duration(part["disturbed_per_vm_ms"])),
        ("longest maintenance", _duration(part["last_host_ms"])),
    ]


def as_csv(report: Answer) -> str:
    """Return the total, the owners and the days of a report as CSV, one row each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(report["total"])
    writer.writerow(["part", *names])
    parts = [("total", [report["total"]]), ("owner", report["owners"]), ("day", report["days"])]
    for part, rows in parts:
        writer.writerows([part, *(_cell(each[name]) for name in names)] for each in rows)
    return text.getvalue()


def by_column(by: str) -> Column:
    """Return the column with the name of a part."""
    return by, lambda each: each["name"] or "(none)"


def _cell(value: object) -> str:
    return "" if value is None else no_formula(str(value))


def _of(part: Answer, name: str, whole: str, *, count: str = "") -> str:
    shown = share(part[f"{name}_percent"])
    return f"{shown} ({part[count or name]} of {part[whole]})" if shown else ""


def _latency(part: Answer) -> str:
    if part["approval_median_ms"] is None:
        return ""
    return f"{_duration(part['approval_median_ms'])} (95 %: {_duration(part['approval_p95_ms'])})"


def _duration(ms: int | None) -> str:
    return "" if ms is None else in_words(ms)


_COLUMNS: tuple[Column, ...] = (
    "events",
    ("announced", lambda each: share(each["announced_percent"])),
    ("notice", lambda each: share(each["notice_percent"])),
    ("approved in time", lambda each: share(each["approved_percent"])),
    ("approved after", _latency),
    "vms",
    ("disturbed", lambda each: in_words(each["disturbed_ms"])),
)
