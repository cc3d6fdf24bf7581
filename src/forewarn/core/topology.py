"""Hosts, virtual machines, groups, fault and update domains: who is disturbed, who gets notice.

No operation, event or document: only the layout of the fleet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar
from weakref import ref

from forewarn.core.impact import (
    SIZES_WITHOUT_REIMAGE_NOTICE,
    TERMINATE_NOTICE_S_MAX,
    TERMINATE_NOTICE_S_MIN,
    Impact,
)
from forewarn.core.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    TAGS_MAX,
    Labels,
    check_instance,
    check_labels,
    check_memory,
    check_name,
    check_text,
    words_of,
)
from forewarn.core.refusals import FleetContradiction
from forewarn.planning.windows import group_word
from forewarn.protocol.versions import VERSIONS
from forewarn.values import Word, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: Host or group -> names of its VMs, sorted.
Placements: TypeAlias = "dict[str, tuple[str, ...]]"
_V = TypeVar("_V")
_NOBODY: frozenset[str] = frozenset()


def update_placements(
    placements: Placements,
    place: Callable[[_V], str],
    *,
    left: Mapping[str, _V],
    come: Mapping[str, _V],
) -> None:
    """Index VMs under their new host or group instead of the old; costs the VMs there."""
    gone: dict[str, set[str]] = {}
    for name, vm in left.items():
        gone.setdefault(place(vm), set()).add(name)
    new: dict[str, list[str]] = {}
    for name, vm in come.items():
        new.setdefault(place(vm), []).append(name)
    for key, names in new.items():
        there, without = placements.get(key, ()), gone.pop(key, _NOBODY)
        placements[key] = tuple(sorted({*there} - without | {*names} if there else names))
    for key, without in gone.items():
        rest = tuple(each for each in placements[key] if each not in without)
        if rest:
            placements[key] = rest
        else:
            del placements[key]


_R = TypeVar("_R")
#: An address, or an address with its interface, or an instance id.
_Sign: TypeAlias = "str | tuple[str, str]"

_host_of: Callable[[Vm], str] = attrgetter("host")
_group_of: Callable[[Vm], str] = attrgetter("group")
#: What a layout consists of.
_TABLES = ("hosts", "groups", "vms", "_on_host", "_in_group", "_known_by")


class GroupKind(Word):
    """What makes virtual machines share a document. Source: S-1."""

    AVAILABILITY_SET = "availability-set"
    SCALE_SET = "scale-set"
    CLOUD_SERVICE = "cloud-service"
    LONE = "lone"


class Health(Word):
    """What is known of a host's hardware."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"


