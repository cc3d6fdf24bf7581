"""`forewarn operation`: list, explain and control operations.

Commands accept an operation's id, such as `op-12`, or the beginning of an event's id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_cli.work_requests import (
    WAITING,
    Waiting,
    awaited_text,
    begin_of_wait,
    print_operations,
    progress_text,
    wait,
)
from forewarn_server.cli.api_client import Answer, ApiClient, NameEmpty, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import LIST_MAX
from forewarn_server.cli.listing import Chosen, in_order, newest
from forewarn_server.cli.output import (
    call_in_words,
    confirm,
    listed,
    print_facts,
    print_list,
    print_structured,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    WATCHED,
    Limit,
    ListOptions,
    Reason,
    ServerOptions,
    WatchOptions,
    Yes,
)

OperationId: TypeAlias = Annotated[
    str, Parameter(name="ID", help="operation (op-12), event id, or its first characters")
]
operation = noun_app("operation")


#: Pattern of the id of a call that waits for a second operator.
CONFIRMATION = re.compile(r"(?i:c-)[0-9]{1,15}")
#: State of a maintenance -> action that lets it go on.
_VERBS = {"draft": "start", "paused": "resume", "stopped": "resume"}


@operation.default
@operation.command(name="list")
def _list(
    *,
    host: Annotated[str | None, Parameter(metavar="NAME", help="only of this host")] = None,
    vm: Annotated[str | None, Parameter(metavar="NAME", help="only of this VM")] = None,
    group: Annotated[str | None, Parameter(metavar="NAME", help="only of this group")] = None,
    all_: Annotated[
        bool, Parameter(name="--all", help="include operations that have ended")
    ] = False,
    state: Annotated[
        Sequence[Literal["planned", "announced", "running", "succeeded", "failed", "cancelled"]],
        Parameter(help="only in this state; repeatable"),
    ] = (),
    since: Annotated[
        str | None,
        Parameter(
            metavar="TIME", help="only requested since this time: 2h (ago), or 2026-11-21T18:30:00Z"
        ),
    ] = None,
    limit: Limit = LIST_MAX,
    common: ListOptions = LISTED,
) -> int:
    """List operations that have not ended."""
    client = client_of(common)
    operations = newest(
        client,
        "/v1/operations",
        time="created",
        chosen=Chosen(since=since, limit=limit, states=state),
        live=not (all_ or state),
        host=host,
        vm=vm,
        group=group,
    )
    operations = in_order(common, operations)
    if common.structured:
        return print_structured(common, {"operations": operations})
    print_operations(operations, client.now_ms, wide=common.form == "wide")
    return OK


@operation.command(name="show")
def _show(
    id_: OperationId,
    /,
    *,
    common: WatchOptions = WATCHED,
) -> int:
    """Show one operation with its events."""
    client = client_of(common)
    answer = client.get(f"/v1/operations/{part(id_)}")
    if common.structured:
        return print_structured(common, answer)
    return print_operation(client, answer, wide=common.form == "wide")


def print_operation(client: ApiClient, answer: Answer, *, wide: bool) -> int:
    """Print an operation with its events and what it waits for; return `OK`."""
    work, now_ms = answer["operation"], client.now_ms
    print_facts(
        (
            *_state_facts(work, now_ms),
            ("VMs", listed(work["vms"])),
            ("destination", work["destination"]),
            ("maintenance", work["maintenance"]),
            ("driver", work["driver"]),
            ("validated by", _validation_text(work)),
            ("progress", progress_text(work)),
            ("created", when(work["created"], now_ms)),
        )
    )
    if answer["events"]:
        print()
        columns = (("event", "id"), "type", ("status", "shown_as"), "group", "resources")
        print_list(answer["events"], columns, wide=wide)
    if work["state"] in {"planned", "announced"}:
        for each in client.get("/v1/why", id=work["id"])["blockers"]:
            print(f"waits: {awaited_text(each, now_ms)} [{each['code']}]")
    return OK


@operation.command(name="why")
def _why(
    id_: Annotated[
        str,
        Parameter(
            name="ID",
            help="op-12, event id (or its first characters), m-12, m-12/3 (a wave), host or VM",
        ),
    ],
    /,
    *,
    common: WatchOptions = WATCHED,
) -> int:
    """Show the blockers of an operation, maintenance, wave, host or VM."""
    if not id_:
        raise NameEmpty
    client = client_of(common)
    if CONFIRMATION.fullmatch(id_):
        each = client.get(f"/v1/confirmations/{part(id_.lower())}")
        if common.structured:
            return print_structured(common, {"kind": "confirmation", **each})
        until = when(each["expires"], client.now_ms)
        print(
            f"waits for confirmation by an operator other than {each['principal']}, until {until}"
        )
        print(f"  {call_in_words(each)}")
        print(f"  forewarn confirmation confirm {each['id']}")
        return OK
    answer = client.get("/v1/why", id=id_)
    if common.structured:
        return print_structured(common, answer)
    kind, name = answer["kind"], answer["id"]
    if kind == "operation":
        print_facts(_state_facts(client.get(f"/v1/operations/{name}")["operation"], client.now_ms))
    elif not answer["blockers"]:
        noun = "VM" if kind == "vm" else kind
        print(f"{noun} {name} has no blockers")
    for each in answer["blockers"]:
        work = f"{each['name']}: " if each["name"] != name else ""
        print(f"waits: {work}{awaited_text(each, client.now_ms)} [{each['code']}]")
    if kind in {"maintenance", "wave"} and any(b["code"] == "operator" for b in answer["blockers"]):
        number = name.partition("/")[0]
        _print_next(client, number)
    return OK


def _print_next(client: ApiClient, number: str) -> None:
    """Print what makes a maintenance go on: a confirmation that is awaited, or a command."""
    confirmations = client.get("/v1/confirmations")["confirmations"]
    awaited = [each for each in confirmations if number in call_in_words(each).split()]
    for each in awaited:
        print(f"waits: {each['id']} of {each['principal']} is not confirmed by a second operator")
        print(f"  forewarn confirmation confirm {each['id']}")
    state = client.get(f"/v1/maintenances/{number}")["maintenance"]["state"]
    verb = _VERBS.get(state)
    if verb == "start" and client.get("/v1/policy").get("require_declaration"):
        verb = "declare"
    if verb and not awaited:
        print(f"  forewarn maintenance {verb} {number}")


def _validation_text(operation: Answer) -> str:
    """Return the gate that validates the host, and how it stands; empty: none yet."""
    gate: str = operation.get("validation", "")
    if gate and operation["state"] == "running":
        return f"gate {gate}, {'failed' if operation['alert'] == 'stuck' else 'running'}"
    return gate and f"gate {gate}"


def _state_facts(operation: Answer, now_ms: int) -> tuple[tuple[str, object], ...]:
    notices = operation["state"] == "announced"  # only announced operations have a NotBefore
    return (
        ("operation", operation["id"]),
        ("what", f"{operation['cause']} of {operation['target_kind']} {operation['target']}"),
        ("impact", operation["impact"]),
        ("asked by", operation["actor"]),
        ("state", " and ".join([operation["state"], *_trouble(operation)])),
        ("not before", when(operation["not_before"], now_ms) if notices else ""),
        ("started", when(operation["started"], now_ms)),
        ("ended", when(operation["ended"], now_ms)),
        ("reason", operation["reason"]),
    )


def _trouble(operation: Answer) -> list[str]:
    """Return the alert of an operation as a list; no alert: an empty one."""
    return [operation["alert"]] if operation["alert"] not in {"", "none"} else []


@operation.command(name="approve")
def _approve(
    id_: OperationId,
    /,
    *,
    waiting: Waiting = WAITING,
    common: ServerOptions = COMMON,
) -> int:
    """Approve an event, or all events of an operation, for its VMs."""
    return _act(f"{part(id_)}/approve", common, waiting=waiting)


@operation.command(name="cancel")
def _cancel(
    id_: OperationId,
    /,
    *,
    reason: Reason = None,
    yes: Yes = False,
    common: ServerOptions = COMMON,
) -> int:
    """Cancel work that has not started."""
    confirm(f"Cancel {id_}?", yes=yes)
    return _act(f"{part(id_)}/cancel", common, form={"reason": reason})


@operation.command(name="complete")
def _complete(
    id_: OperationId,
    /,
    *,
    reason: Reason = None,
    failed: Annotated[bool | None, Parameter(help="record the work as failed")] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Record that running work has ended."""
    return _act(f"{part(id_)}/complete", common, form={"failed": failed, "reason": reason})


@operation.command(name="retry")
def _retry(
    id_: OperationId,
    /,
    *,
    waiting: Waiting = WAITING,
    common: ServerOptions = COMMON,
) -> int:
    """Retry an operation: call its driver again."""
    return _act(f"{part(id_)}/retry", common, waiting=waiting)


def _act(
    path: str,
    common: ServerOptions,
    *,
    waiting: Waiting = WAITING,
    form: Mapping[str, object] | None = None,
) -> int:
    client = client_of(common)
    after = begin_of_wait(client, waiting)
    operations = client.post(f"/v1/operations/{path}", form)["operations"]
    if waiting.wait:
        return wait(client, operations, after=after, waiting=waiting, common=common)
    if common.structured:
        return print_structured(common, {"operations": operations})
    print_operations(operations, client.now_ms)
    return OK
