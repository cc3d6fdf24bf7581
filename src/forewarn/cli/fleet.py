"""`forewarn host`, `group` and `vm`: add, list, show and remove records, and request work.

`work_requests.py` implements the requests for work.
"""

from __future__ import annotations

import argparse
from typing import Any

from forewarn.cli.api_client import ApiRefused, client_of, part
from forewarn.cli.listing import natural, records
from forewarn.cli.output import confirm, listed, note, print_facts, print_json, print_list
from forewarn.cli.parsing import (
    CommandGroup,
    Parser,
    add_list_options,
    add_yes_option,
    set_members,
    written_kind,
)
from forewarn.cli.work_requests import add_host_work, add_vm_work
from forewarn.core.topology import Health
from forewarn.exit_codes import OK

_COLUMNS = {
    "host": (
        *("name", "zone", "fault_domain", "update_domain", "memory_mib"),
        *("health", "driver", "vms"),
    ),
    "group": ("name", "kind", "owner", "vms", "enabled", "polled", "clients"),
    "vm": (
        *("name", "host", "group", "size", "memory_mib", "addresses"),
        *("enabled", "polled", "client"),
    ),
}
#: Members of a group that `group add` cannot set, and that `--replace` keeps.
_WITHOUT_OPTION = ("approves_when_down", "published")
HTTP_NOT_FOUND = 404
_TAG_HINT = "NAME=TEXT"


def add_commands(commands: CommandGroup) -> None:
    """Add `host`, `group` and `vm`."""
    host, group, vm = (commands.group(kind) for kind in ("host", "group", "vm"))
    for commands_of, kind, add_options in (
        (host, "host", _add_host_options),
        (group, "group", _add_group_options),
        (vm, "vm", _add_vm_options),
    ):
        add = _add_record_actions(commands_of, kind)
        add_options(add)
        set_members(add, ("replace",))
    add_host_work(host)
    add_vm_work(vm)


def _add_record_actions(commands: CommandGroup, kind: str) -> Parser:
    """Add the actions list, show, remove and add; return the parser of add."""
    word = written_kind(kind)
    add = commands.command("add", f"add a {word}", run=_add)
    add.add_argument("name", metavar="NAME")
    add.flag("--replace", "change an existing record; omitted members keep their values")
    listing = commands.command("list", f"list {word}s", run=_list)
    states = [each.value for each in Health] if kind == "host" else []
    add_list_options(listing, states=states, limit=None)
    if kind == "host":
        listing.option("--selector KEY=VALUE,...", "only hosts with all these labels")
    if kind == "group":
        listing.flag(
            "--silent",
            "only groups without notice, because none of their VMs polls",
            const="false",
            dest="enabled",
        )
    for column in {"host": ("zone",), "vm": ("host", "group")}.get(kind, ()):
        listing.option(f"--{column} NAME", f"only of this {column}")
    show = commands.command("show", f"show one {word}", run=_show)
    show.add_argument("name", metavar="NAME")
    remove = commands.command(
        "remove", f"remove {word}s from the fleet; an error leaves all unchanged", run=_remove
    )
    remove.add_argument("names", metavar="NAME", nargs="+")
    add_yes_option(remove)
    for parser in (add, listing, show, remove):
        parser.set_defaults(kind=kind)
    return add


def _add_host_options(parser: Parser) -> None:
    parser.option("--fault-domain N", type=int)
    parser.option("--update-domain N", type=int)
    parser.option("--zone NAME")
    parser.option("--driver NAME", "driver that carries out work on the host")
    parser.option(
        "--label KEY=VALUE",
        "such as rack=r7; repeatable",
        action="append",
        dest="labels",
        type=_tag,
    )
    parser.option("--memory-mib N", "memory available to VMs, in MiB", type=int)


def _add_group_options(parser: Parser) -> None:
    parser.option(
        "--kind",
        dest="group_kind",
        choices=("availability-set", "scale-set", "cloud-service", "lone"),
    )
    parser.option("--owner NAME")
    parser.option("--fault-domain-count N", type=int)
    parser.flag("--strict-approval", "require the approval of every VM of an event", const=True)
    parser.option(
        "--automatic-approval IMPACT",
        "approve this impact automatically if a user requested it; repeatable",
        action="append",
        choices=("Reboot", "Redeploy"),
    )
    parser.option("--terminate-notice DURATION", "notice before deletions: 5m to 15m")
    parser.flag("--reimage-notice", "announce image upgrades", const=True)
    for name, values in (("apart", "different values"), ("together", "the same value")):
        parser.option(
            f"--keep-{name} LABEL",
            f"moves keep the VMs on hosts with {values} of this label, such as rack; repeatable",
            action="append",
        )


