"""`forewarn why`, `approve`, `cancel`, `complete` and `retry`: one operation or event by its id.

An id is `op-12`, an event's id, or the beginning of one; the server finds out which.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forewarn.cli.output import print_facts, print_json, print_table, when
from forewarn.cli.work_requests import (
    add_wait_options,
    awaited_text,
    begin_of_wait,
    print_operations,
    wait,
)
from forewarn.errors import CallerError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.api_client import ApiClient
    from forewarn.cli.parsing import CommandGroup


_MAINTENANCE = re.compile(r"(?i:m-)[0-9]{1,15}(/[0-9]{1,6})?")
_OPERATION = re.compile(r"(?i:op-)?[0-9]{1,15}")


class SubjectUnnamed(CallerError):
    """It is not said what waits, or it is said twice."""

    code = "subject-unnamed"
    message = "Name what waits, or give --all."
    advice = "See `forewarn why --help`."


def add_commands(commands: CommandGroup) -> None:
    """Add the commands about one operation."""
    why = commands.command("why", run=_why)
    approve = commands.command("approve", run=_act)
    cancel = commands.command("cancel", run=_act)
    complete = commands.command("complete", run=_act)
    retry = commands.command("retry", run=_act)
    why.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="op-12, an event's id or its beginning, m-12, m-12/3 (a wave), or a host",
    )
    why.add_argument("--all", action="store_true", help="everything that waits, by what for")
    for parser in (approve, cancel, complete, retry):
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

    if (arguments.id is not None) == arguments.all:
        raise SubjectUnnamed
    client = client_of(arguments)
    if arguments.all:
        return _why_all(client, as_json=arguments.json)
    if _is_of_fleet(client, arguments.id):
        return _why_blocked(client, arguments.id, as_json=arguments.json)
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


def _is_of_fleet(client: ApiClient, name: str) -> bool:
    """Whether an id names a maintenance, a wave or a host rather than an operation or event."""
    from forewarn.cli.api_client import ApiRefused, part  # noqa: PLC0415

    if _MAINTENANCE.fullmatch(name):
        return True
    if _OPERATION.fullmatch(name):
        return False
    try:
        client.get(f"/v1/hosts/{part(name)}")
    except ApiRefused:
        return False
    return True


def _why_blocked(client: ApiClient, name: str, *, as_json: bool) -> int:
    answer = client.get("/v1/why", id=name)
    if as_json:
        return print_json(answer)
    if not answer["blockers"]:
        print(f"{answer['kind']} {name} waits for nothing")
    for each in answer["blockers"]:
        print(f"waits: {each['text']} ({each['code']}){_until(each['clears'], client.now_ms)}")
    return OK


def _why_all(client: ApiClient, *, as_json: bool) -> int:
    """Print what everything that waits is waiting for, grouped."""
    answer = client.get("/v1/blockers")
    if as_json:
        return print_json(answer)
    print_table(
        ("waits for", "subject", "count", "clears", "first of them"),
        [
            (
                each["code"],
                each["subject"],
                each["count"],
                when(each["clears"], client.now_ms),
                each["text"],
            )
            for each in answer["groups"]
        ],
        empty="nothing waits",
    )
    return OK


def _until(clears: str | None, now_ms: int) -> str:
    return f" until {when(clears, now_ms)}" if clears else ""


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
