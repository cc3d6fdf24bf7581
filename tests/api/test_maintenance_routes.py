"""Maintenances over the operator API: describing, previewing, halting and reading them."""

import pytest

from forewarn_core.access.roles import Role
from tests.api.live import Json, Live
from tests.waiting import wait_until

FORM = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT10M"}


def created(live: Live, **more: object) -> str:
    """Describe a maintenance, and wait for its plan; return its id."""
    reply = live.call("POST", "/v1/maintenances", {**FORM, **more})
    assert reply.status == 201, reply
    name: str = reply.json["maintenance"]["id"]
    planned(live, name)
    return name


def planned(live: Live, name: str) -> Json:
    """Wait until no plan is being made; return the maintenance."""
    wait_until(lambda: not live.get(f"/v1/maintenances/{name}")["maintenance"]["planning"])
    live.settle()
    return live.get(f"/v1/maintenances/{name}")


def started(live: Live, **more: object) -> str:
    """Have a maintenance begin; return its id."""
    name = created(live, **more)
    live.post(f"/v1/maintenances/{name}/start")
    planned(live, name)
    return name


def test_preview_writes_nothing(fleet: Live) -> None:
    """A plan is shown, and neither state nor history has changed by it. Source: F-2."""
    before = fleet.get("/v1/history")
    plan = fleet.post("/v1/maintenances/plan", **FORM)["plan"]
    assert {host for wave in plan["waves"] for host in wave["hosts"]} == {"h1", "h2"}
    assert plan["least_waves"] <= len(plan["waves"])
    assert fleet.get("/v1/history") == before
    assert fleet.get("/v1/maintenances") == {"maintenances": [], "next": None}


def test_failure_domain_with_a_value_selects_its_hosts(live: Live) -> None:
    """A rack is a target; hosts of several racks are done rack by rack. Source: T-12."""
    live.fleet(hosts={f"h{n}": {"labels": {"rack": f"r{n % 2}"}} for n in range(4)})
    assert live.call("PUT", "/v1/policy", {"failure_domains": ["rack"]}).status == 200
    form = {"cause": "host-reboot", "duration": "PT10M"}
    one = live.post("/v1/maintenances/plan", **form, failure_domain="rack=r1")["plan"]
    assert [wave["hosts"] for wave in one["waves"]] == [["h1", "h3"]]
    plan = live.post("/v1/maintenances/plan", **form, all=True, failure_domain="rack")["plan"]
    assert [wave["hosts"] for wave in plan["waves"]] == [["h0", "h2"], ["h1", "h3"]]
    twice = {**form, "all": True, "failure_domain": "rack=r1"}
    assert live.call("POST", "/v1/maintenances", twice).status == 422


def test_preview_says_what_cannot_be_done(fleet: Live) -> None:
    """A deadline that cannot be met is each host's blocker, with its sentence. Source: F-4."""
    plan = fleet.post("/v1/maintenances/plan", **FORM, deadline="+10m")["plan"]
    assert plan["waves"] == []
    assert {each["code"] for each in plan["blocked"]} == {"deadline"}
    assert all("before the deadline" in each["text"] for each in plan["blocked"])


def test_plan_says_where_vms_go_and_that_they_fit(live: Live) -> None:
    """The preview and the plan name each VM's host, and how full that gets. Source: F-1, F-3."""
    live.fleet(
        hosts={"h1": {"memory_mib": 8192}, "h2": {"memory_mib": 8192}},
        vms={"a": {"host": "h1", "memory_mib": 4096}, "b": {"host": "h2", "memory_mib": 1024}},
    )
    form = {**FORM, "hosts": ["h1"], "move_vms": "PT5M"}
    before = live.post("/v1/maintenances/plan", **form)
    assert before["plan"]["moves"] == [{"wave": 1, "vm": "a", "from": "h1", "to": "h2"}]
    rows = [(each["host"], each["during_mib"], each["after_mib"]) for each in before["room"]]
    assert rows == [("h1", 4096, 0), ("h2", 5120, 5120)]
    name = created(live, hosts=["h1"], move_vms="PT5M")
    assert live.get(f"/v1/maintenances/{name}/plan")["room"] == before["room"]
    assert live.get(f"/v1/maintenances/{name}")["maintenance"]["move_s"] == 300


