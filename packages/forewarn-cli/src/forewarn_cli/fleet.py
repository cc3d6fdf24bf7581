"""`forewarn host`, `group` and `vm`: add, list, show and remove records, and request work.

`work_requests.py` implements the requests for work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_base.values import value
from forewarn_cli.group_vms import vms_of_groups
from forewarn_cli.work_requests import host, vm
from forewarn_server.cli.api_client import Answer, ApiClient, ApiRefused, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.completed_names import near_name
from forewarn_server.cli.listing import ZERO_UNKNOWN, Chosen, in_order, natural, newest, records
from forewarn_server.cli.output import (
    Column,
    confirm,
    listed,
    note,
    print_facts,
    print_list,
    print_structured,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    WATCHED,
    AllLimit,
    Int,
    ListOptions,
    ServerOptions,
    WatchOptions,
    Yes,
    pairs,
)

_MEMORY = ("memory mib", lambda each: each["memory_mib"] or None)  # 0: unknown
_COLUMNS: dict[str, Sequence[Column]] = {
    "host": (
        *("name", "zone", "fault_domain", "update_domain", _MEMORY),
        *("health", "driver", "vms", "work", "labels"),
    ),
    "group": ("name", "kind", "owner", "vms", "enabled", "polled", "clients"),
    "vm": (
        *("name", "host", "group", "size", _MEMORY, "addresses"),
        *("enabled", "polled", "client"),
    ),
}
#: Members of a group that `group add` cannot set, and that `--replace` keeps.
_WITHOUT_OPTION = ("approves_when_down", "published")
HTTP_NOT_FOUND = 404
#: Most operations read for the work on hosts.
WORK_MAX = 1000

Name: TypeAlias = Annotated[str, Parameter(name="NAME")]
Names: TypeAlias = Annotated[str, Parameter(name="NAME", required=True)]
Replace: TypeAlias = Annotated[
    bool, Parameter(help="change an existing record; omitted members keep their values")
]
group = noun_app("group")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HostForm:
    """Options that describe a host."""

    fault_domain: Annotated[Int | None, Parameter(metavar="N")] = None
    update_domain: Annotated[Int | None, Parameter(metavar="N")] = None
    zone: Annotated[str | None, Parameter(metavar="NAME")] = None
    driver: Annotated[
        str | None, Parameter(metavar="NAME", help="driver that carries out work on the host")
    ] = None
    labels: Annotated[
        list[str] | None,
        Parameter(
            converter=pairs,
            name="--label",
            metavar="KEY=VALUE",
            help="such as rack=r7; repeatable",
        ),
    ] = None
    memory_mib: Annotated[
        int | None, Parameter(metavar="N", help="memory available to VMs, in MiB")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GroupForm:
    """Options that describe a group."""

    kind: Annotated[
        Literal["availability-set", "scale-set", "cloud-service", "lone"] | None,
        Parameter(),
    ] = None
    owner: Annotated[str | None, Parameter(metavar="NAME")] = None
    fault_domain_count: Annotated[Int | None, Parameter(metavar="N")] = None
    strict_approval: Annotated[
        bool | None, Parameter(help="require the approval of every VM of an event")
    ] = None
    automatic_approval: Annotated[
        list[Literal["Reboot", "Redeploy"]] | None,
        Parameter(
            metavar="IMPACT",
            help="approve this impact automatically if a user requested it; repeatable",
        ),
    ] = None
    terminate_notice: Annotated[
        str | None, Parameter(metavar="DURATION", help="notice before deletions: 5m to 15m")
    ] = None
    reimage_notice: Annotated[bool | None, Parameter(help="announce image upgrades")] = None
    keep_apart: Annotated[
        list[str] | None,
        Parameter(
            metavar="LABEL",
            help="moves keep the VMs on hosts with different values of this label, such as rack;"
            " repeatable",
        ),
    ] = None
    keep_together: Annotated[
        list[str] | None,
        Parameter(
            metavar="LABEL",
            help="moves keep the VMs on hosts with the same value of this label, such as rack;"
            " repeatable",
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class VmForm:
    """Options that describe a VM."""

    host: Annotated[str, Parameter(metavar="NAME", help="host of the VM")]
    group: Annotated[
        str | None, Parameter(metavar="NAME", help="(default: a group of its own, same name)")
    ] = None
    size: Annotated[str | None, Parameter(metavar="SIZE", help="such as Standard_D4s_v5")] = None
    memory_mib: Annotated[int | None, Parameter(metavar="N", help="memory of the VM, in MiB")] = (
        None
    )
    addresses: Annotated[
        list[str] | None,
        Parameter(
            name="--address",
            metavar="ADDRESS",
            help="source address of the VM's requests; repeatable",
        ),
    ] = None
    interface: Annotated[
        str | None,
        Parameter(metavar="NAME", help="interface on which the VM's addresses are valid"),
    ] = None
    instance_id: Annotated[
        str | None, Parameter(metavar="ID", help="VM id in the requests of a metadata proxy")
    ] = None
    vm_id: Annotated[str | None, Parameter(metavar="GUID")] = None
    os_type: Annotated[str | None, Parameter(metavar="NAME", help="Linux or Windows")] = None
    location: Annotated[str | None, Parameter(metavar="NAME")] = None
    resource_group: Annotated[str | None, Parameter(metavar="NAME")] = None
    subscription: Annotated[str | None, Parameter(metavar="NAME")] = None
    gpu: Annotated[bool | None, Parameter(help="has a GPU")] = None
    spot: Annotated[bool | None, Parameter(help="Spot VM, which can be evicted")] = None
    tags: Annotated[
        list[str] | None,
        Parameter(converter=pairs, name="--tag", metavar="NAME=TEXT"),
    ] = None
    instance: Annotated[
        list[str] | None,
        Parameter(
            converter=pairs,
            metavar="NAME=TEXT",
            help="further instance metadata, such as osProfile.adminUsername=ann; repeatable",
        ),
    ] = None


HOST_FORM = HostForm()
GROUP_FORM = GroupForm()


@host.command(name="add")
def _add_host(
    name: Name,
    /,
    *,
    replace: Replace = False,
    form: HostForm = HOST_FORM,
    common: ServerOptions = COMMON,
) -> int:
    """Add a host."""
    return _add("host", name, vars(form), replace=replace, common=common)


@group.command(name="add")
def _add_group(
    name: Name,
    /,
    *,
    replace: Replace = False,
    form: GroupForm = GROUP_FORM,
    common: ServerOptions = COMMON,
) -> int:
    """Add a group."""
    return _add("group", name, vars(form), replace=replace, common=common)


@vm.command(name="add")
def _add_vm(
    name: Name, /, *, replace: Replace = False, form: VmForm, common: ServerOptions = COMMON
) -> int:
    """Add a VM."""
    return _add("vm", name, vars(form), replace=replace, common=common)


@host.default
@host.command(name="list")
def _list_hosts(
    *,
    state: Annotated[
        Sequence[Literal["healthy", "degraded", "failed"]],
        Parameter(help="only in this state; repeatable"),
    ] = (),
    limit: AllLimit = None,
    selector: Annotated[
        str | None,
        Parameter(alias="-l", metavar="KEY=VALUE,...", help="only hosts with all these labels"),
    ] = None,
    zone: Annotated[str | None, Parameter(metavar="NAME", help="only of this zone")] = None,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="only with VMs of this owner's groups")
    ] = None,
    group: Annotated[
        str | None, Parameter(metavar="NAME", help="only with VMs of this group")
    ] = None,
    silent: Annotated[
        bool,
        Parameter(
            name="--not-polling",
            help="only with VMs of groups without notice, because none of their VMs polls",
        ),
    ] = False,
    common: ListOptions = LISTED,
) -> int:
    """List hosts."""
    query = {"zone": zone, "selector": selector}
    wanted: dict[str, Collection[str | None]] = {"health": state}
    if owner or group or silent:
        wanted["vms"] = vms_of_groups(client_of(common), owner=owner, group=group, silent=silent)
    return _list("host", _Filter(query, wanted, owner), limit=limit, common=common)


@group.default
@group.command(name="list")
def _list_groups(
    *,
    limit: AllLimit = None,
    silent: Annotated[
        bool,
        Parameter(
            name=("--not-polling", "--silent"),
            help="only groups without notice, because none of their VMs polls",
        ),
    ] = False,
    owner: Annotated[str | None, Parameter(metavar="NAME", help="only of this owner")] = None,
    common: ListOptions = LISTED,
) -> int:
    """List groups."""
    query = {"enabled": "false" if silent else None}
    wanted = {"owner": {owner}} if owner else {}
    return _list("group", _Filter(query, wanted, owner), limit=limit, common=common)


@vm.default
@vm.command(name="list")
def _list_vms(
    *,
    limit: AllLimit = None,
    host: Annotated[str | None, Parameter(metavar="NAME", help="only of this host")] = None,
    group: Annotated[str | None, Parameter(metavar="NAME", help="only of this group")] = None,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="only of this owner's groups")
    ] = None,
    silent: Annotated[
        bool,
        Parameter(
            name="--not-polling", help="only VMs that have not polled since the service started"
        ),
    ] = False,
    common: ListOptions = LISTED,
) -> int:
    """List VMs."""
    wanted: dict[str, Collection[str | None]] = {"polled": {None}} if silent else {}
    if owner:
        wanted["name"] = vms_of_groups(client_of(common), owner=owner)
    query = {"host": host, "group": group}
    return _list("vm", _Filter(query, wanted, owner), limit=limit, common=common)


@host.command(name="show")
def _show_host(name: Name, /, *, common: WatchOptions = WATCHED) -> int:
    """Show one host."""
    return _show("host", name, common)


@group.command(name="show")
def _show_group(name: Name, /, *, common: WatchOptions = WATCHED) -> int:
    """Show one group."""
    return _show("group", name, common)


@vm.command(name="show")
def _show_vm(name: Name, /, *, common: WatchOptions = WATCHED) -> int:
    """Show one VM."""
    return _show("vm", name, common)


@host.command(name="remove")
def _remove_hosts(*names: Names, yes: Yes = False, common: ServerOptions = COMMON) -> int:
    """Remove hosts from the fleet; an error leaves all unchanged."""
    return _remove("host", names, yes=yes, common=common)


@group.command(name="remove")
def _remove_groups(*names: Names, yes: Yes = False, common: ServerOptions = COMMON) -> int:
    """Remove groups from the fleet; an error leaves all unchanged."""
    return _remove("group", names, yes=yes, common=common)


@vm.command(name="remove")
def _remove_vms(*names: Names, yes: Yes = False, common: ServerOptions = COMMON) -> int:
    """Remove VMs from the fleet; an error leaves all unchanged."""
    return _remove("vm", names, yes=yes, common=common)


def _add(
    kind: str, name: str, members: dict[str, object], *, replace: bool, common: ServerOptions
) -> int:
    client = client_of(common)
    form: dict[str, Any] = dict(members)
    for member in ("labels", "tags", "instance"):
        if form.get(member):
            form[member] = dict(text.split("=", 1) for text in form[member])
    path = f"/v1/{kind}s/{part(name)}"
    if replace:
        try:
            known = client.get(path)
        except ApiRefused as refusal:
            if refusal.status != HTTP_NOT_FOUND:
                raise
            known = {}
        form = {key: known.get(key) if given is None else given for key, given in form.items()}
        form |= {key: known[key] for key in _WITHOUT_OPTION if key in known}
    answer = client.put(path if replace else f"{path}?new=true", form)
    if common.structured:
        return print_structured(common, answer)
    note(f"{kind} {name} saved")
    return OK


@value
class _Filter:
    """The records of a list that are shown."""

    #: The filters of the server.
    query: Mapping[str, Any]
    #: Member -> the values that a record may have.
    wanted: Mapping[str, Collection[str | None]]
    #: The owner of `--owner`.
    owner: str | None


def _list(kind: str, chosen: _Filter, *, limit: int | None, common: ServerOptions) -> int:
    query, wanted = chosen.query, chosen.wanted
    client = client_of(common)
    plural = f"{kind}s"
    by_name = sorted(
        (
            each
            for each in records(client, f"/v1/{plural}", plural, **query)
            if _matches(each, wanted)
        ),
        key=lambda each: natural(each["name"]),
    )
    shown = in_order(common, by_name)[:limit]
    if common.structured:
        return print_structured(common, {plural: shown})
    filtered = any(query.values()) or any(map(_narrows, wanted.items()))
    remedy = "" if filtered else f" Add one with `forewarn {kind} add`."
    empty = f"No {'matching ' if filtered else ''}{written_kind(kind)}s.{remedy}"
    if not shown:
        for of, name in (("owner", chosen.owner), ("zone", query.get("zone"))):
            if name and (near := near_name(of, name, common)):
                empty += f" There is no {of} {name}; did you mean {near}?"
    facts = [{name: _fact(value) for name, value in each.items()} for each in shown]
    if kind == "host" and facts:
        work = _work_of_hosts(client)
        facts = [{**each, "work": work.get(str(each["name"]), "")} for each in facts]
    return print_list(facts, _COLUMNS[kind], empty=empty, wide=common.form == "wide")


def _narrows(pair: tuple[str, Collection[str | None]]) -> bool:
    """Whether a filter leaves out any record; `--state` without values does not."""
    name, values = pair
    return bool(values) or name != "health"


def _matches(record: Answer, wanted: Mapping[str, Collection[str | None]]) -> bool:
    """Whether a record has one of the wanted values of each member."""
    for name, values in wanted.items():
        own = record[name]
        has_one = any(each in values for each in own) if isinstance(own, list) else own in values
        if not has_one and _narrows((name, values)):
            return False
    return True


def _work_of_hosts(client: ApiClient) -> dict[str, str]:
    """Return the live work on each host, such as `host-reboot announced`."""
    try:
        operations = newest(
            client, "/v1/operations", time="created", chosen=Chosen(limit=WORK_MAX), live=True
        )
    except ApiRefused:  # a role that sees hosts need not see all work
        return {}
    return {
        each["target"]: f"{each['cause']} {each['state']}"
        for each in operations
        if each["target_kind"] == "host"
    }


def _show(kind: str, name: str, common: ServerOptions) -> int:
    answer = client_of(common).get(f"/v1/{kind}s/{part(name)}")
    if common.structured:
        return print_structured(common, answer)
    return print_facts(
        (name.replace("_", " "), _fact(value))
        for name, value in answer.items()
        if value or name not in ZERO_UNKNOWN
    )


def _remove(kind: str, typed: Sequence[str], *, yes: bool, common: ServerOptions) -> int:
    names = list(dict.fromkeys(",".join(typed).split(",")))
    given = ",".join(map(part, names))
    confirm(f"Remove {written_kind(kind)} {listed(names)} from the fleet?", yes=yes)
    client_of(common).delete(f"/v1/{kind}s?name={given}")
    for name in names:
        note(f"{kind} {name} removed")
    return print_structured(common, {"removed": names}) if common.structured else OK


def written_kind(kind: str) -> str:
    """Return the name of a kind of record as it appears in sentences."""
    return "VM" if kind == "vm" else kind


def _fact(value: object) -> object:
    if value == "PT0S":  # zero disables the notice
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return value
