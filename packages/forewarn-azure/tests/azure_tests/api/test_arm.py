"""Azure Resource Manager without the SDK: logging in, errors, limits, long-running operations."""

import time
from collections.abc import Callable

import pytest

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm
from forewarn_azure.graph_query import GraphQueryInvalid, answered
from forewarn_azure.login_routes import TOKEN_PATH
from tests.api.live import Json
from tests.waiting import LIMIT_S, wait_until

VERSION = {"api-version": "2024-07-01"}
PLACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
VM = f"{PLACE}/virtualMachines/db-0"
SETS = f"{PLACE}/virtualMachineScaleSets"


def test_cloud_discovery_and_login_need_no_token(shared_arm: Arm) -> None:
    """Unmodified tools find the cloud, the login and the tenant. Source: Z-3."""
    cloud = shared_arm.http("GET", "/metadata/endpoints?api-version=2022-09-01").json()
    assert cloud["authentication"]["loginEndpoint"] == f"{shared_arm.url}/adfs"
    for tenant in ("", "/adfs/v2.0"):
        path = f"/adfs{tenant}/.well-known/openid-configuration"
        told = shared_arm.http("GET", path).json()
        assert told["token_endpoint"] == f"{shared_arm.url}/adfs/oauth2/token"
    listed = shared_arm.http("GET", "/metadata/endpoints?api-version=2019-05-01").json()
    assert listed == [cloud]


def test_subscriptions_tenants_and_providers_are_told(shared_arm: Arm) -> None:
    """What tools ask first is answered. Source: Z-3."""
    place = f"/subscriptions/{SUBSCRIPTION}"
    assert [each["subscriptionId"] for each in shared_arm.get("/subscriptions")["value"]] == [
        SUBSCRIPTION
    ]
    assert len(shared_arm.get("/tenants")["value"]) == 1
    groups = shared_arm.get(f"{place}/resourcegroups")["value"]
    assert [each["name"] for each in groups] == [GROUP]
    path = f"{place}/providers/microsoft.compute/register"
    told = shared_arm.http("POST", path, params=VERSION).json()
    assert told["registrationState"] == "Registered"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"{PLACE}/virtualMachines/x?api-version=1", 404, "ResourceNotFound"),
        ("GET", VM, 400, "MissingApiVersionParameter"),
        ("GET", "/subscriptions/x/locations?api-version=1", 404, "SubscriptionNotFound"),
        ("GET", "/nothing?api-version=1", 404, "InvalidResourceType"),
        ("GET", "/v1/topology?api-version=1", 404, "InvalidResourceType"),
        ("POST", f"{VM}/simulateEviction?api-version=1", 400, "InvalidParameter"),
        ("GET", f"{PLACE}/locations/x/operations/1?api-version=1", 404, "InvalidResourceType"),
    ],
)
def test_errors_have_azures_form(
    shared_arm: Arm, method: str, path: str, status: int, code: str
) -> None:
    """Errors are `{"error":{"code","message"}}` with Azure's codes. Source: Z-4."""
    answer = shared_arm.http(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"tags":[]}', b'{"properties":7}', b'{"tags":{"a":"b"},"tags":1}']
)
def test_bodies_that_mean_nothing_change_nothing(shared_arm: Arm, body: bytes) -> None:
    """What cannot be read is 400, never 500. Source: Z-4."""
    before = shared_arm.get(VM)
    answer = shared_arm.http("PATCH", VM, params=VERSION, data=body)
    assert answer.status_code == 400
    assert shared_arm.get(VM) == before


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_change_without_a_body_is_refused(shared_arm: Arm, method: str) -> None:
    """A change says what it changes. Source: Z-4."""
    before = shared_arm.get(f"{PLACE}/availabilitySets")
    for path in (VM, f"{PLACE}/availabilitySets/none"):
        answer = shared_arm.http(method, path, params=VERSION, data=b" ")
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            400,
            "InvalidRequestContent",
        )
    assert shared_arm.get(f"{PLACE}/availabilitySets") == before


