"""The machines of a scenario: the changes that add and remove machines; pure.

Callers apply the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeAlias, TypeVar

from forewarn_base.values import value
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, GroupKind, Host, Topology, Vm
from forewarn_emulator.default_fleet import completed
from forewarn_emulator.scenario import ON_GROUP, ON_HOST, ON_VM, DeclaredMachines
from forewarn_server.api.request_forms import TOPOLOGY
from forewarn_server.api.topology_file import form_of, records_of

Tables: TypeAlias = "Mapping[str, Mapping[str, object]]"
R = TypeVar("R", Host, Group, Vm)


@value
class ScenarioFleet:
    """The VM on which a scenario runs, with its host and group, for the placeholders."""

    vm: str
    host: str
    group: str

    def name(self, written: str) -> str:
        """Return the name of a machine, which a scenario may write as a placeholder."""
        return {ON_VM: self.vm, ON_HOST: self.host, ON_GROUP: self.group}.get(written, written)

    def names(self, written: Iterable[str]) -> tuple[str, ...]:
        """Return the names of machines, without duplicates and placeholders."""
        return tuple(dict.fromkeys(self.name(word) for word in written))


def stage_for(topology: Topology, vm: str) -> ScenarioFleet | None:
    """Return the placeholders' values for a VM; None if the VM does not exist."""
    machine = topology.vms.get(vm)
    return ScenarioFleet(machine.name, machine.host, machine.group) if machine else None


def brought(topology: Topology, machines: DeclaredMachines, stage: ScenarioFleet) -> ChangeTopology:
    """Return the change that adds a scenario's machines.

    The scenario's members replace those of an existing machine; other members remain.

    Raises:
        ValidationFailed: a member is unknown or has the wrong type.
        FleetContradiction: the machines contradict each other or the fleet.
    """
    known = form_of(topology)
    hosts = _place(machines.hosts, known["hosts"], stage)
    groups = _place(machines.groups, known["groups"], stage)
    vms = _place(machines.vms, known["vms"], stage)
    joined = any(vm.get("group") == stage.group for name, vm in vms.items() if name != stage.vm)
    if joined and topology.groups[stage.group].kind is GroupKind.LONE:
        # Convert a lone group, which has only one VM, to an availability set.
        lone = groups.get(stage.group, known["groups"][stage.group])
        groups[stage.group] = {**lone, "kind": GroupKind.AVAILABILITY_SET.value}
    tables = {"hosts": hosts, "groups": groups, "vms": vms}
    return completed(records_of(TOPOLOGY.read(tables, "the scenario")), topology.vms)


@value
class Touched:
    """Names of the machines that a scenario has added, changed or disturbed."""

    hosts: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    vms: frozenset[str] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        """Return the union of two sets of names."""
        return Touched(self.hosts | other.hosts, self.groups | other.groups, self.vms | other.vms)


def touched_by(change: ChangeTopology) -> Touched:
    """Return the names of machines in a change."""
    return Touched(
        frozenset(each.name for each in change.hosts),
        frozenset(each.name for each in change.groups),
        frozenset(each.name for each in change.vms),
    )


def taken_back(before: Topology, now: Topology, touched: Touched) -> ChangeTopology:
    """Return the change that restores the machines of a scenario."""
    # A host's health belongs to its operators.
    both = touched.hosts & before.hosts.keys() & now.hosts.keys()
    hosts = {name: replace(now.hosts[name], health=before.hosts[name].health) for name in both}
    return ChangeTopology(
        hosts=_changed_records(before.hosts, hosts, touched.hosts),
        groups=_changed_records(before.groups, now.groups, touched.groups),
        vms=_changed_records(before.vms, now.vms, touched.vms),
        removed=tuple(
            (kind, name)
            for kind, names, there, then in (
                ("vm", touched.vms, now.vms, before.vms),
                ("group", touched.groups, now.groups, before.groups),
                ("host", touched.hosts, now.hosts, before.hosts),
            )
            for name in sorted(names & there.keys() - then.keys())
        ),
    )


def _changed_records(
    then: Mapping[str, R], now: Mapping[str, R], names: AbstractSet[str]
) -> tuple[R, ...]:
    """Return the earlier records that differ from the current records."""
    return tuple(then[name] for name in sorted(names & then.keys()) if now.get(name) != then[name])


def _place(tables: Tables, known: Tables, stage: ScenarioFleet) -> dict[str, Mapping[str, object]]:
    """Return a scenario's machines with real names, merged with existing records."""
    members: dict[str, Mapping[str, object]] = {}
    for written, table in tables.items():
        name = stage.name(written)
        given = {
            key: stage.name(value) if key in {"host", "group"} and isinstance(value, str) else value
            for key, value in table.items()
        }
        members[name] = {**known.get(name, {}), **given}
    return members
