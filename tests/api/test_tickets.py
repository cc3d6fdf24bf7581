"""Tickets through the operator API: incidents, reports of tenants, and who sees them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.asking import Reply

CLOSED = replace(SETTINGS, operator=OperatorSettings())
REPORT = {
    "target_kind": "host",
    "target": "h1",
    "category": "gpu",
    "description": "GPU 3 has fallen off the bus",
    "evidence": "Xid 79",
    "account": "shop-1",
}


class People:
    """An operator, and the owners `shop` and `bank`; only the shop has VMs on h1 and h2."""

    def __init__(self) -> None:
        self.live = Live(CLOSED)
        self.tokens = {
            "operator": TOKEN,
            "shop": self.live.add_token("shop", Role.OWNER, "shop"),
            "bank": self.live.add_token("bank", Role.OWNER, "bank"),
        }
        assert self.call("operator", "PUT", "/v1/topology", FLEET).status < 300
        self.live.enable("web-0", "db-0")

    def call(self, name: str, method: str, path: str, form: object = None) -> Reply:
        """Return the answer to a call of somebody."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        return self.live.call(method, path, form, headers=headers)

    def report(self, name: str = "shop", **more: object) -> Json:
        """Report a fault; return the ticket."""
        reply = self.call(name, "POST", "/v1/tickets", REPORT | more)
        assert reply.status == 201, reply.json
        return reply.json


@pytest.fixture
def people() -> Iterator[People]:
    """A service with an operator and two owners."""
    people = People()
    with people.live:
        yield people


def test_ticket_needs_words(people: People) -> None:
    """Nobody can repair or answer blanks. Source: T-9."""
    blank = people.call("shop", "POST", "/v1/tickets", REPORT | {"description": " \n"})
    assert (blank.status, "description must be a text" in blank.json["error"]["message"]) == (
        422,
        True,
    )
    path = f"/v1/tickets/{people.report()['id']}"
    assert people.call("operator", "POST", f"{path}/resolve", {"action": ""}).status == 422
    assert people.call("operator", "POST", f"{path}/ask", {"text": "  "}).status == 422


def test_tenant_reports_a_host_and_agrees_with_its_repair(people: People) -> None:
    """The dialogue goes from report to agreement. Source: T-9."""
    ticket = people.report()
    assert (ticket["type"], ticket["state"], ticket["owners"]) == ("report", "open", ["shop"])
    path = f"/v1/tickets/{ticket['id']}"
    assert people.call("operator", "POST", f"{path}/ask", {"text": "Since when?"}).status == 200
    asked = people.call("shop", "GET", path).json
    assert (asked["state"], asked["texts"][0]["by"]) == ("asked", "operator")
    people.call("shop", "POST", f"{path}/answer", {"text": "Since noon."})
    elsewhere = people.call("operator", "POST", "/v1/hosts/h2/reboot", {}).json["operations"][0]
    refused = people.call("operator", "POST", f"{path}/work", {"operation": elsewhere["id"]})
    assert (refused.status, refused.code) == (422, "operation-elsewhere")
    people.call("operator", "POST", f"{path}/work", {})
    done = people.call("operator", "POST", f"{path}/resolve", {"action": "GPU replaced"}).json
    assert (done["state"], bool(done["due"])) == ("resolved", True)
    closed = people.call("shop", "POST", f"{path}/close", {"text": "Thank you."}).json
    assert (closed["state"], closed["action"]) == ("closed", "GPU replaced")
    assert [each["by"] for each in closed["texts"]] == ["operator", "owner", "owner"]
    again = people.call("shop", "POST", f"{path}/close", {})
    assert (again.status, again.code) == (409, "ticket-wrong-state")


def test_resolved_report_closes_if_its_owner_does_not_disagree(people: People) -> None:
    """A week later, without a word. Source: T-9."""
    path = f"/v1/tickets/{people.report()['id']}"
    people.call("operator", "POST", f"{path}/resolve", {"action": "GPU replaced"})
    people.live.advance(7 * 86_400 + 1)
    people.live.settle()
    assert people.call("shop", "GET", path).json["state"] == "closed"


def test_other_owner_neither_sees_nor_touches_a_report(people: People) -> None:
    """It does not learn that the ticket exists. Source: P-3, T-10."""
    path = f"/v1/tickets/{people.report()['id']}"
    assert people.call("bank", "GET", path).code == "unknown-ticket"
    assert people.call("bank", "POST", f"{path}/answer", {"text": "me"}).code == "unknown-ticket"
    assert people.call("bank", "GET", "/v1/tickets").json["tickets"] == []
    assert people.call("shop", "GET", "/v1/tickets").json["tickets"] != []


@pytest.mark.parametrize(("kind", "name"), [("host", "h1"), ("vm", "web-0"), ("rack", "r7")])
def test_report_does_not_tell_of_the_targets_of_others(
    people: People, kind: str, name: str
) -> None:
    """What is another owner's is refused as what does not exist. Source: P-3."""
    racked = FLEET["hosts"]["h1"] | {"labels": {"rack": "r7"}}
    people.call("operator", "PUT", "/v1/topology", {"hosts": {"h1": racked}})
    people.report(target_kind=kind, target=name)
    refused = people.call("bank", "POST", "/v1/tickets", REPORT | _target(kind, name))
    missing = people.call("bank", "POST", "/v1/tickets", REPORT | _target(kind, "none"))
    assert (refused.status, missing.status) == (404, 404)
    assert str(refused.json).replace(name, "none") == str(missing.json)


