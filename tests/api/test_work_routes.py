"""Asking for work and deciding about it, over the operator API."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.step import StepResult
from forewarn_server.api.work_routes import REQUEST_TARGETS_MAX
from forewarn_server.service.hooks import ServiceHooks
from tests.api.live import SETTINGS, Json, Live


def one(answer: Json) -> Json:
    """Return the only operation of an answer."""
    [operation] = answer["operations"]
    return operation


def test_hosts_are_named_by_a_selector(fleet: Live) -> None:
    """An order takes the hosts that have all of a selector; never names and a selector. F-1."""
    fleet.call("PUT", "/v1/hosts/h2", {"zone": "2", "labels": {"rack": "r7"}})
    reply = fleet.call("GET", "/v1/hosts?selector=rack=r7")
    assert [(host["name"], host["labels"]) for host in reply.json["hosts"]] == [
        ("h2", {"rack": "r7"})
    ]
    asked = fleet.post("/v1/operations", cause="host-reboot", selector="zone=2,rack=r7")
    assert one(asked)["target"] == "h2"
    for form, code in (
        ({}, "validation-failed"),
        ({"targets": ["h1"], "selector": "zone=2"}, "validation-failed"),
        ({"cause": "reboot", "selector": "zone=2"}, "validation-failed"),
        ({"selector": "zone"}, "selector-invalid"),
        ({"selector": "zone=9"}, "nothing-selected"),
    ):
        refused = fleet.call("POST", "/v1/operations", {"cause": "host-reboot", **form})
        assert refused.json["error"]["code"] == code


def test_request_says_how_it_is_shown(fleet: Live) -> None:
    """An operator may give more notice, a text, a duration and a source. Source: N-1, D-8, D-9."""
    fleet.post(
        "/v1/hosts/h1/reboot",
        not_before="2027-01-15T10:00:00+01:00",
        duration="PT5M",
        description="New firmware.",
        source="User",
    )
    [event] = fleet.document("web-0")["Events"]
    assert event["NotBefore"] == "Fri, 15 Jan 2027 09:00:00 GMT"
    assert event["DurationInSeconds"] == 300
    assert event["Description"] == "New firmware."
    assert event["EventSource"] == "User"


def test_time_may_be_relative(fleet: Live) -> None:
    """`+20m` counts from the service's own clock."""
    operation = one(fleet.post("/v1/hosts/h1/reboot", not_before="+20m"))
    assert operation["asked_not_before"] == "2027-01-15T08:20:00Z"


@pytest.mark.parametrize(
    ("path", "form", "status", "code"),
    [
        ("hosts/h1/reboot", {"not_before": "+5m"}, 422, "notice-too-short"),
        ("hosts/h1/reboot", {"not_before": "1999-01-01T00:00:00Z"}, 422, "notice-too-short"),
        ("hosts/h1/reboot", {"not_before": "+9000h"}, 422, "operation-invalid"),
        ("hosts/h1/reboot", {"impact": "Preempt"}, 422, "operation-invalid"),
        ("hosts/h1/migrate", {"destination": "h1"}, 422, "operation-invalid"),
        ("hosts/h1/migrate", {"destination": "h9"}, 404, "unknown"),
        ("hosts/h9/reboot", {}, 404, "unknown"),
        ("hosts/h9/repair", {}, 404, "unknown"),
        ("vms/web-9/reboot", {}, 404, "unknown"),
        ("hosts/h1/reboot", {"not_before": "tomorrow"}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"not_before": "2027-02-30T00:00:00Z"}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"not_before": "2027-02-20T00:00:00+24:00"}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"not_before": 5}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"duration": "-5m"}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"duration": -2}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"description": "a\x00b"}, 422, "validation-failed"),
        ("hosts/h1/reboot", {"impact": "reboot"}, 422, "validation-failed"),
        ("hosts/h1/fail", {"not_before": "+1h"}, 422, "validation-failed"),
        ("operations", {"cause": "reboot", "targets": []}, 422, "validation-failed"),
        ("operations", {"cause": "reboot"}, 422, "validation-failed"),
        (
            "operations",
            {"cause": "reboot", "targets": ["web-0", "web-0"]},
            422,
            "operation-invalid",
        ),
        ("operations", {"cause": "reboot", "targets": ["web-0", "none"]}, 404, "unknown"),
    ],
)
def test_wrong_request_changes_nothing(
    shared: Live, path: str, form: dict[str, object], status: int, code: str
) -> None:
    """A request that cannot be done is refused with its reason; nothing is planned."""
    before = shared.get("/v1/history?order=newest&limit=1")
    reply = shared.call("POST", f"/v1/{path}", form)
    assert (reply.status, reply.code) == (status, code)
    assert shared.get("/v1/history?order=newest&limit=1") == before


