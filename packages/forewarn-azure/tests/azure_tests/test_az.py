"""Azure's command line, unmodified, against the emulator; the agent answers. Source: Z-1, Z-3."""

import json
from pathlib import Path

import pytest

from azure_tests.conftest import Az
from tests.agent.agents import Agent

pytestmark = pytest.mark.slow

VM = ("-g", "emulator", "-n", "vm-1")


def test_az_redeploy_returns_when_the_agent_has_let_it_go(az: Az, tmp_path: Path) -> None:
    """From `az` to the event, the agent's preparation, its approval, the end, and back. Z-1."""
    with Agent(tmp_path, az.url, then="approve") as agent:
        agent.until_said("named")
        az("vm", "redeploy", *VM)
        assert agent.stop() == 0
    assert agent.acts() == ["prepare", "recover"]
    assert "action=approved" in agent.log()


@pytest.mark.parametrize(
    "act", ["restart", "perform-maintenance", "reimage", "stop", "deallocate", "start", "reapply"]
)
def test_az_act_on_a_vm_returns(az: Az, act: str) -> None:
    """Each act of a user ends as Azure's does. Source: Z-1."""
    az("vm", act, *VM)
    assert az("vm", "list")[0]["name"] == "vm-1"


def test_az_updates_a_vm_by_what_it_has_read(az: Az) -> None:
    """`az vm update` sends back the whole VM it has got. Source: Z-1."""
    assert az("vm", "update", *VM, "--set", "tags.role=primary")["tags"] == {"role": "primary"}
    view = az("vm", "get-instance-view", *VM)
    assert "PowerState/running" in [each["code"] for each in view["instanceView"]["statuses"]]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("vm show -d", 1),
        ("vm extension list --vm-name vm-1", 0),
        ("vm list-skus -l emulated", 0),
        ("network nic list", 0),
        ("resource list", 2),
    ],
)
def test_az_lists_what_it_shows_of_a_vm(az: Az, words: str, count: int) -> None:
    """Disks, skus and network interfaces are none, and resources those that are there. Z-3."""
    group = () if "skus" in words else ("-g", "emulator")
    vm = ("-n", "vm-1") if "show" in words else ()
    shown = az(*words.split(), *group, *vm)
    assert len(shown if isinstance(shown, list) else [shown]) == count


def test_az_finds_scheduled_events_in_resource_graph(az: Az) -> None:
    """What `az graph query` sends, without its extension, is answered. Source: Z-2."""
    url = "/providers/Microsoft.ResourceGraph/resources?api-version=2022-10-01"
    query = "maintenanceresources | where type == 'microsoft.maintenance/scheduledevents' | count"
    told = az("rest", "--method", "post", "--url", url, "--body", json.dumps({"query": query}))
    assert told["data"] == [{"Count": 0}]


def test_az_deletes_a_vm_after_its_terminate_notice(az: Az) -> None:
    """What is deleted is gone for `az`, too. Source: Z-1."""
    az("vm", "delete", "--yes", *VM)
    assert az("vm", "list") == []
