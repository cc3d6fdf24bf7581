"""Two-person confirmation: calls that wait for another principal. Source: P-8."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import OperatorSettings, Settings, StoreSettings
from forewarn_core.access.roles import Role
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.asking import Reply
from tests.waiting import LIMIT_S

CLOSED = replace(SETTINGS, operator=OperatorSettings())
POLICY = {"confirm": ["answer", "fail-host", "start-maintenance", "apply-policy"]}


class Team:
    """A service with three people: anna (admin), ben and a tenant of shop."""

    def __init__(self, settings: Settings = CLOSED) -> None:
        """Start it; policy has every act confirmed within an hour."""
        self.live = Live(settings)
        self.tokens = {
            "anna": TOKEN,
            "ben": self.live.add_token("ben", Role.OPERATOR),
            "shop": self.live.add_token("shop", Role.OWNER, "shop"),
        }
        self.call("anna", "PUT", "/v1/topology", FLEET)
        self.live.enable("web-0", "db-0")

    def call(self, name: str, method: str, path: str, form: object = None, **more: str) -> Reply:
        """Return the answer to a call of a person."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}", **more}
        return self.live.call(method, path, form, headers=headers)

    def set_policy(self, *confirm: str, **more: object) -> None:
        """Apply a policy, with a second person where that is needed."""
        policy = {"confirm": confirm, **more}
        if self.call("ben", "PUT", "/v1/policy", policy).status == 409:
            assert self.confirm("anna").status == 200

    def waiting(self) -> Json:
        """Return the calls that wait."""
        return self.call("ben", "GET", "/v1/confirmations").json["confirmations"]

    def health(self) -> str:
        """Return the health of h1."""
        health: str = self.call("ben", "GET", "/v1/hosts/h1").json["health"]
        return health

    def confirm(self, name: str, **more: str) -> Reply:
        """Confirm the only call that waits."""
        (each,) = self.waiting()
        return self.call(name, "POST", f"/v1/confirmations/{each['id']}/confirm", **more)


@pytest.fixture
def team() -> Iterator[Team]:
    """A team whose policy has every act confirmed."""
    started = Team()
    assert started.call("anna", "PUT", "/v1/policy", POLICY).status == 200
    yield started
    started.live.stop()


def test_host_fails_once_another_operator_confirms(team: Team) -> None:
    """Nothing happens before; history and audit name both."""
    asked = team.call("ben", "POST", "/v1/hosts/h1/fail", {"lost": True})
    assert (asked.status, asked.code) == (409, "confirmation-awaited")
    assert team.health() == "healthy"
    assert team.confirm("anna").status == 200
    assert team.health() == "failed"
    assert team.waiting() == []
    entries = team.call("ben", "GET", "/v1/history?limit=500").json["entries"]
    [given] = [each for each in entries if each["action"] == "confirmation.given"]
    assert "of ben is confirmed by anna: fail host h1 (lost)" in given["text"]
    assert given["actor"] == "operator anna"
    team.live.settle()
    records = team.call("anna", "GET", "/v1/audit").json["records"]
    outcomes = {(each["principal"], each["request"]): each["outcome"] for each in records}
    assert outcomes["ben", "POST /v1/hosts/h1/fail"] == "confirmation-awaited"
    assert any(name == "anna" and "/confirm" in request for name, request in outcomes)


def test_same_principal_cannot_confirm(team: Team) -> None:
    """Another token of the same principal is the same; a tenant sees nothing of it."""
    team.call("ben", "POST", "/v1/hosts/h1/fail", {})
    team.tokens["ben"] = team.call(
        "anna", "POST", "/v1/access/tokens", {"principal": "ben", "role": "operator"}
    ).json["token"]
    assert team.confirm("ben").code == "own-confirmation"
    assert team.confirm("shop").code == "not-permitted"
    assert team.call("shop", "GET", "/v1/confirmations").code == "not-permitted"
    assert team.health() == "healthy"


def test_namespace_of_a_cluster_cannot_confirm(team: Team) -> None:
    """Whoever may write in a namespace is not one person, whatever its role. Source: K-4, P-8."""
    form = {"principal": "kubernetes:c1:ops", "role": "operator"}
    team.tokens["ops"] = team.call("anna", "POST", "/v1/access/tokens", form).json["token"]
    team.call("ben", "POST", "/v1/hosts/h1/fail", {})
    refused = team.confirm("ops")
    assert (refused.code, team.health()) == ("own-confirmation", "healthy")
    assert b"a namespace of a cluster is not a person" in refused.body
    assert team.confirm("anna").status == 200


