"""Clients recognise every emulated VM as one in Azure, wherever its description comes from."""

import json
import urllib.request
from collections.abc import Callable

import pytest

from emulator_tests.conftest import Stage
from forewarn_metadata.endpoint.instance import derived_vm_id
from tests.waiting import LIMIT_S

TOPOLOGY = """
[hosts.h1]
[groups.web]
[vms.web-0]
host = "h1"
group = "web"
[vms.web-1]
host = "h1"
group = "web"
size = "Standard_E4s_v5"
location = "westeurope"
vm_id = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
[vms.web-1.instance]
sku = "22_04-lts"
"""
#: What clients conclude the cloud from, as they read it.
READ = ("vmId", "location", "vmSize", "sku", "azEnvironment")


def compute(stage: Stage, vm: str) -> dict[str, str]:
    """Return what a VM reads about itself."""
    url = f"{stage.emulator.url}/metadata/instance/compute?api-version=2021-02-01&vm={vm}"
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return dict(json.load(answer))


def test_vm_of_a_topology_has_what_a_named_vm_has(staged: Callable[..., Stage]) -> None:
    """Its id does not change from start to start, and its own values remain. Source: I-5."""
    plain = compute(staged(topology=TOPOLOGY, topology_name="fleet.toml"), "web-0")
    named = compute(staged(vms=("web-0",)), "web-0")
    assert [plain[each] for each in READ] == [named[each] for each in READ]
    assert all(plain[each] for each in READ)
    assert plain["vmId"] == derived_vm_id("web-0")


def test_given_values_of_a_vm_remain(staged: Callable[..., Stage]) -> None:
    """An image that is described in part is not mixed with another. Source: I-5."""
    own = compute(staged(topology=TOPOLOGY, topology_name="fleet.toml"), "web-1")
    assert own["vmId"] == "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
    assert (own["location"], own["vmSize"]) == ("westeurope", "Standard_E4s_v5")
    assert (own["sku"], own["publisher"]) == ("22_04-lts", "")


@pytest.mark.parametrize("scenario", ["two-fault-domains", "scale-in"])
def test_vm_of_a_scenario_is_recognised(stage: Stage, scenario: str) -> None:
    """A scenario's own VMs have the same members. Source: I-5."""
    stage.run(scenario)
    others = {vm["name"] for vm in stage.api.get("/v1/vms")["vms"]} - {"vm-1"}
    assert others
    for name in others:
        assert all(compute(stage, name)[each] for each in READ)


def test_derived_id_is_a_guid_of_its_vm() -> None:
    """Two VMs have two ids, in the form that clients check. Source: I-5."""
    ids = {derived_vm_id(name) for name in ("web-0", "web-1", "")}
    assert len(ids) == 3
    for each in ids:
        assert [len(part) for part in each.split("-")] == [8, 4, 4, 4, 12]
        assert (each[14], each[19], each) == ("5", "8", each.lower())