@pytest.mark.parametrize(
    "path",
    [
        VM,
        f"{PLACE}/virtualMachineScaleSets/web",
        f"{PLACE}/virtualMachineScaleSets/web/virtualMachines/0",
    ],
)
def test_present_resource_is_not_replaced_as_new(shared_arm: Arm, path: str) -> None:
    """`If-None-Match: *` creates only. Source: RFC 9110 13.1.2, Z-4."""
    before = shared_arm.get(path)
    change = {"tags": {"a": "b"}, "sku": {"capacity": 3}}
    answer = shared_arm.http(
        "PUT", path, params=VERSION, json=change, headers={"If-None-Match": "*"}
    )
    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (412, "PreconditionFailed")
    assert "already exists" in told["message"]
    assert shared_arm.get(path) == before


@pytest.mark.parametrize(
    "path",
    [
        f"{PLACE}/virtualMachines/new",
        f"{PLACE}/virtualMachineScaleSets/new",
        f"{PLACE}/availabilitySets/new",
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/new",
    ],
)
def test_conditions_of_a_put_are_kept(arm: Arm, path: str) -> None:
    """`If-Match: *` changes only, `If-None-Match: *` creates only. Source: RFC 9110 13.1."""

    def put(header: str) -> int:
        headers = {header: "*"}
        return arm.http("PUT", path, params=VERSION, json={}, headers=headers).status_code

    assert put("If-Match") == 412
    assert arm.http("GET", path, params=VERSION).status_code == 404
    assert put("If-None-Match") in {200, 201}
    assert put("If-None-Match") == 412
    assert put("If-Match") == 200


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("PUT", {"If-Match": '"7"'}),
        ("PUT", {"If-Match": "*", "If-None-Match": "*"}),
        ("PUT", {"If-Unmodified-Since": "Tue, 24 Nov 2026 00:00:00 GMT"}),
        ("PATCH", {"If-None-Match": "*"}),
        ("DELETE", {"If-Match": '"7"'}),
    ],
)
def test_condition_that_cannot_be_checked_is_refused(
    shared_arm: Arm, method: str, headers: dict[str, str]
) -> None:
    """Nothing is changed whatever its condition says. Source: RFC 9110 13.1, Z-4."""
    before = shared_arm.get(VM)
    change = {"tags": {"a": "b"}}
    answer = shared_arm.http(method, VM, params=VERSION, json=change, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (412, "PreconditionFailed")
    assert shared_arm.get(VM) == before


def test_body_above_the_limit_is_refused(shared_arm: Arm) -> None:
    """A body has a limit. Source: Z-4."""
    answer = shared_arm.http("PUT", VM, params=VERSION, data=b" " * 1_100_000)
    assert answer.status_code == 413
    answer = shared_arm.http("POST", "/adfs/oauth2/token", data=b"x" * 70_000)
    assert answer.status_code == 413


def test_operations_of_nobody_are_not_found(shared_arm: Arm) -> None:
    """The name of a long-running operation says what it is; a made-up one is nothing. Z-1."""
    path = f"/subscriptions/{SUBSCRIPTION}{'/providers/Microsoft.Compute'}/locations/x/operations"
    for name in (
        "x",
        "ffffffff-0000-4000-8000-000000000001",
        "00000001-0000-4000-8000-000000009999",
    ):
        assert shared_arm.http("GET", f"{path}/{name}", params=VERSION).status_code == 404


def test_event_is_acknowledged_from_outside(arm: Arm) -> None:
    """An acknowledgement of the VM's event starts it; of another's it is unknown. Z-2, A-9."""
    arm.http("POST", f"{VM}/restart", params=VERSION)
    event_id = arm.emulator.document("db-0").events[0].event_id
    path = f"providers/Microsoft.Maintenance/scheduledevents/{event_id}/acknowledge"
    for other in (f"{PLACE}/virtualMachineScaleSets/web", VM.replace(GROUP, "another")):
        assert arm.http("POST", f"{other}/{path}", params=VERSION).status_code == 404
    assert arm.http("POST", f"{VM.upper()}/{path.lower()}", params=VERSION).status_code == 200
    assert arm.sees("db-0") == ["Reboot Started db-0 User"]


GRAPH = "/providers/Microsoft.ResourceGraph/resources"
EVENTS = "maintenanceresources\n| where type == 'microsoft.maintenance/scheduledevents'"


def test_resource_graph_has_the_scheduled_events(arm: Arm) -> None:
    """Azure's own query finds what VMs are told, in every subscription or one. Source: Z-2."""
    arm.http("POST", f"{VM}/restart", params=VERSION)
    [event] = arm.emulator.document("db-0").events

    def found(query: str, **given: object) -> Json:
        answer = arm.http("POST", GRAPH, params=VERSION, json={"query": query, **given})
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    [row] = found(EVENTS)
    assert row["name"] == row["properties"]["EventId"] == event.event_id
    assert row["resourceGroup"] == GROUP
    assert row["id"].lower().startswith(VM.lower())
    shown = {"EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["db-0"]}
    assert shown.items() <= row["properties"].items()
    assert row["properties"]["NotBefore"].endswith(" GMT")
    projected = (
        f"{EVENTS} | sort by tostring(properties.EventStatus), tostring(properties.EventId) asc"
        " | project resourceGroup, zones, properties.EventStatus, what = properties.EventType"
    )
    [row] = found(projected, subscriptions=[SUBSCRIPTION])
    assert row == {
        "resourceGroup": GROUP,
        "zones": None,
        "properties_EventStatus": "Scheduled",
        "what": "Reboot",
    }
    assert found(f"{EVENTS} and properties.EventType =~ 'freeze'") == []
    assert found(f"{EVENTS} | count") == [{"Count": 1}]
    assert found(f"{EVENTS} | take 0") == []
    assert found(EVENTS, subscriptions=["11111111-0000-0000-0000-000000000000"]) == []
    arm.approve("db-0")
    assert found(EVENTS) == []


@pytest.mark.parametrize(
    "query",
    [
        "resources",
        "maintenanceresources | summarize avg(x) by type",
        "maintenanceresources | where type near 'x'",
        "maintenanceresources | where a == " + "(" * 30 + "1" + ")" * 30,
        "maintenanceresources | where ago(1h)",
        "maintenanceresources | where type == 'x",
        "maintenanceresources | sort name",
        "maintenanceresources | take all",
        "maintenanceresources" + " | count" * 51,
        "maintenanceresources" + " " * 10_000,
    ],
)
def test_resource_graph_says_what_it_cannot_answer(shared_arm: Arm, query: str) -> None:
    """A query that is not understood is refused, and never answered as another. Z-4."""
    answer = shared_arm.http("POST", GRAPH, params=VERSION, json={"query": query})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidParameter")


ROWS: list[Json] = [
    {"name": "A1", "zone": 1, "properties": {"EventType": "Freeze", "Resources": ["vm-1", "vm-2"]}},
    {"name": "b2", "zone": 2, "properties": {"EventType": "Reboot", "Resources": ["vm-3"]}},
    {"name": "c10", "zone": 10, "properties": {"EventType": "Reboot", "Resources": []}},
]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("where name =~ 'a1' or zone >= 10", ["A1", "c10"]),
        ("where name =~ 'B2' or name == 'C10'", ["b2"]),
        ("where Properties.EventType in~ ('reboot', 'redeploy')", ["b2", "c10"]),
        ("where properties.EventType !in ('Reboot')", ["A1"]),
        ("where not(name startswith 'a') and (zone == 2 or zone == 1)", ["b2"]),
        ("where properties.EventType contains 'oot'", ["b2", "c10"]),
        ("where properties.EventType !contains 'oot'", ["A1"]),
        ("where properties.EventType contains 'REB'", ["b2", "c10"]),
        ("where properties.Resources has 'vm-2'", ["A1"]),
        ("where isnotempty(properties.Missing)", []),
        ("order by zone", ["c10", "b2", "A1"]),
        ("extend many = array_length(properties.Resources) | where many > 1", ["A1"]),
        ("where name == 'a | b' or name == \"c10\"", ["c10"]),
    ],
)
def test_resource_graph_finds_rows(steps: str, expected: list[str]) -> None:
    """Signs, functions and parentheses mean what they mean at Azure. Source: Z-8."""
    assert [row["name"] for row in answered(f"maintenanceresources | {steps}", ROWS)] == expected


