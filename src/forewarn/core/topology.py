"""Hosts, virtual machines, groups, fault and update domains: who is hit, who is told.

No operation, event or document: this room knows how the fleet is laid out and nothing else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.core.impact import (
    SIZES_WITHOUT_REIMAGE_NOTICE,
    TERMINATE_NOTICE_S_MAX,
    TERMINATE_NOTICE_S_MIN,
    Impact,
)
from forewarn.core.refusals import FleetContradiction
from forewarn.values import Word, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What a host, group or VM may be called: it stands in URLs, documents and shell commands.
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
#: Domains are small numbers; the public cloud has at most 3 fault and 20 update domains.
DOMAIN_MAX = 999
#: Addresses one VM may be known by; a VM has a few interfaces, not hundreds.
ADDRESSES_MAX = 64
TAGS_MAX = 64
TEXT_LENGTH_MAX = 256


class GroupKind(Word):
    """What makes virtual machines share a document. Source: SPEC 1."""

    AVAILABILITY_SET = "availability-set"
    SCALE_SET = "scale-set"
    CLOUD_SERVICE = "cloud-service"
    LONE = "lone"


class Health(Word):
    """What is known of a host's hardware."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Host:
    """A physical machine that runs virtual machines."""

    name: str
    fault_domain: int = 0
    update_domain: int = 0
    zone: str = ""
    #: Which driver carries work on this host out; empty: the service's default.
    driver: str = ""
    health: Health = Health.HEALTHY

    def __post_init__(self) -> None:
        """Refuse what cannot be a host."""
        _check_name("host", self.name)
        _check_text("host", self.name, (self.zone, self.driver))
        for domain in (self.fault_domain, self.update_domain):
            if not 0 <= domain <= DOMAIN_MAX:
                raise FleetContradiction(
                    problem=f"host {self.name}: domain {domain} is not between 0 and {DOMAIN_MAX}"
                )

    @property
    def fault_zone(self) -> tuple[str, int]:
        """The fault domain, told apart across zones: equal values may fail together."""
        return (self.zone, self.fault_domain)


