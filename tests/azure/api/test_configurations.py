"""Maintenance configurations and assignments are windows of the policy. Source: Z-7."""

import pytest
from azure.mgmt.maintenance import MaintenanceManagementClient
from azure.mgmt.maintenance.models import ConfigurationAssignment, MaintenanceConfiguration

from forewarn.core.policy import maintenance_policy
from tests.api.live import Json
from tests.azure.api.conftest import GROUP, SUBSCRIPTION, Arm, Password
from tests.waiting import LIMIT_S

VERSION = {"api-version": "2023-04-01"}
PLACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
NIGHTS = f"{PLACE}/Microsoft.Maintenance/maintenanceConfigurations/nights"
VM = f"{PLACE}/Microsoft.Compute/virtualMachines/db-0"
ASSIGNMENT = f"{VM}/providers/Microsoft.Maintenance/configurationAssignments/nights"
WINDOW = {
    "startDateTime": "2020-04-30 22:00",
    "expirationDateTime": "2039-12-31 00:00",
    "duration": "05:00",
    "timeZone": "W. Europe Standard Time",
    "recurEvery": "Week Saturday,Sunday",
}


def sent(arm: Arm, method: str, path: str, body: Json = None, status: int = 200) -> Json:
    """Send a request, and return its answer's body."""
    answer = arm.http(method, path, params=VERSION, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def configured(arm: Arm, status: int = 201, **changes: str) -> Json:
    """Create the configuration, with other members."""
    body = {"properties": {"maintenanceScope": "Host", "maintenanceWindow": WINDOW | changes}}
    return sent(arm, "PUT", NIGHTS, body, status)


def open_on(arm: Arm, host: str) -> set[str]:
    """Return the windows of a host, by the policy in force."""
    control = arm.emulator.emulator.control
    policy, words = control.read(
        lambda view: (
            maintenance_policy(view.state.applied_policy, view.policy),
            view.state.topology.words_on(host),
        )
    ).result(LIMIT_S)
    return {each.name.rpartition("..")[2] for each in policy.windows_of(words)}


def test_configuration_opens_hosts_of_what_it_is_assigned_to(arm: Arm) -> None:
    """Unassigned it closes nothing; assigned, work on the VM's host waits for it. Source: Z-7."""
    shown = configured(arm)
    assert shown["properties"]["maintenanceWindow"] == WINDOW | {
        "expirationDateTime": "2039-12-30 23:59"
    }
    assert open_on(arm, "h2") == set()
    body = {"location": "x", "properties": {"maintenanceConfigurationId": NIGHTS}}
    made = sent(arm, "PUT", ASSIGNMENT, body, 201)
    assert made["properties"] == {"maintenanceConfigurationId": NIGHTS, "resourceId": VM}
    assert (open_on(arm, "h2"), open_on(arm, "h0")) == ({"nights"}, set())
    assert sent(arm, "GET", ASSIGNMENT.rpartition("/")[0])["value"] == [made]
    assert sent(arm, "DELETE", ASSIGNMENT) == made
    assert open_on(arm, "h2") == set()


def test_configuration_is_read_listed_changed_and_deleted(arm: Arm) -> None:
    """As its tools expect it. Source: Z-7."""
    configured(arm)
    body = {"properties": {"maintenanceWindow": {"recurEvery": "Day"}}}
    changed = sent(arm, "PATCH", NIGHTS, body)
    assert changed["properties"]["maintenanceWindow"]["recurEvery"] == "Day"
    assert sent(arm, "GET", NIGHTS) == configured(arm, 200, recurEvery="1Day")
    collection = NIGHTS.rpartition("/")[0]
    assert [each["name"] for each in sent(arm, "GET", collection)["value"]] == ["nights"]
    sent(arm, "DELETE", NIGHTS)
    sent(arm, "DELETE", NIGHTS, status=204)
    sent(arm, "GET", NIGHTS, status=404)


@pytest.mark.parametrize(
    ("expires", "last"),
    [
        ("2039-12-31 22:00", "2039-12-30"),
        ("2039-12-31 22:01", "2039-12-31"),
        ("9999-12-31 00:00", "9999-12-31"),
    ],
)
def test_configuration_opens_no_more_once_expired(arm: Arm, expires: str, last: str) -> None:
    """A window that opens at 22:00 opens for the last time before that moment. Source: Z-7."""
    shown = configured(arm, expirationDateTime=expires)["properties"]["maintenanceWindow"]
    assert shown["expirationDateTime"] == f"{last} 23:59"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recurEvery", "Month Second Tuesday"),
        ("recurEvery", "2Weeks Monday"),
        ("duration", "30:00"),
        ("duration", ""),
        ("startDateTime", "soon"),
        ("timeZone", "Nowhere Standard Time"),
    ],
)
def test_configuration_that_no_window_can_say_is_refused(arm: Arm, name: str, text: str) -> None:
    """With the member that cannot be kept; nothing is dropped. Source: Z-7, Z-6."""
    error = configured(arm, 400, **{name: text})["error"]
    assert error["code"] == "InvalidParameter"
    sent(arm, "GET", NIGHTS, status=404)


@pytest.mark.parametrize(
    "properties", [{"maintenanceScope": "InGuestPatch"}, {"installPatches": {"rebootSetting": "x"}}]
)
def test_member_without_a_meaning_here_is_refused(arm: Arm, properties: Json) -> None:
    """A scope or setting that Forewarn does not have is named. Source: Z-7, Z-6."""
    body = {"properties": {"maintenanceWindow": WINDOW, **properties}}
    message = sent(arm, "PUT", NIGHTS, body, 409)["error"]["message"]
    assert next(iter(properties)) in message


def test_sdk_configures_assigns_and_applies(arm: Arm) -> None:
    """As azure-mgmt-maintenance does it. Source: Z-7."""
    with MaintenanceManagementClient(
        Password(arm),
        SUBSCRIPTION,
        base_url=arm.url,
        credential_scopes=[f"{arm.url}/.default"],
        connection_verify=arm.certificate,
    ) as client:
        window = MaintenanceConfiguration(
            location="emulated",
            namespace="Microsoft.Maintenance",
            maintenance_scope="Host",
            visibility="Custom",
            start_date_time=WINDOW["startDateTime"],
            duration="05:00",
            time_zone="UTC",
            recur_every="Day",
        )
        made = client.maintenance_configurations.create_or_update(GROUP, "nights", window)
        assert (made.recur_every, made.duration, made.time_zone) == ("Day", "05:00", "UTC")
        assert [each.name for each in client.maintenance_configurations.list()] == ["nights"]
        place = (GROUP, "Microsoft.Compute", "virtualMachines", "db-0")
        assignment = ConfigurationAssignment(maintenance_configuration_id=made.id)
        client.configuration_assignments.create_or_update(*place, "nights", assignment)
        [found] = client.configuration_assignments.list(*place)
        assert found.maintenance_configuration_id == made.id
        assert open_on(arm, "h2") == {"nights"}
        arm.emulator.ask("live-migration", "h2")
        assert [each.status for each in client.updates.list(*place)] == ["Pending"]
        client.apply_updates.create_or_update(*place)
        assert arm.sees("db-0") == ["Freeze Started db-0 Platform"]
        client.configuration_assignments.delete(*place, "nights")
        client.maintenance_configurations.delete(GROUP, "nights")