def test_resource_graph_counts_by_group() -> None:
    """`summarize count() by` has a row for each group, and `distinct` one of each. Source: Z-8."""
    query = "maintenanceresources | summarize events = count() by what = properties.EventType"
    assert answered(query, ROWS) == [
        {"what": "Freeze", "events": 1},
        {"what": "Reboot", "events": 2},
    ]
    assert answered("maintenanceresources | summarize count()", []) == [{"count_": 0}]
    assert len(answered("maintenanceresources | distinct properties.EventType", ROWS)) == 2


def test_events_are_approved_together_or_not_at_all(arm: Arm) -> None:
    """A wrong id is named in the error's details, and nothing is approved. Source: Z-5."""
    arm.http("POST", f"{VM}/restart", params=VERSION)
    [event] = arm.emulator.document("db-0").events
    path = f"{VM}/providers/Microsoft.Maintenance/scheduledevents"
    wrong = [f"{number}1111111-0000-0000-0000-000000000000" for number in (1, 2)]
    answer = arm.http("POST", path, params=VERSION, json={"value": [event.event_id, *wrong]})
    assert answer.status_code == 404
    assert [each["target"] for each in answer.json()["error"]["details"]] == wrong
    assert arm.sees("db-0") == ["Reboot Scheduled db-0 User"]
    answer = arm.http("POST", path, params=VERSION, json={"value": [event.event_id.lower()]})
    assert answer.status_code == 200, answer.text
    assert arm.sees("db-0") != ["Reboot Scheduled db-0 User"]


