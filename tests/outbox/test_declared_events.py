"""Declared maintenances as CloudEvents, for operators and for one owner. Source: T-1, P-3."""

import json
from collections.abc import Iterator

import pytest

from tests.api.live import FLEET, Json, Live
from tests.outbox.rig import Receiver, delivering
from tests.waiting import wait_until


@pytest.fixture
def receivers() -> Iterator[dict[str, Receiver]]:
    """A receiver of everything, and one of each owner."""
    every = {name: Receiver() for name in ("all", "shop", "bank")}
    yield every
    for each in every.values():
        each.close()


@pytest.fixture
def sent(receivers: dict[str, Receiver]) -> dict[str, dict[str, Json]]:
    """The data that each receiver got of a declared maintenance's life, by action."""
    tables: dict[str, dict[str, object]] = {
        name: {"kind": "webhook", "url": each.url, "batch": 100} for name, each in receivers.items()
    }
    for name in ("shop", "bank"):
        tables[name]["owner"] = name
    with Live(delivering(tables)) as live:
        groups = {**FLEET["groups"], "db": {"owner": "bank"}, "trial": {"owner": "shop"}}
        vms = {**FLEET["vms"], "trial-0": {"host": "h1", "group": "trial"}}
        live.fleet(hosts=FLEET["hosts"], groups=groups, vms=vms)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 600, "reason": "kernel"}
        live.call("POST", "/v1/maintenances", form)
        live.post("/v1/maintenances/m-1/declare")
        live.planned()
        choices = [{"vm": "web-1", "at": "2027-01-20T02:00:00+01:00"}]
        live.post("/v1/declarations/m-1/choices", choices=choices)
        live.planned()
        live.post("/v1/declarations/m-1/choices", choices=[{"vm": "web-0", "release": True}])
        live.post("/v1/declarations/m-1/first-group", owner="shop", group="trial")
        asked = {"vm": "db-0", "until": "2027-02-20T00:00:00Z", "reason": "closing"}
        live.post("/v1/declarations/m-1/deferrals", **asked)
        live.call("PUT", "/v1/policy", {"freezes": [FREEZE]})
        live.planned()
        live.post("/v1/maintenances/m-1/cancel", reason="another day")
        live.settle()
        end = live.daemon.store.history_seq
        wait_until(
            lambda: all(each["sequence"] == end for each in live.get("/v1/outbox")["destinations"])
        )
        return {
            name: {each["data"]["action"]: each["data"] for each in receiver.events()}
            for name, receiver in receivers.items()
        }


FREEZE = {"from": "2027-01-19T00:00:00Z", "to": "2027-01-22T00:00:00Z"}


def test_each_event_of_a_declaration_has_it(sent: dict[str, dict[str, Json]]) -> None:
    """Declared, chosen, displaced, asked for later, and withdrawn. Source: T-1, T-2, T-4."""
    declared = sent["all"]["maintenance.declared"]["declaration"]
    assert (declared["id"], declared["reason"], declared["severity"]) == (
        "m-1",
        "kernel",
        "routine",
    )
    assert declared["hosts"] == ["h1", "h2"]
    assert declared["hand_back_deadline"] == "2027-01-29T08:00:00Z"
    [displaced] = sent["all"]["declaration.displaced"]["declaration"]["choices"]
    assert (displaced["host"], displaced["start"]) == ("h2", "2027-01-20T01:00:00Z")
    assert displaced["displaced"]
    [released] = sent["all"]["declaration.chosen"]["declaration"]["choices"]
    assert (released["owner"], released["decision"]) == ("shop", "release")
    [deferral] = sent["all"]["deferral.asked"]["declaration"]["deferrals"]
    assert (deferral["owner"], deferral["until"]) == ("bank", "2027-02-20T00:00:00Z")
    [first] = sent["all"]["declaration.ordered"]["declaration"]["first_groups"]
    assert (first["owner"], first["group"], first["observation_s"]) == ("shop", "trial", 86_400)
    assert sent["all"]["maintenance.cancelled"]["declaration"]["id"] == "m-1"
    assert "declaration" not in sent["all"]["host.added"]


def test_owner_is_told_of_the_own_part_alone(sent: dict[str, dict[str, Json]]) -> None:
    """Hosts with own VMs, own choices and requests; no name of another owner. Source: P-3."""
    vms = sent["shop"]["maintenance.declared"]["declaration"]["vms"]
    assert vms == ["trial-0", "web-0", "web-1"]
    assert sent["bank"]["maintenance.declared"]["declaration"]["hosts"] == ["h1"]
    assert "declaration.displaced" in sent["shop"]
    assert {"declaration.chosen", "declaration.displaced"} & set(sent["bank"]) == set()
    assert sent["shop"]["declaration.ordered"]["declaration"]["first_groups"][0]["group"] == "trial"
    assert "declaration.ordered" not in sent["bank"]
    assert "deferral.asked" in sent["bank"]
    assert "deferral.asked" not in sent["shop"]
    for owner, other in (("shop", "bank"), ("bank", "shop")):
        assert other not in json.dumps(sent[owner])
        assert "maintenance.cancelled" in sent[owner]
        assert "maintenance.planned" not in sent[owner]
