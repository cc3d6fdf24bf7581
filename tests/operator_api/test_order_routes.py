"""Orders of many hosts over the operator API: accepted, followed, cancelled, refused."""

from __future__ import annotations

import pytest

from forewarn.core.stimulus import TARGETS_MAX
from forewarn.operator_api.dispatch import READ_BYTES_MAX
from forewarn.operator_api.work_routes import AT_ONCE_MAX
from tests.operator_api.live import Json, Live
from tests.waiting import wait_until

HOSTS = AT_ONCE_MAX + 9
NAMES = [f"n{n}" for n in range(HOSTS)]


@pytest.fixture
def many(live: Live) -> Live:
    """A service with many hosts, a lone VM on each; the first VM asks for its document."""
    live.fleet(
        hosts={name: {"labels": {"rack": "r7"}} for name in NAMES},
        vms={f"v-{name}": {"host": name} for name in NAMES},
    )
    live.enable("v-n0")
    return live


def placed(live: Live, **form: object) -> Json:
    """Place an order; return it as it was answered."""
    form = {"cause": "host-reboot", "targets": NAMES, **form}
    reply = live.call("POST", "/v1/operations", {k: v for k, v in form.items() if v is not None})
    assert reply.status == 202, reply
    assert reply.json["operations"] == []
    return reply.json["order"]


def planned(live: Live, order: Json) -> Json:
    """Wait until every host has had its turn; return the order."""
    path = f"/v1/orders/{order['id']}"
    wait_until(lambda: live.get(path)["order"]["unplanned"] == 0)
    live.settle()
    return live.get(path)["order"]


def test_order_is_answered_before_its_hosts_are_planned(many: Live) -> None:
    """The answer names the order; its operations follow, and are found by it. Source: L-7."""
    order = placed(many)
    assert (order["state"], order["hosts"], order["unplanned"]) == ("planning", HOSTS, HOSTS)
    order = planned(many, order)
    assert (order["state"], order["left_out"]) == ("working", 0)
    assert order["operations"]["announced"] == 1
    assert order["operations"]["running"] == HOSTS - 1
    found = many.get(f"/v1/operations?order={order['id']}&limit=500")["operations"]
    assert sorted(each["host"] for each in found) == sorted(NAMES)
    assert {f"order-{each['request']}" for each in found} == {order["id"]}
    [event] = many.document("v-n0")["Events"]
    assert (event["EventStatus"], event["EventType"]) == ("Scheduled", "Reboot")


def test_what_an_order_waits_for_is_grouped(many: Live) -> None:
    """Blockers of its operations alone, each with how many wait for it. Source: F-4."""
    many.post("/v1/operations", cause="host-reboot", targets=["n0"])
    many.settle()
    order = planned(many, placed(many))
    everything = sum(each["count"] for each in many.get("/v1/blockers")["groups"])
    groups = many.get(f"/v1/blockers?order={order['id']}")["groups"]
    live = sum(order["operations"][state] for state in ("planned", "announced", "running"))
    assert 0 < sum(each["count"] for each in groups) == live < everything
    assert many.call("GET", "/v1/blockers?order=order-999").code == "unknown-order"


def test_few_hosts_are_answered_with_their_operations(many: Live) -> None:
    """As many as one step plans are answered as ever."""
    form = {"cause": "host-reboot", "targets": NAMES[:AT_ONCE_MAX]}
    answer = many.post("/v1/operations", **form)
    assert answer["order"] is None
    assert [each["host"] for each in answer["operations"]] == NAMES[:AT_ONCE_MAX]


def test_order_names_its_hosts_by_a_selector(many: Live) -> None:
    """What the selector finds when it is asked is what the order is of."""
    order = placed(many, targets=None, selector="rack=r7")
    assert planned(many, order)["hosts"] == HOSTS