def test_order_of_several_is_one_request(fleet: Live) -> None:
    """Deletions of one order wait for one another's approval. Source: A-8."""
    fleet.fleet(groups={"web": {"terminate_notice": "PT5M"}})
    fleet.enable("web-0", "web-1")
    form = {"cause": "deletion", "targets": ["web-0", "web-1"]}
    first, second = fleet.call("POST", "/v1/operations", form).json["operations"]
    assert first["request"] == second["request"]
    fleet.settle()
    fleet.post(f"/v1/operations/{first['id']}/approve")
    assert fleet.get(f"/v1/operations/{first['id']}")["operation"]["state"] == "announced"
    waiting = fleet.get(f"/v1/why?id={first['id']}")["blockers"]
    assert [each["code"] for each in waiting] == ["coupled"]
    fleet.post(f"/v1/operations/{second['id']}/approve")
    for each in (first, second):
        assert fleet.get(f"/v1/operations/{each['id']}")["operation"]["state"] == "running"


def test_limit_of_user_operations_is_409() -> None:
    """Beyond the limit of user-initiated work: a clear refusal, nothing changed. Source: O-1."""
    limits = replace(SETTINGS.lifecycle, max_user_operations=2)
    with Live(replace(SETTINGS, lifecycle=limits)) as live:
        vms: dict[str, object] = {f"v{n}": {"host": "h", "group": "g"} for n in range(3)}
        live.fleet(hosts={"h": {}}, groups={"g": {}}, vms=vms)
        live.enable("v0")
        for each in ("v0", "v1"):
            live.post(f"/v1/vms/{each}/reboot")
        reply = live.call("POST", "/v1/vms/v2/reboot", {})
        assert (reply.status, reply.code) == (409, "too-many-user-operations")
        assert len(live.get("/v1/operations")["operations"]) == 2


def test_same_work_twice_is_409(fleet: Live) -> None:
    """The same user's act on the same VM is not asked for twice."""
    fleet.post("/v1/vms/web-0/reboot")
    reply = fleet.call("POST", "/v1/vms/web-0/reboot", {})
    assert (reply.status, reply.code) == (409, "already-asked")


def test_host_is_rebooted_twice_only_on_purpose(fleet: Live) -> None:
    """A second request is refused unless it is to queue, by the CLI's route too."""
    fleet.post("/v1/hosts/h1/reboot")
    for path, form in (
        ("/v1/hosts/h1/reboot", {}),
        ("/v1/operations", {"cause": "host-reboot", "targets": ["h1"]}),
    ):
        reply = fleet.call("POST", path, form)
        assert (reply.status, reply.code) == (409, "already-asked")
        assert one(fleet.post(path, **form, queue=True))["state"] == "planned"


def test_operator_approves_from_outside(fleet: Live) -> None:
    """An operator's acknowledgement counts like a VM's approval. Source: A-9."""
    operation = one(fleet.post("/v1/vms/web-0/reboot"))
    [event] = fleet.get("/v1/events?vm=web-0")["events"]
    fleet.settle()
    approved = one(fleet.post(f"/v1/operations/{event['id']}/approve"))
    assert (approved["id"], approved["state"]) == (operation["id"], "running")
    assert fleet.document("web-0")["Events"][0]["EventStatus"] == "Started"


def test_approve_of_an_operation_covers_its_groups(fleet: Live) -> None:
    """Approving an operation approves all of its events, in one commit. Source: L-2, A-9."""
    operation = one(fleet.post("/v1/hosts/h1/reboot"))
    fleet.settle()
    commits: list[StepResult] = []
    fleet.daemon.control.on_committed.add(commits.append)
    approved = one(fleet.post(f"/v1/operations/{operation['id']}/approve"))
    assert approved["state"] == "running"
    fleet.settle()  # who listens is told after whoever waits for the answer
    actions = [entry.action for entry in commits[0].entries]
    assert actions[:3] == ["event.approved", "event.approved", "operation.started"]
    again = one(fleet.post(f"/v1/operations/{operation['id']}/approve"))
    assert again["state"] == "running"


def test_cancelled_work_leaves_the_document(fleet: Live) -> None:
    """What is withdrawn goes without an impact; its reason is history. Source: L-3."""
    operation = one(fleet.post("/v1/hosts/h1/reboot"))
    cancelled = one(fleet.post(f"/v1/operations/{operation['id']}/cancel", reason="not today"))
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "not today")
    fleet.settle()
    assert fleet.document("web-0")["Events"] == []


def test_operator_ends_and_repeats_running_work(fleet: Live) -> None:
    """Work that runs is retried, completed or failed by an operator's word. Source: L-8."""
    operation = one(fleet.post("/v1/hosts/h1/reboot"))
    path = f"/v1/operations/{operation['id']}"
    early = fleet.call("POST", f"{path}/complete", {})
    assert (early.status, early.code) == (409, "wrong-state")
    fleet.advance(1000)
    assert one(fleet.post(f"{path}/retry"))["attempt"] == 2
    ended = one(fleet.post(f"{path}/complete", failed=True, reason="no power"))
    assert (ended["state"], ended["reason"]) == ("failed", "no power")
    for action in ("cancel", "complete", "retry", "approve"):
        late = fleet.call("POST", f"{path}/{action}", {})
        assert (late.status, late.code) == (409, "wrong-state"), action