def test_same_call_waits_once(team: Team) -> None:
    """A repeated call gets the same answer, and so does a repeated confirmation with its key."""
    first = team.call("ben", "POST", "/v1/hosts/h1/fail", {}, **{"Idempotency-Key": "a"})
    again = team.call("ben", "POST", "/v1/hosts/h1/fail", {}, **{"Idempotency-Key": "a"})
    assert (first.status, first.body) == (again.status, again.body)
    assert team.call("ben", "POST", "/v1/hosts/h1/fail", {}).body == first.body
    (each,) = team.waiting()
    path = f"/v1/confirmations/{each['id']}/confirm"
    done = team.call("anna", "POST", path, **{"Idempotency-Key": "b"})
    assert team.call("anna", "POST", path, **{"Idempotency-Key": "b"}).body == done.body
    assert team.call("anna", "POST", path).code == "unknown-confirmation"


def test_call_expires(team: Team) -> None:
    """What nobody confirms in time is not done."""
    team.call("ben", "POST", "/v1/hosts/h1/fail", {})
    (each,) = team.waiting()
    team.live.advance(3599)
    assert len(team.waiting()) == 1
    team.live.advance(1)
    assert team.waiting() == []
    reply = team.call("anna", "POST", f"/v1/confirmations/{each['id']}/confirm")
    assert reply.code == "unknown-confirmation"
    assert team.health() == "healthy"


