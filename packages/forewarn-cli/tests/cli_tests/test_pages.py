"""Lists of more than one page: every command reads them to the end."""

import gzip
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from forewarn_cli import audit, history, topology_portions
from forewarn_server.api import fleet_routes, maintenance_routes, outcome_routes, read_routes
from forewarn_server.cli import listing
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.main import main
from tests.api.live import Json, Live
from tests.cli.conftest import Run
from tests.serving import HttpServer, Request
from tests.waiting import wait_until

#: Records on each page of each list of these tests, which have five.
PAGE = 2
NAMES = [f"h{n}" for n in range(1, 6)]


@pytest.fixture(autouse=True)
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Service and command line read and answer two records at a time."""
    for module in (outcome_routes, read_routes, maintenance_routes, listing):
        monkeypatch.setattr(module, "PAGE_MAX", PAGE)
    monkeypatch.setattr(fleet_routes, "LIST_MAX", PAGE)
    monkeypatch.setattr(maintenance_routes, "HOSTS_PAGE_MAX", PAGE)
    monkeypatch.setattr(history, "EXPORT_PAGE", PAGE)
    monkeypatch.setattr(audit, "PAGE", PAGE)


@pytest.fixture
def fleet(live: Live) -> Live:
    """A fleet of five hosts, each with a lone VM, all of them enabled."""
    live.fleet(
        hosts={name: {} for name in NAMES},
        vms={f"vm-{name}": {"host": name} for name in NAMES},
        groups={},
    )
    live.enable(*(f"vm-{name}" for name in NAMES))
    return live


def listed(run: Run, words: str, member: str, key: str) -> list[Json]:
    """Return one member of all records that a list prints as JSON."""
    ran = run(*words.split(), "--json")
    assert ran.status == 0, ran
    return [each[key] for each in ran.json[member]]


@pytest.mark.usefixtures("fleet")
def test_lists_of_the_fleet_have_the_records_of_every_page(run: Run) -> None:
    """Hosts, VMs and groups: the page is the service's, the list is whole."""
    assert listed(run, "host", "hosts", "name") == NAMES
    vms = [f"vm-{name}" for name in NAMES]
    assert set(vms) < set(listed(run, "vm", "vms", "name"))
    assert set(vms) < set(listed(run, "group", "groups", "name"))


@pytest.mark.usefixtures("fleet")
def test_lists_of_work_have_the_records_of_every_page(run: Run) -> None:
    """Operations, events and maintenances: five of each, the newest of them at the right end."""
    for name in NAMES:
        run("host", "reboot", name, "--not-before", "+1h")
    operations = [f"op-{n}" for n in range(1, 6)]
    assert listed(run, "operation --all", "operations", "id") == operations
    assert listed(run, "operation --limit 3", "operations", "id") == operations[-3:]
    shown = {each for (each,) in listed(run, "event", "events", "resources") if "vm-" in each}
    assert shown == {f"vm-{name}" for name in NAMES}
    for name in NAMES:
        run("maintenance", "create", name)
    drafts = listed(run, "maintenance list", "maintenances", "id")
    assert set(drafts) == {f"m-{n}" for n in range(6, 11)}


def test_reports_have_the_hosts_and_the_outcomes_of_every_page(run: Run, fleet: Live) -> None:
    """Every ended event and every host is in the report of its maintenance. Source: X-1."""
    vms = [f"vm-{name}" for name in NAMES]
    run("maintenance", "create", *NAMES, "--start")

    def is_done() -> bool:
        for each in fleet.get("/v1/operations?live=true")["operations"]:
            fleet.call("POST", f"/v1/operations/{each['id']}/approve")
            fleet.call("POST", f"/v1/operations/{each['id']}/complete")
        return bool(fleet.get("/v1/maintenances/m-1")["maintenance"]["state"] == "done")

    wait_until(is_done, what="the end of m-1")
    report = run("maintenance", "report", "m-1", "--json").json
    assert [each["host"] for each in report["hosts"]] == NAMES
    for outcomes in (report["outcomes"], run("event", "report", "--json").json["outcomes"]):
        resources = [name for each in outcomes for name in each["resources"]]
        assert sorted(name for name in resources if name in vms) == vms