def _target(kind: str, name: str) -> dict[str, object]:
    return {"target_kind": kind, "target": name}


def test_owner_opens_reports_alone(people: People) -> None:
    """Retirements and repairs are an operator's, and so are refusals. Source: T-9, T-11."""
    retirement = REPORT | {"type": "retirement", "due": "2027-06-01T00:00:00Z"}
    assert people.call("shop", "POST", "/v1/tickets", retirement).code == "not-permitted"
    kept = people.call("operator", "POST", "/v1/tickets", retirement)
    assert (kept.status, kept.json["due"]) == (201, "2027-06-01T00:00:00Z")
    path = f"/v1/tickets/{kept.json['id']}"
    assert people.call("shop", "GET", path).status == 200
    assert people.call("shop", "POST", f"{path}/close", {}).code == "not-permitted"
    ticket = people.report()
    refusal = f"/v1/tickets/{ticket['id']}/refuse"
    assert people.call("shop", "POST", refusal, {"text": "no"}).code == "not-permitted"
    assert people.call("operator", "POST", refusal, {"text": "It passes."}).json["closed"]


def test_hardware_id_is_stable_and_differs_between_owners(people: People) -> None:
    """It is the digest of the machine for one owner. Source: T-10."""
    first, second = people.report(), people.report(category="fan")
    assert first["hardware"] == second["hardware"] != ""
    other = people.report(target="h2")
    assert other["hardware"] != first["hardware"]
    everybody = people.call("operator", "POST", "/v1/tickets", REPORT | {"type": "repair"}).json
    assert "h1" not in everybody["hardware"]


def test_overrun_is_shown_with_the_operation_and_as_an_incident(people: People) -> None:
    """Planned and actual times of the window, for its owner, too. Source: T-5."""
    reply = people.call("operator", "POST", "/v1/hosts/h1/reboot", {})
    operation = reply.json["operations"][0]
    path = f"/v1/operations/{operation['id']}"
    people.live.settle()
    people.live.advance(3601)
    people.live.settle()
    window = people.call("shop", "GET", path).json["operation"]["window"]
    assert window["planned_open"] < window["planned_close"]
    assert window["opened"]
    people.live.advance(3601)
    people.live.settle()
    [incident] = people.call("shop", "GET", "/v1/tickets?type=incident&live=true").json["tickets"]
    window = people.call("shop", "GET", path).json["operation"]["window"]
    assert (window["incident"], incident["operation"]) == (incident["id"], operation["id"])
    people.call("operator", "POST", f"{path}/complete", {})
    people.live.settle()
    closed = people.call("shop", "GET", f"/v1/tickets/{incident['id']}").json
    assert closed["state"] == "closed"
    assert "after the planned close" in closed["action"]
    assert people.call("shop", "GET", path).json["operation"]["window"]["closed"]


def test_external_id_and_unknown_tickets(people: People) -> None:
    """An operator links a ticket; an id that never was is refused. Source: T-10."""
    path = f"/v1/tickets/{people.report()['id']}"
    assert (
        people.call("operator", "POST", f"{path}/link", {"external": "INC1"}).json["external"]
        == "INC1"
    )
    for wrong in ("t-999", "x"):
        assert people.call("operator", "GET", f"/v1/tickets/{wrong}").code == "unknown-ticket"


def test_ticket_that_was_closed_by_mistake_is_reopened(people: People) -> None:
    """Its dialogue has the reason, and it can be resolved again. Source: T-9."""
    ticket = people.report()
    path = f"/v1/tickets/{ticket['id']}"
    reason = {"text": "closed by mistake"}
    early = people.call("shop", "POST", f"{path}/reopen", reason)
    assert (early.status, early.code) == (409, "ticket-wrong-state")
    assert people.call("shop", "POST", f"{path}/close", {}).status == 200
    assert people.call("bank", "POST", f"{path}/reopen", reason).status == 404
    reopened = people.call("shop", "POST", f"{path}/reopen", reason).json
    assert (reopened["state"], reopened["closed"], reopened["due"]) == ("open", None, None)
    assert reopened["texts"][-1] | {"at": ""} == {"at": "", "by": "owner", **reason}
    live = people.call("shop", "GET", "/v1/tickets?live=true").json["tickets"]
    assert [each["id"] for each in live] == [ticket["id"]]
    refused = {"text": "It is not our hardware."}
    assert people.call("operator", "POST", f"{path}/refuse", refused).json["state"] == "refused"
    assert people.call("operator", "POST", f"{path}/reopen", reason).json["state"] == "open"
    entries = people.call("operator", "GET", "/v1/history?limit=500").json["entries"]
    assert [each["action"] for each in entries].count("ticket.reopened") == 2


def test_owner_reopens_no_ticket_of_an_operator(people: People) -> None:
    """Only its own reports. Source: T-9, P-3."""
    form = REPORT | {"type": "repair"}
    ticket = people.call("operator", "POST", "/v1/tickets", form).json
    path = f"/v1/tickets/{ticket['id']}"
    assert people.call("operator", "POST", f"{path}/close", {}).status == 200
    assert people.call("shop", "POST", f"{path}/reopen", {"text": "no"}).status == 403
