"""`forewarn order`: work on many hosts that was asked for at once, and how far it is.

It is placed by `forewarn host`; the server plans and announces it in portions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import note, print_facts, print_json, print_table, when
from forewarn.exit_codes import OK, REFUSED, TIMED_OUT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from forewarn.cli.api_client import Answer, ApiClient
    from forewarn.cli.parsing import Commands


def add_commands(commands: Commands) -> None:
    """Add `order`."""
    group = commands.group("order")
    lists = group.command("list", "list them, newest first", run=_list)
    lists.add_argument("--all", action="store_true", help="also those that have ended")
    show = group.command("show", "show how far one is", run=_show)
    cancel = group.command("cancel", "withdraw what has not started of one", run=_cancel)
    cancel.add_argument("--reason", metavar="TEXT", help="why, for history")
    for parser in (show, cancel):
        parser.add_argument("id", metavar="ORDER", help="its id: order-12")


def print_order(order: Answer, now_ms: int) -> None:
    """Print one order: what it is, and how far."""
    print_facts(
        (
            ("order", order["id"]),
            ("what", f"{order['cause']} of {order['hosts']} hosts ({order['impact']})"),
            ("asked by", order["actor"]),
            ("state", order["state"]),
            ("because", order["reason"]),
            ("to be planned", order["unplanned"] or ""),
            ("left out", order["left_out"] or ""),
            ("operations", _counts(order)),
            ("asked for", when(order["created"], now_ms)),
            ("ended", when(order["ended"], now_ms)),
        )
    )


def wait_for_order(
    client: ApiClient, order: Answer, *, after: int, arguments: argparse.Namespace
) -> int:
    """Follow an order until nothing is left of it; return the exit status.

    Its progress is printed at each sign of life of the server: its operations are too many.
    """
    from forewarn.cli.api_client import local_now_ms  # noqa: PLC0415

    path = f"/v1/orders/{order['id']}"
    until_ms = local_now_ms() + int(arguments.timeout * 1000) if arguments.timeout else 0
    printed = ""
    wanted = {"after": after, "action": "order.ended"}
    try:
        for entry in client.lines("/v1/watch", until_ms=until_ms, **wanted):
            if entry is not None and "end" in entry:
                note(f"the server ended the stream: {entry['end']}")
                break
            order = client.get(path)["order"]
            if (text := _progress(order)) != printed:
                printed = text
                note(text)
            if order["state"] == "ended":
                break
    except KeyboardInterrupt:
        note(f"no longer watching; the work goes on: forewarn order show {order['id']}")
        raise
    order = client.get(path)["order"]
    if arguments.json:
        print_json({"operations": [], "order": order})
    else:
        print_order(order, client.now_ms)
    if order["state"] != "ended":
        note("no longer watching, before its end; the work goes on")
        return TIMED_OUT
    return OK if order["operations"]["succeeded"] == order["hosts"] else REFUSED


def _progress(order: Answer) -> str:
    text = f"{order['id']} {order['state']}"
    if order["unplanned"]:
        text += f", {order['unplanned']} of {order['hosts']} hosts to be planned"
    counts = _counts(order)
    return f"{text}: {counts}" if counts else text


def _counts(order: Answer) -> str:
    return ", ".join(f"{count} {state}" for state, count in order["operations"].items() if count)


def _list(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs no client

    client = client_of(arguments)
    found: list[Answer] = []
    before: int | None = None
    while page := client.get("/v1/orders", live=not arguments.all, before=before):
        found += page["orders"]
        before = page["next"]
        if before is None:
            break
    if arguments.json:
        return print_json({"orders": found})
    _print_orders(found, client.now_ms)
    return OK


def _print_orders(orders: Iterable[Answer], now_ms: int) -> None:
    print_table(
        ("order", "what", "state", "hosts", "to be planned", "left out", "operations", "asked for"),
        [
            (
                each["id"],
                each["cause"],
                each["state"],
                each["hosts"],
                each["unplanned"] or "",
                each["left_out"] or "",
                _counts(each),
                when(each["created"], now_ms),
            )
            for each in orders
        ],
        empty="there is no order of many hosts",
    )


def _show(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of, part  # noqa: PLC0415

    client = client_of(arguments)
    return _tell(client, client.get(f"/v1/orders/{part(arguments.id)}"), arguments)


def _cancel(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of, part  # noqa: PLC0415

    client = client_of(arguments)
    path = f"/v1/orders/{part(arguments.id)}/cancel"
    return _tell(client, client.post(path, {"reason": arguments.reason}), arguments)


def _tell(client: ApiClient, answer: Answer, arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(answer)
    print_order(answer["order"], client.now_ms)
    return OK
