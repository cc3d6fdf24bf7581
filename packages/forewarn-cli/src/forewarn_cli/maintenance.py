"""`forewarn maintenance`: plan, run and report work on many hosts.

`maintenance_output.py` prints the answers of the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_cli.group_vms import vms_of_groups
from forewarn_cli.host_selection import SELECTION, HostNames, Selection, named_hosts
from forewarn_cli.maintenance_output import (
    follow,
    print_difference,
    print_full,
    print_hosts,
    print_maintenances,
    print_moves,
    print_preview,
)
from forewarn_cli.reports import all_outcomes, print_outcomes, summary
from forewarn_server.cli.api_client import Answer, ApiClient, ApiRefused, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import LIST_MAX
from forewarn_server.cli.listing import in_order, records
from forewarn_server.cli.output import (
    confirm,
    note,
    note_seconds,
    noun,
    print_structured,
    warn_unasked,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    Limit,
    ListOptions,
    Moment,
    PositiveInt,
    Reason,
    ServerOptions,
    Yes,
)
from forewarn_server.cli.progress import progress_bar

#: State of a host on which a maintenance has not worked yet.
_LEFT = "left"
MaintenanceId: TypeAlias = Annotated[str, Parameter(name="ID", help="m-12")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MaintenanceOptions:
    """Options that describe a maintenance."""

    all_: Annotated[bool | None, Parameter(name="--all", help="every host")] = None
    cause: Annotated[
        Literal["host-reboot", "host-update", "network-update", "live-migration"],
        Parameter(help="the work"),
    ] = "host-reboot"
    restart: Annotated[bool, Parameter(help="a host update with a restart: VMs reboot")] = False
    duration: Annotated[
        str, Parameter(help="duration of the work on each host (default: PT10M)")
    ] = "PT10M"
    move_vms: Annotated[
        str | None,
        Parameter(
            metavar="DURATION", help="before the work, move the VMs off each host, within this time"
        ),
    ] = None
    return_vms: Annotated[
        bool | None,
        Parameter(
            help="move VMs back to their host after its work (default: VMs stay on their new host)"
        ),
    ] = None
    reason: Annotated[
        str | None, Parameter(metavar="TEXT", help="the reason, shown to operators")
    ] = None
    description: Annotated[
        str | None, Parameter(metavar="TEXT", help="description shown to VMs")
    ] = None
    earliest_start: Annotated[
        Moment | None, Parameter(metavar="TIME", help="no work starts before this time")
    ] = None
    deadline: Annotated[
        Moment | None, Parameter(metavar="TIME", help="time by which the last host is done")
    ] = None
    priority: Annotated[
        int | None, Parameter(metavar="N", help="priority: higher numbers are planned first")
    ] = None
    max_at_once: Annotated[
        PositiveInt | None, Parameter(metavar="N", help="maximum number of hosts at a time")
    ] = None
    max_failures: Annotated[
        int | None,
        Parameter(
            metavar="N",
            help="maximum number of failed hosts; one more stops the maintenance (default: from"
            " the policy)",
        ),
    ] = None
    gate: Annotated[
        str | None,
        Parameter(metavar="NAME", help="gate from the settings, checked after each wave"),
    ] = None
    canary_hosts: Annotated[
        list[str] | None,
        Parameter(name="--canary", metavar="HOST", help="a host of the first wave; repeatable"),
    ] = None

    failure_domain: Annotated[
        str | None,
        Parameter(
            metavar="LABEL[=VALUE]",
            help="work on one failure domain at a time: `rack`, or only on the hosts of `rack=r7`",
        ),
    ] = None

    def body(self, hosts: list[str], selector: str | None) -> dict[str, object]:
        """Return the request body of a maintenance."""
        members = dict(vars(self))
        members["all"] = members.pop("all_")
        members["impact"] = "Reboot" if members.pop("restart") else None
        return {"hosts": hosts or None, "selector": selector, **members}


FORM = MaintenanceOptions()
maintenance = noun_app("maintenance")


def _body(
    names: Sequence[str], selection: Selection, form: MaintenanceOptions
) -> dict[str, object]:
    """Return the request body of a maintenance.

    Raises:
        HostsUnnamed: no hosts are selected, or they are selected in two ways.
    """
    of_domain = "=" in (form.failure_domain or "")
    hosts = named_hosts(names, selection, every_host=bool(form.all_) or of_domain)
    note_seconds("work on each host", form.duration)
    return form.body(hosts, selection.selector)


@maintenance.command(name="plan")
def _plan(
    *names: HostNames,
    selection: Selection = SELECTION,
    form: MaintenanceOptions = FORM,
    common: ServerOptions = COMMON,
) -> int:
    """Preview the waves without changing anything."""
    client = client_of(common)
    with progress_bar("the service plans"):
        answer = client.post("/v1/maintenances/plan", _body(names, selection, form))
    waves = answer["plan"]["waves"]
    if common.structured:
        return print_structured(common, answer)
    print_preview(answer, client.now_ms, returning=bool(form.return_vms))
    return OK if waves else REFUSED


@maintenance.command(name="create")
def _create(
    *names: HostNames,
    selection: Selection = SELECTION,
    form: MaintenanceOptions = FORM,
    start: Annotated[bool, Parameter(help="start it immediately")] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Create a draft and plan it."""
    client = client_of(common)
    after = client.history_end()
    maintenance = client.post("/v1/maintenances", _body(names, selection, form))["maintenance"]
    path = f"/v1/maintenances/{maintenance['id']}"
    with progress_bar(f"the service plans {maintenance['id']}"):
        answer = _wait_for_plan(client, path, after)
    maintenance, waits = answer["maintenance"], answer["waits_for"]
    warn_unasked(answer["not_asked"])
    if start:
        maintenance = client.post(f"{path}/start")["maintenance"]
    if common.structured:
        return print_structured(common, {"maintenance": maintenance})
    print_maintenances([maintenance], client.now_ms)
    if waits and waits["code"] != "operator":
        note(f"created as a draft that cannot start yet: {waits['text']}")
    elif not start:
        declared = client.get("/v1/policy").get("require_declaration")
        does = "declare" if declared else "start"
        note(f"created as a draft; {does} it with: forewarn maintenance {does} {maintenance['id']}")
    return OK


