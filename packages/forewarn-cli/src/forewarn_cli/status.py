"""`forewarn status` and `forewarn show`: show the service's state, or one record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.protocol import timestamps
from forewarn_base.protocol.timestamps import duration_text
from forewarn_cli.maintenance_output import print_full
from forewarn_cli.operations import CONFIRMATION, print_operation
from forewarn_server.cli.api_client import Answer, ApiClient, ApiRefused, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import CERTIFICATE_MS_MIN
from forewarn_server.cli.output import (
    call_in_words,
    listed,
    noun,
    print_facts,
    print_list,
    print_structured,
    show_record,
    when,
)
from forewarn_server.cli.parameters import (
    WATCHED,
    WatchOptions,
)

status = noun_app("status")
show = noun_app("show")


_MAINTENANCE = re.compile(r"(?i:m-)[0-9]{1,15}")
#: Lists in which `show` searches for a name, in this order.
_LOOKED_UP = ("events", "operations", "hosts", "vms", "groups")
_NOT_FOUND = 404
#: Share of a limit from which it is reported, and maximum number of named nodes.
LIMIT_SHARE, NODES_NAMED_MAX = 0.9, 5
#: Lists whose records have a page.
_WITH_PAGE = frozenset({"hosts", "vms", "groups", "operations", "maintenances"})


class PageMissing(CallerError):
    """A record has no page to open."""

    code = "page-missing"
    message = "There is no page of {kind} at {server}."
    advice = "Leave --web out, or name a server with http:// or https://."


class IdUnknown(CallerError):
    """No record has this id or name."""

    code = "id-unknown"
    status = 404
    message = "No operation, event, maintenance, confirmation, host, VM or group is called {name}."
    advice = "List the names, for example with `forewarn operation` or `forewarn host`."


@status.default
def _status(
    *,
    common: WatchOptions = WATCHED,
) -> int:
    """Show the service and waiting work."""
    client = client_of(common)
    version = client.get("/v1/version")
    health = client.health()
    backup, degraded = health.get("last_backup", ""), health.get("degraded", [])
    answer: Answer = {"groups": []}
    empty = "Nothing waits."
    confirmations: list[Answer] = []
    try:
        answer = client.get("/v1/blockers")
        confirmations = client.get("/v1/confirmations")["confirmations"]
    except ApiRefused as refusal:
        if refusal.code != "not-permitted":
            raise
        empty = (
            "Your role covers one owner. List the owner's work with `forewarn operation` or "
            "`forewarn event`."
        )
    if common.structured:
        about = {
            "version": version["version"],
            "last_backup": backup or None,
            "degraded": degraded,
        }
        return print_structured(common, {**about, **answer, "confirmations": confirmations})
    print_facts(
        (
            ("server", client.server),
            ("version", version["version"]),
            ("time", timestamps.iso8601(client.now_ms // 1000 * 1000)),
            ("last backup", when(backup, client.now_ms) if backup else "none known"),
        )
    )
    for each in (*degraded, *_parts_in_trouble(client)):
        print(each)
    for each in confirmations:
        what = f"{each['id']} of {each['principal']} ({call_in_words(each)})"
        print(f"{what} waits for another operator to confirm it")
    columns = (
        *(("waits for", "code"), "subject", "count"),
        ("clears", lambda each: when(each["clears"], client.now_ms)),
        ("first of them", "text"),
    )
    if confirmations:
        empty = "No work waits."
    return print_list(answer["groups"], columns, empty=empty, wide=common.form == "wide")


def _parts_in_trouble(client: ApiClient) -> Iterator[str]:
    """Yield a sentence about control planes, nodes, certificates and limits in trouble."""
    try:
        parts = client.get("/v1/service")
    except ApiRefused:  # an owner's role, or an earlier version
        return
    for each in parts["processes"]:
        if not each["runs"]:
            yield f"Control plane {each['url']} was last seen {duration_text(each['age_s'])} ago."
    late = [each["name"] for each in parts["nodes"] if not each["connected"] or each["behind"]]
    if late:
        known = f"of {parts['node_count']} {noun(parts['node_count'], 'metadata node')}"
        yield f"{len(late)} {known} behind or cut off: {listed(late[:NODES_NAMED_MAX])}"
    for each in parts["certificates"]:
        if timestamps.parse(each["until"]) - client.now_ms < CERTIFICATE_MS_MIN:
            until = when(each["until"], client.now_ms)
            yield f"The certificate of [{each['section']}] is valid until {until}."
    for each in parts["limits"]:
        if each["used"] >= LIMIT_SHARE * each["max"]:
            yield f"{each['used']} of at most {each['max']} {each['name']}."


@show.default
def _show(
    id_: Annotated[str, Parameter(name="ID", help="op-12, m-12, c-12, an event's id, or a name")],
    /,
    *,
    web: Annotated[bool, Parameter(help="open the page of the record in a browser")] = False,
    common: WatchOptions = WATCHED,
) -> int:
    """Show a record by its id or name."""
    client, name = client_of(common), part(id_)
    kinds: tuple[str, ...] = _LOOKED_UP
    if _MAINTENANCE.fullmatch(id_):
        kinds = ("maintenances",)
    elif CONFIRMATION.fullmatch(id_):
        kinds, name = ("confirmations",), name.lower()
    for kind in kinds:
        if kind == "events" and id_.lower().startswith("op-"):
            continue
        try:
            answer = client.get(f"/v1/{kind}/{name}")
        except ApiRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            continue
        if web:
            return _open_page(client.server, kind, name)
        return _print_record(client, kind, answer, common)
    raise IdUnknown(name=id_)


def _print_record(client: ApiClient, kind: str, answer: Answer, common: WatchOptions) -> int:
    """Print a record of a list, as the `show` of its noun does."""
    if common.structured:
        return print_structured(common, {"kind": kind[:-1], **answer})
    if kind == "operations":
        return print_operation(client, answer, wide=common.form == "wide")
    if kind == "maintenances":
        print_full(answer, client.now_ms)
        return OK
    return show_record(common, {"kind": kind[:-1], **answer.get(kind[:-1], answer)})


def _open_page(server: str, kind: str, name: str) -> int:
    """Open the page of a record, and print its address.

    Raises:
        PageMissing: the record has no page, or the server is a Unix socket.
    """
    if kind not in _WITH_PAGE or server.startswith("unix:"):
        raise PageMissing(kind=kind, server=server)
    import webbrowser  # noqa: PLC0415 - seldom wanted

    address = f"{server}/#/{kind}/{name}"
    print(address)
    webbrowser.open(address)
    return OK