def test_life_of_a_maintenance(fleet: Live) -> None:
    """Described, begun, paused, resumed and cancelled, each by a word. Source: F-1, F-6."""
    name = created(fleet, reason="new kernel", max_at_once=1)
    assert fleet.get(f"/v1/maintenances/{name}")["maintenance"]["waits_for"]["code"] == "operator"
    path = f"/v1/maintenances/{name}"
    assert fleet.post(f"{path}/start")["maintenance"]["state"] == "running"
    full = planned(fleet, name)
    assert (full["maintenance"]["announced"], full["maintenance"]["running"]) == (1, 0)
    assert [each["state"] for each in full["waves"]] == ["announced", "planned"]
    assert full["waves"][1]["waits_for"]["text"] == "wave 2 waits for wave 1 to end"
    paused = fleet.post(f"{path}/pause", reason="a game is on")["maintenance"]
    assert (paused["state"], paused["halt_reason"]) == ("paused", "a game is on")
    assert fleet.get("/v1/events")["events"] == []
    waves = fleet.get(path)["waves"]
    assert [(each["state"], each["waits_for"]) for each in waves] == [("planned", None)] * 2
    assert paused["announced"] == 0
    assert paused["expected_end"] == full["maintenance"]["expected_end"]
    fleet.post(f"{path}/resume")
    planned(fleet, name)
    assert fleet.post(f"{path}/cancel")["maintenance"]["state"] == "cancelled"
    assert fleet.get("/v1/maintenances?live=true")["maintenances"] == []
    assert fleet.get("/v1/maintenances")["maintenances"][0]["id"] == name
    assert fleet.call("POST", f"{path}/start").code == "maintenance-wrong-state"


def test_wave_that_is_over_has_no_end_to_come(fleet: Live) -> None:
    """What a plan had expected of the last wave is not shown once that is over. Source: F-1."""
    name = started(fleet, hosts=["h1"])
    [operation] = fleet.get("/v1/operations?live=true")["operations"]
    for word, state in (("approve", "running"), ("complete", "over")):
        fleet.post(f"/v1/operations/{operation['id']}/{word}")
        fleet.settle()
        assert fleet.get(f"/v1/maintenances/{name}")["waves"][0]["state"] == state
    full = planned(fleet, name)
    assert full["maintenance"]["state"] == "done"
    [wave] = full["waves"]
    assert (wave["state"], wave["hosts"], wave["counts"]["done"]) == ("over", ["h1"], 1)
    assert wave["latest_start"] is wave["latest_end"] is None
    [host] = fleet.get(f"/v1/maintenances/{name}/hosts")["hosts"]
    assert (host["host"], host["state"], host["operation"]) == ("h1", "done", operation["id"])
    times = [host[name] for name in ("announced", "started", "ended")]
    assert times == [wave[name] for name in ("announced", "started", "ended")]
    assert None not in times


def test_hosts_of_a_maintenance_are_paged(fleet: Live) -> None:
    """Each has its state, also one that is still to be done."""
    name = started(fleet, max_at_once=1)
    first = fleet.get(f"/v1/maintenances/{name}/hosts?limit=1")
    assert first["next"] == "h1"
    rest = fleet.get(f"/v1/maintenances/{name}/hosts?after=h1")
    assert rest["next"] is None
    found = [*first["hosts"], *rest["hosts"]]
    assert [each["host"] for each in found] == ["h1", "h2"]
    assert sorted(each["state"] for each in found) == ["announced", "left"]


def test_what_a_host_and_a_wave_wait_for(fleet: Live) -> None:
    """A host, a wave and a maintenance each name their first blocker. Source: F-4."""
    name = started(fleet, max_at_once=1)
    [wave] = fleet.get(f"/v1/why?id={name}/2")["blockers"]
    assert wave["code"] == "previous-wave"
    [whole] = fleet.get(f"/v1/why?id={name}")["blockers"]
    assert whole["code"] == "approval"
    codes = {fleet.get(f"/v1/why?id={host}")["blockers"][0]["code"] for host in ("h1", "h2")}
    assert codes == {"approval", "previous-wave"}
    [group] = fleet.get("/v1/blockers")["groups"]
    assert (group["count"], group["names"]) == (1, ["op-2"]), "the maintenance counts once"
    fleet.post(f"/v1/operations/{whole['text'].split()[0]}/approve")
    wait_until(lambda: fleet.get(f"/v1/why?id={name}")["blockers"][0]["code"] == "operator")
    assert fleet.call("GET", "/v1/why?id=m-99").code == "unknown-maintenance"
    assert fleet.call("GET", "/v1/why?id=h99").code == "unknown-work"