@pytest.mark.parametrize("body", [{}, {"value": "x"}, {"value": []}, {"value": [1]}])
def test_list_of_events_to_approve_is_checked(shared_arm: Arm, body: Json) -> None:
    """A body of another shape changes nothing. Source: Z-5, Z-4."""
    path = f"{VM}/providers/Microsoft.Maintenance/scheduledevents"
    assert shared_arm.http("POST", path, params=VERSION, json=body).status_code == 400


def test_planned_work_of_a_vm_is_applied_at_once(arm: Arm) -> None:
    """`updates` lists it, and `applyUpdates` approves it. Source: Z-7."""
    arm.emulator.ask("live-migration", "h2")
    path = f"{VM}/providers/Microsoft.Maintenance"

    def listed() -> list[str]:
        answer = arm.http("GET", f"{path}/updates", params=VERSION)
        return [f"{each['impactType']} {each['status']}" for each in answer.json()["value"]]

    assert listed() == ["Freeze Pending"]
    answer = arm.http("PUT", f"{path}/applyUpdates/default", params=VERSION, json={})
    assert answer.status_code == 201, answer.text
    assert listed() != ["Freeze Pending"]
    again = arm.http("PUT", f"{path}/applyUpdates/default", params=VERSION, json={})
    assert again.status_code == 200


@pytest.mark.parametrize("step", ["where a{} x", "where tostring({} x", "sort by a{} x"])
def test_long_run_of_spaces_in_a_query_is_refused_at_once(step: str) -> None:
    """No query of the longest length holds up the service."""
    query = f"maintenanceresources | {step.format(' ' * 9_900)}"
    began_s = time.process_time()
    with pytest.raises(GraphQueryInvalid):
        answered(query, [])
    assert time.process_time() - began_s < 0.1


