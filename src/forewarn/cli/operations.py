"""`forewarn operation`: list, explain and control operations.

Commands accept an operation's id, such as `op-12`, or the beginning of an event's id.
"""

from __future__ import annotations

import argparse
import re

from forewarn.cli.api_client import Answer, NameEmpty, client_of, part
from forewarn.cli.listing import newest
from forewarn.cli.output import call_in_words, confirm, print_facts, print_json, show_record, when
from forewarn.cli.parsing import (
    CommandGroup,
    Parser,
    add_filters,
    add_list_options,
    add_yes_option,
)
from forewarn.cli.work_requests import (
    add_wait_options,
    awaited_text,
    begin_of_wait,
    print_operations,
    wait,
)
from forewarn.core.lifecycle import OperationState
from forewarn.exit_codes import OK

#: Pattern of the id of a call that waits for a second operator.
CONFIRMATION = re.compile(r"(?i:c-)[0-9]{1,15}")
_ACTIONS = {
    "approve": "approve an event, or all events of an operation, for its VMs",
    "cancel": "cancel work that has not started",
    "complete": "record that running work has ended",
    "retry": "retry an operation: call its driver again",
}

#: State of a maintenance -> action that lets it go on.
_VERBS = {"draft": "start", "paused": "resume", "stopped": "resume"}


def add_commands(commands: CommandGroup) -> None:
    """Add `operation`."""
    operation = commands.group("operation")
    listing = operation.command("list", "list operations that have not ended", run=_list)
    add_filters(listing, ("host", "vm", "group"))
    listing.flag("--all", "include operations that have ended")
    add_list_options(listing, states=[each.value for each in OperationState], since="requested")
    _add_id(operation.command("show", "show one operation with its events", run=_show))
    why = operation.command(
        "why", "show the blockers of an operation, maintenance, wave, host or VM", run=show_why
    )
    why.add_argument(
        "id",
        metavar="ID",
        help="op-12, event id (or its first characters), m-12, m-12/3 (a wave), host or VM",
    )
    parsers = {name: operation.command(name, line, run=_act) for name, line in _ACTIONS.items()}
    for name, parser in parsers.items():
        _add_id(parser)
        parser.set_defaults(act=name)
        if name in {"cancel", "complete"}:
            parser.option("--reason TEXT", "the reason, recorded in history")
        else:
            add_wait_options(parser)
    add_yes_option(parsers["cancel"])
    parsers["complete"].flag("--failed", "record the work as failed", const=True)


def _add_id(parser: Parser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="operation (op-12), event id, or its first characters"
    )


def _list(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    operations = newest(
        client,
        "/v1/operations",
        arguments,
        name="operations",
        time="created",
        live=not (arguments.all or arguments.state),
        host=arguments.host,
        vm=arguments.vm,
        group=arguments.group,
    )
    if arguments.json:
        return print_json({"operations": operations})
    print_operations(operations, client.now_ms)
    return OK


def _show(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get(f"/v1/operations/{part(arguments.id)}")
    return show_record(arguments, answer, "operation")


def show_why(arguments: argparse.Namespace) -> int:
    """Print the blockers of an operation, event, maintenance, wave, host or VM."""
    if not arguments.id:
        raise NameEmpty
    client = client_of(arguments)
    if CONFIRMATION.fullmatch(arguments.id):
        each = client.get(f"/v1/confirmations/{part(arguments.id.lower())}")
        if arguments.json:
            return print_json({"kind": "confirmation", **each})
        until = when(each["expires"], client.now_ms)
        print(
            f"waits for confirmation by an operator other than {each['principal']}, until {until}"
        )
        print(f"  {call_in_words(each)}")
        print(f"  forewarn confirmation confirm {each['id']}")
        return OK
    answer = client.get("/v1/why", id=arguments.id)
    if arguments.json:
        return print_json(answer)
    kind, name = answer["kind"], answer["id"]
    if kind == "operation":
        _print_state(client.get(f"/v1/operations/{name}")["operation"], client.now_ms)
    elif not answer["blockers"]:
        print(f"{kind} {name} has no blockers")
    for each in answer["blockers"]:
        work = f"{each['name']}: " if each["name"] != name else ""
        print(f"waits: {work}{awaited_text(each, client.now_ms)} [{each['code']}]")
    if kind in {"maintenance", "wave"} and any(b["code"] == "operator" for b in answer["blockers"]):
        number = name.partition("/")[0]
        state = client.get(f"/v1/maintenances/{number}")["maintenance"]["state"]
        if verb := _VERBS.get(state):
            print(f"  forewarn maintenance {verb} {number}")
    return OK


def _print_state(operation: Answer, now_ms: int) -> None:
    notices = operation["state"] == "announced"  # only announced operations have a NotBefore
    not_before = when(operation["not_before"], now_ms) if notices else ""
    print_facts(
        (
            ("operation", operation["id"]),
            ("what", f"{operation['cause']} of {operation['target_kind']} {operation['target']}"),
            ("impact", operation["impact"]),
            ("asked by", operation["actor"]),
            ("state", operation["state"]),
            ("not before", not_before),
            ("started", when(operation["started"], now_ms)),
            ("ended", when(operation["ended"], now_ms)),
            ("reason", operation["reason"]),
        )
    )


def _act(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    waits = getattr(arguments, "wait", False)
    after = begin_of_wait(client, arguments) if "wait" in arguments else 0
    if arguments.act == "cancel":
        confirm(arguments, f"Cancel {arguments.id}?")
    form = {name: getattr(arguments, name, None) for name in ("failed", "reason")}
    path = f"/v1/operations/{part(arguments.id)}/{arguments.act}"
    operations = client.post(path, form)["operations"]
    if waits:
        return wait(client, operations, after=after, arguments=arguments)
    if arguments.json:
        return print_json({"operations": operations})
    print_operations(operations, client.now_ms)
    return OK
