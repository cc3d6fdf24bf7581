"""What a PUT or PATCH names is carried out, kept or refused, and never dropped."""

import json
import urllib.request

import pytest

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm
from tests.api.live import Json
from tests.waiting import LIMIT_S

VERSION = {"api-version": "2024-07-01"}
PLACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
VMS, SETS = f"{PLACE}/virtualMachines", f"{PLACE}/virtualMachineScaleSets"
INSTANCE = f"{SETS}/web/virtualMachines/1"
IMAGE = {"publisher": "Debian", "offer": "debian-12", "sku": "12", "version": "latest"}
NICS = {"networkInterfaces": [{"id": "/subscriptions/s/nic", "properties": {"primary": True}}]}
NEW = {
    "location": "here",
    "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
        "storageProfile": {"imageReference": IMAGE, "osDisk": {"diskSizeGB": 30}},
        "osProfile": {"adminUsername": "ann", "adminPassword": "never shown"},
        "networkProfile": NICS,
        "evictionPolicy": "Delete",
        "priority": "Spot",
        "userData": "dQ==",
    },
}


def put(arm: Arm, path: str, body: Json, method: str = "PUT") -> Json:
    """Send a body; return what is answered, or the error's code and words."""
    answer = arm.http(method, path, params=VERSION, json=body)
    shown = answer.json()
    return shown if answer.ok else (shown["error"]["code"], shown["error"]["message"])


def test_new_vm_keeps_what_was_said_of_it(arm: Arm) -> None:
    """Image, NICs, disk and eviction policy are shown again; a password never. Source: Z-1."""
    shown = put(arm, f"{VMS}/new", NEW)
    assert shown == arm.get(f"{VMS}/new")
    properties = shown["properties"]
    assert properties["networkProfile"] == NICS
    assert properties["storageProfile"]["imageReference"] == IMAGE
    assert properties["storageProfile"]["osDisk"]["diskSizeGB"] == 30
    assert (properties["evictionPolicy"], properties["priority"]) == ("Delete", "Spot")
    assert "never shown" not in json.dumps(shown)
    expanded = arm.get(f"{VMS}/new?$expand=userData")
    assert expanded["properties"]["userData"] == "dQ=="


def test_settings_of_the_proxy_agent_are_kept(arm: Arm) -> None:
    """The Metadata Security Protocol is stored and shown, and a PATCH keeps the rest. Z-10."""
    settings = {"enabled": True, "mode": "Audit", "keyIncarnationId": 1}
    profile = {"proxyAgentSettings": settings, "securityType": "TrustedLaunch"}
    properties: Json = NEW["properties"]
    put(arm, f"{VMS}/new", {**NEW, "properties": {**properties, "securityProfile": profile}})
    assert arm.get(f"{VMS}/new")["properties"]["securityProfile"] == profile
    change = {"properties": {"securityProfile": {"proxyAgentSettings": {"mode": "Enforce"}}}}
    put(arm, f"{VMS}/new", change, "PATCH")
    kept = {**profile, "proxyAgentSettings": {**settings, "mode": "Enforce"}}
    assert arm.get(f"{VMS}/new")["properties"]["securityProfile"] == kept


def test_new_vm_is_shown_alike_by_its_metadata(arm: Arm) -> None:
    """Image, user and policy said to one are said by the other. Source: Z-1, I-1."""
    put(arm, f"{VMS}/new", NEW)
    url = f"{arm.emulator.url}/metadata/instance/compute?api-version=2021-02-01&vm=new"
    asked = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
        compute = json.load(answer)
    assert compute["storageProfile"]["imageReference"] == IMAGE | {"id": ""}
    assert compute["osProfile"]["adminUsername"] == "ann"
    assert (compute["evictionPolicy"], compute["userData"]) == ("Delete", "dQ==")


@pytest.mark.parametrize(
    "path", [f"{VMS}/db-0", f"{SETS}/web", INSTANCE, f"{PLACE}/availabilitySets/db"]
)
def test_what_is_shown_may_be_sent_back(shared_arm: Arm, path: str) -> None:
    """A client that reads, changes nothing and writes changes nothing. Source: Z-1."""
    shown = shared_arm.get(path)
    assert put(shared_arm, path, shown) == shown


