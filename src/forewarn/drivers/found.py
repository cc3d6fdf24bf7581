"""Hosts and VMs that a driver has discovered, and how they differ from the topology.

Nobody is asked from here: each driver's `discovery.py` does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from forewarn.core.naming import TEXT_LENGTH_MAX
from forewarn.errors import clean_text


@dataclass(slots=True)
class Found:
    """What was found, in the form that the operator API takes."""

    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    vms: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Hosts that did not answer -> why.
    silent: dict[str, str] = field(default_factory=dict)
    #: Members of a host that are taken over each time; the others only with a new host.
    host_facts: tuple[str, ...] = ("driver",)
    #: Host -> members it has where it is new and nothing says otherwise.
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: VM -> how well it is placed where it was found: one that moves is on two hosts.
    _rank: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def place(self, name: str, form: dict[str, Any], rank: tuple[bool, bool]) -> None:
        """Add a machine, unless it is known with a better rank."""
        if name not in self.vms or rank > self._rank[name]:
            self.vms[name], self._rank[name] = form, rank


def difference(fleet: Found, known: dict[str, Any]) -> dict[str, Any]:
    """Return the records that bring the known topology up to date with a discovery.

    Facts that the driver does not report stay unchanged. VMs that have gone are in `gone`.
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
    """Return a record whose texts can be shown: one odd character must not refuse all of it."""
    members = {name: _plain(value) for name, value in form.items()}
    if "tags" in form:
        members["tags"] = {_plain(name): _plain(text) for name, text in form["tags"].items()}
    return members


def _plain(text: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(text, str):
        return text
    return clean_text(text, TEXT_LENGTH_MAX)


def gone(fleet: Found, known: dict[str, Any], hosts: set[str]) -> list[str]:
    """Return the VMs of hosts that answered which no host has any more."""
    return [
        name
        for name, form in known.get("vms", {}).items()
        if name not in fleet.vms and form["host"] in hosts and form["host"] not in fleet.silent
    ]
