"""`forewarn maintenance`: plan, run and report work on many hosts.

`maintenance_output.py` prints the answers of the service.
"""

from __future__ import annotations

import argparse
from itertools import islice

from forewarn.cli.api_client import Answer, ApiClient, client_of, part
from forewarn.cli.host_selection import named_hosts
from forewarn.cli.listing import records
from forewarn.cli.maintenance_output import (
    print_difference,
    print_full,
    print_hosts,
    print_maintenances,
    print_moves,
    print_preview,
    watch,
)
from forewarn.cli.output import confirm, note, print_json, warn_unasked
from forewarn.cli.parsing import (
    CommandGroup,
    Parser,
    add_list_options,
    add_yes_option,
    set_members,
    whole_number,
)
from forewarn.cli.reports import add_format, all_outcomes, print_outcomes, summary
from forewarn.core.maintenance import MaintenanceState
from forewarn.exit_codes import OK, REFUSED

_WORDS = {
    "start": "start a draft",
    "pause": "pause a maintenance and withdraw announced work",
    "resume": "resume a paused or stopped maintenance",
    "cancel": "cancel a maintenance; running work finishes",
}
_CAUSES = ("host-reboot", "host-update", "network-update", "live-migration")


def add_commands(commands: CommandGroup) -> None:
    """Add `maintenance`."""
    group = commands.group("maintenance")
    plan = group.command("plan", "preview the waves without changing anything", run=_plan)
    create = group.command("create", "create a draft and plan it", run=_create)
    for parser in (plan, create):
        _add_form(parser)
    create.flag("--start", "start it immediately")
    for word, line in _WORDS.items():
        parser = group.command(word, line, run=_change_state)
        parser.set_defaults(word=word)
        _add_id(parser)
        if word in {"pause", "cancel"}:
            parser.option("--reason TEXT", "the reason, recorded in history")
        if word == "cancel":
            add_yes_option(parser)
        if word == "pause":
            parser.flag("--keep-announced", "keep announced work", const=True)
    postpone = group.command("postpone", "postpone the work on some hosts", run=_postpone)
    _add_id(postpone)
    postpone.add_argument("hosts", metavar="HOST", nargs="+", help="names of hosts")
    postpone.option("--until TIME", "earliest start: +4h", required=True)
    postpone.option("--reason TEXT", "the reason, shown to operators")
    postpone.option("--by NAME", "person who requested the delay (default: you)")
    show = group.command("show", "show waves, progress and blockers", run=_show)
    _add_id(show)
    show.flag("--watch", "follow progress until the maintenance ends")
    lists = group.command("list", "list maintenances that have not ended", run=_list)
    lists.flag("--all", "include maintenances that have ended")
    add_list_options(lists, states=[each.value for each in MaintenanceState])
    diff = group.command("diff", "compare a plan with an earlier one", run=_diff)
    _add_id(diff)
    diff.option("--plan ID", "number of the plan (default: the current plan)")
    diff.option("--against ID", "number of the earlier plan (default: the previous plan)")
    report = group.command("report", "show the outcome of each event", run=_report)
    _add_id(report)
    add_format(report)


def _add_id(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="m-12")


def _add_form(parser: Parser) -> None:
    parser.add_argument("names", metavar="HOST", nargs="*", help="names of hosts")
    parser.option("--selector KEY=VALUE,...", "hosts with these labels: zone=2")
    parser.option("--file FILE", "file of host names, one per line")
    parser.flag("--all", "every host", const=True)
    parser.option("--cause", "the work", choices=_CAUSES, default="host-reboot")
    parser.flag(
        "--restart", "a host update with a restart: VMs reboot", const="Reboot", dest="impact"
    )
    parser.option(
        "--duration", "duration of the work on each host (default: PT10M)", default="PT10M"
    )
    parser.option(
        "--move-vms DURATION", "before the work, move the VMs off each host, within this time"
    )
    parser.flag(
        "--return-vms",
        "move VMs back to their host after its work (default: VMs stay on their new host)",
        const=True,
    )
    parser.option("--reason TEXT", "the reason, shown to operators")
    parser.option("--description TEXT", "description shown to VMs")
    parser.option("--earliest-start TIME", "no work starts before this time")
    parser.option("--deadline TIME", "time by which the last host is done")
    parser.option("--priority N", "priority: higher numbers are planned first", type=int)
    parser.option("--max-at-once N", "maximum number of hosts at a time", type=whole_number)
    parser.option(
        "--max-failures N",
        "maximum number of failed hosts; one more stops the maintenance (default: from the policy)",
        type=int,
    )
    parser.option("--gate NAME", "gate from the settings, checked after each wave")
    parser.option(
        "--canary HOST",
        "a host of the first wave; repeatable",
        action="append",
        dest="canary_hosts",
    )
    set_members(parser, ("file",))


