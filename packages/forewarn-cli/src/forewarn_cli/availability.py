"""`forewarn availability`: the availability of VMs over a period, and the records behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.validation.durations import read_duration_s, read_time_ms
from forewarn_cli.history import written_lines
from forewarn_server.cli.api_client import Answer, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.completed_names import suggest_owner
from forewarn_server.cli.listing import in_order
from forewarn_server.cli.output import (
    Column,
    note,
    noun,
    print_facts,
    print_list,
    print_structured,
    to_the_second,
)
from forewarn_server.cli.parameters import COMMON, LISTED, FileOrDash, ListOptions, ServerOptions

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_AGE = re.compile(r"([0-9]+[dhms])+")


class PeriodTimeInvalid(CallerError):
    """A time of a period is malformed."""

    code = "period-time-invalid"
    message = "{text!r} is not a time for --from or --to."
    advice = "Use a date such as 2026-10-01, a time such as 2026-10-01T18:30:00Z, or an age: 30d."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReportedVms:
    """Options that name VMs and a period."""

    owner: Annotated[str | None, Parameter(help="only VMs of this owner")] = None
    group: Annotated[str | None, Parameter(metavar="NAME", help="only VMs of this group")] = None
    vm: Annotated[str | None, Parameter(metavar="NAME", help="only this VM")] = None
    from_: Annotated[
        str | None,
        Parameter(
            name="--from",
            metavar="TIME",
            help="begin of the period: 2026-10-01 (UTC), 2026-10-01T18:30:00Z, or 30d (ago)"
            " (default: 30 days before its end)",
        ),
    ] = None
    to: Annotated[
        str | None, Parameter(metavar="TIME", help="end of the period (default: now)")
    ] = None

    def query(self, now_ms: int) -> dict[str, str | None]:
        """Return the parameters of the request.

        Raises:
            PeriodTimeInvalid: a time is malformed.
        """
        members: dict[str, str | None] = dict(vars(self))
        times = {"from": members.pop("from_"), "to": members.pop("to")}
        return members | {name: text and _time(text, now_ms) for name, text in times.items()}


REPORTED = ReportedVms()
availability = noun_app("availability")


@availability.default
@availability.command(name="show")
def _show(*, reported: ReportedVms = REPORTED, common: ListOptions = LISTED) -> int:
    """Show the availability of VMs, and each disturbance with its event."""
    client = client_of(common)
    report = client.get("/v1/availability", **reported.query(client.now_ms))
    vms = in_order(common, report["vms"])
    if common.form in {"csv", "name"}:
        return print_structured(common, {"vms": vms})
    if common.structured:
        return print_structured(common, {**report, "vms": vms})
    count = len(vms)
    print_facts(
        [
            ("period", f"{report['from']} to {report['to']}"),
            ("VMs", count),
            ("counted", in_words(report["counted_ms"])),
            ("disturbed", in_words(report["disturbed_ms"])),
            ("availability", _percent(report)),
        ]
    )
    if not vms:
        suggest_owner(reported.owner, common)
    disturbed = [each for each in vms if each["disturbed_ms"]]
    if disturbed:
        print()
        print_list(disturbed, _OF_VM, wide=common.form == "wide")
        print()
        print_list(report["disturbances"], _OF_EVENT, wide=common.form == "wide")
    undisturbed = count - len(disturbed)
    note(f"{undisturbed} {noun(undisturbed, 'VM')} without a disturbance")
    return OK


@availability.command(name="export")
def _export(
    *,
    output: Annotated[
        FileOrDash,
        Parameter(
            metavar="FILE",
            help="output file, compressed if it ends in .gz (default: standard output)",
        ),
    ] = "-",
    reported: ReportedVms = REPORTED,
    common: ServerOptions = COMMON,
) -> int:
    """Write the records from which availability is computed, as JSON lines."""
    client = client_of(common)
    query = reported.query(client.now_ms)

    def lines() -> Iterator[Answer]:
        page = client.get("/v1/availability/records", **query)
        period = {name: page[name] for name in ("from", "to", "at")}
        yield {"kind": "period", **period}
        query.update({name: page[name] for name in ("from", "to")})
        yield from page["records"]
        while page["next"]:
            page = client.get("/v1/availability/records", **query, after=page["next"])
            yield from page["records"]

    count = written_lines(output, lines())
    if output != "-":
        note(f"{count} {noun(count, 'line')} written to {output}")
    return OK


def _time(text: str, now_ms: int) -> str:
    """Return a time as the service reads it, from a date, a time or an age."""
    if _DATE.fullmatch(text):
        text = f"{text}T00:00:00Z"
    try:
        if _AGE.fullmatch(text):
            return iso8601(now_ms - read_duration_s(text) * 1000)
        return iso8601(read_time_ms(text, now_ms))
    except ValueError as error:
        raise PeriodTimeInvalid(text=text) from error


def in_words(ms: int) -> str:
    """Return a duration with its milliseconds: `2 d 3 h 4 min 5.250 s`."""
    return duration_text(*divmod(ms, 1000))


def _percent(record: Answer) -> str:
    share = record["available_percent"]
    return "" if share is None else f"{share:.4f} %"


_OF_VM: tuple[Column, ...] = (
    *("vm", "group", "owner"),
    ("disturbed", lambda each: in_words(each["disturbed_ms"])),
    ("availability", _percent),
)
_OF_EVENT: tuple[Column, ...] = (
    *("vm", "event", "type", "source"),
    ("from", lambda each: to_the_second(each["from"])),
    ("disturbed", lambda each: in_words(each["ms"])),
    "measured",
)
