"""What real tools send and expect of Azure Resource Manager beyond the SDK's usual calls."""

import time

import pytest

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm

VERSION = {"api-version": "2024-07-01"}
SUB = f"/subscriptions/{SUBSCRIPTION}"
RG = f"{SUB}/resourceGroups/{GROUP}"
COMPUTE = "providers/Microsoft.Compute"
NETWORK = "providers/Microsoft.Network"
VM = f"{RG}/{COMPUTE}/virtualMachines/db-0"
SET = f"{RG}/{COMPUTE}/virtualMachineScaleSets/web"


def refusal(arm: Arm, method: str, path: str, **given: object) -> tuple[int, str]:
    """Return status and code of an error."""
    answer = arm.http(method, path, **({"params": VERSION} | given))
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("path", [VM, SET, RG, SUB, f"{SUB}/{COMPUTE}/virtualMachines"])
def test_head_answers_204_or_404_and_no_body(shared_arm: Arm, path: str) -> None:
    """Tools ask with HEAD whether a resource is there. Source: Z-1."""
    for where, status in ((path, 204), (f"{path}x", 404)):
        answer = shared_arm.http("HEAD", where, params=VERSION)
        assert (answer.status_code, answer.content) == (status, b"")


def test_path_with_two_slashes_is_found(shared_arm: Arm) -> None:
    """An endpoint that ends in a slash gets another one behind it. Source: Z-3."""
    assert shared_arm.http("GET", f"/{VM}", params=VERSION).status_code == 200


