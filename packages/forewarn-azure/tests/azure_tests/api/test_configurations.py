"""Maintenance configurations and assignments are windows of the policy. Source: Z-7."""

import datetime as dt

import pytest
from azure.mgmt.maintenance import MaintenanceManagementClient
from azure.mgmt.maintenance.models import ConfigurationAssignment, MaintenanceConfiguration
from hypothesis import given
from hypothesis import strategies as st

from azure_tests.api.conftest import GROUP, SUBSCRIPTION, Arm, Password
from forewarn_azure.configuration_routes import MaintenanceWindowInvalid, times_of, window_of
from forewarn_core.fleet.policy import maintenance_policy
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import Window, open_spans
from forewarn_server.api.policy_file import policy_form, read_policy_table
from tests.api.live import Json
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
    assert shown["properties"]["maintenanceWindow"] == WINDOW
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


def opens(window: Window, day: str) -> bool:
    """Whether a window opens on a day, by its spans in UTC."""
    start_ms = int(dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp()) * 1000
    opening_ms = start_ms + window.from_min * 60_000
    spans = open_spans([window], opening_ms, opening_ms + 60_000)
    return spans == ((opening_ms, opening_ms + 60_000),)


@pytest.mark.parametrize(
    ("expires", "last"),
    [("2039-12-31 22:00", "2039-12-30"), ("2039-12-31 22:01", "2039-12-31")],
)
def test_configuration_opens_no_more_once_expired(expires: str, last: str) -> None:
    """A window that opens at 22:00 opens for the last time before that moment. Source: Z-7."""
    times = WINDOW | {"expirationDateTime": expires, "timeZone": "UTC", "recurEvery": "Day"}
    window = window_of(Window("w"), times)
    days = [f"2039-12-{day}" for day in (29, 30, 31)]
    assert max(day for day in days if opens(window, day)) == last


def test_put_replaces_and_patch_of_tags_changes_tags_alone(arm: Arm) -> None:
    """A PUT without an expiry has none; a PATCH of tags keeps all times. Source: Z-7."""
    configured(arm, startDateTime="2020-04-30 23:59", expirationDateTime="2030-03-02 02:00")
    before = sent(arm, "GET", NIGHTS)
    for tags in ({}, {"team": "db"}):
        assert sent(arm, "PATCH", NIGHTS, {"tags": tags}) == before | {"tags": tags}
    times = {name: WINDOW[name] for name in ("startDateTime", "timeZone", "recurEvery")}
    put = sent(arm, "PUT", NIGHTS, {"properties": {"maintenanceWindow": times}})
    shown = put["properties"]["maintenanceWindow"]
    assert (shown["expirationDateTime"], shown["duration"]) == ("9999-12-31 23:59", "05:00")
    assert put["tags"] == {}


#: Days of December 2026 on which a configuration that starts on the first of November opens.
RECURRENCES = {
    "3Days": [1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31],
    "Week Monday,friday": [4, 7, 11, 14, 18, 21, 25, 28],
    "2Weeks": [13, 27],
    "Month": [1],
    "Month day15,day31": [15, 31],
    "2Months day1": [],
    "Month Second Tuesday": [8],
    "Month Last Sunday": [27],
    "Month Last Sunday Offset-3": [24],
    "Month Last Monday Offset6": [6],
}


@pytest.mark.parametrize("every", RECURRENCES)
def test_recurrence_opens_on_its_days(every: str) -> None:
    """Days, weeks and months, each with a frequency, as Azure documents them. Source: Z-7."""
    times = WINDOW | {"startDateTime": "2026-11-01 22:00", "timeZone": "UTC", "recurEvery": every}
    window = window_of(Window("w"), times)
    days = [day for day in range(1, 32) if opens(window, f"2026-12-{day:02}")]
    assert days == RECURRENCES[every]


@given(
    st.datetimes(dt.datetime.fromisoformat("2020-01-01"), dt.datetime.fromisoformat("2030-01-01")),
    st.integers(1, 10**7),
    st.integers(1, 1439),
    st.sampled_from(["UTC", "utc", "FLE Standard Time", "W. EUROPE Standard time", "Asia/Tokyo"]),
    st.sampled_from([*RECURRENCES, "Day", "week", "1Weeks Sunday", "9 months Day2", "5Days"]),
)
def test_configuration_reads_back_as_it_was_written(
    starts: dt.datetime, lasts_min: int, duration_min: int, zone: str, every: str
) -> None:
    """Shown times, written again, give the same window and the same times. Source: Z-7."""
    ends = starts + dt.timedelta(minutes=lasts_min)
    body = {
        "startDateTime": f"{starts:%Y-%m-%d %H:%M}",
        "expirationDateTime": f"{ends:%Y-%m-%d %H:%M}",
        "duration": f"{duration_min // 60:02}:{duration_min % 60:02}",
        "timeZone": zone,
        "recurEvery": every,
    }
    try:
        window = window_of(Window("w", groups=()), body)
    except MaintenanceWindowInvalid as error:
        assert "does not exist" in str(error)  # noqa: PT017 - only in spring's hour
        return
    shown = times_of(window)
    for name in ("startDateTime", "expirationDateTime", "duration"):
        assert shown[name] == body[name]
    assert window_of(Window("w", groups=()), shown) == window
    table = policy_form(MaintenancePolicy(windows=(window,)))
    assert read_policy_table(table).windows == (window,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recurEvery", "Month Fifth Tuesday"),
        ("recurEvery", "Month Last Sunday Offset7"),
        ("recurEvery", "Fortnight"),
        ("recurEvery", "1000Days"),
        ("recurEvery", "Month day32"),
        ("duration", "30:00"),
        ("duration", "24:00"),
        ("duration", ""),
        ("startDateTime", "soon"),
        ("startDateTime", "2026-03-29 02:30"),
        ("expirationDateTime", "2020-04-30 22:00"),
        ("timeZone", "Nowhere Standard Time"),
    ],
)
def test_configuration_that_cannot_be_is_refused(arm: Arm, name: str, text: str) -> None:
    """With the member that is wrong; nothing is dropped. Source: Z-7, Z-6."""
    error = configured(arm, 400, **{name: text})["error"]
    assert error["code"] == "InvalidMaintenanceWindow"
    assert f"maintenanceWindow.{name}" in error["message"]
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
