"""Topology files: conversion of hosts, groups and VMs between TOML, YAML or JSON and records.

The functions take and return bytes; they open no files.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from sys import intern
from typing import Any, TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.validation.complexity import check_count, checkpoint
from forewarn_base.validation.durations import iso_duration
from forewarn_base.validation.fields import ValidationFailed, Values
from forewarn_base.validation.json_reader import JSON, BodyUnreadable, not_text, read_json
from forewarn_base.validation.toml_reader import read_toml
from forewarn_base.values import replace
from forewarn_core.fleet.records import SHARED
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, GroupKind, Host, Topology, Vm
from forewarn_server.api import request_forms as forms

_Batch: TypeAlias = list[tuple[str, dict[str, Any]]]

__all__ = ["ENDINGS", "JSON", "READERS", "TOML", "YAML", "exported", "form_of", "read_topology"]

TOML, YAML = "application/toml", "application/yaml"
#: Number of records that are read or written at a time.
PORTION = 500
#: Media type -> name of the format, which is also its file name extension.
READERS: dict[str, str] = {TOML: "toml", YAML: "yaml", JSON: "json"}
#: File name extension -> media type.
ENDINGS: dict[str, str] = {".toml": TOML, ".yaml": YAML, ".yml": YAML, ".json": JSON}


class FleetEmptied(CallerError):
    """The topology is empty and `prune` is set. The program that wrote it has probably failed."""

    code = "fleet-emptied"
    status = 422
    message = "The topology is empty, and `prune` would remove the whole fleet."
    advice = "Check the file. Remove hosts, groups and VMs by name. Nothing was changed."


def read_topology(body: bytes, media: str) -> ChangeTopology:
    """Parse a topology file, and add omitted groups of VMs.

    Raises:
        BodyUnreadable: the file is malformed.
        ValidationFailed: a member is unknown, missing or of the wrong type.
        FleetContradiction: records contradict each other.
    """
    return records_of(forms.TOPOLOGY.read(parsed(body, media), "the topology"))


#: Longest text of a member in the differences of two records, in characters.
SHOWN_LENGTH_MAX = 80


def records_of(values: Values) -> ChangeTopology:
    """Return the records of a parsed topology."""
    hosts = tuple(host_of(name, each) for name, each in values.get("hosts", {}).items())
    groups = {name: group_of(name, each) for name, each in values.get("groups", {}).items()}
    vms = []
    for count, (name, each) in enumerate(values.get("vms", {}).items()):
        check_count(count)
        vm = vm_of(name, each)
        if "group" not in each:
            groups.setdefault(vm.group, lone_group(vm.group))
        vms.append(vm)
    return ChangeTopology(hosts=hosts, groups=tuple(groups.values()), vms=tuple(vms))


def pruned(change: ChangeTopology, before: Topology) -> ChangeTopology:
    """Return a change that also removes all records outside the topology; O(fleet).

    Raises:
        FleetEmptied: the topology is empty.
    """
    named = {
        "vm": {each.name for each in change.vms},
        "group": {each.name for each in change.groups},
        "host": {each.name for each in change.hosts},
    }
    present: dict[str, Mapping[str, object]] = {
        "vm": before.vms,
        "group": before.groups,
        "host": before.hosts,
    }
    if not any(named.values()) and any(present.values()):
        raise FleetEmptied
    removed = tuple(
        (kind, name) for kind, names in present.items() for name in names if name not in named[kind]
    )
    return replace(change, removed=removed)


def host_of(name: str, values: Values) -> Host:
    """Convert a form to a host."""
    form = dict(values)
    if "labels" in form:
        form["labels"] = tuple(sorted(form["labels"].items()))
    return Host(name=name, **form)


def group_of(name: str, values: Values) -> Group:
    """Convert a form to a group."""
    form = dict(values)
    if "terminate_notice" in form:
        form["terminate_notice_s"] = form.pop("terminate_notice")
    if "automatic_approval" in form:
        form["automatic_approval"] = frozenset(form["automatic_approval"])
    for member in ("keep_apart", "keep_together"):
        if member in form:
            form[member] = tuple(form[member])
    return Group(name=name, **form)


def lone_group(vm: str) -> Group:
    """Return the group of a VM that has its own document."""
    return Group(name=vm, kind=GroupKind.LONE)


def vm_of(name: str, values: Values) -> Vm:
    """Convert a form to a VM; a VM without a group gets a group of its own."""
    form = {"group": name, **values}
    for member, text in form.items():
        if member in _SHARED:
            form[member] = intern(text)
    for member in ("tags", "instance"):
        if member in form:
            form[member] = tuple(form[member].items())
    addresses = form.get("addresses", ())
    if len(addresses) > 1:
        form["addresses"] = tuple(dict.fromkeys(addresses))
    if ":" in "".join(addresses):
        _check_link_local(name, form)
    return Vm(name=name, **form)


def _check_link_local(name: str, form: Values) -> None:
    """Refuse a link-local address without an interface. Source: S-6."""
    if form.get("interface"):
        return
    for address in (ip_address(each) for each in form["addresses"] if ":" in each):
        if address.is_link_local:
            problem = f"has the link-local address {address}, which needs an interface"
            raise ValidationFailed(where=f"vms.{name}", problem=problem)


def form_of(topology: Topology) -> dict[str, dict[str, dict[str, Any]]]:
    """Return a fleet as a form for `PUT`; the form omits defaults."""
    return {kind: dict(records) for kind, records in _records(topology)}


def differences(before: Host | Group | Vm, after: Host | Group | Vm) -> list[dict[str, str]]:
    """Return the members in which two records of a kind differ, as short texts; empty: none."""
    old, new = _flat(_any_form(before)), _flat(_any_form(after))
    return [
        {"member": name, "old": old.get(name, ""), "new": new.get(name, "")}
        for name in dict.fromkeys((*old, *new))
        if old.get(name, "") != new.get(name, "")
    ]


def _any_form(record: Host | Group | Vm) -> dict[str, Any]:
    if isinstance(record, Vm):
        return _vm_form(record)
    if isinstance(record, Group):
        return _group_form(record)
    return _form_of(record, _PLAIN_HOST, ("name", "health"))


def _flat(form: Mapping[str, Any]) -> dict[str, str]:
    """Return the members of a form as texts; each label and tag is a member of its own."""
    texts: dict[str, str] = {}
    for name, each in form.items():
        if isinstance(each, dict):
            texts |= {f"{name}.{key}": _short(value) for key, value in each.items()}
        else:
            texts[name] = _short(each)
    return texts


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[: SHOWN_LENGTH_MAX - 1]}…"


def _records(topology: Topology) -> Iterator[tuple[str, Iterator[tuple[str, dict[str, Any]]]]]:
    """Yield each kind of record with its records as forms."""
    without = ("name", "health")
    hosts = topology.hosts.values()
    yield "hosts", ((host.name, _form_of(host, _PLAIN_HOST, without)) for host in hosts)
    yield "groups", ((group.name, _group_form(group)) for group in topology.groups.values())
    yield "vms", ((vm.name, _vm_form(vm)) for vm in topology.vms.values())


def _vm_form(vm: Vm) -> dict[str, Any]:
    return {
        "host": vm.host,
        "group": vm.group,
        **_form_of(vm, _PLAIN_VM, ("name", "host", "group")),
    }


def _group_form(group: Group) -> dict[str, Any]:
    form = _form_of(group, _PLAIN_GROUP, ("name", "switched_off"))
    if "terminate_notice_s" in form:
        form["terminate_notice"] = iso_duration(form.pop("terminate_notice_s"))
    return form


def _form_of(record: Host | Group | Vm, plain: object, without: tuple[str, ...]) -> dict[str, Any]:
    """Return the form of a record without members that have the default value."""
    members: dict[str, Any] = {}
    for name in record.__match_args__:
        value = getattr(record, name)
        if name in without or value == getattr(plain, name):
            continue
        if name in {"tags", "instance", "labels"}:
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, frozenset):
            value = sorted(each.value for each in value)
        members[name] = getattr(value, "value", value)
    return members


def parsed(body: bytes, media: str) -> object:
    """Parse a file into plain values.

    Raises:
        BodyUnreadable: the file is malformed.
    """
    if media == JSON:
        return read_json(body, whole_bytes_max=len(body))  # larger ones have their own process
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyUnreadable(reason=not_text(error)) from error
    try:
        if media == TOML:
            return read_toml(text)
        from forewarn_server.yaml_reader import read_yaml  # noqa: PLC0415 - rarely needed

        return read_yaml(text)
    except (ValueError, RecursionError) as error:
        problem = str(error).replace("\n", " ") or type(error).__name__
        name = READERS[media].upper()
        raise BodyUnreadable(reason=f"it is not valid {name}: {problem[:200]}") from error


def exported(topology: Topology, media: str) -> Iterator[bytes]:
    """Yield a fleet as a file for `PUT`, in parts of some records."""
    write = _WRITERS[media]
    for kind, records in _records(topology):
        part = 0
        while batch := list(itertools.islice(records, PORTION)):
            checkpoint()
            yield write(kind, part, batch)
            part += 1
        if ending := write(kind, part, []):
            yield ending


def _to_json(kind: str, part: int, records: _Batch) -> bytes:
    """Write records of a kind as JSON; an empty list ends the kind."""
    opening = "" if part else ("{\n" if kind == "hosts" else "") + f'  "{kind}": {{'
    lines = [f"\n    {json.dumps(name)}: {json.dumps(form)}" for name, form in records]
    comma = "," if part and lines else ""
    closing = "" if lines else ("\n  }" if part else "}") + ("\n}\n" if kind == "vms" else ",\n")
    return (opening + comma + ",".join(lines) + closing).encode()


def _to_yaml(kind: str, part: int, records: _Batch) -> bytes:
    from forewarn_server.yaml_reader import written_yaml  # noqa: PLC0415 - rarely needed

    if not records:
        return b"" if part else f"{kind}: {{}}\n".encode()
    opening = b"" if part else f"{kind}:\n".encode()
    return opening + textwrap.indent(written_yaml(dict(records)).decode(), "  ").encode()


def _to_toml(kind: str, _part: int, records: _Batch) -> bytes:
    """Write records as TOML tables; strings, numbers and lists have the same form as in JSON."""
    lines = []
    for name, members in records:
        lines.append(f"[{kind}.{toml_key(name)}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in members.items()]
        lines.append("\n")
    return "\n".join(lines).encode()


def toml_key(name: str) -> str:
    """Return a name as a key of TOML."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else json.dumps(name, ensure_ascii=False)


def toml_value(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        pairs = ", ".join(
            f"{toml_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
        )
        return f"{{ {pairs} }}"
    return json.dumps(value, ensure_ascii=False)


_SHARED = frozenset(SHARED["vm"])
_PLAIN_HOST, _PLAIN_GROUP, _PLAIN_VM = Host("plain"), Group("plain"), Vm("plain", "h", "g")
_WRITERS: dict[str, Callable[[str, int, _Batch], bytes]] = {
    JSON: _to_json,
    TOML: _to_toml,
    YAML: _to_yaml,
}
