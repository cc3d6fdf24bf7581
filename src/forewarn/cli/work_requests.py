"""Actions that request work on hosts and VMs, and follow the work until its end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from forewarn.cli.api_client import Answer, ApiClient, ApiRefused, client_of, local_now_ms, part
from forewarn.cli.host_selection import add_host_selection, named_hosts
from forewarn.cli.listing import records
from forewarn.cli.maintenance_output import print_maintenances
from forewarn.cli.output import (
    agrees,
    confirm,
    listed,
    note,
    print_json,
    print_list,
    warn_unasked,
    when,
)
from forewarn.cli.parsing import CommandGroup, Parser, add_yes_option, seconds
from forewarn.errors import CallerError
from forewarn.exit_codes import OK, REFUSED, TIMED_OUT

#: Action -> cause, help.
_HOST_WORK = {
    "update": ("host-update", "update hosts; their VMs freeze, or reboot with --restart"),
    "reboot": ("host-reboot", "reboot hosts and their VMs"),
    "migrate": ("live-migration", "live-migrate all VMs of hosts"),
    "degrade": ("hardware-degraded", "mark hosts as expected to fail"),
    "fail": ("hardware-failure", "mark hosts as failed"),
}
_VM_WORK = {
    "reboot": ("reboot", "reboot VMs at their users' request"),
    "redeploy": ("redeploy", "redeploy VMs to other hosts at their users' request"),
    "evict": ("eviction", "evict Spot VMs"),
    "delete": ("deletion", "delete VMs"),
    "reimage": ("reimage", "reimage VMs"),
}
#: Causes of routine work, for which `--queue` is available.
_QUEUED = frozenset({"host-update", "host-reboot", "live-migration"})
#: Causes of work on hosts that requires notice.
_ANNOUNCED = frozenset({*_QUEUED, "hardware-degraded"})
_ENDED_WELL = "succeeded"
_ENDINGS = frozenset({"operation.succeeded", "operation.failed", "operation.cancelled"})
#: Most operations listed in one message; the message gives the number of the others.
NAMED_MAX = 4
#: Most hosts whose groups the command checks; equals the limit of hosts in one request.
HOSTS_ASKED_MAX = 100
#: Most entries of history printed before the blockers.
HISTORY_MAX = 1000
_LIVE = frozenset({"planned", "announced", "running"})


def add_host_work(commands: CommandGroup) -> None:
    """Add the actions on hosts."""
    for action, (cause, line) in _HOST_WORK.items():
        parser = _add_work(commands, action, cause, line)
        add_host_selection(parser)
        if cause in _QUEUED:
            parser.flag(
                "--queue",
                "queue the work if the same work already runs on a host (default: refuse)",
                default=None,
            )
        if action == "update":
            parser.flag(
                "--restart", "restart the hosts; their VMs reboot", const="Reboot", dest="impact"
            )
            parser.flag(
                "--network-only",
                "update only the network, without interrupting VMs",
                const="network-update",
                dest="cause",
            )
        elif action == "degrade":
            parser.flag(
                "--freeze", "the VMs can still be live-migrated", const="Freeze", dest="impact"
            )
        elif action == "fail":
            _ask_before(parser, "Mark {targets} as failed, with all VMs there down?", "host")
            parser.flag(
                "--lost",
                "the hosts are lost; their VMs restart on other hosts",
                const="host-lost",
                dest="cause",
            )
    repair = commands.command("repair", "mark hosts as repaired", run=_repair)
    repair.add_argument("names", metavar="NAME", nargs="+")


def add_vm_work(commands: CommandGroup) -> None:
    """Add the actions on VMs."""
    for action, (cause, line) in _VM_WORK.items():
        parser = _add_work(commands, action, cause, line)
        parser.add_argument("names", metavar="NAME", nargs="+")
        parser.set_defaults(selector=None, file=None)
        if action in {"delete", "evict"}:
            _ask_before(parser, f"{action.capitalize()} {{targets}}?", "VM")


class TimeoutAlone(CallerError):
    """`--timeout` requires `--wait`."""

    code = "timeout-alone"
    message = "--timeout requires --wait."
    advice = "Add --wait or remove --timeout."


def add_wait_options(parser: Parser) -> None:
    """Add the options `--wait` and `--timeout`."""
    parser.flag("--wait", "wait until the work has ended")
    parser.option(
        "--timeout SECONDS",
        "with --wait: stop waiting after this time; the work continues",
        type=seconds,
        default=0.0,
    )


def print_operations(operations: Iterable[Answer], now_ms: int) -> None:
    """Print operations as a table, with the progress from drivers that report progress."""
    shown = list(operations)
    columns = (
        *(("operation", "id"), "cause", "impact"),
        ("target", lambda each: f"{each['target_kind']} {each['target']}"),
        ("state", lambda each: each["state"] if each["alert"] == "none" else each["alert"]),
        *((("progress", _progress),) if any(map(_progress, shown)) else ()),
        (
            "not before",
            lambda e: when(e["not_before"], now_ms) if e["state"] == "announced" else "",
        ),
        "vms",
    )
    print_list(shown, columns, empty="No operations. Use --all to include finished ones.")


def _progress(operation: Answer) -> str:
    """Return the progress of running work from its driver, or an empty string."""
    if operation["state"] != "running":
        return ""
    percent = operation["progress_percent"]
    share = f"{percent} %" if percent >= 0 else ""
    return " ".join(filter(None, (share, operation["progress"])))


def awaited_text(waiting: Answer, now_ms: int) -> str:
    """Return the first blocker of waiting work, and when that blocker ends."""
    until = when(waiting["clears"], now_ms)
    # Running work may exceed its announced end, because the duration is an estimate.
    word = "expected to end" if waiting["code"] == "driver" else "at the latest"
    return f"{waiting['text']}; {word} {until}" if until else str(waiting["text"])


def _add_work(commands: CommandGroup, action: str, cause: str, line: str) -> Parser:
    parser = commands.command(action, line, run=_ask)
    if action != "fail":
        parser.option("--not-before TIME", "2026-11-21T18:30:00Z, or +1h from now")
    parser.option("--duration DURATION", "expected interruption: 90, 9s, 5m; 0 for none")
    parser.option("--description TEXT", "description shown to VMs")
    parser.option("--destination HOST", "host to which the VMs move")
    parser.option("--source", "source shown to VMs", choices=("Platform", "User"))
    add_wait_options(parser)
    parser.set_defaults(cause=cause, impact=None, not_before=None, queue=None, question="")
    return parser


def _ask_before(parser: Parser, question: str, kind: str) -> None:
    """Ask the question about the selected targets of this kind before the request."""
    add_yes_option(parser)
    parser.set_defaults(question=question, target_kind=kind)


def _confirm(arguments: argparse.Namespace, names: list[str]) -> None:
    kind = arguments.target_kind
    named = f"{kind}{'s' * (len(names) > 1)} {listed(names)}"
    targets = named if names else f"all {kind}s with {arguments.selector}"
    confirm(arguments, arguments.question.format(targets=targets))


def _ask(arguments: argparse.Namespace) -> int:
    names = named_hosts(arguments)
    if arguments.question:
        _confirm(arguments, names)
    client = client_of(arguments)
    after = begin_of_wait(client, arguments)
    duration = arguments.duration
    form = {
        "cause": arguments.cause,
        "targets": names or None,
        "selector": arguments.selector,
        "not_before": arguments.not_before,
        "duration": int(duration) if duration in {"-1", "0"} else duration,
        "description": arguments.description,
        "destination": arguments.destination,
        "impact": arguments.impact,
        "source": arguments.source,
        "queue": arguments.queue,
    }
    silent: list[str] = []
    # Check first: groups start to poll when the request creates their events.
    if arguments.cause in _ANNOUNCED:
        silent = _silent_groups(client, names, arguments.selector)
    try:
        answer = client.post("/v1/operations", form)
    except ApiRefused as refusal:
        if refusal.code == "too-many-targets" and sys.stdin.isatty() and _wants_maintenance():
            return _create_maintenance(client, form, as_json=arguments.json)
        raise
    warn_unasked(silent)
    operations = answer["operations"]
    if arguments.wait:
        return wait(client, operations, after=after, arguments=arguments)
    if arguments.json:
        return print_json(answer)
    print_operations(operations, client.now_ms)
    _note_started(client, operations)
    _note_waits(client, [each["id"] for each in operations if each["state"] == "planned"])
    return OK


def _note_waits(client: ApiClient, planned: list[str]) -> None:
    """Print why work is not announced yet."""
    for number in planned[:NAMED_MAX]:
        for each in client.get("/v1/why", id=number)["blockers"][:1]:
            note(f"{number} waits: {awaited_text(each, client.now_ms)} [{each['code']}]")
    if len(planned) > NAMED_MAX:
        note(f"{len(planned) - NAMED_MAX} more wait; see `forewarn status`")


def _silent_groups(client: ApiClient, names: list[str], selector: str | None) -> list[str]:
    """Return the groups on these hosts without a polling VM."""
    if selector:
        hosts = client.get("/v1/hosts", selector=selector, limit=HOSTS_ASKED_MAX)["hosts"]
        names = [each["name"] for each in hosts]
    if not names:
        return []
    query = {"enabled": "false", "host": ",".join(names[:HOSTS_ASKED_MAX])}
    return [each["name"] for each in records(client, "/v1/groups", "groups", **query)]


def _wants_maintenance() -> bool:
    note("The hosts exceed the limit of one request. A maintenance works on the hosts in waves.")
    return agrees("Create and start it?")


def _create_maintenance(client: ApiClient, form: dict[str, object], *, as_json: bool) -> int:
    """Create and start a maintenance for hosts that exceed the limit of one request."""
    wanted = {
        "hosts": form["targets"],
        "earliest_start": form["not_before"],
        "duration": form["duration"] or "PT10M",
        **{name: form[name] for name in ("selector", "cause", "impact", "description")},
    }
    maintenance = client.post("/v1/maintenances", wanted)["maintenance"]
    maintenance = client.post(f"/v1/maintenances/{maintenance['id']}/start")["maintenance"]
    if as_json:
        return print_json({"maintenance": maintenance})
    print_maintenances([maintenance], client.now_ms)
    return OK


def _note_started(client: ApiClient, operations: Iterable[Answer]) -> None:
    """Print a note about announced work that has started, with the reasons from history."""
    started = [each for each in operations if each["announced"] and each["state"] == "running"]
    for each in started[:NAMED_MAX]:
        query = {"operation": each["id"], "action": "operation.started", "limit": 1}
        for entry in client.get("/v1/history", **query)["entries"]:
            note(entry["text"])
    if len(started) > NAMED_MAX:
        note(f"{len(started) - NAMED_MAX} more are running already")


def _repair(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    operations = []
    for name in arguments.names:
        operations += client.post(f"/v1/hosts/{part(name)}/repair")["operations"]
        note(f"host {name} marked as repaired")
    if arguments.json:
        return print_json({"operations": operations})
    if operations:
        print_operations(operations, client.now_ms)
    return OK


def begin_of_wait(client: ApiClient, arguments: argparse.Namespace) -> int:
    """Return history's last sequence number, the start of `--wait`; 0 without `--wait`.

    Raises:
        TimeoutAlone: `--timeout` is set without `--wait`.
    """
    if not arguments.wait:
        if arguments.timeout:
            raise TimeoutAlone
        return 0
    return client.history_end()


def wait(
    client: ApiClient, operations: list[Answer], *, after: int, arguments: argparse.Namespace
) -> int:
    """Print the progress of operations until all have ended; return the exit status."""
    current = {each["id"]: each for each in operations}
    until_ms = local_now_ms() + int(arguments.timeout * 1000) if arguments.timeout else 0
    try:
        _follow(client, current, after, until_ms)
    except KeyboardInterrupt:
        known = ", ".join(f"forewarn operation why {name}" for name in list(current)[:NAMED_MAX])
        more = ", …" if len(current) > NAMED_MAX else ""
        note(f"no longer watching; the work continues: {known}{more}")
        raise
    ended = list(current.values())
    if arguments.json:
        print_json({"operations": ended})
    else:
        print_operations(ended, client.now_ms)
    if any(each["state"] in _LIVE for each in ended):
        note("no longer watching; the work continues")
        return TIMED_OUT
    return OK if all(each["state"] == _ENDED_WELL for each in ended) else REFUSED


def _follow(client: ApiClient, current: dict[str, Answer], after: int, until_ms: int) -> None:
    """Print every entry about the operations until all have ended, or until the timeout."""
    awaited: dict[str, list[str]] = {}
    after = _catch_up(client, current, after, awaited)
    going = {name for name, each in current.items() if each["state"] in _LIVE}
    for entry in client.lines("/v1/watch", until_ms=until_ms, after=after) if going else ():
        if entry is None:
            continue
        if "end" in entry:
            note(f"the server ended the stream: {entry['end']}")
            break
        name = entry["operation"]
        if name not in going:
            continue
        note(f"{entry['at']}  {entry['text']}")
        if entry["action"] in _ENDINGS:
            going.remove(name)
        _print_awaited(client, current, name, awaited)
        if not going:
            break


def _catch_up(
    client: ApiClient, current: dict[str, Answer], after: int, awaited: dict[str, list[str]]
) -> int:
    """Print past entries of history, then blockers; return the last sequence number."""
    for entry in client.get("/v1/history", after=after, limit=HISTORY_MAX)["entries"]:
        after = entry["sequence"]
        if entry["operation"] in current:
            note(f"{entry['at']}  {entry['text']}")
    for name in current:
        _print_awaited(client, current, name, awaited)
    return after


def _print_awaited(
    client: ApiClient, current: dict[str, Answer], name: str, awaited: dict[str, list[str]]
) -> None:
    """Read an operation again, and print a changed blocker."""
    current[name] = client.get(f"/v1/operations/{name}")["operation"]
    blockers = client.get("/v1/why", id=name)["blockers"]
    texts = [each["text"] for each in blockers]
    if texts != awaited.get(name):
        awaited[name] = texts
        for each in blockers:
            note(f"    {name} waits: {awaited_text(each, client.now_ms)}")
