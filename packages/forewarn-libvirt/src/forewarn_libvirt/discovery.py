"""The topology of libvirt hosts: hosts, domains, their addresses, groups and tags.

Discovery changes nothing at a hypervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from xml.etree import ElementTree as ET

from forewarn_base.validation.fields import Text
from forewarn_base.validation.forms import ListOf, read_table
from forewarn_base.values import value
from forewarn_drivers.found import Found
from forewarn_libvirt.config import (
    HOSTS_MAX,
    LibvirtConfig,
    config_of_uris,
    read_options,
)
from forewarn_libvirt.connection import (
    Connections,
    DomainGone,
    HypervisorFailed,
    failing,
    host_name,
)
from forewarn_libvirt.domain import Domain
from forewarn_libvirt.records import DomainRecords

#: Namespace of the element `vm` in a domain's metadata, which contains facts without a libvirt
#: field.
NAMESPACE = "https://forewarn.dev/libvirt/1"
#: Attributes of the element `vm` that become members of a VM record: texts, and booleans.
TEXTS, FLAGS = ("group", "size", "location", "resource_group", "subscription"), ("spot", "gpu")


@value
class _Named:
    """Hosts that a command names instead of a file."""

    #: `URI`, or `NAME=URI`.
    uris: Annotated[tuple[str, ...], ListOf(Text(2048), HOSTS_MAX)]


def create_source(_: str, options: Mapping[str, object]) -> LibvirtSource:
    """Create a source from the options of a driver, or from the `uris` of hosts.

    Raises:
        LibvirtConfigUnreadable: the file named in the options cannot be read.
        ValidationFailed: a setting is unknown or invalid.
        HypervisorFailed: a host without a name is unreachable.
    """
    if "uris" in options:
        return LibvirtSource(
            config_of_uris(_by_name(read_table(_Named, options, "the hosts").uris))
        )
    config = read_options(options)
    return LibvirtSource(config, DomainRecords(config))


def _by_name(words: Sequence[str]) -> dict[str, str]:
    """Return the URI of each host by name; ask a host whose name is not given."""
    named: dict[str, str] = {}
    for word in words:
        name, equals, uri = word.partition("=")
        # A URI's query may contain equals signs; a name contains no colon.
        named.update({name: uri} if equals and ":" not in name else {host_name(word): word})
    return named


class LibvirtSource:
    """libvirt hosts as a source for `topology import`."""

    #: Interval of queries to all hosts while following, in seconds.
    every_s = 2.0

    def __init__(self, config: LibvirtConfig, records: DomainRecords | None = None) -> None:
        self._config, self._records = config, records
        self._connections = Connections(config)
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Query every host."""
        return discover(self._config, self._connections, self._records)

    def watch(self) -> threading.Event:
        """Return an event that is set when a domain starts, moves or stops."""
        return self._connections.watch()


def discover(
    config: LibvirtConfig, connections: Connections, records: DomainRecords | None = None
) -> Found:
    """List the machines of every host with three calls per host and two calls per domain.

    `records` store the definitions, from which a lost host's guests start elsewhere.
    """
    fleet = Found()
    for name, host in config.hosts.items():
        try:
            domains, memory_mib = connections.domains(name), connections.memory_mib(name)
        except HypervisorFailed as error:
            fleet.silent[name] = str(error)
            continue
        fleet.hosts[name] = {
            "fault_domain": host.fault_domain,
            "update_domain": host.update_domain,
            "driver": "libvirt",
            "memory_mib": memory_mib,
        } | ({"zone": host.zone} if host.zone else {})
        for domain in domains:
            try:
                _take(fleet, domain, records)
            except DomainGone:
                continue  # the domain has left meanwhile; its next host reports the domain
            except HypervisorFailed as error:
                fleet.silent[name] = str(error)
                break
    return fleet


def _take(fleet: Found, domain: Domain, records: DomainRecords | None) -> None:
    with failing(domain.host):
        active = domain.active
        rank = (active, active and not domain.paused)
        definition = domain.definition()
    fleet.place(domain.name, vm_of(definition) | {"host": domain.host}, rank)
    if records is not None and (active or rank >= (False, False)):
        records.keep_definition(domain.name, definition)


def vm_of(definition: str) -> dict[str, Any]:
    """Return the VM record from a domain's definition.

    The VM's addresses are those of its `clean-traffic` filter, or else of its metadata. Only the
    filter prevents a guest from using other addresses.
    """
    tree = ET.fromstring(definition)  # noqa: S314 - written by libvirt
    element = tree.find(f"./metadata/{{{NAMESPACE}}}vm")
    attributes = {} if element is None else element.attrib
    form: dict[str, Any] = {name: attributes[name] for name in TEXTS if attributes.get(name)}
    form |= {name: attributes[name] == "true" for name in FLAGS if name in attributes}
    filtered = tree.findall("./devices/interface/filterref/parameter[@name='IP']")
    addresses = [each.attrib["value"] for each in filtered]
    addresses = addresses or attributes.get("addresses", "").split()
    if addresses:
        form["addresses"] = addresses
    tags = [] if element is None else element.findall(f"./{{{NAMESPACE}}}tag")
    if tags:
        form["tags"] = {each.attrib["name"]: each.attrib.get("value", "") for each in tags}
    memory = tree.find("./memory")
    if memory is not None and memory.text:  # libvirt writes memory in KiB
        form["memory_mib"] = -(-int(memory.text) // 1024)
    uuid = tree.findtext("./uuid")
    if uuid:
        form["vm_id"] = form["instance_id"] = uuid
    return form
