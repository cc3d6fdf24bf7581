"""Hosts and VMs that a driver has discovered, and their differences from the topology.

The `discovery.py` of each driver creates these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forewarn_base.errors import clean_text
from forewarn_base.names import TEXT_LENGTH_MAX


@dataclass(slots=True)
class Found:
    """The discovered machines, in the format of the operator API."""

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    vms: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Members of new groups; a group that is not named here has none.
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Unreachable hosts, each with the reason.
    silent: dict[str, str] = field(default_factory=dict)
    #: Members of a host record that every discovery updates.
    host_facts: tuple[str, ...] = ("driver",)
    #: Default members of new hosts, by host.
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Rank of the best known placement of each VM; a moving VM is on two hosts.
    _rank: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def place(self, name: str, form: dict[str, Any], rank: tuple[bool, bool]) -> None:
        """Add a machine, unless its record has a better rank."""
        if name not in self.vms or rank > self._rank[name]:
            self.vms[name], self._rank[name] = form, rank


def difference(fleet: Found, known: dict[str, Any]) -> dict[str, Any]:
    """Return the changed records by which the known topology matches a discovery.

    Members that the driver does not report remain unchanged. `gone` lists deleted VMs.
    """
    changed: dict[str, Any] = {"hosts": {}, "groups": {}, "vms": {}}
    groups = set(known.get("groups", {}))
    for name, reported in fleet.hosts.items():
        form = _printable(reported)
        before = known.get("hosts", {}).get(name)
        if before is None:
            after = {**fleet.defaults.get(name, {}), **form}
        else:
            facts = [each for each in fleet.host_facts if form.get(each) or each in before]
            after = {**before, **{each: form[each] for each in facts if each in form}}
        if after != before:
            changed["hosts"][name] = after
    for name, reported in fleet.vms.items():
        form = _printable(reported)
        before = known.get("vms", {}).get(name)
        after = {**(before or {}), **form}
        if after != before:
            changed["vms"][name] = after
            group = form.get("group")
            if group and group not in groups:
                changed["groups"][group] = fleet.groups.get(group, {})
    return changed


def _printable(form: dict[str, Any]) -> dict[str, Any]:
    """Return a record with printable texts, so that the service accepts the record."""
    members = {name: _plain(value) for name, value in form.items()}
    if "tags" in form:
        members["tags"] = {_plain(name): _plain(text) for name, text in form["tags"].items()}
    return members


def _plain(text: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(text, str):
        return text
    return clean_text(text, TEXT_LENGTH_MAX)


def gone(fleet: Found, known: dict[str, Any], hosts: set[str]) -> list[str]:
    """Return the known VMs of `hosts` that have disappeared from all reachable hosts."""
    return [
        name
        for name, form in known.get("vms", {}).items()
        if name not in fleet.vms and form["host"] in hosts and form["host"] not in fleet.silent
    ]
