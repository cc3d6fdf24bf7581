"""`forewarn declaration`: declared maintenances, as their owners and operators see them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from forewarn.cli.api_client import Answer, client_of, part
from forewarn.cli.application import noun_app
from forewarn.cli.output import listed, print_facts, print_list, print_structured, show_list, when
from forewarn.cli.parameters import COMMON, LISTED, ListOptions, ServerOptions
from forewarn.exit_codes import OK

declaration = noun_app("declaration")
DeclarationId: TypeAlias = Annotated[str, Parameter(name="ID", help="m-12")]


@declaration.default
@declaration.command(name="list")
def _list(*, common: ListOptions = LISTED) -> int:
    """List declared maintenances that concern your VMs."""
    client = client_of(common)
    answer = client.get("/v1/declarations")
    now_ms = client.now_ms
    columns = (
        *("id", "severity", "state", "impact"),
        ("resources", lambda each: len(each["resources"])),
        ("open", lambda each: _count(each, "open")),
        ("hand back until", lambda each: when(each["hand_back_deadline"], now_ms)),
        "reason",
    )
    empty = "No declared maintenance concerns your VMs."
    return show_list(common, answer, columns, name="declarations", empty=empty)


@declaration.command(name="show")
def _show(id_: DeclarationId, /, *, common: ServerOptions = COMMON) -> int:
    """Show a declared maintenance, and the planned start on each of its hosts."""
    client = client_of(common)
    answer = client.get(f"/v1/declarations/{part(id_)}")
    if common.structured:
        return print_structured(common, answer)
    each, now_ms = answer["declaration"], client.now_ms
    print_facts(
        [
            *((name, each[name]) for name in ("id", "severity", "state", "cause", "impact")),
            ("reason", each["reason"]),
            ("declared", when(each["declared"], now_ms)),
            ("hand back until", when(each["hand_back_deadline"], now_ms)),
            ("earliest start", when(each["earliest_start"], now_ms)),
            ("interruption", _interruption(each)),
            ("window of a host", f"{each['window_s']} s"),
            ("version", each["version"]),
        ]
    )
    print()
    columns = (
        *("host", "owner"),
        ("VMs", lambda one: listed(one["vms"])),
        "state",
        ("planned start", lambda one: when(one["start"], now_ms)),
        ("hand back until", lambda one: when(one["hand_back_deadline"], now_ms)),
    )
    print_list(each["resources"], columns, wide=common.form == "wide")
    return OK


def _count(each: Answer, state: str) -> int:
    return sum(1 for one in each["resources"] if one["state"] == state)


def _interruption(each: Answer) -> str:
    seconds = each["interruption_s"]
    return "as long as the work lasts" if seconds < 0 else f"{seconds} s"
