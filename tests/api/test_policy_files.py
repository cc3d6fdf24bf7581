"""Policy files: the same policy in three forms, clear refusals, in force at once and after."""

import datetime as dt
import json
import re
import textwrap
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from forewarn_base.protocol import timestamps
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.validation.json_reader import JSON
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window
from forewarn_server.api.file_process import POLICY_FILE, read_file
from forewarn_server.api.policy_file import policy_of, written_policy
from forewarn_server.api.policy_routes import open_time
from forewarn_server.api.topology_file import TOML, YAML
from tests.api.live import Live

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto"

FILE = b"""
pause = "10m"
owner_rest = "1h"
canary = 2
max_failures = 1

[[budgets]]
for = "rack"
limit = "10%"

[[budgets]]
for = "label"
name = "tier=db"
limit = 1

[[freezes]]
from = "2028-12-20T00:00:00+01:00"
to = "2029-01-02T00:00:00+01:00"

[windows.nights]
time_zone = "Europe/Berlin"
weekdays = ["fri", "mon"]
from = "22:00"
to = "04:00"
except = ["2028-02-29"]
hosts = "zone=2, rack=r7"
"""
POLICY = MaintenancePolicy(
    budgets=(Budget(Scope.RACK, 10, percent=True), Budget(Scope.LABEL, 1, name="tier=db")),
    windows=(
        Window(
            "nights",
            "Europe/Berlin",
            (0, 4),
            22 * 60,
            4 * 60,
            ("2028-02-29",),
            ("zone=2", "rack=r7"),
        ),
    ),
    freezes=((1_860_879_600_000, 1_862_002_800_000),),
    pause_s=600,
    owner_rest_s=3600,
    canary_count=2,
    max_failures=1,
)


def test_file_says_the_whole_policy() -> None:
    """Every member of the file is one of the policy. Source: F-3, F-7."""
    assert policy_of(read_file(POLICY_FILE, FILE, TOML)) == POLICY


@pytest.mark.parametrize("media", [TOML, YAML, JSON])
@pytest.mark.parametrize("policy", [POLICY, MaintenancePolicy()], ids=["full", "empty"])
def test_policy_is_written_as_it_is_read(policy: MaintenancePolicy, media: str) -> None:
    """What is shown can be applied, in each of the three forms."""
    assert policy_of(read_file(POLICY_FILE, written_policy(policy, media), media)) == policy


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ('pauze = "1m"', "has the unknown member 'pauze'"),
        ("budgets = [{for = 'rack', limit = '0%'}]", "must be a non-negative integer, or a perc"),
        (
            "budgets = [{for = 'label', limit = 1}]",
            "budgets[0] is wrong: a budget for a label must n",
        ),
        ("budgets = [{for = 'aisle', limit = 1}]", "one of fleet, zone, rack, label, owner, gr"),
        ("budgets = [{for = 'rack'}]", "lacks the member 'limit'"),
        ("[windows.w]\nfrom = '25:00'", "windows.w.from must be a time of day such as 22:30"),
        ("[windows.w]\nweekdays = ['Monday']", "must be one of mon, tue, wed, thu, fri, sat, sun"),
        ("[windows.w]\ntime_zone = 'Mars/Base'", "the time zone 'Mars/Base' is unknown"),
        ("[windows.w]\nexcept = ['2027-02-29']", "windows.w is wrong: "),
        ("[windows.w]\nfrom = '04:00'\nto = '04:00'", "its closing time equals its opening time"),
        ("[windows.w]\nhosts = 'zone'", "'zone' is not KEY=VALUE"),
        ("freezes = [{from = '+1h', to = '+2h'}]", "freezes[0].from must be a fixed time"),
        (
            "freezes = [{from = '2028-01-02T00:00:00Z', to = '2028-01-01T00:00:00Z'}]",
            "freezes[0] is wrong: it ends before it begins",
        ),
    ],
    ids=lambda text: text[:24].split("\n")[-1],
)
def test_wrong_policy_is_refused_by_its_place(file: str, sentence: str) -> None:
    """A refusal names the member and what may stand there. Source: F-3."""
    with pytest.raises(ValidationFailed) as refusal:
        policy_of(read_file(POLICY_FILE, file.encode(), TOML))
    assert sentence in str(refusal.value)