def test_vm_of_the_same_name_is_a_new_one(arm: Arm) -> None:
    """What was said of a deleted VM is not said of the next. Source: Z-1."""
    put(arm, f"{VMS}/new", NEW)
    arm.http("POST", f"{VMS}/new/deallocate", params=VERSION)
    arm.http("DELETE", f"{VMS}/new", params=VERSION)
    arm.emulator.advance("1h")
    shown = put(arm, f"{VMS}/new", {"location": "here"})
    assert shown["properties"]["networkProfile"] == {"networkInterfaces": []}
    view = arm.get(f"{VMS}/new/instanceView")
    assert view["statuses"][1]["code"] == "PowerState/running"


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        (f"{VMS}/db-0", {"zones": ["3"]}, "zones"),
        (f"{VMS}/new", {"zones": ["3"]}, "zones"),
        (f"{VMS}/db-0", {"properties": {"availabilitySet": {"id": "/x"}}}, "availabilitySet.id"),
        (f"{SETS}/web", {"sku": {"name": "Standard_D4s_v5"}}, "sku.name"),
        (f"{SETS}/web", {"properties": {"virtualMachineProfile": {"priority": "Low"}}}, "priority"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(
    shared_arm: Arm, path: str, body: Json, word: str
) -> None:
    """The refusal names the member; nothing is changed. Source: Z-4."""
    code, message = put(shared_arm, path, body)
    assert code == "OperationNotAllowed"
    assert word in message


def test_new_vm_stands_in_its_zone(arms: Json) -> None:
    """A host of the zone is chosen. Source: Z-1."""
    fleet = (
        "[hosts]\na = {}\nb = {zone = '2'}\n[groups]\ng = {}\n[vms.v]\nhost = 'a'\ngroup = 'g'\n"
    )
    arm = arms(topology=fleet + f"resource_group = '{GROUP}'\n")
    assert put(arm, f"{VMS}/new", {"zones": ["2"]})["zones"] == ["2"]


def test_protected_instances_stay_when_a_set_is_scaled_in(arm: Arm) -> None:
    """The newest that are not protected go; too many protected ones refuse it. Source: Z-1."""
    protected = {"protectionPolicy": {"protectFromScaleIn": True}}
    assert put(arm, INSTANCE, {"properties": protected})["properties"].items() >= protected.items()
    code, message = put(arm, f"{SETS}/web", {"sku": {"capacity": 0}}, "PATCH")
    assert (code, "protected" in message) == ("OperationNotAllowed", True)
    put(arm, f"{SETS}/web", {"sku": {"capacity": 1}}, "PATCH")
    arm.emulator.advance("1h")
    left = arm.get(f"{SETS}/web/virtualMachines")["value"]
    assert [each["instanceId"] for each in left] == ["1"]


def test_instances_protected_from_acts_of_the_set_are_left_alone(arm: Arm) -> None:
    """An act that names them is done all the same. Source: Z-1."""
    protected = {"protectionPolicy": {"protectFromScaleSetActions": True}}
    put(arm, INSTANCE, {"properties": protected})
    arm.http("POST", f"{SETS}/web/restart", params=VERSION)
    assert arm.sees("web_0") == ["Reboot Scheduled web_0 User"]
    arm.http("POST", f"{INSTANCE}/restart", params=VERSION)
    assert len(arm.sees("web_1")) == 2


def test_new_scale_set_is_the_model_of_its_instances(arm: Arm) -> None:
    """Size, image and priority of the model are theirs. Source: Z-1."""
    profile = {"priority": "Spot", "storageProfile": {"imageReference": IMAGE}}
    body = {
        "location": "here",
        "tags": {"a": "b"},
        "sku": {"name": "Standard_D2s_v5", "capacity": 2},
        "properties": {"orchestrationMode": "Uniform", "virtualMachineProfile": profile},
    }
    shown = put(arm, f"{SETS}/new", body)
    assert (shown["tags"], shown["sku"]["capacity"]) == ({"a": "b"}, 2)
    instance = arm.get(f"{SETS}/new/virtualMachines/1")
    assert (instance["sku"]["name"], instance["location"]) == ("Standard_D2s_v5", "here")
    assert instance["properties"]["priority"] == "Spot"
    assert instance["properties"]["storageProfile"]["imageReference"] == IMAGE


@pytest.mark.parametrize(
    "text",
    [
        '{"properties":{"x":' * 400 + "1" + "}}" * 400,
        json.dumps({"properties": {"x": "y" * 70_000}}),
    ],
    ids=["deep", "long"],
)
def test_details_have_limits(shared_arm: Arm, text: str) -> None:
    """What is too deep or too long to be kept is refused. Source: Z-4."""
    answer = shared_arm.http("PATCH", f"{VMS}/db-0", params=VERSION, data=text.encode())
    assert answer.status_code == 400


def test_details_have_one_limit_for_all_requests(arm: Arm) -> None:
    """Many short ones do not add up beyond it. Source: Z-4."""
    bodies = [{"properties": {name: "y" * 40_000}} for name in ("a", "b")]
    answers = [put(arm, f"{VMS}/db-0", body, "PATCH") for body in bodies]
    assert answers[1][0] == "InvalidParameter"
