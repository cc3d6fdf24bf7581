"""What real tools send and expect of Azure Resource Manager beyond the SDK's usual calls."""

from __future__ import annotations

import time

import pytest

from tests.operator_api.arm.conftest import GROUP, SUBSCRIPTION, Arm

VERSION = {"api-version": "2024-07-01"}
SUB = f"/subscriptions/{SUBSCRIPTION}"
RG = f"{SUB}/resourceGroups/{GROUP}"
COMPUTE = "providers/Microsoft.Compute"
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


def test_model_of_a_scale_set_has_network_interface_configurations(shared_arm: Arm) -> None:
    """Java's fluent API reads them before it scales a set. Source: Z-1."""
    profile = shared_arm.get(SET)["properties"]["virtualMachineProfile"]
    assert profile["networkProfile"] == {"networkInterfaceConfigurations": []}


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
