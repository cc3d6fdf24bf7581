"""Hosts, virtual machines, groups, and fault and update domains.

The layout determines which VMs are disturbed, and which groups get notice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias, TypeVar
from weakref import ref

from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.values import Word, value
from forewarn_core.fleet.impact import (
    SIZES_WITHOUT_REIMAGE_NOTICE,
    TERMINATE_NOTICE_S_MAX,
    TERMINATE_NOTICE_S_MIN,
    Impact,
)
from forewarn_core.fleet.naming import (
    ADDRESSES_MAX,
    DOMAIN_MAX,
    TAGS_MAX,
    ZONE,
    Labels,
    NothingSelected,
    check_instance,
    check_kept_labels,
    check_labels,
    check_memory,
    check_name,
    check_text,
    read_selector,
)
from forewarn_core.fleet.refusals import FleetContradiction
from forewarn_core.rules.local_time import group_word

#: Host or group -> sorted names of its VMs.
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
    """Move VMs in the index to their new hosts or groups; O(VMs of those hosts or groups)."""
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
#: Identity of a VM's requests: an address, an address with its interface, or an instance id.
_Sign: TypeAlias = "str | tuple[str, str]"

_host_of: Callable[[Vm], str] = attrgetter("host")
_group_of: Callable[[Vm], str] = attrgetter("group")
#: The tables of a topology, by attribute.
_TABLES = ("hosts", "groups", "vms", "_on_host", "_in_group", "_known_by")


class GroupKind(Word):
    """How virtual machines share a document. Source: S-1."""

    AVAILABILITY_SET = "availability-set"
    SCALE_SET = "scale-set"
    CLOUD_SERVICE = "cloud-service"
    LONE = "lone"


class Health(Word):
    """The health of a host's hardware."""

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
    #: Driver that carries out work on this host; empty: the service's default.
    driver: str = ""
    health: Health = Health.HEALTHY
    #: Labels by which people, windows and budgets select hosts, such as `rack` and `r7`. F-1.
    labels: Labels = ()
    #: Memory for all of its VMs, in MiB; 0: unknown, and no maintenance moves a VM there.
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse an invalid host."""
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
        """The fault domain, distinct across zones: hosts with equal values may fail together."""
        return (self.zone, self.fault_domain)


@value
class Group:
    """Virtual machines that share one document, and their options."""

    name: str
    kind: GroupKind = GroupKind.AVAILABILITY_SET
    #: The group's owner; several owners may share a host.
    owner: str = ""
    #: Number of fault domains of a scale set; 0 if unknown. S-3 applies if it is 1.
    fault_domain_count: int = 0
    #: Whether every VM in Resources must approve. Source: A-7.
    strict_approval: bool = False
    #: User-initiated impacts that are approved automatically. Source: A-10.
    automatic_approval: frozenset[Impact] = frozenset()
    #: Terminate notification in seconds, 300 to 900; 0: off. Source: N-1.
    terminate_notice_s: int = 0
    #: Whether guest image upgrades and reimages are announced. Source: O-2.
    reimage_notice: bool = False
    #: Whether the group's events are approved while all of its VMs are known to be off. Source:
    #: Z-6.
    approves_when_down: bool = True
    #: Api-version of its events in Event Grid and Resource Graph; empty: not shown there. Z-6.
    published: str = VERSIONS[-1]
    #: Values that Azure's tools gave to settings that are off, by name of the setting, such as
    #: `("terminate_notice", "PT7M")`; ignored while the setting is on. Source: Z-6.
    switched_off: tuple[tuple[str, str], ...] = ()
    #: Labels of hosts, such as `rack`. Moves keep its VMs on hosts with different values of the
    #: first ones, and with the same values of the others, while a host allows it. Source: F-3.
    keep_apart: tuple[str, ...] = ()
    keep_together: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an invalid group."""
        check_name("group", self.name)
        check_text("group", self.name, (self.owner,))
        if self.keep_apart or self.keep_together:
            check_kept_labels(self.name, self.keep_apart, self.keep_together)
        if self.published and self.published not in VERSIONS:
            problem = f"group {self.name}: there is no api-version {self.published[:32]!r}"
            raise FleetContradiction(problem=problem)
        notice_s = self.terminate_notice_s
        if notice_s and not TERMINATE_NOTICE_S_MIN <= notice_s <= TERMINATE_NOTICE_S_MAX:
            length = duration_text(notice_s)
            problem = f"group {self.name}: terminate notice is {length}; give 5 min to 15 min"
            raise FleetContradiction(problem=problem)
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
        """Whether the group's GPU machines read documents of their own. Source: S-3."""
        return self.fault_domain_count == 1 and self.kind is GroupKind.SCALE_SET


