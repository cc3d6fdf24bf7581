"""Reads and writes Ganeti's text format of a cluster, for comparison with `hroller`.

Source: the format of `htools -t`: sections for node groups, nodes, instances, tags and policies,
separated by an empty line; `|` separates fields.
"""

from __future__ import annotations

from forewarn_base.values import value
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost

_SECTIONS = (4, 5)
_NODE_FIELDS = (9, 10)
_INSTANCE_FIELDS = (10, 11)
#: Plausible values of a node's other fields, which `hroller` requires.
_NODE = "{name}|{memory}|0|{free}|1000000|1000000|64|{state}|uuid-{group}|1"
_INSTANCE = "{name}|{memory}|1024|1|running|Y|{primary}|{secondary}|{template}||1"
_MEMORY = 1_000_000


class GanetiTextInvalid(ValueError):
    """A text is not in the format of Ganeti's htools."""


@value
class Instance:
    """A VM of Ganeti, which runs on one node and may have a copy on a second node."""

    name: str
    #: Memory, in MiB.
    memory: int
    primary: str
    #: Node of the copy; empty without a copy.
    secondary: str = ""


@value
class Cluster:
    """The data of a cluster that Forewarn reads."""

    #: Node and its node group, by name.
    nodes: tuple[tuple[str, str], ...]
    instances: tuple[Instance, ...]

    def fleet(self) -> Fleet:
        """Return the cluster as a fleet whose groups express `hroller`'s rules.

        Each node has a group of the node itself and all nodes with VMs whose copy is on the node.
        Two nodes of a group must not be down at once, because the VMs of both would start on the
        same node.
        """
        names = [name for name, _ in self.nodes]
        hosts = [
            FleetHost(name, labels=(f"group={group}",), fault_domain=number)
            for number, (name, group) in enumerate(self.nodes)
        ]
        used = {each.secondary: None for each in self.instances if each.secondary}
        vms = [(name, f"copies-on-{name}", 0) for name in names if name in used]
        vms += [
            (each.primary, f"copies-on-{each.secondary}", each.memory)
            for each in self.instances
            if each.secondary
        ]
        return Fleet.of(hosts, [FleetGroup(f"copies-on-{name}") for name in used], vms)

    def text(self) -> str:
        """Return the cluster in the format of `hroller -t`; the first node is the master."""
        groups = {group: None for _, group in self.nodes}
        used: dict[str, int] = {}
        for each in self.instances:
            used[each.primary] = used.get(each.primary, 0) + each.memory
        nodes = [
            _NODE.format(
                name=name,
                memory=_MEMORY,
                free=_MEMORY - used.get(name, 0),
                state="N" if number else "M",
                group=group,
            )
            for number, (name, group) in enumerate(self.nodes)
        ]
        instances = [
            _INSTANCE.format(
                name=each.name,
                memory=each.memory,
                primary=each.primary,
                secondary=each.secondary,
                template="drbd" if each.secondary else "plain",
            )
            for each in self.instances
        ]
        sections = [[f"{group}|uuid-{group}|preferred|" for group in groups], nodes, instances]
        return "\n".join("".join(f"{line}\n" for line in section) for section in sections) + "\n\n"


def read(text: str) -> Cluster:
    """Parse a text into a cluster.

    Raises:
        GanetiTextInvalid: the text has another format, or names unknown objects.
    """
    sections: list[list[tuple[int, list[str]]]] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        if line:
            sections[-1].append((number, line.split("|")))
        else:
            sections.append([])
    if len(sections) < _SECTIONS[0]:
        problem = f"there are {len(sections)} sections, not {_SECTIONS[0]} or {_SECTIONS[1]}"
        raise GanetiTextInvalid(f"line 1: {problem}")
    groups = {fields[1]: fields[0] for _, fields in sections[0] if len(fields) > 1}
    nodes = {}
    for number, fields in sections[1]:
        if len(fields) not in _NODE_FIELDS or fields[8] not in groups:
            raise GanetiTextInvalid(f"line {number}: this is not a node of a known group")
        nodes[fields[0]] = groups[fields[8]]
    instances = [_instance(number, fields, nodes) for number, fields in sections[2]]
    return Cluster(tuple(nodes.items()), tuple(instances))


def _instance(number: int, fields: list[str], nodes: dict[str, str]) -> Instance:
    if len(fields) not in _INSTANCE_FIELDS or not fields[1].isdecimal():
        raise GanetiTextInvalid(f"line {number}: this is not an instance")
    name, memory, primary, secondary = fields[0], int(fields[1]), fields[6], fields[7]
    if primary not in nodes or (secondary and secondary not in nodes) or primary == secondary:
        raise GanetiTextInvalid(f"line {number}: its nodes are not known, or the same")
    return Instance(name, memory, primary, secondary)


def groups_text(waves: tuple[tuple[str, ...], ...]) -> str:
    """Return waves in the format of `hroller --no-headers`, one wave per line."""
    return "".join(f"{','.join(wave)}\n" for wave in waves)
