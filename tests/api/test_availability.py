"""The availability of VMs through the operator API: figures, records and owners."""

import json
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_server.api import availability_routes
from tests.api.live import FLEET, NOW_MS, SETTINGS, Json, Live
from tests.asking import Reply
from tests.store.random_work import RandomWork
from tests.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
CHECK = runpy.run_path(str(ROOT / "docs/howto/check-availability.py"))["main"]
HOUR_S = 3600


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with two hosts and three VMs, two of them of the owner `shop`."""
    with Live() as service:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        yield service


def reboot(live: Live, host: str, lasts_s: int = 300) -> str:
    """Reboot a host, from its notice to its end; return the operation's id."""
    operation = live.post(f"/v1/hosts/{host}/reboot")["operations"][0]["id"]
    live.settle()
    live.advance(HOUR_S)
    live.advance(lasts_s)
    live.post(f"/v1/operations/{operation}/complete")
    live.settle()
    return str(operation)


def export(live: Live, query: str = "") -> list[Json]:
    """Return the lines of an export."""
    page = live.get(f"/v1/availability/records?{query}")
    lines = [{"kind": "period", **{name: page[name] for name in ("from", "to", "at")}}]
    lines += page["records"]
    while page["next"]:
        after = page["next"]
        page = live.get(f"/v1/availability/records?{query}&after={after}")
        lines += page["records"]
    return lines


def test_report_names_each_disturbance_with_its_event(live: Live) -> None:
    """Each second that counts belongs to an event and a VM. Source: T-13."""
    live.advance(HOUR_S)
    operation = reboot(live, "h1")
    live.advance(HOUR_S)
    report = live.get("/v1/availability?owner=shop")
    assert [each["vm"] for each in report["vms"]] == ["web-0", "web-1"]
    [lost] = report["disturbances"]
    assert (lost["vm"], lost["operation"], lost["ms"]) == ("web-0", operation, 300_000)
    assert (lost["type"], lost["source"], lost["measured"]) == ("Reboot", "Platform", False)
    counted_ms = live.clock.now_ms() - NOW_MS
    assert report["counted_ms"] == 2 * counted_ms
    assert report["disturbed_ms"] == sum(each["disturbed_ms"] for each in report["vms"]) == 300_000


def test_period_begins_and_ends_where_it_is_asked_for(live: Live) -> None:
    """Only what lies in the period counts, to the millisecond. Source: T-13."""
    reboot(live, "h1")
    live.advance(HOUR_S)
    begin, end = "2027-01-15T09:02:00.250Z", "2027-01-15T09:03:00Z"
    report = live.get(f"/v1/availability?vm=web-0&from={begin}&to={end}")
    assert (report["from"], report["to"]) == (begin, end)
    assert report["disturbed_ms"] == report["counted_ms"] == 59_750
    assert report["available_percent"] == 0


def test_records_give_the_same_figures_by_the_published_procedure(live: Live) -> None:
    """Also while an event is Started, and of one VM or one owner. Source: T-13."""
    reboot(live, "h2", lasts_s=61)
    live.post("/v1/hosts/h1/fail")
    live.advance(77)
    for query in ("", "owner=shop", "vm=db-0", "group=web&to=2027-01-15T09:00:30Z"):
        report = live.get(f"/v1/availability?{query}")
        figures = CHECK(map(json.dumps, export(live, query)))
        names = ("counted_ms", "disturbed_ms", "available_percent")
        assert [figures[name] for name in names] == [report[name] for name in names], query
        assert len(figures["vms"]) == len(report["vms"])


def test_owner_reads_the_own_availability_alone() -> None:
    """Neither figures nor records show another owner's VMs. Source: T-13, P-3."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        owner = {"Authorization": f"Bearer {live.add_token('o', Role.OWNER, 'shop')}"}
        assert live.call("PUT", "/v1/topology", FLEET, headers=admin).status == 200
        assert live.call("POST", "/v1/hosts/h1/fail", {}, headers=admin).status == 202
        live.advance(60)

        def read(path: str) -> Reply:
            return live.call("GET", path, headers=owner)

        report = read("/v1/availability").json
        assert {each["owner"] for each in report["vms"]} == {"shop"}
        assert [each["vm"] for each in report["disturbances"]] == ["web-0"]
        assert b"db" not in read("/v1/availability/records").body
        assert read("/v1/availability?owner=").json["vms"] == []
        promises = read("/v1/promises?by=owner").json
        assert [each["name"] for each in promises["parts"]] == ["shop"]
        assert promises["total"]["events"] == 1
        assert read("/v1/availability?vm=db-0").status == 404


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("vm=nobody", "unknown"),
        ("group=nobody", "unknown"),
        ("from=2027-01-15T09:00:00Z", "period-invalid"),
        ("from=yesterday", "validation"),
    ],
)
def test_impossible_questions_are_refused(live: Live, query: str, code: str) -> None:
    """A name or a period without figures is an error, and not a figure of nothing. T-13."""
    live.advance(60)
    reply = live.call("GET", f"/v1/availability?{query}")
    assert reply.status in {400, 404, 422}
    assert code in str(reply.json)


def test_promises_are_divided_by_day(live: Live) -> None:
    """The days of a period add up to its figures; too many days are refused. Source: T-15."""
    reboot(live, "h1")
    live.advance(40 * HOUR_S)
    reboot(live, "h2")
    answer = live.get("/v1/promises?from=2027-01-15T00:00:00Z&by=day")
    days, total = answer["parts"], answer["total"]
    assert [each["name"] for each in days] == ["2027-01-15", "2027-01-16", "2027-01-17"]
    assert [each["events"] for each in days] == [2, 0, 1]
    for name in ("events", "announced", "with_notice", "disturbed_ms"):
        assert sum(each[name] for each in days) == total[name] > 0
    reply = live.call("GET", "/v1/promises?from=2026-01-01T00:00:00Z&by=day")
    assert (reply.status, reply.json["error"]["code"]) == (422, "availability-too-large")


def test_report_of_too_many_vms_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer has a limit, and the refusal says what to ask instead. Source: T-13, P-13."""
    live.advance(60)
    monkeypatch.setattr(availability_routes, "VMS_MAX", 2)
    reply = live.call("GET", "/v1/availability")
    assert (reply.status, reply.json["error"]["code"]) == (422, "availability-too-large")
    assert live.get("/v1/availability?owner=shop")["vms"]
    monkeypatch.setattr(availability_routes, "RECORDS_MAX", 1)
    assert live.call("GET", "/v1/promises").status == 422


@pytest.mark.parametrize("seed", range(4))
def test_random_work_has_the_same_figures_by_the_published_procedure(seed: int) -> None:
    """Whatever happens, both sides compute the same, VM by VM. Source: T-13."""
    work = RandomWork(seed)
    with Live() as live:
        control = live.daemon.control
        for _ in range(120):
            state = control.read(lambda view: view.state.copy()).result(LIMIT_S)
            for stimulus in work.several(state):
                control.submit(stimulus, "test").exception(LIMIT_S)
            live.advance(work.wait_ms() / 1000)
        report = live.get("/v1/availability")
        figures = CHECK(map(json.dumps, export(live)))
    ours = {
        " ".join((each["vm"], each["group"], each["owner"])): (
            each["counted_ms"],
            each["disturbed_ms"],
        )
        for each in report["vms"]
    }
    assert ours == {name: tuple(each.values()) for name, each in figures["vms"].items()}
    assert report["disturbed_ms"] == figures["disturbed_ms"] > 0