@dataclass(frozen=True, slots=True)
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
    #: Terminate notification in seconds, 300 to 900; 0: none is given. Source: SPEC 7.
    terminate_notice_s: int = 0
    #: Announce guest image upgrades and reimages. Source: SPEC 10.
    reimage_notice: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be a group."""
        _check_name("group", self.name)
        _check_text("group", self.name, (self.owner,))
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


@dataclass(frozen=True, slots=True)
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

    def __post_init__(self) -> None:
        """Refuse what cannot be a virtual machine."""
        _check_name("vm", self.name)
        if len(self.addresses) > ADDRESSES_MAX or len(self.tags) > TAGS_MAX:
            raise FleetContradiction(
                problem=f"vm {self.name}: more than {ADDRESSES_MAX} addresses or {TAGS_MAX} tags"
            )
        texts = (self.size, self.interface, self.instance_id, self.vm_id, self.os_type)
        places = (self.location, self.resource_group, self.subscription)
        _check_text(
            "vm", self.name, (*texts, *places, *(text for tag in self.tags for text in tag))
        )

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
        """Whether a reimage of a machine of this size can be announced. Source: SPEC 10."""
        return self.size_family not in SIZES_WITHOUT_REIMAGE_NOTICE


@dataclass(frozen=True, slots=True)
class Topology:
    """The fleet's layout, whole and consistent; a change makes a new one.

    Raises:
        FleetContradiction: a VM names a host or group that is not there, a lone group has two VMs,
            or two VMs would be recognised by the same address or instance id.
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    vms: Mapping[str, Vm] = field(default_factory=dict)
    _on_host: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _in_group: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the machines and refuse a layout that contradicts itself."""
        on_host: defaultdict[str, list[str]] = defaultdict(list)
        in_group: defaultdict[str, list[str]] = defaultdict(list)
        for vm in self.vms.values():
            if vm.host not in self.hosts or vm.group not in self.groups:
                missing = f"host {vm.host}" if vm.host not in self.hosts else f"group {vm.group}"
                raise FleetContradiction(
                    problem=f"vm {vm.name}: there is no {missing}; add it first"
                )
            on_host[vm.host].append(vm.name)
            in_group[vm.group].append(vm.name)
        for name, members in in_group.items():
            if self.groups[name].kind is GroupKind.LONE and len(members) > 1:
                raise FleetContradiction(
                    problem=f"group {name}: a lone VM's group cannot hold {len(members)}"
                )
        _check_recognisable(self.vms.values())
        object.__setattr__(self, "_on_host", {k: tuple(sorted(v)) for k, v in on_host.items()})
        object.__setattr__(self, "_in_group", {k: tuple(sorted(v)) for k, v in in_group.items()})

    def with_health(self, host: str, health: Health) -> Topology:
        """The same layout with another thing known of a host's hardware."""
        changed = replace(self.hosts[host], health=health)
        hosts = {**self.hosts, host: changed}
        return self._consistent(hosts, self.vms, self._on_host, self._in_group)

    def moved(self, vms: Iterable[str], host: str) -> Topology:
        """The same layout with some VMs on another host."""
        assert host in self.hosts, host
        return self._changed({name: replace(self.vms[name], host=host) for name in vms})

    def without(self, vms: Iterable[str]) -> Topology:
        """The same layout less some VMs."""
        return self._changed(dict.fromkeys(vms))

    def _changed(self, changed: Mapping[str, Vm | None]) -> Topology:
        """Put VMs on other hosts, or drop them: nothing that could contradict the rest."""
        vms, on_host, in_group = dict(self.vms), dict(self._on_host), dict(self._in_group)
        for name, vm in changed.items():
            before = vms[name]
            on_host[before.host] = tuple(each for each in on_host[before.host] if each != name)
            if vm is None:
                del vms[name]
                others = tuple(each for each in in_group[before.group] if each != name)
                in_group[before.group] = others
            else:
                vms[name] = vm
                on_host[vm.host] = tuple(sorted((*on_host.get(vm.host, ()), name)))
        return self._consistent(self.hosts, vms, on_host, in_group)

    def _consistent(
        self,
        hosts: Mapping[str, Host],
        vms: Mapping[str, Vm],
        on_host: Mapping[str, tuple[str, ...]],
        in_group: Mapping[str, tuple[str, ...]],
    ) -> Topology:
        """Return a layout that is known to be consistent, without a look at every VM of it."""
        made = object.__new__(Topology)
        values = (hosts, self.groups, vms, on_host, in_group)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    def vms_on(self, host: str) -> tuple[str, ...]:
        """Names of the VMs that run on a host, sorted."""
        return self._on_host.get(host, ())

    def vms_in(self, group: str) -> tuple[str, ...]:
        """Names of the VMs of a group, sorted."""
        return self._in_group.get(group, ())

    def grouped(self, vms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Split VM names by group, both sorted: who must be told about a disturbance of them."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(vms):
            found[self.vms[name].group].append(name)
        return {group: tuple(found[group]) for group in sorted(found)}

    def view_of(self, vm: str) -> str:
        """The key of the document a VM reads: its group's, or one of its own. Source: S-1, S-3."""
        machine = self.vms[vm]
        own = self.groups[machine.group].splits_gpus and machine.has_gpu
        return f"{machine.group}/{vm}" if own else machine.group

    def views_of(self, group: str) -> tuple[str, ...]:
        """Keys of every document of a group: the shared one first, then VMs' own."""
        if not self.groups[group].splits_gpus:
            return (group,)
        views = {self.view_of(vm) for vm in self.vms_in(group)}
        return (group, *sorted(views - {group}))


def _check_name(kind: str, name: str) -> None:
    if not NAME_PATTERN.fullmatch(name):
        raise FleetContradiction(
            problem=f"{kind} {name!r}: a name is 1 to 128 letters, digits, `_`, `.`, `-`,"
            " and starts with a letter, digit or `_`"
        )


def _check_text(kind: str, name: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        if len(text) > TEXT_LENGTH_MAX or not text.isprintable():
            raise FleetContradiction(
                problem=f"{kind} {name}: {text[:40]!r} is longer than {TEXT_LENGTH_MAX}"
                " characters or not printable"
            )


def _check_recognisable(vms: Iterable[Vm]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for vm in vms:
        for address in vm.addresses:
            _check_unseen(seen, (address, vm.interface), vm.name)
        if vm.instance_id:
            _check_unseen(seen, (vm.instance_id, "instance id"), vm.name)


def _check_unseen(seen: dict[tuple[str, str], str], key: tuple[str, str], name: str) -> None:
    other = seen.setdefault(key, name)
    if other != name:
        raise FleetContradiction(problem=f"vm {name}: {key[0]} already belongs to vm {other}")