@value
class Host:
    """A physical machine that runs virtual machines."""

    name: str
    fault_domain: int = 0
    update_domain: int = 0
    zone: str = ""
    #: Which driver carries work on this host out; empty: the service's default.
    driver: str = ""
    health: Health = Health.HEALTHY
    #: Pairs by which people, windows and budgets name many hosts, such as `rack` and `r7`. F-1.
    labels: Labels = ()
    #: Memory that its VMs may have together, in MiB; 0: unknown, no maintenance moves a VM there.
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be a host."""
        check_name("host", self.name)
        check_text("host", self.name, (self.zone, self.driver))
        check_memory("host", self.name, self.memory_mib)
        if self.labels:
            check_labels(self.name, self.labels)
        for domain in (self.fault_domain, self.update_domain):
            if not 0 <= domain <= DOMAIN_MAX:
                raise FleetContradiction(
                    problem=f"host {self.name}: domain {domain} is not between 0 and {DOMAIN_MAX}"
                )

    @property
    def fault_zone(self) -> tuple[str, int]:
        """The fault domain, distinct across zones: equal values may fail together."""
        return (self.zone, self.fault_domain)


@value
class Group:
    """Virtual machines that share one document, and how they want to be asked."""

    name: str
    kind: GroupKind = GroupKind.AVAILABILITY_SET
    #: Whose it is; several owners may share a host.
    owner: str = ""
    #: Fault domains a scale set is spread over; 0 if not given. One matters to S-3.
    fault_domain_count: int = 0
    #: Every VM in Resources must approve. Source: A-7.
    strict_approval: bool = False
    #: User-initiated impacts approved as they are asked for. Source: A-10.
    automatic_approval: frozenset[Impact] = frozenset()
    #: Terminate notification in seconds, 300 to 900; 0: off. Source: N-1.
    terminate_notice_s: int = 0
    #: Announce guest image upgrades and reimages. Source: O-2.
    reimage_notice: bool = False
    #: Its events are approved while all its VMs are known to be off. Source: Z-6.
    approves_when_down: bool = True
    #: Api-version in which Event Grid and Resource Graph show its events; empty: they do not. Z-6.
    published: str = VERSIONS[-1]

    def __post_init__(self) -> None:
        """Refuse what cannot be a group."""
        check_name("group", self.name)
        check_text("group", self.name, (self.owner,))
        if self.published and self.published not in VERSIONS:
            problem = f"group {self.name}: there is no api-version {self.published[:32]!r}"
            raise FleetContradiction(problem=problem)
        notice_s = self.terminate_notice_s
        if notice_s and not TERMINATE_NOTICE_S_MIN <= notice_s <= TERMINATE_NOTICE_S_MAX:
            raise FleetContradiction(
                problem=f"group {self.name}: terminate notice is {notice_s} s; give PT5M to PT15M"
            )
        if not self.automatic_approval <= {Impact.REBOOT, Impact.REDEPLOY}:
            raise FleetContradiction(
                problem=f"group {self.name}: only Reboot and Redeploy can be approved automatically"
            )
        if not 0 <= self.fault_domain_count <= DOMAIN_MAX + 1:
            raise FleetContradiction(
                problem=f"group {self.name}: fault_domain_count is {self.fault_domain_count}"
            )

    @property
    def splits_gpus(self) -> bool:
        """Whether its GPU machines read documents of their own. Source: S-3."""
        return self.fault_domain_count == 1 and self.kind is GroupKind.SCALE_SET


@value
class Vm:
    """A virtual machine: where it runs, who it shares a document with, how it is recognised."""

    name: str
    host: str
    group: str
    size: str = ""
    gpu: bool = False
    spot: bool = False
    #: Addresses its requests come from. Source: S-6.
    addresses: tuple[str, ...] = ()
    #: Receiving interface, where addresses repeat between networks. Source: S-6.
    interface: str = ""
    #: The id a metadata proxy signs for it. Source: S-6.
    instance_id: str = ""
    vm_id: str = ""
    os_type: str = "Linux"
    location: str = ""
    resource_group: str = ""
    subscription: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    #: Further instance metadata by its dotted names; only metadata nodes know what they mean.
    #: Source: I-1.
    instance: tuple[tuple[str, str], ...] = ()
    #: Memory it needs on its host, in MiB; 0: unknown, no maintenance moves it.
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be a virtual machine."""
        check_name("vm", self.name)
        check_memory("vm", self.name, self.memory_mib)
        if len(self.addresses) > ADDRESSES_MAX or len(self.tags) > TAGS_MAX:
            raise FleetContradiction(
                problem=f"vm {self.name}: more than {ADDRESSES_MAX} addresses or {TAGS_MAX} tags"
            )
        texts = (self.size, self.interface, self.instance_id, self.vm_id, self.os_type)
        places = (self.location, self.resource_group, self.subscription)
        tags = [text for tag in self.tags for text in tag] if self.tags else ()
        check_text("vm", self.name, (*texts, *places, *tags))
        if self.instance:
            check_instance(self.name, self.instance)

    @property
    def has_gpu(self) -> bool:
        """Whether it is a GPU machine: said so, or of an N-series size. Source: S-3."""
        return self.gpu or self.size_family == "N"

    @property
    def size_family(self) -> str:
        """The first letter of the size's family, `D` for `Standard_D4s_v5`; empty if unknown."""
        return self.size.removeprefix("Standard_")[:1].upper()

    @property
    def reimage_announceable(self) -> bool:
        """Whether a reimage of a machine of this size can be announced. See O-2."""
        return self.size_family not in SIZES_WITHOUT_REIMAGE_NOTICE