def test_calls_that_wait_are_limited(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call over the limit is refused at once; those before it still wait. Source: P-8."""
    monkeypatch.setattr("forewarn_core.access.reducer.WAITING_MAX", 2)
    replies = [team.call("ben", "POST", f"/v1/hosts/{name}/fail", {}) for name in ("h1", "h2")]
    assert {each.code for each in replies} == {"confirmation-awaited"}
    refused = team.call("ben", "POST", "/v1/hosts/h1/fail", {"lost": True})
    assert (refused.status, refused.code) == (429, "confirmations-full")
    assert len(team.waiting()) == 2


def test_call_waits_over_a_restart(tmp_path: Path) -> None:
    """What waits is in the store."""
    settings = replace(CLOSED, store=StoreSettings(url=f"sqlite:///{tmp_path}/forewarn.db"))
    team = Team(settings)
    team.call("anna", "PUT", "/v1/policy", POLICY)
    team.call("ben", "POST", "/v1/hosts/h1/fail", {})
    team.live.stop()
    team.live = Live(settings)
    assert team.confirm("anna").status == 200
    assert team.health() == "failed"
    team.live.stop()


def test_large_maintenance_starts_once_confirmed(team: Team) -> None:
    """A small one starts at once; the limit itself is changed by two."""
    assert team.call("ben", "PUT", "/v1/policy", {}).code == "confirmation-awaited"
    assert team.confirm("anna").status == 200
    team.call("anna", "PUT", "/v1/policy", {"confirm": ["start-maintenance"], "confirm_above": 1})
    for hosts in (["h1"], ["h1", "h2"]):
        form = {"cause": "host-reboot", "hosts": hosts, "duration": "PT5M"}
        made = team.call("ben", "POST", "/v1/maintenances", form).json["maintenance"]
        reply = team.call("ben", "POST", f"/v1/maintenances/{made['id']}/start", {})
        assert (reply.status == 200) == (len(hosts) == 1)
    assert team.confirm("anna").json["maintenance"]["state"] == "running"


def test_owner_answers_alone_and_operator_for_them_with_another(team: Team) -> None:
    """An owner's own answer needs nobody; an operator's answer for an owner does."""
    team.set_policy("answer")
    team.call("ben", "POST", "/v1/hosts/h1/update", {"network_only": True})
    team.live.settle()
    events = team.call("ben", "GET", "/v1/events").json["events"]
    ids = {each["group"]: each["id"] for each in events}
    assert team.call("shop", "POST", f"/v1/operations/{ids['web']}/approve").status == 200
    reply = team.call("ben", "POST", f"/v1/operations/{ids['db']}/approve")
    assert reply.code == "confirmation-awaited"
    assert team.confirm("anna").status == 200


@pytest.mark.parametrize(("who", "action"), [("ben", "withdrawn"), ("anna", "refused")])
def test_call_that_is_withdrawn_or_refused_is_not_done(team: Team, who: str, action: str) -> None:
    """Nobody can confirm it afterwards; history names who ended its waiting."""
    team.call("ben", "POST", "/v1/hosts/h1/fail", {"lost": True})
    (kept,) = team.waiting()
    path = f"/v1/confirmations/{kept['id']}"
    assert team.call("shop", "DELETE", path).status == 403
    assert team.call(who, "DELETE", path).status == 204
    assert team.call("anna", "POST", f"{path}/confirm").code == "unknown-confirmation"
    assert team.health() == "healthy"
    entries = team.call("ben", "GET", "/v1/history?limit=500").json["entries"]
    [end] = [each for each in entries if each["action"] == f"confirmation.{action}"]
    assert end["actor"].startswith(f"operator {who}")


def test_end_of_confirmations_is_in_history(team: Team) -> None:
    """A policy without `confirm` changes who may act alone, so its entry says so."""
    team.call("ben", "PUT", "/v1/policy", {})
    assert team.confirm("anna").status == 200
    entries = team.call("ben", "GET", "/v1/history?limit=500").json["entries"]
    texts = [each["text"] for each in entries if each["action"] == "policy.applied"]
    assert texts[-1].endswith("a second person confirms nothing from now on")


def test_operator_who_takes_a_vms_address_does_not_answer_as_the_vm(team: Team) -> None:
    """The address, like the answer, needs another operator. Source: P-8."""
    team.set_policy("answer", "move-address")
    form = {"host": "h1", "group": "web", "addresses": ["127.0.0.1"]}
    for method, path, body in (
        ("PUT", "/v1/vms/web-0", form),
        ("PUT", "/v1/vms/web-9", form),
        ("DELETE", "/v1/vms/web-0", None),
        ("PUT", "/v1/groups/web", {"owner": "shop", "automatic_approval": ["Reboot"]}),
        ("PUT", "/v1/topology", {"vms": {"web-0": form}}),
    ):
        assert team.call("ben", method, path, body).code == "confirmation-awaited", (method, path)
    assert team.call("ben", "GET", "/v1/vms/web-0").json["addresses"] == []
    names = [each["text"] for each in team.waiting()]
    assert names[0] == "change vm web-0 (host h1, group web, addresses 127.0.0.1)"
    assert names[-1] == "change topology"


def test_confirmed_call_keeps_its_query(team: Team) -> None:
    """What is executed is what was asked for. Source: P-8."""
    team.set_policy("move-address")
    rest = {**FLEET, "vms": {"web-0": FLEET["vms"]["web-0"]}}
    reply = team.call("ben", "PUT", "/v1/topology?prune=true", rest)
    assert reply.code == "confirmation-awaited"
    assert [each["text"] for each in team.waiting()] == ["change topology (prune true)"]
    removed = team.confirm("anna").json["removed"]
    assert [(each["kind"], each["name"]) for each in removed] == [("vm", "web-1"), ("vm", "db-0")]


def test_new_token_is_for_the_admin_who_confirms(team: Team) -> None:
    """Nobody gets by a confirmation what the own role does not give. Source: P-2, P-8."""
    team.set_policy("create-principal")
    team.tokens["cleo"] = team.live.add_token("cleo", Role.ADMIN)
    form = {"principal": "bot", "role": "admin"}
    assert team.call("anna", "POST", "/v1/access/tokens", form).code == "confirmation-awaited"
    assert [each["text"] for each in team.waiting()] == ["create a token of bot (role admin)"]
    assert team.confirm("ben").code == "not-permitted"
    team.tokens["bot"] = team.confirm("cleo").json["token"]
    assert team.call("bot", "GET", "/v1/whoami").json["principal"] == "bot"
    team.call("bot", "POST", "/v1/access/grant", {"principal": "user:kim", "role": "viewer"})
    assert [each["text"] for each in team.waiting()] == ["grant viewer to user:kim"]
    assert team.confirm("cleo").code == "own-confirmation"
    assert team.confirm("anna").status == 200


def test_admin_does_not_confirm_with_a_token_made_for_it(team: Team) -> None:
    """Whichever of them asks, or two that one admin made. Source: P-8."""
    for name in ("puppet", "second"):
        form = {"principal": name, "role": "operator"}
        made = team.call("anna", "POST", "/v1/access/tokens", form)
        team.tokens[name] = made.json["token"]
        assert made.json["makers"] == ["anna"]
    for asker, confirmer in (("anna", "puppet"), ("puppet", "anna"), ("puppet", "second")):
        team.call(asker, "POST", "/v1/hosts/h1/fail", {})
        refused = team.confirm(confirmer)
        assert (refused.code, team.health()) == ("own-confirmation", "healthy")
        assert "both count as anna" in refused.json["error"]["message"]
        team.call(asker, "DELETE", f"/v1/confirmations/{team.waiting()[0]['id']}")


def test_call_of_a_revoked_operator_is_not_executed(team: Team) -> None:
    """Its permission is checked again. Source: P-8."""
    team.call("ben", "POST", "/v1/hosts/h1/fail", {})
    assert team.call("anna", "DELETE", "/v1/access/tokens/ben").status == 204
    (each,) = team.call("anna", "GET", "/v1/confirmations").json["confirmations"]
    reply = team.call("anna", "POST", f"/v1/confirmations/{each['id']}/confirm")
    assert (reply.status, reply.code) == (409, "asker-not-permitted")
    assert team.call("anna", "GET", "/v1/hosts/h1").json["health"] == "healthy"


def test_calls_at_one_time_count_each_other(team: Team) -> None:
    """The service decides one after the other. Source: P-8."""
    team.set_policy("apply-policy")
    hosts = {f"x{number}": {"fault_domain": number} for number in range(12)}
    assert team.call("ben", "PUT", "/v1/topology", {"hosts": hosts}).status == 200
    team.set_policy("start-maintenance", confirm_above=4)
    with ThreadPoolExecutor(6) as threads:
        forms = [{"cause": "host-reboot", "targets": [f"x{n}", f"x{n + 6}"]} for n in range(6)]
        asked = [threads.submit(team.call, "ben", "POST", "/v1/operations", form) for form in forms]
        statuses = sorted(each.result(LIMIT_S).status for each in asked)
    assert statuses == [202, 202, 409, 409, 409, 409]
    assert team.call("ben", "POST", "/v1/vms/web-0/reboot", {}).code == "confirmation-awaited"


def test_hosts_are_counted_over_a_restart(tmp_path: Path) -> None:
    """Also those of ended work. Source: P-8."""
    settings = replace(CLOSED, store=StoreSettings(url=f"sqlite:///{tmp_path}/forewarn.db"))
    team = Team(settings)
    team.set_policy("start-maintenance", confirm_above=1)
    operation = team.call("ben", "POST", "/v1/hosts/h1/fail", {}).json["operations"][0]["id"]
    done = team.call("ben", "POST", f"/v1/operations/{operation}/complete", {})
    assert done.status == 200
    team.live.stop()
    team.live = Live(settings)
    assert team.call("ben", "POST", "/v1/hosts/h2/reboot", {}).code == "confirmation-awaited"
    assert team.call("anna", "POST", "/v1/hosts/h2/reboot", {}).status == 202
    team.live.stop()


def test_selector_is_confirmed_as_the_hosts_that_it_matched(team: Team) -> None:
    """Labels that change afterwards change nothing. Source: P-8."""
    team.set_policy("start-maintenance")
    for host, rack in (("h1", "r1"), ("h2", "r2")):
        team.call("ben", "PUT", f"/v1/hosts/{host}", {"labels": {"rack": rack}})
    form = {"cause": "host-reboot", "selector": "rack=r1"}
    assert team.call("ben", "POST", "/v1/operations", form).code == "confirmation-awaited"
    assert [each["text"] for each in team.waiting()] == ["request host-reboot of h1"]
    team.call("ben", "PUT", "/v1/hosts/h2", {"labels": {"rack": "r1"}})
    done = team.confirm("anna").json["operations"]
    assert [each["host"] for each in done] == ["h1"]


def test_guard_is_taken_away_by_two(team: Team) -> None:
    """Also where the policy itself may be changed by one. Source: P-8."""
    team.set_policy("start-maintenance", confirm_above=4)
    strict = {"confirm": ["start-maintenance", "answer"], "confirm_above": 2}
    for weaker in ({}, {**strict, "confirm_above": 5}, {**strict, "confirm_period": "PT1H"}):
        assert team.call("ben", "PUT", "/v1/policy", weaker).code == "confirmation-awaited"
    assert team.call("ben", "PUT", "/v1/policy", {**strict, "pause": "PT5M"}).status == 200
