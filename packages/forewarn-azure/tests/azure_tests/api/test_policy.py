"""The whole `scheduledEventsPolicy`, kept and obeyed. Source: Z-6."""

import pytest

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm
from forewarn_base.protocol.versions import VERSIONS
from tests.api.live import Json
from tests.waiting import wait_until

VERSION = {"api-version": "2024-07-01"}
PLACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
VM = f"{PLACE}/virtualMachines/db-0"
TARGETS = "scheduledEventsAdditionalPublishingTargets"
GRAPH = "/providers/Microsoft.ResourceGraph/resources"


def patched(arm: Arm, policy: Json, status: int = 200) -> Json:
    """Change the policy of db-0, and return it as it is shown then."""
    body = {"properties": {"scheduledEventsPolicy": policy}}
    answer = arm.http("PATCH", VM, params=VERSION, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if status != 200 else answer.json()["properties"]["scheduledEventsPolicy"]


def rows(arm: Arm) -> list[Json]:
    """Return the properties of the events in Resource Graph."""
    answer = arm.http("POST", GRAPH, params=VERSION, json={"query": "maintenanceresources"})
    return [each["properties"] for each in answer.json()["data"]]


@pytest.mark.parametrize("first", ["off", "event"])
def test_event_of_instances_that_are_all_down_is_approved(arm: Arm, first: str) -> None:
    """Whether they were stopped before or after it came; that is the default. Source: Z-6."""
    if first == "off":
        arm.http("POST", f"{VM}/powerOff", params=VERSION)
    arm.emulator.ask("host-reboot", "h2")
    if first == "event":
        arm.http("POST", f"{VM}/powerOff", params=VERSION)
    wait_until(lambda: arm.sees("db-0") == ["Reboot Started db-0 Platform"])


def test_event_of_instances_that_are_down_waits_where_policy_says_so(arm: Arm) -> None:
    """`allInstancesDown` can be switched off, and one instance that runs is enough. Z-6."""
    shown = patched(arm, {"allInstancesDown": {"automaticallyApprove": False}})
    assert shown["allInstancesDown"] == {"automaticallyApprove": False}
    arm.http("POST", f"{VM}/powerOff", params=VERSION)
    arm.http(
        "POST", f"{PLACE}/virtualMachineScaleSets/web/virtualMachines/0/powerOff", params=VERSION
    )
    arm.emulator.ask("host-reboot", "h2")
    arm.emulator.ask("live-migration", "h0")
    assert arm.sees("db-0") == ["Reboot Scheduled db-0 Platform"]
    assert arm.sees("web_0") == ["Freeze Scheduled web_0 Platform"]


def test_event_grid_and_resource_graph_show_what_the_policy_says(arm: Arm) -> None:
    """Nothing, or events as an api-version has them. Source: Z-6."""
    arm.emulator.ask("host-reboot", "h2")
    assert rows(arm)[0]["DurationInSeconds"] == -1
    old = {"enable": True, "scheduledEventsApiVersion": "2019-08-01"}
    shown = patched(arm, {TARGETS: {"eventGridAndResourceGraph": old}})
    assert shown[TARGETS] == {"eventGridAndResourceGraph": old}
    [row] = rows(arm)
    assert (row["EventSource"], "DurationInSeconds" in row) == ("Platform", False)
    patched(arm, {TARGETS: {"eventGridAndResourceGraph": {"enable": False}}})
    assert rows(arm) == []
    version_alone = {"scheduledEventsApiVersion": "2019-08-01"}
    patched(arm, {TARGETS: {"eventGridAndResourceGraph": version_alone}})
    assert rows(arm) == []
    wrong = {TARGETS: {"eventGridAndResourceGraph": {"scheduledEventsApiVersion": "x"}}}
    assert patched(arm, wrong, 400)["error"]["code"] == "InvalidParameter"  # also while it is off
    patched(arm, {TARGETS: {"eventGridAndResourceGraph": {"enable": True}}})
    assert patched(arm, wrong, 400)["error"]["code"] == "InvalidParameter"


#: A part of the events' settings, a path in it, its value's name, a value, and the default.
SWITCHES = {
    "terminate": ("Profile", "terminateNotificationProfile", "notBeforeTimeout", "PT7M", "PT5M"),
    "image": ("Profile", "osImageNotificationProfile", "notBeforeTimeout", "PT15M", "PT15M"),
    "published": (
        *("Policy", f"{TARGETS}.eventGridAndResourceGraph"),
        *("scheduledEventsApiVersion", "2019-08-01", VERSIONS[-1]),
    ),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_setting_that_is_off_keeps_its_value(arm: Arm, switch: str) -> None:
    """A PATCH turns it on with the value; a PUT without the value means the default. Z-6."""
    part, path, name, value, default = SWITCHES[switch]
    names = ("properties", f"scheduledEvents{part}", *path.split("."))

    def sent(method: str, **members: object) -> Json:
        body: Json = members
        for each in reversed(names):
            body = {each: body}
        answer = arm.http(method, VM, params=VERSION, json=body)
        assert answer.status_code == 200, answer.text
        shown = arm.get(VM)
        for each in names:
            shown = shown[each]
        return shown

    off, on = {"enable": False, name: value}, {"enable": True, name: value}
    assert sent("PUT", **off) == off
    assert sent("PATCH", enable=True) == on
    assert sent("PATCH", enable=False) == off
    assert sent("PUT", enable=True) == {"enable": True, name: default}
    assert sent("PATCH", **off) == off
    assert sent("PUT", enable=False) == {"enable": False, name: default}


@pytest.mark.parametrize("value", ["PT1M", "PT0S", "PT16M", "soon"])
def test_notice_is_checked_while_it_is_off(arm: Arm, value: str) -> None:
    """A PATCH that turned it on would fail. Source: N-1."""
    notice = {"terminateNotificationProfile": {"enable": False, "notBeforeTimeout": value}}
    body = {"properties": {"scheduledEventsProfile": notice}}
    answer = arm.http("PATCH", VM, params=VERSION, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidParameter")


def test_member_of_a_policy_that_is_not_known_is_kept(arm: Arm) -> None:
    """No member is dropped silently, however deep. Source: Z-6."""
    shown = patched(arm, {"userInitiatedReboot": {"automaticallyApprove": True, "later": 1}})
    assert shown["userInitiatedReboot"] == {"automaticallyApprove": True, "later": 1}


def test_sdk_reads_and_writes_the_whole_policy(arm: Arm) -> None:
    """As azure-mgmt-compute models it. Source: Z-6."""
    vms = arm.sdk().virtual_machines
    policy = {
        "userInitiatedReboot": {"automaticallyApprove": True},
        "userInitiatedRedeploy": {"automaticallyApprove": False},
        "allInstancesDown": {"automaticallyApprove": False},
        TARGETS: {"eventGridAndResourceGraph": {"enable": False}},
    }
    vms.begin_update(GROUP, "db-0", {"properties": {"scheduledEventsPolicy": policy}}).result()
    shown = vms.get(GROUP, "db-0").scheduled_events_policy
    assert shown.all_instances_down.automatically_approve is False
    targets = shown.scheduled_events_additional_publishing_targets
    assert targets.event_grid_and_resource_graph.enable is False
    assert shown.user_initiated_reboot.automatically_approve is True
