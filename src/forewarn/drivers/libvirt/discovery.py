"""The topology of libvirt hosts: hosts, domains, their addresses, groups and tags.

Discovery changes nothing at a hypervisor.
"""

from __future__ import annotations

import threading
from typing import Any
from xml.etree import ElementTree as ET

from forewarn.drivers.found import Found
from forewarn.drivers.libvirt.config import LibvirtConfig
from forewarn.drivers.libvirt.connection import Connections, DomainGone, HypervisorFailed, failing
from forewarn.drivers.libvirt.domain import Domain
from forewarn.drivers.libvirt.records import DomainRecords

#: Namespace of the element `vm` in a domain's metadata, which contains facts without a libvirt
#: field.
NAMESPACE = "https://forewarn.dev/libvirt/1"
#: Attributes of the element `vm` that become members of a VM record: texts, and booleans.
TEXTS, FLAGS = ("group", "size", "location", "resource_group", "subscription"), ("spot", "gpu")


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