@value
class Vm:
    """A virtual machine: its host, its group, and the identity of its requests."""

    name: str
    host: str
    group: str
    size: str = ""
    gpu: bool = False
    spot: bool = False
    #: Source addresses of its requests. Source: S-6.
    addresses: tuple[str, ...] = ()
    #: Receiving interface, if addresses repeat between networks. Source: S-6.
    interface: str = ""
    #: The VM's id, as signed by a metadata proxy. Source: S-6.
    instance_id: str = ""
    vm_id: str = ""
    os_type: str = "Linux"
    location: str = ""
    resource_group: str = ""
    subscription: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    #: Extra instance metadata by dotted name; only metadata nodes interpret it. Source: I-1.
    instance: tuple[tuple[str, str], ...] = ()
    #: Required memory on its host, in MiB; 0: unknown, and no maintenance moves the VM.
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse an invalid virtual machine."""
        check_name("vm", self.name)
        check_memory("vm", self.name, self.memory_mib)
        if len(self.addresses) > ADDRESSES_MAX or len(self.tags) > TAGS_MAX:
            raise FleetContradiction(
                problem=f"VM {self.name}: more than {ADDRESSES_MAX} addresses or {TAGS_MAX} tags"
            )
        texts = (self.size, self.interface, self.instance_id, self.vm_id, self.os_type)
        places = (self.location, self.resource_group, self.subscription)
        tags = [text for tag in self.tags for text in tag] if self.tags else ()
        check_text("vm", self.name, (*texts, *places, *tags))
        if self.instance:
            check_instance(self.name, self.instance)

    @property
    def has_gpu(self) -> bool:
        """Whether the VM is declared as a GPU machine or has an N-series size. Source: S-3."""
        return self.gpu or self.size_family == "N"

    @property
    def size_family(self) -> str:
        """The first letter of the size's family, `D` for `Standard_D4s_v5`; empty if unknown."""
        return self.size.removeprefix("Standard_")[:1].upper()

    @property
    def reimage_announceable(self) -> bool:
        """Whether a reimage of a machine of this size can be announced. See O-2."""
        return self.size_family not in SIZES_WITHOUT_REIMAGE_NOTICE


@dataclass(slots=True)
class FleetChange:
    """Changed records of the layout by name; None for removed ones."""

    hosts: dict[str, Host | None] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    vms: dict[str, Vm | None] = field(default_factory=dict)