def _wait_for_plan(client: ApiClient, path: str, after: int) -> Answer:
    """Wait until a draft has a plan, and return the draft."""
    answer = client.get(path)
    for entry in client.lines("/v1/watch", after=after):
        if not answer["maintenance"]["planning"] or (entry and "end" in entry):
            break
        if entry is None or entry["action"].startswith("maintenance."):
            answer = client.get(path)
    return answer


@maintenance.command(name="start")
def _start(
    id_: MaintenanceId,
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Start a draft."""
    return _change_state("start", id_, common)


@maintenance.command(name="declare")
def _declare(
    id_: MaintenanceId,
    /,
    *,
    severity: Annotated[
        Literal["routine", "urgent", "emergency"],
        Parameter(help="severity of the work; an emergency overrides windows, pauses and choices"),
    ] = "routine",
    hand_back: Annotated[
        str | None,
        Parameter(
            metavar="DURATION",
            help="time in which owners choose when their hosts are worked on (default: the least"
            " that the policy allows)",
        ),
    ] = None,
    reason: Annotated[
        str | None, Parameter(metavar="TEXT", help="reason of an emergency, shown to owners")
    ] = None,
    waive: Annotated[
        list[Literal["fault-domain", "budgets", "notice"]] | None,
        Parameter(metavar="NAME", help="rule that the emergency need not keep; may be repeated"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Declare a draft to the owners of its VMs, and start it."""
    note_seconds("hand-back window", hand_back)
    if severity == "emergency":
        if not reason:
            raise EmergencyUnexplained
        more = {"hand_back": hand_back, "reason": reason, "waive": waive}
        status = _change_state("declare-emergency", id_, common, **more)
        if not common.structured:
            note(
                "A review is open: `forewarn ticket list --type review`. Another person closes it."
            )
            _print_declared(id_, common)
        return status
    if reason or waive:
        raise EmergencyOnly
    status = _change_state("declare", id_, common, severity=severity, hand_back=hand_back)
    if not common.structured:
        _print_declared(id_, common)
    return status


def _print_declared(id_: str, common: ServerOptions) -> None:
    """Print until when how many owners choose."""
    client = client_of(common)
    try:
        declared = client.get(f"/v1/declarations/{part(id_)}")["declaration"]
    except ApiRefused:
        note("The hosts have no VMs: nobody is asked, and the work does not wait.")
        return
    owners = {each["owner"] for each in declared["resources"]}
    deadline = when(declared["hand_back_deadline"], client.now_ms)
    print(f"Hand back until {deadline}; {len(owners)} {noun(len(owners), 'owner')} asked.")


@maintenance.command(name="pause")
def _pause(
    id_: MaintenanceId,
    /,
    *,
    reason: Reason = None,
    keep_announced: Annotated[bool | None, Parameter(help="keep announced work")] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Pause a maintenance and withdraw announced work."""
    return _change_state("pause", id_, common, reason=reason, keep_announced=keep_announced)


@maintenance.command(name="resume")
def _resume(
    id_: MaintenanceId,
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Resume a paused or stopped maintenance."""
    return _change_state("resume", id_, common)


@maintenance.command(name="cancel")
def _cancel(
    id_: MaintenanceId,
    /,
    *,
    reason: Reason = None,
    yes: Yes = False,
    common: ServerOptions = COMMON,
) -> int:
    """Cancel a maintenance; running work finishes."""
    confirm(f"Cancel {id_}?", yes=yes)
    return _change_state("cancel", id_, common, reason=reason)


def _change_state(
    word: str,
    id_: str,
    common: ServerOptions,
    **form: object,
) -> int:
    client = client_of(common)
    moved = client.post(f"/v1/maintenances/{part(id_)}/{word}", form)["maintenance"]
    if common.structured:
        return print_structured(common, {"maintenance": moved})
    print_maintenances([moved], client.now_ms)
    return OK


@maintenance.command(name="postpone")
def _postpone(
    id_: MaintenanceId,
    /,
    *hosts: Annotated[str, Parameter(name="HOST", help="names of hosts")],
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="hosts with VMs of this owner's groups")
    ] = None,
    group: Annotated[
        str | None, Parameter(metavar="NAME", help="hosts with VMs of this group")
    ] = None,
    until: Annotated[Moment, Parameter(metavar="TIME", help="earliest start: +4h")],
    reason: Annotated[
        str | None, Parameter(metavar="TEXT", help="the reason, shown to operators")
    ] = None,
    by: Annotated[
        str | None, Parameter(metavar="NAME", help="person who requested the delay (default: you)")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Postpone the work on some hosts."""
    client = client_of(common)
    path = f"/v1/maintenances/{part(id_)}"
    if sum(map(bool, (hosts, owner, group))) != 1:
        raise PostponedUnnamed
    if not hosts:
        hosts = _hosts_of(client, path, owner=owner, group=group)
    form = {"hosts": hosts, "until": until, "reason": reason, "by": by}
    answer = client.post(f"{path}/postpone", form)
    if common.structured:
        return print_structured(common, answer)
    for each in answer["maintenance"]["postponed"]:
        if each["host"] in hosts:
            print(f"host {each['host']} postponed until {each['until']}")
    return OK


def _hosts_of(
    client: ApiClient, path: str, *, owner: str | None, group: str | None
) -> tuple[str, ...]:
    """Return the unfinished hosts of a maintenance with VMs of an owner or a group.

    Raises:
        NothingToPostpone: there are none.
    """
    wanted = vms_of_groups(client, owner=owner, group=group)
    occupied = {
        each["name"]
        for each in records(client, "/v1/hosts", "hosts")
        if not wanted.isdisjoint(each["vms"])
    }
    hosts = tuple(
        each["host"]
        for each in records(client, f"{path}/hosts", "hosts")
        if each["host"] in occupied and each["state"] == _LEFT
    )
    if not hosts:
        raise NothingToPostpone(whose=f"owner {owner}" if owner else f"group {group}")
    return hosts


class EmergencyUnexplained(CallerError):
    """An emergency was declared without a reason. Source: T-6."""

    code = "emergency-unexplained"
    message = "An emergency needs a reason."
    advice = "Give it with --reason TEXT; owners and the reviewer read it."


class EmergencyOnly(CallerError):
    """A reason or a waived rule was given for a declaration that is not an emergency."""

    code = "emergency-only"
    message = "--reason and --waive are for emergencies."
    advice = "Give --severity emergency, or leave them out."


class PostponedUnnamed(CallerError):
    """The hosts to postpone are not named, or named in several ways."""

    code = "postponed-unnamed"
    message = "Name the hosts to postpone with exactly one of HOST..., --owner and --group."
    advice = "`forewarn maintenance report ID` lists the hosts of the maintenance."


class NothingToPostpone(CallerError):
    """No host of a maintenance that waits has VMs of the owner or the group."""

    code = "nothing-to-postpone"
    status = 404
    message = "No waiting host of the maintenance has VMs of {whose}."
    advice = "`forewarn maintenance report ID` lists the hosts and their states."


@maintenance.command(name="show")
def _show(
    id_: MaintenanceId,
    /,
    *,
    watch: Annotated[
        bool, Parameter(alias="-w", help="follow progress until the maintenance ends")
    ] = False,
    common: ServerOptions = COMMON,
) -> int:
    """Show waves, progress and blockers."""
    client = client_of(common)
    path = f"/v1/maintenances/{part(id_)}"
    if watch:
        return follow(client, path, as_json=common.structured)
    answer = client.get(path)
    if common.structured:
        return print_structured(common, answer)
    print_full(answer, client.now_ms)
    maintenance = answer["maintenance"]
    if maintenance["move_s"] and maintenance["plan"]:
        print_moves(client.get(f"{path}/plan"), returning=bool(maintenance["return_s"]))
    return OK


@maintenance.default
@maintenance.command(name="list")
def _list(
    *,
    all_: Annotated[
        bool, Parameter(name="--all", help="include maintenances that have ended")
    ] = False,
    state: Annotated[
        Sequence[Literal["draft", "running", "paused", "stopped", "done", "cancelled"]],
        Parameter(help="only in this state; repeatable"),
    ] = (),
    limit: Limit = LIST_MAX,
    common: ListOptions = LISTED,
) -> int:
    """List maintenances that have not ended."""
    client = client_of(common)
    live = not (all_ or state)
    pages = records(client, "/v1/maintenances", "maintenances", cursor="before", live=live)
    wanted = (each for each in pages if not state or each["state"] in state)
    maintenances = in_order(common, list(islice(wanted, limit)))
    if common.structured:
        return print_structured(common, {"maintenances": maintenances})
    empty = "No open maintenances. Use --all to include finished ones."
    if all_:
        empty = "No maintenances."
    print_maintenances(maintenances, client.now_ms, empty=empty, wide=common.form == "wide")
    return OK


@maintenance.command(name="diff")
def _diff(
    id_: MaintenanceId,
    /,
    *,
    plan: Annotated[
        str | None, Parameter(metavar="ID", help="number of the plan (default: the current plan)")
    ] = None,
    against: Annotated[
        str | None,
        Parameter(metavar="ID", help="number of the earlier plan (default: the previous plan)"),
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Compare a plan with an earlier one."""
    client = client_of(common)
    answer = client.get(
        f"/v1/maintenances/{part(id_)}/diff",
        plan=plan,
        against=against,
    )
    if common.structured:
        return print_structured(common, answer)
    print_difference(answer)
    return OK


@maintenance.command(name="report")
def _report(
    id_: MaintenanceId,
    /,
    *,
    format_: Annotated[
        Literal["text", "csv", "html"],
        Parameter(name="--format", help="format of the report (default: text)"),
    ] = "text",
    common: ServerOptions = COMMON,
) -> int:
    """Show the outcome of each event."""
    client = client_of(common)
    path = f"/v1/maintenances/{part(id_)}"
    outcomes = all_outcomes(client, f"{path}/report")
    answer, hosts = client.get(path), list(records(client, f"{path}/hosts", "hosts"))
    if common.structured:
        report = {"hosts": hosts, "summary": summary(outcomes), "outcomes": outcomes}
        return print_structured(common, {**answer, **report})
    if format_ == "text":
        print_hosts(answer, hosts, client.now_ms)
        print()
    print_outcomes(outcomes, format_, title=f"Events of maintenance {id_}")
    return OK if not answer["maintenance"]["failed"] else REFUSED
