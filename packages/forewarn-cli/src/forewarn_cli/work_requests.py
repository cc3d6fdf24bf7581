"""Actions that request work on hosts and VMs, and follow the work until its end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED, TIMED_OUT
from forewarn_cli.host_selection import SELECTION, HostNames, Selection, named_hosts
from forewarn_cli.maintenance_output import print_maintenances
from forewarn_server.cli.api_client import (
    Answer,
    ApiClient,
    ApiRefused,
    client_of,
    local_now_ms,
    part,
)
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.listing import records
from forewarn_server.cli.output import (
    agrees,
    confirm,
    listed,
    note,
    note_seconds,
    print_json,
    print_list,
    print_structured,
    warn_unasked,
    when,
)
from forewarn_server.cli.parameters import COMMON, Moment, ServerOptions, Wait, WaitLimit, Yes

#: Causes of work on hosts that requires notice.
_ANNOUNCED = frozenset({"host-update", "host-reboot", "live-migration", "hardware-degraded"})
_ENDED_WELL = "succeeded"
_ENDINGS = frozenset({"operation.succeeded", "operation.failed", "operation.cancelled"})
#: Most operations listed in one message; the message gives the number of the others.
NAMED_MAX = 4
#: Most hosts whose groups the command checks; equals the limit of hosts in one request.
HOSTS_ASKED_MAX = 100
#: Most entries of history printed before the blockers.
HISTORY_MAX = 1000
_LIVE = frozenset({"planned", "announced", "running"})


class TimeoutAlone(CallerError):
    """`--timeout` requires `--wait`."""

    code = "timeout-alone"
    message = "--timeout requires --wait."
    advice = "Add --wait or remove --timeout."


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Options of commands that can wait for the end of the work."""

    wait: Wait = False
    timeout_s: WaitLimit = 0.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FaultOptions(Waiting):
    """Options of every request for work."""

    duration: Annotated[
        str | None,
        Parameter(metavar="DURATION", help="expected interruption: 90, 9s, 5m; 0 for none"),
    ] = None
    description: Annotated[
        str | None, Parameter(metavar="TEXT", help="description shown to VMs")
    ] = None
    destination: Annotated[
        str | None, Parameter(metavar="HOST", help="host to which the VMs move")
    ] = None
    source: Annotated[Literal["Platform", "User"] | None, Parameter(help="source shown to VMs")] = (
        None
    )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkOptions(FaultOptions):
    """Options of a request for work that is announced."""

    not_before: Annotated[
        Moment | None, Parameter(metavar="TIME", help="2026-11-21T18:30:00Z, or +1h from now")
    ] = None


WAITING = Waiting()
FAULT = FaultOptions()
WORK = WorkOptions()
Names: TypeAlias = Annotated[str, Parameter(name="NAME", required=True)]
Queue: TypeAlias = Annotated[
    bool,
    Parameter(help="queue the work if the same work already runs on a host (default: refuse)"),
]
host = noun_app("host")
vm = noun_app("vm")


@host.command(name="update")
def _update(
    *names: HostNames,
    selection: Selection = SELECTION,
    queue: Queue = False,
    restart: Annotated[bool, Parameter(help="restart the hosts; their VMs reboot")] = False,
    network_only: Annotated[
        bool, Parameter(help="update only the network, without interrupting VMs")
    ] = False,
    work: WorkOptions = WORK,
    common: ServerOptions = COMMON,
) -> int:
    """Update hosts; their VMs freeze, or reboot with --restart."""
    cause = "network-update" if network_only else "host-update"
    form = {"cause": cause, "impact": "Reboot" if restart else None, "queue": queue or None}
    return _request_on_hosts(names, selection, form, work=work, common=common)


@host.command(name="reboot")
def _reboot_hosts(
    *names: HostNames,
    selection: Selection = SELECTION,
    queue: Queue = False,
    work: WorkOptions = WORK,
    common: ServerOptions = COMMON,
) -> int:
    """Reboot hosts and their VMs."""
    form = {"cause": "host-reboot", "queue": queue or None}
    return _request_on_hosts(names, selection, form, work=work, common=common)


@host.command(name="migrate")
def _migrate(
    *names: HostNames,
    selection: Selection = SELECTION,
    queue: Queue = False,
    work: WorkOptions = WORK,
    common: ServerOptions = COMMON,
) -> int:
    """Live-migrate all VMs of hosts."""
    form = {"cause": "live-migration", "queue": queue or None}
    return _request_on_hosts(names, selection, form, work=work, common=common)


@host.command(name="degrade")
def _degrade(
    *names: HostNames,
    selection: Selection = SELECTION,
    freeze: Annotated[bool, Parameter(help="the VMs can still be live-migrated")] = False,
    work: WorkOptions = WORK,
    common: ServerOptions = COMMON,
) -> int:
    """Mark hosts as expected to fail."""
    form = {"cause": "hardware-degraded", "impact": "Freeze" if freeze else None}
    return _request_on_hosts(names, selection, form, work=work, common=common)


@host.command(name="fail")
def _fail(
    *names: HostNames,
    selection: Selection = SELECTION,
    lost: Annotated[
        bool, Parameter(help="the hosts are lost; their VMs restart on other hosts")
    ] = False,
    yes: Yes = False,
    work: FaultOptions = FAULT,
    common: ServerOptions = COMMON,
) -> int:
    """Mark hosts as failed."""
    hosts = named_hosts(names, selection)
    targets = _targets("host", hosts) if hosts else f"all hosts with {selection.selector}"
    confirm(f"Mark {targets} as failed, with all VMs there down?", yes=yes)
    form = {"cause": "host-lost" if lost else "hardware-failure"}
    return _request_on_hosts(names, selection, form, work=work, common=common)


