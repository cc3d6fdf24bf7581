"""Hosts and VMs that a driver has discovered, and their differences from the topology.

Each driver's `discovery.py` fills these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forewarn.core.naming import TEXT_LENGTH_MAX
from forewarn.errors import clean_text


@dataclass(slots=True)
class Found:
    """The discovered machines, in the form of the operator API."""

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    vms: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Hosts that did not answer -> the reason.
    silent: dict[str, str] = field(default_factory=dict)
    #: Members of a host that every discovery updates; the others are set only for a new host.
    host_facts: tuple[str, ...] = ("driver",)
    #: Host -> default members, used if the host is new.
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: VM -> rank of the placement where it was seen; a moving VM is on two hosts.
    _rank: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def place(self, name: str, form: dict[str, Any], rank: tuple[bool, bool]) -> None:
        """Add a machine, unless it is known with a better rank."""
        if name not in self.vms or rank > self._rank[name]:
            self.vms[name], self._rank[name] = form, rank


def difference(fleet: Found, known: dict[str, Any]) -> dict[str, Any]:
    """Return the records that update the known topology to a discovery.

    Facts that the driver does not report stay unchanged. `gone` lists deleted VMs.
    """
    changed: dict[str, Any] = {"hosts": {}, "groups": {}, "vms": {}}
    groups = set(known.get("groups", {}))
    for name, reported in fleet.hosts.items():
        form = _shown(reported)
        before = known.get("hosts", {}).get(name)
        if before is None:
            after = {**fleet.defaults.get(name, {}), **form}
        else:
            facts = [each for each in fleet.host_facts if form.get(each) or each in before]
            after = {**before, **{each: form[each] for each in facts if each in form}}
        if after != before:
            changed["hosts"][name] = after
    for name, reported in fleet.vms.items():
        form = _shown(reported)
        before = known.get("vms", {}).get(name)
        after = {**(before or {}), **form}
        if after != before:
            changed["vms"][name] = after
            group = form.get("group")
            if group and group not in groups:
                changed["groups"][group] = {}
    return changed


def _shown(form: dict[str, Any]) -> dict[str, Any]:
    """Return a record with printable texts: one odd character must not refuse the whole import."""
    members = {name: _plain(value) for name, value in form.items()}
    if "tags" in form:
        members["tags"] = {_plain(name): _plain(text) for name, text in form["tags"].items()}
    return members


def _plain(text: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(text, str):
        return text
    return clean_text(text, TEXT_LENGTH_MAX)


def gone(fleet: Found, known: dict[str, Any], hosts: set[str]) -> list[str]:
    """Return the known VMs of these hosts that no answering host has any more."""
    return [
        name
        for name, form in known.get("vms", {}).items()
        if name not in fleet.vms and form["host"] in hosts and form["host"] not in fleet.silent
    ]