def test_long_form_is_read_beside_the_event_loop(many: Live) -> None:
    """A wrong name deep in a long list is refused as in a short one."""
    names = [f"a-host-with-a-long-name-{n}" for n in range(READ_BYTES_MAX // 16)]
    reply = many.call("POST", "/v1/operations", {"cause": "host-reboot", "targets": [*names, 7]})
    assert (reply.status, reply.code) == (422, "validation-failed")
    assert f"targets[{len(names)}] must be" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"targets": [*NAMES, "none"]}, "unknown"),
        ({"targets": [*NAMES, NAMES[0]]}, "operation-invalid"),
        ({"destination": "n0"}, "operation-invalid"),
        ({"not_before": "+1m"}, "notice-too-short"),
        ({"cause": "live-migration", "destination": "n0"}, "operation-invalid"),
    ],
    ids=["unknown", "twice", "no-move", "too-soon", "destination-among-them"],
)
def test_wrong_order_changes_nothing(many: Live, wrong: Json, code: str) -> None:
    """One host that cannot be done refuses all of it: no operation, no history."""
    before = many.get("/v1/history?order=newest&limit=1")
    form = {"cause": "host-reboot", "targets": NAMES, **wrong}
    assert many.call("POST", "/v1/operations", form).code == code
    assert many.get("/v1/orders") == {"orders": [], "next": None}
    assert many.get("/v1/history?order=newest&limit=1") == before


def test_vms_of_one_request_keep_their_limit(many: Live) -> None:
    """They are decided in one step, since deletions wait for each other. Source: A-8, O-1."""
    form = {"cause": "deletion", "targets": [f"v{n}" for n in range(TARGETS_MAX + 1)]}
    reply = many.call("POST", "/v1/operations", form)
    assert reply.code == "validation-failed"
    told = f"targets names {TARGETS_MAX + 1} VMs; {TARGETS_MAX} of them can be decided at once"
    assert told in reply.json["error"]["message"]


def test_repeated_order_is_refused(many: Live) -> None:
    """Who asks again since the answer was lost finds the first one. Source: L-7."""
    order = placed(many)
    reply = many.call("POST", "/v1/operations", {"cause": "host-reboot", "targets": NAMES[::-1]})
    assert (reply.status, reply.code) == (409, "already-ordered")
    assert order["id"] in reply.json["error"]["message"]


def test_cancelled_order_is_withdrawn(many: Live) -> None:
    """What was only announced is gone from the documents; what runs ends. Source: L-3."""
    order = planned(many, placed(many))
    path = f"/v1/orders/{order['id']}"
    cancelled = many.post(f"{path}/cancel", reason="the wrong rack")["order"]
    assert (cancelled["state"], cancelled["reason"]) == ("cancelling", "the wrong rack")
    wait_until(lambda: many.get(path)["order"]["operations"]["cancelled"] == 1)
    wait_until(lambda: many.document("v-n0")["Events"] == [])
    for each in many.get(f"/v1/operations?order={order['id']}&state=running&limit=500")[
        "operations"
    ]:
        many.post(f"/v1/operations/{each['id']}/complete")
    ended = many.get(path)["order"]
    assert (ended["state"], ended["operations"]["succeeded"]) == ("ended", HOSTS - 1)
    assert many.get("/v1/orders?live=true")["orders"] == []
    [kept] = many.get("/v1/orders")["orders"]
    assert kept == ended
    assert many.call("POST", f"{path}/cancel", {}).code == "wrong-state"


def test_orders_are_paged(many: Live) -> None:
    """Newest first, from where the last page ended."""
    first, second = placed(many), placed(many, cause="host-update")
    page = many.get("/v1/orders?limit=1")
    assert [each["id"] for each in page["orders"]] == [second["id"]]
    page = many.get(f"/v1/orders?limit=1&before={page['next']}")
    assert [each["id"] for each in page["orders"]] == [first["id"]]


@pytest.mark.parametrize("name", ["order-99", "99", "none"])
@pytest.mark.parametrize("action", ["", "/cancel"])
def test_unknown_order_is_404(shared: Live, name: str, action: str) -> None:
    """An order that never was can neither be read nor cancelled."""
    reply = shared.call("POST" if action else "GET", f"/v1/orders/{name}{action}")
    assert (reply.status, reply.code) == (404, "unknown-order")
