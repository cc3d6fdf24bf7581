"""`forewarn why`, `approve`, `cancel`, `complete` and `retry`: one operation or event by its id.

An id is `op-12`, an event's id, or the beginning of one; the server finds out which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import print_facts, print_json, when
from forewarn.cli.work_requests import (
    add_wait_options,
    awaited_text,
    begin_of_wait,
    print_operations,
    wait,
)
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import Commands


def add_commands(commands: Commands) -> None:
    """Add the commands about one operation."""
    why = commands.command("why", run=_why)
    approve = commands.command("approve", run=_act)
    cancel = commands.command("cancel", run=_act)
    complete = commands.command("complete", run=_act)
    retry = commands.command("retry", run=_act)
    for parser in (why, approve, cancel, complete, retry):
        parser.add_argument(
            "id", metavar="ID", help="op-12, an event's id, or the beginning of one"
        )
    complete.add_argument("--failed", action="store_const", const=True, help="it has failed")
    for parser in (cancel, complete):
        parser.add_argument("--reason", metavar="TEXT", help="why, for history")
    for parser in (approve, retry):
        add_wait_options(parser)
    for name, parser in (
        ("approve", approve),
        ("cancel", cancel),
        ("complete", complete),
        ("retry", retry),
    ):
        parser.set_defaults(act=name)


def _why(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of, part  # noqa: PLC0415 - `--help` needs no client

    client = client_of(arguments)
    answer = client.get(f"/v1/operations/{part(arguments.id)}/why")
    if arguments.json:
        return print_json(answer)
    operation = answer["operation"]
    notices = operation["state"] == "announced"  # what runs has nothing before it any more
    not_before = when(operation["not_before"], client.now_ms) if notices else ""
    print_facts(
        (
            ("operation", operation["id"]),
            ("what", f"{operation['cause']} of {operation['target_kind']} {operation['target']}"),
            ("impact", operation["impact"]),
            ("asked by", operation["actor"]),
            ("state", operation["state"]),
            ("not before", not_before),
            ("started", when(operation["started"], client.now_ms)),
            ("ended", when(operation["ended"], client.now_ms)),
            ("reason", operation["reason"]),
        )
    )
    for each in answer["waiting"]:
        print(f"waits: {awaited_text(each, client.now_ms)}")
    return OK


def _act(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of, part  # noqa: PLC0415

    client = client_of(arguments)
    waits = getattr(arguments, "wait", False)
    after = begin_of_wait(client, arguments) if "wait" in arguments else 0
    form = {name: getattr(arguments, name, None) for name in ("failed", "reason")}
    path = f"/v1/operations/{part(arguments.id)}/{arguments.act}"
    operations = client.post(path, form)["operations"]
    if waits:
        return wait(client, operations, after=after, arguments=arguments)
    if arguments.json:
        return print_json({"operations": operations})
    print_operations(operations, client.now_ms)
    return OK