def test_plans_can_be_compared(fleet: Live) -> None:
    """A plan names its parent, and what it changed of it can be read. Source: F-2."""
    name = created(fleet)
    fleet.clock.advance(60_000)
    fleet.post(f"/v1/maintenances/{name}/start")
    planned(fleet, name)
    plan = fleet.get(f"/v1/maintenances/{name}/plan")["plan"]
    assert plan["parent"]
    found = fleet.get(f"/v1/maintenances/{name}/diff")
    assert (found["from"], found["to"]) == (plan["parent"], plan["id"])
    assert not found["added"]
    refused = fleet.call("GET", f"/v1/maintenances/{name}/plan?plan=0000")
    assert (refused.status, refused.code) == (404, "unknown-plan")
    assert refused.json["error"]["message"] == f"{name} has no plan 0000."


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"hosts": ["h1", "nowhere"]}, 404),
        ({"all": True}, 422),
        ({"hosts": None, "selector": "zone=mars"}, 404),
        ({"cause": "hardware-failure"}, 422),
        ({"duration": "PT0S"}, 422),
    ],
    ids=["unknown", "two-ways", "nobody", "a-fault", "no-time"],
)
def test_maintenance_that_cannot_be_is_refused(
    shared: Live, form: dict[str, object], status: int
) -> None:
    """What cannot be meant is refused with its reason, previewed or described. Source: F-1."""
    asked = {name: each for name, each in {**FORM, **form}.items() if each is not None}
    for path in ("/v1/maintenances", "/v1/maintenances/plan"):
        assert shared.call("POST", path, asked).status == status


def test_maintenance_of_an_empty_fleet_names_the_remedy(live: Live) -> None:
    """All hosts of a fleet without hosts: the refusal says how to add some. Source: F-1."""
    form = {"cause": "host-reboot", "all": True, "duration": "PT10M"}
    refused = live.call("POST", "/v1/maintenances", form)
    assert (refused.status, refused.code) == (422, "maintenance-invalid")
    assert "`forewarn topology apply`" in refused.json["error"]["message"]


def test_owners_token_postpones_own_events_only(fleet: Live) -> None:
    """An owner reads no maintenance, and has its event done later. Source: P-2, F-8."""
    fleet.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    started(fleet, max_at_once=1)
    events = {each["group"]: each["id"] for each in fleet.get("/v1/events")["events"]}
    headers = {"Authorization": f"Bearer {fleet.add_token('kim', Role.OWNER, 'shop')}"}
    path, form = "/v1/events/{}/postpone", {"until": "+3h"}
    foreign = fleet.call("POST", path.format(events["db"]), form, headers=headers)
    assert foreign.code == "unknown-operation"
    shown = fleet.call("POST", path.format(events["web"]), form, headers=headers)
    assert shown.status == 200
    assert set(shown.json["operations"][0]["vms"]) <= {"web-0", "web-1"}
    assert fleet.call("GET", "/v1/maintenances", headers=headers).code == "not-permitted"


def test_owner_postpones_an_event(fleet: Live) -> None:
    """An event is postponed by its id, a host by its name, and both are shown. Source: F-8."""
    fleet.call("PUT", "/v1/policy", {"postponing": "PT6H"})
    name = started(fleet, max_at_once=1)
    event = fleet.get("/v1/events")["events"][0]
    path = f"/v1/events/{event['id']}/postpone"
    [withdrawn] = fleet.post(path, until="+3h", by="alice")["operations"]
    assert withdrawn["state"] == "cancelled"
    answer = fleet.get(f"/v1/maintenances/{name}")["maintenance"]
    [first] = answer["postponed"]
    assert first["by"] == "alice"
    assert not (answer["planning"] and answer["expected_end"]), "the plan before holds no longer"
    planned(fleet, name)
    [operation] = fleet.get("/v1/operations?live=true")["operations"]
    assert operation["host"] != first["host"]
    hosts = [operation["host"]]
    made = fleet.post(f"/v1/maintenances/{name}/postpone", hosts=hosts, until="+2h", reason="x")
    assert {each["host"] for each in made["maintenance"]["postponed"]} == {"h1", "h2"}
    late = {"hosts": hosts, "until": "+9h"}
    refused = fleet.call("POST", f"/v1/maintenances/{name}/postpone", late)
    assert refused.code == "postponement-refused"
    work = fleet.post("/v1/hosts/h1/reboot")["operations"][0]["id"]
    alone = fleet.get(f"/v1/operations/{work}")["events"][0]["id"]
    assert fleet.call("POST", f"/v1/events/{alone}/postpone", {"until": "+2h"}).status == 409