def test_repair_ends_a_failure(fleet: Live) -> None:
    """A failed host is shown as Started at once and is over when it is repaired. Source: L-4."""
    fleet.post("/v1/hosts/h1/fail")
    assert fleet.get("/v1/hosts/h1")["health"] == "failed"
    assert fleet.document("web-0")["Events"][0]["EventStatus"] == "Started"
    assert one(fleet.post("/v1/hosts/h1/repair"))["state"] == "succeeded"
    assert fleet.get("/v1/hosts/h1")["health"] == "healthy"


def test_id_may_be_shortened(fleet: Live) -> None:
    """An operation is known by its number, an event by the beginning of its id."""
    operation = one(fleet.post("/v1/vms/web-0/reboot"))
    [event_id] = operation["events"]
    for name in ("op-1", "OP-1", "1", event_id, event_id.lower(), event_id[:4]):
        assert fleet.get(f"/v1/operations/{name}")["operation"]["id"] == "op-1", name
        assert fleet.get(f"/v1/events/{name}")["id"] == event_id, name
    fleet.post("/v1/operations/1/cancel")
    for name in ("op-1", "1", event_id):
        assert fleet.get(f"/v1/operations/{name}")["operation"]["state"] == "cancelled"
    for name in ("op-2", "2", event_id[:4], "x", "op-", "0" * 200, "%00"):
        reply = fleet.call("GET", f"/v1/operations/{name}")
        assert (reply.status, reply.code) == (404, "unknown-operation"), name


def test_shared_beginning_is_ambiguous() -> None:
    """The beginning of two live events' ids stands for neither."""
    guids = iter(["ABCD0000-0000-4000-8000-000000000001", "ABCD0000-0000-4000-8000-000000000002"])
    with Live(hooks=ServiceHooks(new_guid=lambda: next(guids))) as live:
        live.fleet(
            hosts={"h": {}}, groups={"g": {}}, vms={n: {"host": "h", "group": "g"} for n in "ab"}
        )
        live.enable("a")
        live.call("POST", "/v1/operations", {"cause": "reboot", "targets": ["a", "b"]})
        reply = live.call("GET", "/v1/events/abcd")
        assert (reply.status, reply.code) == (409, "ambiguous")


def test_operations_are_filtered_and_paged(fleet: Live) -> None:
    """Operations are listed newest first, by state, host, VM and group, in pages."""
    for name in ("web-0", "web-1", "db-0"):
        fleet.post(f"/v1/vms/{name}/reboot")
    fleet.post("/v1/operations/op-1/cancel")

    def ids(query: str) -> list[str]:
        return [each["id"] for each in fleet.get(f"/v1/operations?{query}")["operations"]]

    assert ids("") == ["op-3", "op-2", "op-1"]
    assert ids("live=true") == ["op-3", "op-2"]
    assert ids("state=cancelled,failed") == ["op-1"]
    assert ids("host=h1") == ["op-3", "op-1"]
    assert ids("vm=web-1") == ["op-2"]
    assert ids("group=db") == ["op-3"]
    assert ids("limit=2") == ["op-3", "op-2"]
    assert fleet.get("/v1/operations?limit=2")["next"] == 2
    assert ids("before=2&limit=2") == ["op-1"]
    assert fleet.call("GET", "/v1/operations?state=odd").code == "validation-failed"


def test_why_names_who_is_awaited(fleet: Live) -> None:
    """An operation says for whom it waits and when it starts anyway. Source: L-1, L-2."""
    fleet.post("/v1/hosts/h1/reboot")
    fleet.post("/v1/hosts/h2/reboot")
    fleet.settle()
    waiting = fleet.get("/v1/why?id=op-1")["blockers"]
    assert [each["subject"] for each in waiting] == ["db", "web"]
    assert {each["clears"] for each in waiting} == {"2027-01-15T08:15:01Z"}
    other = fleet.get("/v1/why?id=op-2")["blockers"]
    assert [each["code"] for each in other] == ["fault-domain"]
    fleet.post("/v1/operations/op-1/cancel")
    assert fleet.get("/v1/why?id=op-1")["blockers"] == []


def test_more_than_a_hundred_targets_are_refused_with_the_command_for_them(fleet: Live) -> None:
    """One request names at most 100; more hosts are a maintenance, and nothing is changed."""
    hosts = {f"many-{n}": {"labels": {"rack": "r7"}} for n in range(REQUEST_TARGETS_MAX + 1)}
    fleet.fleet(hosts=hosts)
    for asked in ({"selector": "rack=r7"}, {"targets": list(hosts)}):
        reply = fleet.call("POST", "/v1/operations", {"cause": "host-reboot", **asked})
        assert (reply.status, reply.code) == (400, "too-many-targets")
        assert "forewarn maintenance create --cause host-reboot" in reply.json["error"]["advice"]
    few = list(hosts)[:REQUEST_TARGETS_MAX]
    reply = fleet.call("POST", "/v1/operations", {"cause": "host-reboot", "targets": few})
    assert len(reply.json["operations"]) == REQUEST_TARGETS_MAX