def test_act_without_an_api_version_changes_nothing(shared_arm: Arm) -> None:
    """The api-version is looked at first."""
    assert shared_arm.http("POST", f"{VM}/restart").status_code == 400
    assert shared_arm.sees("db-0") == []


def test_nothing_of_arm_is_on_the_metadata_port(shared_arm: Arm) -> None:
    """VMs reach none of it at their own address. Source: S-4."""
    import requests

    for path in ("/subscriptions", "/adfs/oauth2/token", "/metadata/endpoints", VM):
        answer = requests.get(
            shared_arm.emulator.url + path, headers={"Metadata": "true"}, timeout=9
        )
        assert answer.status_code == 404


def test_vm_is_given_a_token_at_its_metadata_address(shared_arm: Arm) -> None:
    """A managed identity needs nothing but the metadata service. Source: Z-3."""
    import requests

    url = f"{shared_arm.emulator.url}/metadata/identity/oauth2/token"
    query = {"api-version": "2018-02-01", "resource": shared_arm.url}
    assert requests.get(url, params=query, timeout=LIMIT_S).status_code == 400
    told = requests.get(url, params=query, headers={"Metadata": "true"}, timeout=LIMIT_S).json()
    headers = {"Authorization": f"Bearer {told['access_token']}"}
    answer = shared_arm.http("GET", VM, params=VERSION, headers=headers)
    assert answer.status_code == 200


def test_caller_from_a_page_of_another_site_is_refused(shared_arm: Arm) -> None:
    """No page of another site acts on VMs."""
    headers = {"Origin": "https://evil.example"}
    answer = shared_arm.http("POST", f"{VM}/restart", params=VERSION, headers=headers)
    assert answer.status_code == 403


def test_proxy_lends_no_identity(shared_arm: Arm) -> None:
    """What a proxy on this machine forwards needs a token that was given out here. Source: P-1."""
    via = {"Via": "1.1 proxy"}
    form = {"grant_type": "client_credentials", "client_id": "anna", "client_secret": "any"}
    for method, path, body in (("GET", "/subscriptions", {}), ("POST", TOKEN_PATH, form)):
        refused = shared_arm.http(method, path, params=VERSION, headers=via, data=body)
        assert refused.status_code == 403, refused.text
    given = shared_arm.http("POST", TOKEN_PATH, data=form).json()["access_token"]
    headers = {**via, "Authorization": f"Bearer {given}"}
    assert shared_arm.http("GET", "/subscriptions", params=VERSION, headers=headers).ok


def large_set(size: int) -> str:
    """A topology file with one scale set, each VM on a host of its own."""
    vm = 'host = "h{0}"\ngroup = "web"\nsubscription = "{1}"\nresource_group = "{2}"\n'
    hosts = "".join(f"[hosts.h{n}]\n" for n in range(size))
    vms = "".join(f"[vms.web_{n}]\n{vm.format(n, SUBSCRIPTION, GROUP)}" for n in range(size))
    return f'{hosts}[groups.web]\nkind = "scale-set"\n{vms}'


def test_scale_set_of_any_size_restarts(arms: Callable[..., Arm]) -> None:
    """Users' operations have no limit by default, and one where an option sets it. Source: O-1."""
    arm = arms(topology=large_set(12))
    answer = arm.http("POST", f"{SETS}/web/restart", params=VERSION)
    assert answer.status_code == 202, answer.text
    arm.emulator.advance("0s")
    wait_until(lambda: len(arm.sees("web_0")) == 12, what="an event of each VM")
    limited = arms(topology=large_set(12), max_user_operations=11)
    answer = limited.http("POST", f"{SETS}/web/restart", params=VERSION)
    assert (answer.status_code, limited.sees("web_0")) == (409, [])


