"""Events, documents, history, health and version over the operator API."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.settings import StoreSettings
from forewarn_server.api import service_routes
from forewarn_store.sqlite import SqliteEngine
from tests.api.live import FLEET, SETTINGS, Live
from tests.asking import ask
from tests.waiting import LIMIT_S, wait_until


def test_events_are_those_a_vm_is_shown(fleet: Live) -> None:
    """Asked for a VM, only what its group is told comes back. Source: S-1, S-4, S-5."""
    fleet.post("/v1/hosts/h1/reboot")
    everything = fleet.get("/v1/events")["events"]
    assert [each["group"] for each in everything] == ["db", "web"]
    [mine] = fleet.get("/v1/events?vm=web-1")["events"]
    assert (mine["group"], mine["resources"]) == ("web", ["web-0"])
    assert fleet.get("/v1/events?group=db")["events"][0]["resources"] == ["db-0"]
    for query in ("vm=none", "group=none"):
        assert fleet.call("GET", f"/v1/events?{query}").status == 404


def test_gpu_vm_of_one_fault_domain_sees_its_own(live: Live) -> None:
    """GPU VMs of a scale set with one fault domain see only events that name them. S-3."""
    vms: dict[str, object] = {n: {"host": "h", "group": "g", "gpu": True} for n in ("a", "b")}
    group = {"kind": "scale-set", "fault_domain_count": 1}
    live.fleet(hosts={"h": {}}, groups={"g": group}, vms=vms)
    live.enable("a", "b")
    live.post("/v1/vms/a/reboot")
    assert len(live.get("/v1/events?vm=a")["events"]) == 1
    assert live.get("/v1/events?vm=b")["events"] == []
    assert live.get("/v1/documents?vm=b")["Events"] == []


def test_outcome_says_what_became_of_an_event(fleet: Live) -> None:
    """An owner sees how it ended, who approved it, and what notice it had. Source: X-1."""
    [operation] = fleet.post("/v1/vms/web-0/reboot")["operations"]
    fleet.settle()
    [event] = operation["events"]
    assert fleet.get(f"/v1/events/{event}/outcome")["result"] == "unknown"
    fleet.post(f"/v1/operations/{event}/approve")
    fleet.post(f"/v1/operations/{operation['id']}/complete")
    outcome = fleet.get(f"/v1/events/{event}/outcome")
    assert (outcome["result"], outcome["start"]) == ("completed", "early")
    assert outcome["notice_promised_s"] > outcome["notice_given_s"] == 0
    assert len(outcome["approved_by"]) == 1
    assert fleet.get("/v1/outcomes?group=web")["outcomes"] == [outcome]
    assert fleet.get("/v1/outcomes?group=db")["outcomes"] == []
    assert fleet.get("/v1/outcomes?until=2026-01-01T00:00:00Z")["outcomes"] == []
    assert fleet.call("GET", "/v1/outcomes?group=none").status == 404


def test_outcomes_of_an_owner_are_those_of_its_groups(live: Live) -> None:
    """A report for one owner has nothing of another's, page by page. Source: X-1."""
    vms: dict[str, object] = {f"{g}-{n}": {"host": "h", "group": g} for g in "ab" for n in (0, 1)}
    live.fleet(hosts={"h": {}}, groups={"a": {"owner": "shop"}, "b": {"owner": "bank"}}, vms=vms)
    live.enable("a-0", "b-0")
    for vm in ("a-0", "b-0", "a-1"):
        [operation] = live.post(f"/v1/vms/{vm}/reboot")["operations"]
        live.post(f"/v1/operations/{operation['id']}/cancel")
    first = live.get("/v1/outcomes?owner=shop&limit=2")
    assert [each["resources"] for each in first["outcomes"]] == [["a-1"]]
    second = live.get(f"/v1/outcomes?owner=shop&limit=2&before={first['next']}")
    assert [each["resources"] for each in second["outcomes"]] == [["a-0"]]
    assert live.get("/v1/outcomes?owner=nobody")["outcomes"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_document_is_what_the_vm_reads(fleet: Live, version: str) -> None:
    """An operator sees a VM's document byte for byte, in every version. Source: V-1."""
    fleet.post("/v1/hosts/h1/reboot")
    fleet.settle()
    shown = fleet.call("GET", f"/v1/documents?vm=web-0&api-version={version}").body
    address = fleet.metadata_url.removeprefix("http://").split("/")[0]
    path = f"/metadata/scheduledevents?api-version={version}&vm=web-0"
    assert ask(address, "GET", path).body == shown


def test_document_of_a_disabled_group_is_the_truth(live: Live) -> None:
    """Reading for a VM does not enable its group, and shows what it would see. Source: B-3."""
    live.fleet(hosts={"h": {}}, vms={"v": {"host": "h"}})
    live.post("/v1/hosts/h/fail")
    document = live.get("/v1/documents?vm=v")
    assert (document["DocumentIncarnation"], len(document["Events"])) == (1, 1)
    actions = {each["action"] for each in live.get("/v1/history")["entries"]}
    assert "group.enabled" not in actions
    assert live.document("v") == document


def test_document_needs_a_known_vm_and_version(shared: Live) -> None:
    """A document is somebody's, in a version that exists."""
    assert shared.call("GET", "/v1/documents").code == "query-invalid"
    assert shared.call("GET", "/v1/documents?vm=none").code == "unknown"
    odd = shared.call("GET", "/v1/documents?vm=web-0&api-version=2016-01-01")
    assert (odd.status, odd.code) == (422, "validation-failed")


def test_history_is_filtered_and_paged(fleet: Live) -> None:
    """History is read forwards and backwards, by what it is about."""
    fleet.post("/v1/vms/web-0/reboot")
    event = fleet.get("/v1/events")["events"][0]["id"]
    fleet.settle()

    def texts(query: str) -> list[str]:
        return [each["text"] for each in fleet.get(f"/v1/history?{query}")["entries"]]

    everything = fleet.get("/v1/history?limit=1000")["entries"]
    assert [each["sequence"] for each in everything] == list(range(1, len(everything) + 1))
    assert texts("limit=2") == [each["text"] for each in everything[:2]]
    assert fleet.get("/v1/history?limit=2")["next"] == 2
    assert texts("order=newest&limit=1") == [everything[-1]["text"]]
    assert texts("after=2&before=4") == [everything[2]["text"]]
    assert texts("operation=op-1&action=operation.announced") == ["op-1 is announced"]
    assert texts("vm=web-0&limit=1") == ["VM web-0 is added"]
    fleet.post(f"/v1/operations/{event}/approve")
    assert texts(f"event={event}") == [f"event {event} is approved for web"]
    assert texts("host=h2") == ["host h2 is added", "VM web-1 is added"]
    assert texts("host=h2&after=1000") == []
    assert fleet.call("GET", "/v1/history?group=none").code == "unknown"
    assert fleet.call("GET", "/v1/history?event=op-1").code == "unknown-operation"
    assert fleet.call("GET", "/v1/history?limit=0").code == "validation-failed"
    assert fleet.call("GET", "/v1/history?action=operation.begins").code == "validation-failed"


def test_history_is_limited_to_a_time(fleet: Live) -> None:
    """`since` includes its time, `until` does not; both go with paging and other filters."""
    fleet.advance(60)
    fleet.post("/v1/hosts/h1/reboot")
    fleet.advance(60)
    fleet.call("PUT", "/v1/policy", {"max_failures": 3})
    entries = fleet.get("/v1/history?limit=1000")["entries"]
    times = sorted({each["at"] for each in entries})
    assert len(times) > 2
    for since, until in product((*times, "2030-01-01T00:00:00Z"), repeat=2):
        wanted = [e["sequence"] for e in entries if since <= e["at"] < until]
        answer = fleet.get(f"/v1/history?limit=1000&since={since}&until={until}")
        assert [each["sequence"] for each in answer["entries"]] == wanted
    newest = fleet.get(f"/v1/history?since={times[0]}&order=newest&limit=2&before=3")["entries"]
    assert [each["sequence"] for each in newest] == [2, 1]


def test_history_brings_images_where_asked(fleet: Live) -> None:
    """The rows that replaying needs are given only to who asks for them."""
    plain, full = (fleet.get(f"/v1/history?limit=1{query}") for query in ("", "&images=true"))
    assert plain["entries"][0]["images"] == []
    assert full["entries"][0]["images"][0]["row"]["name"] == "h1"


def test_actor_and_time_are_history(fleet: Live) -> None:
    """Who asked, and when by the service's clock, is written down. Source: N-4."""
    fleet.advance(61)
    fleet.post("/v1/vms/web-0/reboot")
    entries = fleet.get("/v1/history?operation=op-1&limit=1")["entries"]
    assert (entries[0]["actor"], entries[0]["at"]) == (
        "operator local at 127.0.0.1",
        "2027-01-15T08:01:01Z",
    )


def test_health_and_version(shared: Live) -> None:
    """A running service is live and ready, and says what it is."""
    told = {"live": True, "ready": True, "state": "ready", "shows": True}
    health = shared.get("/v1/health")
    assert health.pop("generation") > 0
    assert health.pop("age_ms") >= 0
    assert health == told
    version = shared.get("/v1/version")
    assert version["api"] == "v1"
    assert version["api_versions"] == list(VERSIONS)


def seal(live: Live, *, shut: bool) -> None:
    """Have SQLite refuse every write as it does on a read-only disk, or no more."""
    engine = live.daemon.store._engine
    assert isinstance(engine, SqliteEngine)
    writer, text = engine._writer, f"PRAGMA query_only = {int(shut)}"
    live.daemon.control.read(lambda _: writer.execute(text)).result(LIMIT_S)


def test_health_says_that_a_change_was_refused(tmp_path: Path) -> None:
    """A full disk is seen where an operator looks; the service still answers. Source: L-7."""
    live = Live(replace(SETTINGS, store=StoreSettings(str(tmp_path / "store.db"))))
    try:
        seal(live, shut=True)
        assert live.call("PUT", "/v1/hosts/h7", {}).code == "store-full"
        told = live.call("GET", "/v1/health")
        assert (told.status, told.json["ready"]) == (200, True)
        assert "cannot be written" in told.json["commit_refused"]
        seal(live, shut=False)
        assert live.call("PUT", "/v1/hosts/h7", {}).status in {200, 201}
        wait_until(lambda: "commit_refused" not in live.get("/v1/health"))
    finally:
        live.stop()


def test_health_is_looked_at_once_in_a_while(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks again and again costs the service nothing."""
    monkeypatch.setattr(service_routes, "HEALTH_S", 3600)
    assert live.get("/v1/health")["ready"]
    live.daemon.control.stop()
    assert live.get("/v1/health")["ready"]


def test_stopping_service_is_not_ready(live: Live) -> None:
    """A service that takes no more work says so with 503."""
    live.daemon.control.stop()
    reply = live.call("GET", "/v1/health")
    assert (reply.status, reply.json["state"]) == (503, "stopping")
    assert reply.json["reason"]
    refused = live.call("POST", "/v1/hosts/h/reboot", {})
    assert (refused.status, refused.code) == (503, "stopping")
    assert "retry-after" in refused.headers


def test_every_answer_tells_the_time(shared: Live) -> None:
    """Clients show times beside how far off they are, by the service's own clock."""
    for path in ("/v1/hosts", "/v1/none"):
        assert shared.call("GET", path).headers["forewarn-time"].startswith("2027-01-15T")


def test_read_is_as_new_as_it_demands(fleet: Live) -> None:
    """Answers name their commit; a read of one that never was is refused by name. Source: H-4."""
    before = int(fleet.call("GET", "/v1/hosts").headers["forewarn-generation"])
    changed = fleet.call("POST", "/v1/hosts/h1/reboot", {}).headers["forewarn-generation"]
    assert int(changed) > before
    assert fleet.call("GET", "/v1/hosts", headers={"Forewarn-Generation": changed}).status == 200
    newer = str(int(changed) + 1000)  # the notice of the reboot is a commit, too
    for demand, status, code in (
        (newer, 503, "state-behind"),
        ("9" * 30, 503, "state-behind"),
        ("x", 400, "generation-invalid"),
    ):
        reply = fleet.call("GET", "/v1/hosts", headers={"Forewarn-Generation": demand})
        assert reply.status == status, f"after {changed}, {demand} is asked for: {reply}"
        assert reply.code == code


def test_parts_of_the_service_are_shown(live: Live) -> None:
    """One process with its own store, no nodes, and the use of the limit. Source: M-4."""
    live.fleet(**FLEET)
    live.post("/v1/hosts/h1/reboot")
    shown = live.get("/v1/service")
    assert (shown["processes"], shown["nodes"], shown["node_count"]) == ([], [], 0)
    assert shown["certificates"] == []
    assert shown["limits"] == [{"name": "live operations", "used": 1, "max": 200_000}]