def test_policy_is_applied_shown_and_replaced(live: Live) -> None:
    """A policy holds from the answer on, and is one line of history. Source: F-3."""
    assert live.get("/v1/policy") == {}
    tried = live.call("PUT", "/v1/policy?dry_run=true", {"canary": 3})
    assert tried.json["changed"] == ["canary"]
    assert live.get("/v1/policy") == {}
    applied = live.call("PUT", "/v1/policy", {"canary": 3, "pause": 60})
    assert applied.json == {
        "changed": ["pause", "canary"],
        "applied": True,
        "policy": {"canary": 3, "pause": "PT1M"},
        "maintenances": [],
    }
    live.call("PUT", "/v1/policy", {"canary": 3})
    assert live.get("/v1/policy") == {"canary": 3}
    entries = live.get("/v1/history?action=policy.applied")["entries"]
    assert len(entries) == 2


def test_refused_policy_changes_nothing(live: Live) -> None:
    """What is refused leaves the policy in force as it is."""
    live.call("PUT", "/v1/policy", {"canary": 3})
    refused = live.call("PUT", "/v1/policy", {"windows": {"w": {"from": "noon"}}})
    assert (refused.status, refused.code) == (422, "validation-failed")
    assert live.get("/v1/policy") == {"canary": 3}


def test_open_time_is_of_each_window_or_of_a_host(live: Live) -> None:
    """Every open span is listed, freezes taken out; a host has those of its windows. F-7."""
    live.fleet(hosts={"h1": {"zone": "1"}, "h2": {}})
    assert [each["window"] for each in live.get("/v1/windows?days=1")["spans"]] == [""]
    live.call("PUT", "/v1/policy", {"windows": {"w": {"hosts": "zone=1", "to": "01:00"}}})
    asked = live.get("/v1/windows?days=3&host=h1")["spans"]
    assert {each["window"] for each in asked} == {"w"}
    assert all(each["opens"].endswith("T00:00:00Z") for each in asked[1:])
    [whole] = live.get("/v1/windows?days=3&host=h2")["spans"]
    assert whole["window"] == ""
    assert live.call("GET", "/v1/windows?host=h9").status == 404


def test_policy_gives_the_failures_that_may_be(live: Live) -> None:
    """A maintenance that does not say how many hosts may fail has the policy's number. F-5."""
    live.fleet(hosts={"h1": {}})
    live.call("PUT", "/v1/policy", {"max_failures": 2})
    asked = {"cause": "host-reboot", "all": True, "duration": 600}
    made = live.call("POST", "/v1/maintenances", asked).json["maintenance"]
    assert made["max_failures"] == 2
    strict = live.call("POST", "/v1/maintenances", {**asked, "max_failures": 0})
    assert strict.json["maintenance"]["max_failures"] == 0


def test_preview_keeps_the_applied_policy(live: Live) -> None:
    """A preview is made by the policy in force. Source: F-2."""
    live.fleet(hosts={f"h{n}": {} for n in range(4)})
    asked = {"cause": "host-reboot", "all": True, "duration": 600}
    assert len(live.post("/v1/maintenances/plan", **asked)["plan"]["waves"]) == 1
    live.call("PUT", "/v1/policy", {"budgets": [{"for": "fleet", "limit": "25%"}]})
    assert len(live.post("/v1/maintenances/plan", **asked)["plan"]["waves"]) == 4
    assert json.loads(live.call("GET", "/v1/policy?format=json").body)["budgets"]