@dataclass(slots=True, weakref_slot=True)
class Topology:
    """The fleet's layout, whole and consistent.

    A change costs the changed records and their VMs, never the fleet.

    Raises:
        FleetContradiction: a VM names a missing host or group, a lone group has two VMs,
            or two VMs would be recognised by the same address or instance id.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    _on_host: Placements = field(init=False, repr=False, compare=False)
    _in_group: Placements = field(init=False, repr=False, compare=False)
    #: Address, address and interface, or instance id -> the VM with this identity.
    _known_by: dict[_Sign, str] = field(init=False, repr=False, compare=False)
    #: Weak reference to the copy that readers share.
    _reader: Callable[[], Topology | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the machines and refuse an inconsistent layout."""
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
        """Return an independent copy, for a reader on another thread; O(tables)."""
        topology = self._shallow_copy()
        topology._own_tables()  # noqa: SLF001 - of its own kind
        return topology

    def shared(self) -> Topology:
        """Return an unchanging view of this layout for readers on other threads, at no cost.

        A change copies the tables first if a reader still uses the view.
        """
        shared = self._reader()
        if shared is None:
            shared = self._shallow_copy()
            self._reader = ref(shared)
        return shared

    def _shallow_copy(self) -> Topology:
        topology = object.__new__(Topology)
        for name in _TABLES:
            setattr(topology, name, getattr(self, name))
        topology._reader = _nobody
        return topology

    def _own_tables(self) -> None:
        for name in _TABLES:
            setattr(self, name, dict(getattr(self, name)))
        self._reader = _nobody

    def before(self, change: FleetChange) -> FleetChange:
        """Return the inverse of a change that may be unapplied or half applied."""
        return FleetChange(
            {name: self.hosts.get(name) for name in change.hosts},
            {name: self.groups.get(name) for name in change.groups},
            {name: self.vms.get(name) for name in change.vms},
        )

    def apply(self, change: FleetChange) -> None:
        """Apply a change; O(its records and VMs of their hosts and groups).

        Raises:
            FleetContradiction: the new layout is inconsistent; apply `before`'s result to undo it.
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
        """Refuse the first VM whose host or group does not exist; O(hosts and groups)."""
        hosts = {vm.host for vm in placed.values()}
        groups = {vm.group for vm in placed.values()}
        if all(map(self.hosts.__contains__, hosts)) and all(map(self.groups.__contains__, groups)):
            return
        for vm in placed.values():
            if vm.host not in self.hosts or vm.group not in self.groups:
                missing = f"host {vm.host}" if vm.host not in self.hosts else f"group {vm.group}"
                problem = f"VM {vm.name}: there is no {missing}; add it first"
                raise FleetContradiction(problem=problem)

    def _place(self, vms: Mapping[str, Vm | None], placed: Mapping[str, Vm]) -> None:
        """Write VMs and their index entries; old identities are freed before new ones are used."""
        vms_by_name = self.vms
        left = {name: before for name in vms if (before := vms_by_name.get(name)) is not None}
        for name, before in left.items():
            for sign in _signs(before):
                if self._known_by.get(sign) == name:
                    del self._known_by[sign]
            if vms[name] is None:
                del vms_by_name[name]
        vms_by_name.update(placed)
        update_placements(self._on_host, _host_of, left=left, come=placed)
        update_placements(self._in_group, _group_of, left=left, come=placed)

    def _claim(self, vm: Vm) -> None:
        name, claims = vm.name, self._known_by
        for sign in _signs(vm):
            other = claims.setdefault(sign, name)
            if other != name:
                shown = sign if isinstance(sign, str) else sign[0]
                raise FleetContradiction(
                    problem=f"VM {name}: {shown} already belongs to VM {other}"
                )

    def vms_on(self, host: str) -> tuple[str, ...]:
        """Return the names of the VMs on a host, sorted."""
        return self._on_host.get(host, ())

    def words_on(self, host: str) -> frozenset[str]:
        """Return a host's labels, zone and groups, for windows; O(its labels and groups)."""
        record = self.hosts.get(host)
        if record is None:
            return frozenset()
        groups = {self.vms[vm].group for vm in self.vms_on(host)}
        return words_of(record).union(map(group_word, groups))

    def failure_domain(self, host: str, label: str) -> str:
        """Return the failure domain of a host by a label, such as `rack=r7`. Source: T-12.

        Empty: the label is, or the host has no such label.
        """
        record = self.hosts.get(host)
        pairs = pairs_of(record) if record is not None else ()
        return next((f"{key}={value}" for key, value in pairs if key == label), "")

    def vms_in(self, group: str) -> tuple[str, ...]:
        """Return the names of the VMs of a group, sorted."""
        return self._in_group.get(group, ())

    def grouped(self, vms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Group VM names by group, both sorted: these groups must get notice of a disturbance."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(vms):
            names[self.vms[name].group].append(name)
        return {group: tuple(names[group]) for group in sorted(names)}

    def view_of(self, vm: str) -> str:
        """Return the key of a VM's document: its group's, or its own. Source: S-1, S-3."""
        group = self.vms[vm].group
        return f"{group}/{vm}" if self.reads_alone(vm) else group

    def reads_alone(self, vm: str) -> bool:
        """Whether a VM has a document of its own. Source: S-3."""
        machine = self.vms[vm]
        return machine.has_gpu and self.groups[machine.group].splits_gpus

    def views_of(self, group: str) -> tuple[str, ...]:
        """Return the keys of all documents of a group: the shared one first, then VMs' own."""
        if not self.groups[group].splits_gpus:
            return (group,)
        views = {self.view_of(vm) for vm in self.vms_in(group)}
        return (group, *sorted(views - {group}))


def _nobody() -> None:
    """Return None: no reader shares the layout."""


def _check_lone(topology: Topology, group: str) -> None:
    count = len(topology.vms_in(group))
    if count > 1 and topology.groups[group].kind is GroupKind.LONE:
        raise FleetContradiction(problem=f"group {group}: a lone VM's group cannot hold {count}")


def _signs(vm: Vm) -> Sequence[_Sign]:
    """Return the values that identify a VM's requests. Source: S-6."""
    if not vm.interface and not vm.instance_id:
        return vm.addresses  # the usual case
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


def select(hosts: Iterable[Host], selector: str) -> tuple[str, ...]:
    """Return the names of the hosts that match every pair of a selector; O(hosts).

    Raises:
        SelectorInvalid: the selector cannot be read.
        NothingSelected: it matches no host.
    """
    wanted = frozenset(read_selector(selector))
    names = tuple(host.name for host in hosts if wanted.issubset(pairs_of(host)))
    if not names:
        raise NothingSelected(selector=selector)
    return names


def pairs_of(host: Host) -> frozenset[tuple[str, str]]:
    """Return the labels of a host, its zone included, for selectors, windows and budgets."""
    return frozenset((*host.labels, (ZONE, host.zone)))


def words_of(host: Host) -> frozenset[str]:
    """Return a host's labels and zone as `key=value` texts, as in a policy."""
    return frozenset(f"{key}={value}" for key, value in pairs_of(host))