@host.command(name="repair")
def _repair(*names: Names, common: ServerOptions = COMMON) -> int:
    """Mark hosts as repaired."""
    client = client_of(common)
    operations = []
    for name in names:
        operations += client.post(f"/v1/hosts/{part(name)}/repair")["operations"]
        note(f"host {name} marked as repaired")
    if common.structured:
        return print_structured(common, {"operations": operations})
    if operations:
        print_operations(operations, client.now_ms)
    return OK


@vm.command(name="reboot")
def _reboot_vms(*names: Names, work: WorkOptions = WORK, common: ServerOptions = COMMON) -> int:
    """Reboot VMs at their users' request."""
    return _request({"cause": "reboot", "targets": names}, work, common)


@vm.command(name="redeploy")
def _redeploy(*names: Names, work: WorkOptions = WORK, common: ServerOptions = COMMON) -> int:
    """Redeploy VMs to other hosts at their users' request."""
    return _request({"cause": "redeploy", "targets": names}, work, common)


@vm.command(name="evict")
def _evict(
    *names: Names, yes: Yes = False, work: WorkOptions = WORK, common: ServerOptions = COMMON
) -> int:
    """Evict Spot VMs."""
    confirm(f"Evict {_targets('VM', names)}?", yes=yes)
    return _request({"cause": "eviction", "targets": names}, work, common)


@vm.command(name="delete")
def _delete(
    *names: Names, yes: Yes = False, work: WorkOptions = WORK, common: ServerOptions = COMMON
) -> int:
    """Delete VMs."""
    confirm(f"Delete {_targets('VM', names)}?", yes=yes)
    return _request({"cause": "deletion", "targets": names}, work, common)


@vm.command(name="reimage")
def _reimage(*names: Names, work: WorkOptions = WORK, common: ServerOptions = COMMON) -> int:
    """Reimage VMs."""
    return _request({"cause": "reimage", "targets": names}, work, common)


def print_operations(operations: Iterable[Answer], now_ms: int, *, wide: bool = False) -> None:
    """Print operations as a table."""
    columns = (
        *(("operation", "id"), "cause", "impact"),
        ("target", lambda each: f"{each['target_kind']} {each['target']}"),
        ("state", lambda each: each["state"] if each["alert"] == "none" else each["alert"]),
        ("progress", progress_text),
        (
            "not before",
            lambda e: when(e["not_before"], now_ms) if e["state"] == "announced" else "",
        ),
        "vms",
    )
    empty = "No operations. Use --all to include finished ones."
    print_list(operations, columns, empty=empty, wide=wide)


def progress_text(operation: Answer) -> str:
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


def _targets(kind: str, names: Sequence[str]) -> str:
    """Return targets in a question, such as `hosts h1, h2`."""
    return f"{kind}{'s' * (len(names) > 1)} {listed(names)}"


def _request_on_hosts(
    names: Sequence[str],
    selection: Selection,
    form: Mapping[str, object],
    *,
    work: FaultOptions,
    common: ServerOptions,
) -> int:
    """Request work on the selected hosts."""
    hosts = named_hosts(names, selection)
    selected = {"targets": hosts or None, "selector": selection.selector}
    return _request({**form, **selected}, work, common)


def _request(members: Mapping[str, object], work: FaultOptions, common: ServerOptions) -> int:
    """Request work; the members name its cause and its targets."""
    client = client_of(common)
    note_seconds("interruption", work.duration)
    after = begin_of_wait(client, work)
    form: Answer = {
        "targets": None,
        "selector": None,
        "not_before": work.not_before if isinstance(work, WorkOptions) else None,
        "duration": int(work.duration) if work.duration in {"-1", "0"} else work.duration,
        "description": work.description,
        "destination": work.destination,
        "impact": None,
        "source": work.source,
        **members,
    }
    silent: list[str] = []
    # Check first: groups start to poll when the request creates their events.
    if form["cause"] in _ANNOUNCED:
        silent = _silent_groups(client, form["targets"] or [], form["selector"])
    try:
        answer = client.post("/v1/operations", form)
    except ApiRefused as refusal:
        if refusal.code == "too-many-targets" and sys.stdin.isatty() and _wants_maintenance():
            return _create_maintenance(client, form, as_json=common.structured)
        raise
    warn_unasked(silent)
    operations = answer["operations"]
    if work.wait:
        return wait(client, operations, after=after, waiting=work, common=common)
    if common.structured:
        return print_structured(common, answer)
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


def begin_of_wait(client: ApiClient, waiting: Waiting) -> int:
    """Return history's last sequence number, the start of `--wait`; 0 without `--wait`.

    Raises:
        TimeoutAlone: `--timeout` is set without `--wait`.
    """
    if not waiting.wait:
        if waiting.timeout_s:
            raise TimeoutAlone
        return 0
    return client.history_end()


def wait(
    client: ApiClient,
    operations: list[Answer],
    *,
    after: int,
    waiting: Waiting,
    common: ServerOptions,
) -> int:
    """Print the progress of operations until all have ended; return the exit status."""
    current = {each["id"]: each for each in operations}
    until_ms = local_now_ms() + int(waiting.timeout_s * 1000) if waiting.timeout_s else 0
    try:
        _follow(client, current, after, until_ms)
    except KeyboardInterrupt:
        known = ", ".join(f"forewarn operation why {name}" for name in list(current)[:NAMED_MAX])
        more = ", …" if len(current) > NAMED_MAX else ""
        note(f"no longer watching; the work continues: {known}{more}")
        raise
    ended = list(current.values())
    if common.structured:
        print_structured(common, {"operations": ended})
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