def test_every_answer_names_its_request(shared_arm: Arm) -> None:
    """Each answer has a `x-ms-request-id` of its own, errors too. Source: Z-4."""
    ids = [shared_arm.http("GET", path).headers["x-ms-request-id"] for path in ("/x", "/x", VM)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("path", ["/adfs/oauth2/token", "/adfs/any/oauth2/v2.0/token"])
def test_token_says_when_it_is_good(shared_arm: Arm, path: str) -> None:
    """Both versions of the token endpoint say until when, in three forms. Source: Z-3."""
    form = {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b"}
    given = shared_arm.http("POST", path, data=form | {"scope": "r/.default"}).json()
    assert given["not_before"] <= time.time() < given["expires_on"]
    assert given["expires_on"] - given["not_before"] == given["expires_in"]


@pytest.mark.parametrize(
    ("method", "below"),
    [
        ("GET", ""),
        ("GET", f"/{COMPUTE}/virtualMachines"),
        ("GET", f"/{COMPUTE}/virtualMachineScaleSets"),
        ("GET", f"/{COMPUTE}/availabilitySets"),
        ("GET", f"/{COMPUTE}/virtualMachines/db-0"),
        ("DELETE", f"/{COMPUTE}/virtualMachines/db-0"),
        ("PUT", f"/{COMPUTE}/virtualMachines/new"),
        ("PUT", f"/{COMPUTE}/virtualMachineScaleSets/new"),
        ("POST", f"/{COMPUTE}/virtualMachineScaleSets/web/restart"),
    ],
)
def test_unknown_resource_group_is_named(shared_arm: Arm, method: str, below: str) -> None:
    """What is missing is the resource group, not what is looked for in it. Source: Z-4."""
    path = f"{SUB}/resourceGroups/nowhere{below}"
    assert refusal(shared_arm, method, path, json={}) == (404, "ResourceGroupNotFound")


def test_scale_set_is_scaled_as_the_sdk_for_java_does(arm: Arm) -> None:
    """It puts empty pools into the primary interface, and sends the whole set. Source: Z-1."""
    shown = arm.get(SET)
    profile = shown["properties"]["virtualMachineProfile"]["networkProfile"]
    [nic] = profile["networkInterfaceConfigurations"]
    assert nic["properties"]["primary"]
    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerInboundNatPools"] = []
    shown["sku"]["capacity"] = 3
    answer = arm.http("PUT", SET, params=VERSION, json=shown)
    assert (answer.status_code, answer.json()["sku"]["capacity"]) == (200, 3)


def test_scale_set_keeps_its_network_interfaces(shared_arm: Arm) -> None:
    """Another interface in a list is a change, and not taken for the same. Source: Z-4."""
    profile = {"networkProfile": {"networkInterfaceConfigurations": [{"name": "other"}]}}
    body = {"properties": {"virtualMachineProfile": profile}}
    assert refusal(shared_arm, "PATCH", SET, json=body) == (409, "OperationNotAllowed")


@pytest.mark.parametrize("act", ["restart", "redeploy"])
def test_deallocated_vm_is_not_worked_on(arm: Arm, act: str) -> None:
    """It has no host: it must be started first. Source: Z-1, Z-4."""
    arm.http("POST", f"{VM}/deallocate", params=VERSION)
    assert refusal(arm, "POST", f"{VM}/{act}") == (409, "OperationNotAllowed")
    assert arm.sees("db-0") == []
    arm.http("POST", f"{VM}/start", params=VERSION)
    assert arm.http("POST", f"{VM}/{act}", params=VERSION).status_code == 202


def test_location_of_a_cancelled_operation_is_no_success(arm: Arm) -> None:
    """Clients that follow `Location` alone learn how it ended, too. Source: Z-1."""
    answer = arm.http("POST", f"{VM}/restart", params=VERSION)
    where = answer.headers["Location"].removeprefix(arm.url)
    assert arm.http("GET", where).status_code == 202
    arm.emulator.cancel(str(int(where.partition("?")[0][-12:], 16)))
    assert refusal(arm, "GET", where, params=None) == (409, "OperationPreempted")


@pytest.mark.parametrize(
    "path",
    [
        f"/{COMPUTE}/operations",
        f"{SUB}/{COMPUTE}/skus?$filter=location eq 'x'",
        f"{SUB}/{COMPUTE}/locations/x/usages",
        f"{SUB}/{COMPUTE}/locations/x/vmSizes",
        f"{SUB}/{COMPUTE}/disks",
        f"{RG}/{COMPUTE}/disks",
        f"{RG}/{NETWORK}/networkInterfaces",
        f"{SUB}/{NETWORK}/publicIPAddresses",
        f"{VM}/extensions",
        f"{SET}/extensions",
        f"{SET}/networkInterfaces",
        f"{SET}/virtualMachines/0/networkInterfaces",
    ],
)
def test_list_of_what_is_not_served_is_empty(shared_arm: Arm, path: str) -> None:
    """Tools that show more than VMs go on. Source: Z-3."""
    assert shared_arm.get(path) == {"value": []}


@pytest.mark.parametrize("path", [f"{VM}x/extensions", f"{SET}x/extensions"])
def test_nothing_is_listed_of_what_is_not_there(shared_arm: Arm, path: str) -> None:
    """An empty list says that its resource is there. Source: Z-4."""
    assert refusal(shared_arm, "GET", path) == (404, "ResourceNotFound")


def test_resources_are_listed_and_filtered(shared_arm: Arm) -> None:
    """Who wants to know whether a resource group is empty is told the truth. Source: Z-3."""
    found = shared_arm.get(f"{RG}/resources?$expand=createdTime")["value"]
    assert [each["name"] for each in found] == ["db-0", "web", "db"]
    kind = "Microsoft.Compute/virtualMachineScaleSets"
    conditions = f"resourceType eq '{kind}' and resourceGroup eq '{GROUP}'"
    asked = f"{SUB}/resources?$filter={conditions}&$top=5"
    assert [each["name"] for each in shared_arm.get(asked)["value"]] == ["web"]
    assert shared_arm.get(f"{RG}/resources?$top=0") == {"value": []}


@pytest.mark.parametrize(
    "path",
    [
        f"{SUB}/{COMPUTE}/virtualMachines?$filter=name ne 'x'",
        f"{VM}?$expand=resiliencyView",
        f"{SET}/virtualMachines?$filter=properties/latestModelApplied eq true",
        f"{SUB}/resourceGroups?$top=x",
        f"{SET}?$select=name",
    ],
)
def test_query_that_is_not_obeyed_is_refused(shared_arm: Arm, path: str) -> None:
    """No list is longer than what was asked for. Source: Z-4."""
    assert refusal(shared_arm, "GET", path) == (400, "InvalidParameter")


def test_status_of_all_vms_is_listed(shared_arm: Arm) -> None:
    """`statusOnly` shows whether they run, a filter those of one set. Source: Z-1."""
    path = f"{SUB}/{COMPUTE}/virtualMachines?statusOnly=true"
    [vm] = shared_arm.get(path)["value"]
    assert vm["properties"]["instanceView"]["statuses"][1]["code"] == "PowerState/running"
    asked = f"{path}&$filter='virtualMachineScaleSet/id' eq '{SET}'"
    assert shared_arm.get(asked) == {"value": []}


def test_scale_set_is_deleted_with_its_instances(arm: Arm) -> None:
    """It is gone once they are, and may be made again. Source: Z-1."""
    answer = arm.http("DELETE", SET, params=VERSION | {"forceDeletion": "true"})
    assert answer.status_code == 202
    arm.emulator.advance("1h")
    assert refusal(arm, "GET", SET) == (404, "ResourceNotFound")
    assert arm.http("DELETE", SET, params=VERSION).status_code == 204
    assert arm.http("PUT", SET, params=VERSION, json={}).status_code == 201
    assert arm.get(SET)["sku"]["capacity"] == 0
    assert arm.http("DELETE", SET, params=VERSION).status_code == 200


def test_availability_set_is_deleted_when_it_has_no_vm(arm: Arm) -> None:
    """One with VMs is kept, as in Azure. Source: Z-1."""
    path = f"{RG}/{COMPUTE}/availabilitySets"
    assert refusal(arm, "DELETE", f"{path}/db") == (409, "OperationNotAllowed")
    arm.http("PUT", f"{path}/new", params=VERSION, json={})
    statuses = [arm.http("DELETE", f"{path}/new", params=VERSION).status_code for _ in range(2)]
    assert statuses == [200, 204]


def test_resource_group_is_deleted_with_its_vms(arm: Arm) -> None:
    """All of its VMs are; one that is empty goes at once. Source: Z-3."""
    other = f"{SUB}/resourceGroups/other"
    arm.http("PUT", other, params=VERSION, json={"location": "x"})
    assert arm.http("DELETE", other, params=VERSION).status_code == 200
    assert refusal(arm, "GET", other) == (404, "ResourceGroupNotFound")
    assert arm.http("DELETE", RG, params=VERSION).status_code == 202
    arm.emulator.advance("1h")
    assert refusal(arm, "DELETE", RG) == (404, "ResourceGroupNotFound")


def test_upgrades_of_a_scale_set_are_done_or_refused(shared_arm: Arm) -> None:
    """Instances have the model always; nothing rolls an extension out. Source: Z-1."""
    ids = {"instanceIds": ["0"]}
    answer = shared_arm.http("POST", f"{SET}/manualupgrade", params=VERSION, json=ids)
    assert answer.status_code == 200
    for act in ("extensionRollingUpgrade", "rollingUpgrades/cancel"):
        assert refusal(shared_arm, "POST", f"{SET}/{act}") == (409, "OperationNotAllowed")
    assert refusal(shared_arm, "GET", f"{SET}/rollingUpgrades/latest") == (404, "ResourceNotFound")


def test_resource_graph_answers_as_a_table(arm: Arm) -> None:
    """`resultFormat` is obeyed, and another one refused. Source: Z-2."""
    arm.http("POST", f"{VM}/restart", params=VERSION)
    path = "/providers/Microsoft.ResourceGraph/resources"
    asked = {"query": "maintenanceresources | project type, resourceGroup"}
    table = asked | {"options": {"resultFormat": "table"}}
    data = arm.http("POST", path, params=VERSION, json=table).json()["data"]
    assert [each["name"] for each in data["columns"]] == ["type", "resourceGroup"]
    assert data["rows"] == [["microsoft.maintenance/scheduledevents", GROUP]]
    other = asked | {"options": {"resultFormat": "csv"}}
    assert refusal(arm, "POST", path, json=other) == (400, "InvalidParameter")


@pytest.mark.parametrize("value", [True, -1, "1", 0.5])
@pytest.mark.parametrize("name", ["$top", "$skip"])
def test_resource_graph_takes_whole_numbers_alone(
    shared_arm: Arm, name: str, value: object
) -> None:
    """A page is a whole number of rows; true is not one of them. Source: Z-2."""
    asked = {"query": "maintenanceresources", "options": {name: value}}
    path = "/providers/Microsoft.ResourceGraph/resources"
    assert refusal(shared_arm, "POST", path, json=asked) == (400, "InvalidParameter")