def test_history_and_audit_have_the_entries_of_every_page(
    run: Run, fleet: Live, tmp_path: Path
) -> None:
    """A list ends with the newest entry, and an export has each entry once."""
    ids = [each["sequence"] for each in fleet.get("/v1/history?limit=1000")["entries"]]
    assert listed(run, "history --limit 5", "entries", "sequence") == ids[-5:]
    path = tmp_path / "history.gz"
    assert run("history", "export", "--output", str(path)).status == 0
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == ids
    for name in NAMES:
        run("host", "add", name, "--zone", "1")
    records = [json.loads(line) for line in run("audit", "export").out.splitlines()]
    numbers = [each["sequence"] for each in records]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > PAGE


def test_silent_groups_of_every_page_are_named_before_work(run: Run, live: Live) -> None:
    """Each group that is not asked is counted, not only the first page of them. Source: B-3."""
    vms = {f"vm-{name}": {"host": "h1"} for name in NAMES}
    live.fleet(hosts={"h1": {}}, vms=vms)
    warned = run("host", "reboot", "h1").err
    assert all(name in warned for name in vms), warned


def test_pruning_compares_every_page_of_the_fleet(
    run: Run, fleet: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file does not name is removed, also where it stands on a later page."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"hosts": {"h1": {}}, "vms": {"vm-h1": {"host": "h1"}}}))
    monkeypatch.setattr(topology_portions, "WHOLE_BYTES_MAX", 10)
    pruned = run("topology", "apply", str(file), "--prune")
    assert pruned.status == 0, pruned
    assert [each["name"] for each in fleet.get("/v1/hosts?limit=1000")["hosts"]] == ["h1"]
    assert [each["name"] for each in fleet.get("/v1/vms?limit=1000")["vms"]] == ["vm-h1"]


def test_export_of_availability_has_the_records_of_every_page(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each further page is asked for with the place and the period of the first. Source: T-13."""
    period = {"from": "2027-01-14T00:00:00Z", "to": "2027-01-15T00:00:00Z"}
    headers = {"Content-Type": "application/json", "Forewarn-Time": "2027-01-15T08:00:00Z"}
    asked: list[dict[str, list[str]]] = []

    def page(request: Request) -> tuple[int, bytes, dict[str, str]]:
        asked.append(parse_qs(urlsplit(request.path).query))
        number = len(asked)
        form = {**period, "at": period["to"], "records": [{"kind": "event", "event": number}]}
        following = f"{number}:0" if number < PAGE + 1 else None
        return 200, json.dumps({**form, "next": following}).encode(), headers

    with HttpServer(page) as server:
        monkeypatch.setenv("FOREWARN_SERVER", server.url)
        assert main(["availability", "export", "--owner", "shop"]) == 0
    _, *records = map(json.loads, capfd.readouterr().out.splitlines())
    assert [each["event"] for each in records] == [1, 2, 3], f"T-13: {records}"
    assert [each.get("after") for each in asked] == [None, ["1:0"], ["2:0"]]
    times = [{name: each[name][0] for name in period} for each in asked[1:]]
    assert times == [period] * PAGE, f"T-13: a page of another period: {times}"


def test_list_goes_on_behind_an_empty_page() -> None:
    """A page may have nothing that fits, or that the caller may see, and a next one. P-3."""
    headers = {"Content-Type": "application/json", "Forewarn-Time": "2027-01-15T08:00:00Z"}
    pages = {"": ([], "h2"), "h2": ([{"name": "h3"}], "h3"), "h3": ([], None)}

    def page(request: Request) -> tuple[int, bytes, dict[str, str]]:
        [after] = parse_qs(urlsplit(request.path).query).get("after", [""])
        hosts, following = pages[after]
        return 200, json.dumps({"hosts": hosts, "next": following}).encode(), headers

    with HttpServer(page) as server:
        hosts = [*listing.records(ApiClient(server.url), "/v1/hosts", "hosts")]
    assert hosts == [{"name": "h3"}], f"the list ends before its last page: {hosts}"