class LaidOut(Protocol):
    """Records of the layout that are put, by name, and None where one is taken out."""

    hosts: dict[str, Host | None]
    groups: dict[str, Group | None]
    vms: dict[str, Vm | None]


@dataclass(slots=True)
class FleetChange:
    """What is to become of the layout, and nothing else; see `LaidOut`."""

    hosts: dict[str, Host | None] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    vms: dict[str, Vm | None] = field(default_factory=dict)


@dataclass(slots=True, weakref_slot=True)
class Topology:
    """The fleet's layout, whole and consistent.

    It is changed key by key: a change costs what it names and who is there, never the fleet.

    Raises:
        FleetContradiction: a VM names a host or group that is not there, a lone group has two VMs,
            or two VMs would be recognised by the same address or instance id.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    _on_host: Placements = field(init=False, repr=False, compare=False)
    _in_group: Placements = field(init=False, repr=False, compare=False)
    #: Address, or address and interface, or an instance id -> the VM that is recognised by it.
    _known_by: dict[_Sign, str] = field(init=False, repr=False, compare=False)
    #: Gives the layout that readers share, as long as one of them has it.
    _reader: Callable[[], Topology | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the machines and refuse a layout that contradicts itself."""
        self._check_placed(self.vms)
        self._on_host, self._in_group, self._known_by = {}, {}, {}
        self._reader = _nobody
        update_placements(self._on_host, _host_of, left={}, come=self.vms)
        update_placements(self._in_group, _group_of, left={}, come=self.vms)
        for name in self._in_group:
            _check_lone(self, name)
        for vm in self.vms.values():
            self._claim(vm)

    def copy(self) -> Topology:
        """Return an independent copy, for a reader on another thread; costs the tables."""
        topology = self._same()
        topology._own_tables()  # noqa: SLF001 - of its own kind
        return topology

    def shared(self) -> Topology:
        """Return an unchanging view of this layout, for readers on other threads; costs nothing.

        A change copies the tables first, if a reader still has the view by then.
        """
        shared = self._reader()
        if shared is None:
            shared = self._same()
            self._reader = ref(shared)
        return shared

    def _same(self) -> Topology:
        topology = object.__new__(Topology)
        for name in _TABLES:
            setattr(topology, name, getattr(self, name))
        topology._reader = _nobody
        return topology

    def _own_tables(self) -> None:
        for name in _TABLES:
            setattr(self, name, dict(getattr(self, name)))
        self._reader = _nobody

    def before(self, change: LaidOut) -> FleetChange:
        """Return what undoes a change that is not applied yet, or that was refused half done."""
        return FleetChange(
            {name: self.hosts.get(name) for name in change.hosts},
            {name: self.groups.get(name) for name in change.groups},
            {name: self.vms.get(name) for name in change.vms},
        )

    def apply(self, change: LaidOut) -> None:
        """Put records, and take out where there is None; costs them and who is where they are.

        Raises:
            FleetContradiction: as for the whole; apply what was `before` to undo it.
        """
        if self._reader() is not None:
            self._own_tables()
        hosts, groups = change.hosts, change.groups
        self.hosts.update(_there(hosts))
        self.groups.update(_there(groups))
        placed = _there(change.vms)
        self._check_placed(placed)
        self._place(change.vms, placed)
        for name in dict.fromkeys((*(vm.group for vm in placed.values()), *groups)):
            _check_lone(self, name)
        for vm in placed.values():
            self._claim(vm)
        _take_out(self.hosts, hosts, self._on_host)
        _take_out(self.groups, groups, self._in_group)

    def _check_placed(self, placed: Mapping[str, Vm]) -> None:
        """Refuse the first VM whose host or group is not there; costs the hosts and groups."""
        hosts = {vm.host for vm in placed.values()}
        groups = {vm.group for vm in placed.values()}
        if all(map(self.hosts.__contains__, hosts)) and all(map(self.groups.__contains__, groups)):
            return
        vm = next(filter(self._lacks_place, placed.values()))
        missing = f"host {vm.host}" if vm.host not in self.hosts else f"group {vm.group}"
        raise FleetContradiction(problem=f"vm {vm.name}: there is no {missing}; add it first")

    def _lacks_place(self, vm: Vm) -> bool:
        return vm.host not in self.hosts or vm.group not in self.groups

    def _place(self, vms: Mapping[str, Vm | None], placed: Mapping[str, Vm]) -> None:
        """Write VMs, and who is where; what they were recognised by is free before it is taken."""
        known = self.vms
        left = {name: before for name in vms if (before := known.get(name)) is not None}
        for name, before in left.items():
            for sign in _signs(before):
                if self._known_by.get(sign) == name:
                    del self._known_by[sign]
            if vms[name] is None:
                del known[name]
        known.update(placed)
        update_placements(self._on_host, _host_of, left=left, come=placed)
        update_placements(self._in_group, _group_of, left=left, come=placed)

    def _claim(self, vm: Vm) -> None:
        name, known = vm.name, self._known_by
        for sign in _signs(vm):
            other = known.setdefault(sign, name)
            if other != name:
                shown = sign if isinstance(sign, str) else sign[0]
                raise FleetContradiction(
                    problem=f"vm {name}: {shown} already belongs to vm {other}"
                )

    def vms_on(self, host: str) -> tuple[str, ...]:
        """Names of the VMs that run on a host, sorted."""
        return self._on_host.get(host, ())

    def words_on(self, host: str) -> frozenset[str]:
        """Return what windows may name of a host: labels, zone, groups of its VMs; costs these."""
        known = self.hosts.get(host)
        if known is None:
            return frozenset()
        groups = {self.vms[vm].group for vm in self.vms_on(host)}
        return words_of(known).union(map(group_word, groups))

    def vms_in(self, group: str) -> tuple[str, ...]:
        """Names of the VMs of a group, sorted."""
        return self._in_group.get(group, ())

    def grouped(self, vms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Split VM names by group, both sorted: who must get notice of a disturbance of them."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(vms):
            names[self.vms[name].group].append(name)
        return {group: tuple(names[group]) for group in sorted(names)}

    def view_of(self, vm: str) -> str:
        """The key of the document a VM reads: its group's, or one of its own. Source: S-1, S-3."""
        group = self.vms[vm].group
        return f"{group}/{vm}" if self.reads_alone(vm) else group

    def reads_alone(self, vm: str) -> bool:
        """Whether a VM reads a document of its own. Source: S-3."""
        machine = self.vms[vm]
        return machine.has_gpu and self.groups[machine.group].splits_gpus

    def views_of(self, group: str) -> tuple[str, ...]:
        """Keys of every document of a group: the shared one first, then VMs' own."""
        if not self.groups[group].splits_gpus:
            return (group,)
        views = {self.view_of(vm) for vm in self.vms_in(group)}
        return (group, *sorted(views - {group}))


def _nobody() -> None:
    """Return no shared layout: no reader has one."""


def _check_lone(topology: Topology, group: str) -> None:
    count = len(topology.vms_in(group))
    if count > 1 and topology.groups[group].kind is GroupKind.LONE:
        raise FleetContradiction(problem=f"group {group}: a lone VM's group cannot hold {count}")


def _signs(vm: Vm) -> Sequence[_Sign]:
    """What a VM's requests are recognised by. Source: S-6."""
    if not vm.interface and not vm.instance_id:
        return vm.addresses  # as of nearly all
    signs: list[_Sign] = [(each, vm.interface) if vm.interface else each for each in vm.addresses]
    if vm.instance_id:
        signs.append((vm.instance_id, "instance id"))
    return signs


def _there(records: Mapping[str, _R | None]) -> dict[str, _R]:
    return {name: record for name, record in records.items() if record is not None}


def _take_out(table: dict[str, _R], records: Mapping[str, _R | None], members: Placements) -> None:
    """Remove hosts or groups that have no VM any more."""
    for name, record in records.items():
        if record is None:
            assert not members.get(name), name
            del table[name]
