"""Instance metadata and the list of versions. Section I."""

import json

import pytest
from msgspec.structs import replace

from forewarn_metadata.endpoint.instance import KEYS_PATH, render
from forewarn_metadata.endpoint.instance_fields import INSTANCE_VERSIONS
from forewarn_metadata.replication.messages import Fact
from tests.metadata.live import VM_A, Live

INSTANCE = "/metadata/instance"
NEW = "api-version=2025-04-07"
OF_AZURE = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute"
OF_NOBODY = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default"
    "/providers/Microsoft.Compute"
)


def test_versions_are_listed_without_a_version(live: Live) -> None:
    """All 35, ascending, no api-version needed. Source: I-3."""
    reply = live.get("/metadata/versions")
    assert reply.status == 200
    listed = json.loads(reply.body)["apiVersions"]
    assert listed == sorted(listed) == list(INSTANCE_VERSIONS)
    assert (len(set(listed)), listed[0], listed[-1]) == (35, "2017-03-01", "2025-04-07")
    assert live.get("/metadata/versions", metadata="").status == 400


def test_instance_shows_compute_and_network(live: Live) -> None:
    """The calling VM's attributes are shown as JSON. Source: I-1."""
    form = json.loads(live.get(f"{INSTANCE}?{NEW}").body)
    compute = form["compute"]
    assert (compute["name"], compute["location"], compute["vmSize"]) == ("vm-a", "north", "big")
    assert compute["tags"] == "a:1;b:2"
    assert compute["tagsList"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    for name in (
        *("vmId", "zone", "resourceGroupName", "subscriptionId", "vmScaleSetName"),
        *("placementGroupId", "platformFaultDomain", "platformUpdateDomain", "osType"),
        *("priority", "evictionPolicy"),
    ):
        assert name in compute
    (interface,) = form["network"]["interface"]
    assert interface["ipv4"]["ipAddress"][0]["privateIpAddress"] == "127.0.0.1"


def test_everything_is_a_string_in_alphabetical_order(live: Live) -> None:
    """Primitives are strings, nothing is null, keys are in order. Source: I-4."""
    facts = {"zone": 2, "userData": True, "interface": [{"b": None, "a": 1.5}]}
    live.know(replace(VM_A, instance=facts))
    try:
        text = live.get(f"{INSTANCE}?{NEW}").body
        form = json.loads(text, object_pairs_hook=in_order)
        assert form["compute"]["zone"] == "2"
        assert form["compute"]["userData"] == "true"
        assert form["network"]["interface"] == [{"a": "1.5", "b": ""}]
        assert form["compute"]["vmScaleSetName"] == ""
    finally:
        live.know(VM_A)


def test_documented_parts_are_always_there(live: Live) -> None:
    """What a client reads without asking whether it is there, is there. Source: I-1."""
    compute = json.loads(live.get(f"{INSTANCE}/compute?{NEW}").body)
    assert compute["osProfile"]["computerName"] == "vm-a"
    assert compute["publicKeys"] == []
    assert set(compute["plan"]) == {"name", "product", "publisher"}
    assert compute["storageProfile"]["dataDisks"] == []
    assert compute["securityProfile"]["secureBootEnabled"] == "false"
    assert compute["additionalCapabilities"] == {"hibernationEnabled": "false"}
    assert (compute["host"], compute["hostGroup"]) == ({"id": ""}, {"id": ""})
    assert compute["extendedLocation"] == {"name": "", "type": ""}
    assert (compute["provider"], compute["azEnvironment"]) == (
        "Microsoft.Compute",
        "AzurePublicCloud",
    )


def test_facts_fill_the_parts_they_name(live: Live) -> None:
    """A fact goes where its dotted name says; keys get the file they belong into. Source: I-1."""
    facts: dict[str, Fact] = {
        "subscriptionId": "s",
        "resourceGroupName": "g",
        "osProfile.adminUsername": "ann",
        "publicKeys": "ssh-ed25519 AAAA ann\nssh-rsa BBBB ben\n",
        "offer": "debian",
        "macAddress": "00:0d:3a:f8:06:ec",
        "subnet": "10.144.133.132/26",
    }
    live.know(replace(VM_A, instance=facts))
    try:
        form = json.loads(live.get(f"{INSTANCE}?{NEW}").body)
    finally:
        live.know(VM_A)
    compute, (interface,) = form["compute"], form["network"]["interface"]
    assert compute["resourceId"] == (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-a"
    )
    assert [key["path"].split("/")[2] for key in compute["publicKeys"]] == ["ann", "ann"]
    assert compute["osProfile"]["disablePasswordAuthentication"] == "true"
    assert compute["storageProfile"]["imageReference"]["offer"] == "debian"
    assert interface["macAddress"] == "000D3AF806EC"
    assert interface["ipv4"]["subnet"] == [{"address": "10.144.133.128", "prefix": "26"}]


def test_data_disks_stand_one_a_line() -> None:
    """Each word names a documented attribute of a disk; the others are there, too. Source: I-1."""
    lines = "lun=0 name=data diskSizeGB=128 managedDisk.storageAccountType=Premium_LRS\nlun=1\n"
    caller = replace(VM_A, instance={"storageProfile.dataDisks": lines})
    path = "compute/storageProfile/dataDisks"
    first, second = json.loads(render(caller, "2025-04-07", path=path, form="")[0])
    assert (first["lun"], first["name"], first["diskSizeGB"]) == ("0", "data", "128")
    assert first["managedDisk"] == {"id": "", "storageAccountType": "Premium_LRS"}
    assert (second["lun"], second["caching"], second["isUltraDisk"]) == ("1", "None", "false")
    older = json.loads(render(caller, "2019-06-01", path=path, form="")[0])
    assert set(first) - set(older[0]) == {
        *("bytesPerSecondThrottle", "diskCapacityBytes", "isSharedDisk", "isUltraDisk"),
        "opsPerSecondThrottle",
    }


def test_interface_of_a_vm_is_made_from_its_addresses(live: Live) -> None:
    """Clients that cannot do without a hardware address and a subnet get both. Source: I-1."""
    (interface,) = json.loads(live.get(f"{INSTANCE}/network/interface?{NEW}").body)
    assert interface["macAddress"] == "02427F000001"
    assert interface["ipv4"]["subnet"] == [{"address": "127.0.0.0", "prefix": "24"}]
    assert interface["ipv6"] == {
        "ipAddress": [{"privateIpAddress": "::1", "publicIpAddress": ""}],
        "subnet": [{"address": "::", "prefix": "64"}],
    }


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [((), "10.0.0.4"), (("fd00::4",), "10.0.0.4"), (("10.0.0.9",), "10.0.0.9")],
)
def test_vm_known_by_no_ipv4_address_shows_one(addresses: tuple[str, ...], shown: str) -> None:
    """A VM known otherwise shows the IPv4 address that its facts name. Source: I-1."""
    caller = replace(VM_A, addresses=addresses, instance={"privateIpAddress": "10.0.0.4"})
    path = "network/interface/0/ipv4/ipAddress/0/privateIpAddress"
    assert render(caller, INSTANCE_VERSIONS[-1], path=path, form="text") == (shown.encode(), True)


