"""Sources of a topology: platforms whose hosts and VMs `topology import` takes over.

A source is an entry point of the group `forewarn.sources`: a callable with the name of a driver and
the options of its table, which returns a `FleetSource`. A driver without a source of its kind is
one itself, if it has `discover`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from forewarn_base.errors import CallerError, ForewarnError, PeerError
from forewarn_base.extensions import ExtensionGroup
from forewarn_drivers import Discovering
from forewarn_drivers.found import Found
from forewarn_drivers.registry import KIND, DriverUnusable, make_driver

#: The sources, named like the kinds of drivers; a module is imported only for a source of the kind.
SOURCES = ExtensionGroup(
    "source",
    {},
    {
        "kubernetes": "forewarn-kubernetes",
        "libvirt": "forewarn-libvirt",
        "nova": "forewarn-openstack",
    },
)
#: Interval of queries of a driver while following, in seconds.
DRIVER_EVERY_S = 10.0


class DiscoveryMissing(CallerError):
    """A driver cannot list the machines of its platform."""

    code = "driver-discovery-missing"
    status = 422
    message = "The driver {name} lists no hosts and VMs."
    advice = "Describe the fleet in a file, and run `forewarn topology apply FILE`."


class DiscoveryInvalid(PeerError):
    """A driver lists its machines in an unknown form."""

    code = "driver-discovery-invalid"
    message = "The driver {name} lists its machines in an unknown form: {problem}."
    advice = "`discover` returns the members of a topology file: hosts, groups and vms, by name."


class FleetSource(Protocol):
    """A platform that runs the hosts and VMs."""

    #: Seconds without an answer after which a host is reported as lost; 0: never.
    lost_after_s: int
    #: Interval of queries while following, in seconds.
    every_s: float

    def discover(self) -> Found:
        """Return the discovered hosts and VMs."""

    def watch(self) -> threading.Event:
        """Return an event that the source sets when machines change between two queries."""


def make_source(name: str, options: Mapping[str, object]) -> FleetSource:
    """Return the source of a driver's table.

    Raises:
        ExtensionMissing, ExtensionUnusable: the source's package is not installed, or has failed.
        ValidationFailed, DriverUnusable: an option is invalid.
        DiscoveryMissing: there is no source of this kind, and the driver has no `discover`.
    """
    kind = options.get(KIND, name)
    extension = SOURCES.find(kind) if isinstance(kind, str) else None
    if extension is None:
        return DriverSource(name, make_driver(name, options))
    table = {key: each for key, each in options.items() if key != KIND}
    try:
        source: FleetSource = extension.use_unlimited(lambda create: create(name, table))
    except ForewarnError:
        raise
    except ValueError as error:
        raise DriverUnusable(name=name, reason=str(error)) from error
    return source


class DriverSource:
    """The machines that a driver discovers, for an import of the topology."""

    lost_after_s = 0
    every_s = DRIVER_EVERY_S

    def __init__(self, name: str, driver: object) -> None:
        """Use a driver of the settings.

        Raises:
            DiscoveryMissing: the driver has no `discover`.
        """
        if not isinstance(driver, Discovering):
            raise DiscoveryMissing(name=name)
        self._name, self._driver = name, driver

    def discover(self) -> Found:
        """Return the discovered hosts and VMs; the member `silent` names unreachable hosts.

        Raises:
            DiscoveryInvalid: the driver returns something else.
        """
        listed = self._driver.discover()
        if not isinstance(listed, Mapping):
            raise DiscoveryInvalid(name=self._name, problem="it is not an object")
        parts: dict[str, Any] = {
            part: listed.get(part, {}) for part in ("hosts", "groups", "vms", "silent")
        }
        for part, forms in parts.items():
            records = forms.values() if isinstance(forms, Mapping) else (None,)
            kind: type = str if part == "silent" else Mapping
            if not all(isinstance(each, kind) for each in records):
                raise DiscoveryInvalid(
                    name=self._name, problem=f"{part} is not an object of records"
                )
        hosts = {host: {"driver": self._name, **form} for host, form in parts["hosts"].items()}
        return Found(
            hosts,
            parts["vms"],
            groups=parts["groups"],
            silent=parts["silent"],
            host_facts=tuple(sorted({member for form in hosts.values() for member in form})),
        )

    def watch(self) -> threading.Event:
        """Return an event that is never set, because drivers are asked at intervals."""
        return threading.Event()
