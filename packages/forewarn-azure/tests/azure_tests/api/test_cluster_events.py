"""Declared maintenances of managed clusters, as Resource Graph shows them. Source: Z-11."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests

from forewarn_base.settings import AzureSettings
from tests.api.live import FLEET, SETTINGS, Json, Live
from tests.waiting import wait_until

GRAPH = "/providers/Microsoft.ResourceGraph/resources"
TABLE = "containerserviceeventresources"
CLUSTER = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/prod"
    "/providers/Microsoft.ContainerService/managedClusters/aks-1"
)
TAGS = {"aks-managed-cluster-name": "aks-1", "aks-managed-cluster-rg": "prod"}


@pytest.fixture
def service() -> Iterator[Live]:
    """A service with a VM on the first host that is a node of a cluster."""
    with Live(replace(SETTINGS, azure=AzureSettings(listen="127.0.0.1:0"))) as live:
        vms = {**FLEET["vms"], "web-0": {**FLEET["vms"]["web-0"], "tags": TAGS}}
        live.fleet(**{**FLEET, "vms": vms})
        yield live


def rows(service: Live, steps: str = "") -> list[Json]:
    """Return the result of a query."""
    bound = service.daemon.bound
    assert bound is not None
    answer = requests.post(
        f"{bound.azure}{GRAPH}?api-version=2024-04-01",
        json={"query": f"{TABLE}{steps}"},
        verify=bound.azure_certificate,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["data"]
    return found


def declare(service: Live, *hosts: str) -> str:
    """Declare the reboot of hosts; return the id of the maintenance."""
    form = {"cause": "host-reboot", "hosts": hosts, "duration": 600, "reason": "kernel"}
    number = str(service.call("POST", "/v1/maintenances", form).json["maintenance"]["id"])
    service.post(f"/v1/maintenances/{number}/declare")
    service.settle()
    return number


def test_maintenance_of_nodes_is_an_event_of_their_cluster(service: Live) -> None:
    """The query of AKS's communication manager finds it until it has ended. Source: Z-11."""
    number = declare(service, "h1", "h2")
    kind = "microsoft.containerservice/managedclusters/scheduledevents"
    [row] = rows(service, f" | where type == '{kind}' | where id contains '{CLUSTER}'")
    shown = row["properties"]
    assert (shown["eventStatus"], shown["resources"]) == ("Scheduled", [CLUSTER])
    assert shown["eventDetails"] == "host-reboot of 1 node: kernel"
    assert (row["resourceGroup"], row["name"]) == ("prod", shown["eventId"])
    assert shown["startTime"] == "0001-01-01T00:00:00Z"
    service.post(f"/v1/maintenances/{number}/cancel")
    service.settle()
    assert rows(service) == []


def test_work_on_other_hosts_is_no_event_of_a_cluster(service: Live) -> None:
    """Only VMs with AKS's tags are nodes. Source: Z-11."""
    declare(service, "h2")
    assert rows(service) == []


def test_event_has_started_once_a_wave_begins(service: Live) -> None:
    """Owners that hand back let the work start early. Source: Z-11."""
    number = declare(service, "h1")
    path = f"/v1/declarations/{number}/choices"
    for owner in ("shop", ""):
        service.post(path, choices=[{"host": "h1", "owner": owner, "release": True}])

    def statuses() -> list[str]:
        return [row["properties"]["eventStatus"] for row in rows(service)]

    wait_until(lambda: statuses() == ["Started"], what="the wave")