def _form(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the request body of a maintenance.

    Raises:
        HostsUnnamed: no hosts are selected, or they are selected in two ways.
    """
    form = {name: getattr(arguments, name) for name in arguments.members}
    return {"hosts": named_hosts(arguments) or None, **form}


def _plan(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    answer = client.post("/v1/maintenances/plan", _form(arguments))
    waves = answer["plan"]["waves"]
    if arguments.json:
        return print_json(answer)
    print_preview(answer, client.now_ms, returning=bool(arguments.return_vms))
    return OK if waves else REFUSED


def _create(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    after = client.history_end()
    maintenance = client.post("/v1/maintenances", _form(arguments))["maintenance"]
    path = f"/v1/maintenances/{maintenance['id']}"
    answer = _planned(client, path, after)
    maintenance, waits = answer["maintenance"], answer["waits_for"]
    warn_unasked(answer["not_asked"])
    if arguments.start:
        maintenance = client.post(f"{path}/start")["maintenance"]
    if arguments.json:
        return print_json({"maintenance": maintenance})
    print_maintenances([maintenance], client.now_ms)
    if waits and waits["code"] != "operator":
        note(f"created as a draft that cannot start yet: {waits['text']}")
    elif not arguments.start:
        note(f"created as a draft; start it with: forewarn maintenance start {maintenance['id']}")
    return OK


def _planned(client: ApiClient, path: str, after: int) -> Answer:
    """Wait until a draft has a plan, and return the draft."""
    answer = client.get(path)
    for entry in client.lines("/v1/watch", after=after):
        if not answer["maintenance"]["planning"] or (entry and "end" in entry):
            break
        if entry is None or entry["action"].startswith("maintenance."):
            answer = client.get(path)
    return answer


def _change_state(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    if arguments.word == "cancel":
        confirm(arguments, f"Cancel {arguments.id}?")
    form = {name: getattr(arguments, name, None) for name in ("reason", "keep_announced")}
    path = f"/v1/maintenances/{part(arguments.id)}/{arguments.word}"
    moved = client.post(path, form)["maintenance"]
    if arguments.json:
        return print_json({"maintenance": moved})
    print_maintenances([moved], client.now_ms)
    return OK


def _postpone(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    form = {name: getattr(arguments, name) for name in ("hosts", "until", "reason", "by")}
    answer = client.post(f"/v1/maintenances/{part(arguments.id)}/postpone", form)
    if arguments.json:
        return print_json(answer)
    for each in answer["maintenance"]["postponed"]:
        if each["host"] in arguments.hosts:
            print(f"host {each['host']} postponed until {each['until']}")
    return OK


def _show(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    path = f"/v1/maintenances/{part(arguments.id)}"
    if arguments.watch:
        return watch(client, path, as_json=arguments.json)
    answer = client.get(path)
    if arguments.json:
        return print_json(answer)
    print_full(answer, client.now_ms)
    maintenance = answer["maintenance"]
    if maintenance["move_s"] and maintenance["plan"]:
        print_moves(client.get(f"{path}/plan"), returning=bool(maintenance["return_s"]))
    return OK


def _list(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    live = not (arguments.all or arguments.state)
    pages = records(client, "/v1/maintenances", "maintenances", cursor="before", live=live)
    wanted = (each for each in pages if not arguments.state or each["state"] in arguments.state)
    maintenances = list(islice(wanted, arguments.limit))
    if arguments.json:
        return print_json({"maintenances": maintenances})
    empty = "No open maintenances. Use --all to include finished ones."
    if arguments.all:
        empty = "No maintenances."
    print_maintenances(maintenances, client.now_ms, empty=empty)
    return OK


def _diff(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    answer = client.get(
        f"/v1/maintenances/{part(arguments.id)}/diff",
        plan=arguments.plan,
        against=arguments.against,
    )
    if arguments.json:
        return print_json(answer)
    print_difference(answer)
    return OK


def _report(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    path = f"/v1/maintenances/{part(arguments.id)}"
    outcomes = all_outcomes(client, f"{path}/report")
    answer, hosts = client.get(path), list(records(client, f"{path}/hosts", "hosts"))
    if arguments.json:
        report = {"hosts": hosts, "summary": summary(outcomes), "outcomes": outcomes}
        return print_json({**answer, **report})
    if arguments.format == "text":
        print_hosts(answer, hosts, client.now_ms)
        print()
    print_outcomes(outcomes, arguments.format, title=f"Events of maintenance {arguments.id}")
    return OK if not answer["maintenance"]["failed"] else REFUSED
