"""The topology of a cloud: compute hosts, servers, server groups, zones and aggregates.

Discovery changes nothing in the cloud.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from forewarn_base.names import NAME_PATTERN
from forewarn_core.fleet.naming import DOMAIN_MAX, LABELS_MAX, ZONE
from forewarn_drivers.found import Found
from forewarn_openstack.client import Nova
from forewarn_openstack.config import BY_ID, NovaConfig, read_options
from forewarn_openstack.mark import GONE
from forewarn_openstack.work import UP

#: Members of an aggregate's metadata with the location of its hosts.
DOMAINS = ("fault_domain", "update_domain")
#: Member of an aggregate's metadata with the availability zone.
AVAILABILITY_ZONE = "availability_zone"
#: Server groups per page.
PAGE = 500
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._/-]+")
_NOT_IN_VALUES = re.compile(r"[\x00-\x20,=]+")


def create_source(name: str, options: Mapping[str, object]) -> NovaSource:
    """Create a source from the options of a driver.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    return NovaSource(read_options(name, options), name)


class NovaSource:
    """A cloud as a source for `topology import`."""

    #: Interval between discoveries while following, in seconds; each lists all servers.
    every_s = 10.0

    def __init__(self, config: NovaConfig, driver: str) -> None:
        self._config, self._driver = config, driver
        self._nova = Nova(config)
        self.lost_after_s = config.lost_after_s

    def discover(self) -> Found:
        """Query Nova."""
        return discover(self._nova, self._config, self._driver)

    def watch(self) -> threading.Event:
        """Return an event that is never set, because Nova sends no notifications to the driver."""
        return threading.Event()


def discover(nova: Nova, config: NovaConfig, driver: str = "nova") -> Found:
    """List the cloud's machines; send one request per 500 servers or groups, and two more."""
    fleet = Found(host_facts=("driver", "zone", "labels", *DOMAINS))
    _take_hosts(fleet, nova, driver)
    servers = [
        each
        for each in nova.pages("/servers/detail", "servers", all_tenants="true")
        if each.get("OS-EXT-SRV-ATTR:host") and each["status"] not in GONE
    ]
    groups = _groups(nova, config)
    for name, each in _named(servers, config, project="tenant_id").items():
        if each["OS-EXT-SRV-ATTR:host"] in fleet.hosts:
            fleet.vms[name] = _vm(each, groups.get(each["id"], ""))
    return fleet


def _named(
    records: list[dict[str, Any]], config: NovaConfig, *, project: str
) -> dict[str, dict[str, Any]]:
    """Return servers, or groups, by their names in the topology.

    The first project with a name uses the name. Other objects are named by their ids, as are
    objects with names that are ambiguous in the project or invalid in the topology.
    """
    count = Counter((each[project], each["name"]) for each in records)
    names = {}
    for each in records:
        name = f"{each[project]}.{each['name']}"
        own = count[each[project], each["name"]] == 1 and NAME_PATTERN.fullmatch(name)
        names[name if own and config.vm_names != BY_ID else each["id"]] = each
    return names


def _take_hosts(fleet: Found, nova: Nova, driver: str) -> None:
    services = nova.get("/os-services", binary="nova-compute")["services"]
    aggregates = nova.get("/os-aggregates")["aggregates"]
    for place, service in enumerate(sorted(services, key=lambda each: str(each["host"]))):
        host = service["host"]
        form: dict[str, Any] = {"driver": driver, "zone": service["zone"]}
        labels: dict[str, str] = {}
        for aggregate in aggregates:
            if host not in aggregate["hosts"]:
                continue
            labels[f"aggregate/{_plain(aggregate['name'], _NOT_IN_KEYS)}"] = "member"
            for key, value in aggregate["metadata"].items():
                if key in DOMAINS and str(value).isdecimal() and int(value) <= DOMAIN_MAX:
                    form[key] = int(value)
                elif key not in {AVAILABILITY_ZONE, *DOMAINS, ZONE}:
                    labels[_plain(key, _NOT_IN_KEYS)] = _plain(str(value), _NOT_IN_VALUES)
        form["labels"] = dict(sorted(labels.items())[:LABELS_MAX])
        fleet.hosts[host] = form
        fleet.defaults[host] = dict.fromkeys(DOMAINS, place % (DOMAIN_MAX + 1))
        if service["state"] != UP and not service["forced_down"]:  # unknown state
            fleet.silent[host] = f"its compute service is {service['state']}"


def _groups(nova: Nova, config: NovaConfig) -> dict[str, str]:
    """Return the group of each server in a server group."""
    listed: list[dict[str, Any]] = []
    while True:
        query = {"all_projects": "true", "limit": PAGE, "offset": len(listed)}
        page = nova.get("/os-server-groups", **query)["server_groups"]
        if not page:
            break
        listed += page
    return {
        member: name
        for name, each in _named(listed, config, project="project_id").items()
        for member in each["members"]
    }


def _vm(server: dict[str, Any], group: str) -> dict[str, Any]:
    form = {
        "host": server["OS-EXT-SRV-ATTR:host"],
        "vm_id": server["id"],
        "instance_id": server["id"],
        "size": server["flavor"]["original_name"],
        "memory_mib": server["flavor"]["ram"],
        "tags": {"name": server["name"], "project": server["tenant_id"]},
    }
    return form | ({"group": group} if group else {})


def _plain(text: str, refused: re.Pattern[str]) -> str:
    """Return a text as a valid key or value of a label."""
    return refused.sub("_", text)[:63].lstrip("._-/") or "0"