def test_redeploy_moves_the_vm(arm: Arm) -> None:
    """It is on another host afterwards. Source: L-11."""
    arm.http("POST", f"{VM}/redeploy", params=VERSION)
    assert arm.sees("db-0") == ["Redeploy Scheduled db-0 User"]
    arm.approve("db-0")
    assert arm.sees("db-0") == []
    host = arm.emulator.emulator.control.read(lambda plane: plane.state.topology.vms["db-0"].host)
    assert host.result(LIMIT_S) in {"h0", "h1"}


def test_operation_is_not_found_under_another_subscription(arm: Arm) -> None:
    """Its status belongs to the subscription in which it was requested. Source: Z-1."""
    answer = arm.http("POST", f"{VM}/restart", params=VERSION)
    url = answer.headers["Azure-AsyncOperation"].removeprefix(arm.url)
    assert arm.http("GET", url).json()["status"] == "InProgress"
    assert arm.http("GET", url.replace("/subscriptions/", "/SUBSCRIPTIONS/")).status_code == 200
    foreign = url.replace(SUBSCRIPTION, "11111111-1111-1111-1111-111111111111")
    assert arm.http("GET", foreign).status_code == 404


UPGRADED = """
[hosts.h1]
[hosts.h2]
fault_domain = 7
[groups.web]
kind = "scale-set"
reimage_notice = true
"""


def shown_in_turn(arm: Arm, turns: int) -> list[list[str]]:
    """Return the events of each turn of an upgrade; every VM approves."""
    found = []
    for _ in range(turns):
        found.append(arm.sees("app-1"))
        arm.approve("app-1", by="3m")
    return [*found, arm.sees("app-1")]


def test_image_upgrade_shows_what_its_scenario_shows(arms: Callable[..., Arm]) -> None:
    """The VMs of one fault domain restart together, then those of the next. Source: O-2, G-1."""
    vm = '[vms.{0}]\nhost = "{1}"\ngroup = "web"\nsubscription = "{2}"\nresource_group = "{3}"\n'
    where = {"app-1": "h1", "upgrade-2": "h2", "upgrade-3": "h2"}
    vms = [vm.format(name, host, SUBSCRIPTION, GROUP) for name, host in where.items()]
    upgraded = arms(topology="".join([UPGRADED, *vms]))
    upgraded.http("POST", f"{SETS}/web/osRollingUpgrade", params=VERSION)
    played = arms(topology="".join([UPGRADED, vms[0]]))
    played.emulator.run_scenario("image-upgrade", "app-1")
    turns = shown_in_turn(upgraded, 2)
    assert turns == shown_in_turn(played, 2)
    assert [len(each) for each in turns] == [1, 2, 0]


@pytest.mark.parametrize("notified", [True, False])
def test_image_upgrade_reimages_one_fault_domain_after_the_other(
    arm: Arm, *, notified: bool
) -> None:
    """Its events are those of the scenario `image-upgrade`, where the set wants them. O-2, Z-1."""
    profile = {"osImageNotificationProfile": {"enable": notified, "notBeforeTimeout": "PT15M"}}
    machines = {"virtualMachineProfile": {"scheduledEventsProfile": profile}}
    assert (
        arm.http("PATCH", f"{SETS}/web", params=VERSION, json={"properties": machines}).status_code
        == 200
    )
    answer = arm.http("POST", f"{SETS}/web/osRollingUpgrade", params=VERSION)
    assert answer.status_code == 202, answer.text
    for vm in ("web_0", "web_1"):
        shown = [f"Reboot Scheduled {vm} Platform"] if notified else []
        assert arm.sees("web_0") == shown
        if notified:
            [event] = arm.emulator.document(vm).events
            assert event.description == "Guest OS image is being upgraded."
            arm.approve(vm, by="5m")
    arm.emulator.advance("0s")
    url = answer.headers["Azure-AsyncOperation"].removeprefix(arm.url)
    arm.emulator.advance("5m")
    assert arm.http("GET", url).json()["status"] == "Succeeded"