def _add_vm_options(parser: Parser) -> None:
    parser.option("--host NAME", required=True)
    parser.option("--group NAME", "(default: a group of its own, same name)")
    parser.option("--size SIZE", "such as Standard_D4s_v5")
    parser.option("--memory-mib N", "memory of the VM, in MiB", type=int)
    parser.option(
        "--address ADDRESS",
        "source address of the VM's requests; repeatable",
        action="append",
        dest="addresses",
    )
    parser.option("--interface NAME", "interface on which the VM's addresses are valid")
    parser.option("--instance-id ID", "VM id in the requests of a metadata proxy")
    parser.option("--vm-id GUID")
    parser.option("--os-type NAME", "Linux or Windows")
    for name in ("location", "resource-group", "subscription"):
        parser.option(f"--{name} NAME")
    parser.flag("--gpu", "has a GPU", const=True)
    parser.flag("--spot", "Spot VM, which can be evicted", const=True)
    parser.option(f"--tag {_TAG_HINT}", action="append", dest="tags", type=_tag)
    parser.option(
        f"--instance {_TAG_HINT}",
        "further instance metadata, such as osProfile.adminUsername=ann; repeatable",
        action="append",
        type=_tag,
    )


def _tag(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not {_TAG_HINT}")
    return name, value


def _add(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    form = {name: getattr(arguments, name) for name in arguments.members}
    if "group_kind" in form:
        form["kind"] = form.pop("group_kind")
    for member in ("tags", "instance", "labels"):
        if form.get(member):
            form[member] = dict(form[member])
    path = f"/v1/{arguments.kind}s/{part(arguments.name)}"
    if arguments.replace:
        try:
            known = client.get(path)
        except ApiRefused as refusal:
            if refusal.status != HTTP_NOT_FOUND:
                raise
            known = {}
        form = {name: known.get(name) if given is None else given for name, given in form.items()}
        form |= {name: known[name] for name in _WITHOUT_OPTION if name in known}
    answer = client.put(path if arguments.replace else f"{path}?new=true", form)
    if arguments.json:
        return print_json(answer)
    note(f"{arguments.kind} {arguments.name} saved")
    return OK


def _list(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    plural = f"{arguments.kind}s"
    filters: dict[str, Any] = {
        name: getattr(arguments, name, None)
        for name in ("zone", "host", "group", "selector", "enabled")
        if getattr(arguments, name, None)
    }
    listed = sorted(
        (
            each
            for each in records(client, f"/v1/{plural}", plural, **filters)
            if not getattr(arguments, "state", None) or each["health"] in arguments.state
        ),
        key=lambda each: natural(each["name"]),
    )[: arguments.limit]
    if arguments.json:
        return print_json({plural: listed})
    filtered = bool(filters or getattr(arguments, "state", None))
    label = "VMs" if arguments.kind == "vm" else plural
    remedy = "" if filtered else f" Add one with `forewarn {arguments.kind} add`."
    empty = f"No {'matching ' if filtered else ''}{label}.{remedy}"
    shown = [{name: _fact(value) for name, value in each.items()} for each in listed]
    return print_list(shown, _COLUMNS[arguments.kind], empty=empty)


def _show(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get(f"/v1/{arguments.kind}s/{part(arguments.name)}")
    if arguments.json:
        return print_json(answer)
    return print_facts((name.replace("_", " "), _fact(value)) for name, value in answer.items())


def _remove(arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(",".join(arguments.names).split(",")))
    given = ",".join(map(part, names))
    confirm(arguments, f"Remove {written_kind(arguments.kind)} {listed(names)} from the fleet?")
    client_of(arguments).delete(f"/v1/{arguments.kind}s?name={given}")
    for name in names:
        note(f"{arguments.kind} {name} removed")
    return print_json({"removed": names}) if arguments.json else OK


def _fact(value: object) -> object:
    if value == "PT0S":  # zero disables the notice
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return value