def in_order(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse an object whose keys are out of order or whose values are not strings."""
    assert [name for name, _ in pairs] == sorted(name for name, _ in pairs)
    assert all(isinstance(value, (str, dict, list)) for _, value in pairs)
    return dict(pairs)


def test_older_version_shows_less(live: Live) -> None:
    """Attributes come with their version. Source: I-1, I-3."""
    old = json.loads(live.get(f"{INSTANCE}?api-version=2017-03-01").body)["compute"]
    assert "tagsList" not in old
    assert "vmSize" in old
    assert "tags" not in old


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/compute/name", "vm-a"),
        ("/COMPUTE/Name/", "vm-a"),
        ("/compute/zone", "1"),
        ("/compute/tagsList/1/value", "2"),
        ("/network/interface/0/ipv4/ipAddress/0/privateIpAddress", "127.0.0.1"),
        ("/network", "interface/"),
        ("/network/interface", "0/"),
        ("/compute/tagsList", "0/\n1/"),
        ("/compute/tagsList/0", "name\nvalue"),
        ("", "compute/\nnetwork/"),
    ],
)
def test_parts_are_given_as_text(live: Live, path: str, text: str) -> None:
    """A leaf is given with format=text; above it the names are listed. Source: I-2."""
    reply = live.get(f"{INSTANCE}{path}?{NEW}&format=text")
    assert (reply.status, reply.body.decode()) == (200, text)
    assert reply.headers["content-type"].startswith("text/plain")


def test_leaf_needs_the_text_format(live: Live) -> None:
    """Without format=text a leaf is 400; a part above it is JSON. Source: I-2."""
    assert live.get(f"{INSTANCE}/compute/name?{NEW}").status == 400
    assert live.get(f"{INSTANCE}/compute/name?{NEW}&format=json").status == 400
    assert live.get(f"{INSTANCE}?{NEW}&format=xml").status == 400
    assert json.loads(live.get(f"{INSTANCE}/compute?{NEW}").body)["name"] == "vm-a"


@pytest.mark.parametrize(
    "path", ["/nothing", "/compute/name/x", "/network/interface/7", "/network/interface/x",
             "/network/interface/1", "/compute/tagsList/2", "/compute/tagsList/" + "0" * 5000,
             "/network/interface/0/0", "/compute/" + "x/" * 20, "/compute/name/0"]
)  # fmt: skip
def test_unknown_part_is_not_found(live: Live, path: str) -> None:
    """A part that does not exist is 404. Source: I-2, E-5."""
    assert live.get(f"{INSTANCE}{path}?{NEW}&format=text").status == 404


@pytest.mark.parametrize(
    ("facts", "resource_id"),
    [
        ({}, f"{OF_NOBODY}/virtualMachines/set_7"),
        ({"resourceId": "ignored"}, f"{OF_NOBODY}/virtualMachines/set_7"),
        (
            {"subscriptionId": "s", "resourceGroupName": "r"},
            f"{OF_AZURE}/virtualMachines/set_7",
        ),
        (
            {"subscriptionId": "s", "resourceGroupName": "r", "vmScaleSetName": "set"},
            f"{OF_AZURE}/virtualMachineScaleSets/set/virtualMachines/7",
        ),
        (
            {"subscriptionId": "s", "resourceGroupName": "r", "vmScaleSetName": "other"},
            f"{OF_AZURE}/virtualMachines/set_7",
        ),
    ],
)
def test_vm_has_the_name_that_azures_tools_know(facts: dict[str, str], resource_id: str) -> None:
    """As Azure Resource Manager shows it; an instance of a scale set by its number. I-1."""
    caller = replace(VM_A, vm="set_7", instance=facts)
    found = render(caller, INSTANCE_VERSIONS[-1], path="compute/resourceId", form="text")
    assert found == (resource_id.encode(), True)


def test_keys_belong_to_the_user_who_is_named() -> None:
    """One a line; whoever has keys needs no password. Source: I-1."""
    version, path = INSTANCE_VERSIONS[-1], "compute"
    for user, file in (("eve", KEYS_PATH.format(user="eve")), ("", "")):
        facts = {"publicKeys": "ssh-rsa A\n\nssh-rsa B\n", "osProfile.adminUsername": user}
        body, _ = render(replace(VM_A, instance=facts), version, path=path, form="")
        shown = json.loads(body)
        assert shown["publicKeys"] == [
            {"keyData": "ssh-rsa A", "path": file},
            {"keyData": "ssh-rsa B", "path": file},
        ]
        assert shown["osProfile"]["disablePasswordAuthentication"] == "true"
    body, _ = render(replace(VM_A, instance={}), version, path=path, form="json")
    shown = json.loads(body)
    assert shown["publicKeys"] == []
    assert shown["osProfile"]["disablePasswordAuthentication"] == "false"


def test_network_that_was_described_is_shown_as_it_is() -> None:
    """An interface, a subnet and a hardware address that facts name go before made ones. I-1."""
    version = INSTANCE_VERSIONS[-1]
    facts: dict[str, Fact] = {"subnet": "10.1.2.3/20", "macAddress": "00-0d:3a.ff"}
    body, _ = render(replace(VM_A, instance=facts), version, path="network", form="")
    [interface] = json.loads(body)["interface"]
    assert interface["ipv4"]["subnet"] == [{"address": "10.1.0.0", "prefix": "20"}]
    assert interface["macAddress"] == "000D3AFF"
    body, _ = render(replace(VM_A, addresses=(), instance={}), version, path="network", form="")
    [interface] = json.loads(body)["interface"]
    assert interface == {
        "ipv4": {"ipAddress": [], "subnet": []},
        "ipv6": {"ipAddress": [], "subnet": []},
        "macAddress": "024200000000",
    }
    given: dict[str, Fact] = {"interface": [{"macAddress": "x", "a": "y"}]}
    body, _ = render(replace(VM_A, instance=given), version, path="network", form="")
    assert json.loads(body)["interface"] == [{"a": "y", "macAddress": "x"}]


def test_instance_has_versions_of_its_own(live: Live) -> None:
    """A version of Scheduled Events is none of these, and the other way round. Source: I-3, E-3."""
    reply = live.get(f"{INSTANCE}?api-version=2019-01-01")
    assert reply.status == 400
    newest = ["2025-04-07", "2024-07-17", "2024-03-15"]
    assert json.loads(reply.body)["newest-versions"] == newest
    assert live.get(f"{INSTANCE}?{NEW}", metadata="").status == 400
    assert live.get(f"{INSTANCE}x?{NEW}").status == 404


@pytest.mark.parametrize("query", ["api-version=2018-10-01", "api-version=2025-04-07&nonce=1", ""])
def test_nothing_is_attested_where_nobody_signs(live: Live, query: str) -> None:
    """The public cloud documents 404 for an element that does not exist. Source: I-1, E-5."""
    reply = live.get(f"/metadata/attested/document?{query}")
    assert (reply.status, reply.body) == (404, b'{"error":"Not found"}')