@pytest.mark.parametrize(
    "page", ["maintenance-windows", "maintenance-budgets", "maintenance-postponing"]
)
def test_examples_of_the_howtos_can_be_applied(page: str, live: Live) -> None:
    """What the documents tell a reader to write down, the service takes."""
    text = (HOWTO / f"{page}.md").read_text("utf-8")
    example = textwrap.dedent("\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)))
    reply = live.call("PUT", "/v1/policy", body=example.encode(), headers={"Content-Type": TOML})
    assert reply.status == 200, reply
    if page == "maintenance-postponing":
        assert live.get("/v1/policy?format=json")["postponing"] == "PT24H"
        return
    if page == "maintenance-windows":
        live.fleet(hosts={"h1": {}, "d1": {"labels": {"tier": "db"}}})
        named = {
            host: {each["window"] for each in live.get(f"/v1/windows?host={host}")["spans"]}
            for host in ("h1", "d1")
        }
        assert named == {"h1": {"nights"}, "d1": {"nights", "database-sundays"}}
        return
    racks = {f"h{n}": {"labels": {"rack": f"r{n % 4}"}} for n in range(20)}
    live.fleet(hosts=racks)
    asked = {"cause": "host-reboot", "all": True, "duration": 600}
    waves = live.post("/v1/maintenances/plan", **asked)["plan"]["waves"]
    sizes = [len(each["hosts"]) for each in waves]
    assert (sizes[0], max(sizes), sum(sizes)) == (2, 2, 20)


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("window", "day", "told"),
    [
        (  # 02:00 to 03:00 does not exist on 2028-03-26
            Window("w", BERLIN, from_min=60, to_min=240),
            "2028-03-26",
            [("2028-03-26T01:00:00+01:00", "2028-03-26T04:00:00+02:00", 2)],
        ),
        (  # 02:00 to 03:00 comes twice on 2028-10-29
            Window("w", BERLIN, from_min=60, to_min=240),
            "2028-10-29",
            [("2028-10-29T01:00:00+02:00", "2028-10-29T04:00:00+01:00", 4)],
        ),
        (
            Window("w", "UTC", weekdays=(0,), from_min=1380, to_min=60),
            "2028-02-28",
            [("2028-02-28T23:00:00+00:00", "2028-02-29T01:00:00+00:00", 2)],
        ),
        (
            Window("w", "UTC", from_min=1380, to_min=60, except_dates=("2028-02-29",)),
            "2028-02-28T12",
            [("2028-02-28T23:00:00+00:00", "2028-02-29T00:00:00+00:00", 1)],
        ),
    ],
    ids=["spring", "autumn", "midnight", "leap-day"],
)
def test_open_time_is_told_in_local_time(
    window: Window, day: str, told: list[tuple[str, str, int]]
) -> None:
    """Daylight saving, midnight and a leap day are told as a clock on the wall shows. F-7."""
    zone = ZoneInfo(window.time_zone)
    start = dt.datetime.fromisoformat(day).replace(tzinfo=zone)
    start_ms = int(start.timestamp() * 1000)
    spans = open_time(MaintenancePolicy(windows=(window,)), (start_ms, start_ms + 36 * 3_600_000))
    found = [
        (
            each["local_opens"],
            each["local_closes"],
            (timestamps.parse(each["closes"]) - timestamps.parse(each["opens"])) // 3_600_000,
        )
        for each in spans
    ]
    assert found[: len(told)] == told


def test_freeze_is_taken_out_of_open_time() -> None:
    """A freeze cuts a window in two. Source: F-7."""
    hour_ms = 3_600_000
    policy = MaintenancePolicy(windows=(Window("w"),), freezes=((hour_ms, 2 * hour_ms),))
    spans = open_time(policy, (0, 3 * hour_ms))
    assert [(each["opens"][11:16], each["closes"][11:16]) for each in spans] == [
        ("00:00", "01:00"),
        ("02:00", "03:00"),
    ]
