"""Declared maintenances through the operator API. Source: T-1, P-3."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from forewarn_base.protocol.timestamps import parse
from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.tokens import written_token
from tests.api.live import FLEET, NOW_MS, SETTINGS, Json, Live
from tests.asking import Reply


@pytest.fixture
def live() -> Iterator[Live]:
    """A service with two hosts and three VMs, two of them of the owner `shop`."""
    with Live() as service:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        yield service


def declare(live: Live, *hosts: str, **more: object) -> Json:
    """Create a maintenance of hosts and declare it; return it."""
    number = draft(live, *hosts)
    declared: Json = live.post(f"/v1/maintenances/{number}/declare", **more)["maintenance"]
    live.planned()
    return declared


def draft(live: Live, *hosts: str) -> str:
    """Create a maintenance of hosts as a draft; return its id."""
    form = {"cause": "host-reboot", "hosts": list(hosts), "duration": 600, "reason": "kernel"}
    number: str = live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    return number


def test_declaration_is_listed_with_its_resources(live: Live) -> None:
    """Reason, deadline, impact and the VMs in scope. Source: T-1."""
    declared = declare(live, "h1", "h2")
    assert declared["state"] == "running"
    [listed] = live.get("/v1/declarations")["declarations"]
    assert listed == live.get(f"/v1/declarations/{declared['id']}")["declaration"]
    assert (listed["severity"], listed["reason"], listed["version"]) == ("routine", "kernel", 1)
    assert (listed["impact"], listed["window_s"]) == ("Reboot", 600)
    assert {vm for each in listed["resources"] for vm in each["vms"]} == set(FLEET["vms"])
    states = {(each["state"], each["hand_back_deadline"]) for each in listed["resources"]}
    assert states == {("open", listed["hand_back_deadline"])}


def test_declared_hosts_are_announced_around_the_deadline(live: Live) -> None:
    """The list says so, until the maintenance is done. Source: T-3."""
    declared = declare(live, "h1")
    path = f"/v1/declarations/{declared['id']}"
    due_ms = parse(live.get(f"/v1/maintenances/{declared['id']}")["maintenance"]["next_wave"])
    live.advance((due_ms - NOW_MS) / 1000)
    live.planned()
    [resource, *_] = live.get(path)["declaration"]["resources"]
    assert resource["state"] == "announced"
    assert resource["start"] == resource["hand_back_deadline"]
    live.advance(3600)
    assert live.get(path)["declaration"]["resources"][0]["state"] == "started"


def test_window_shorter_than_the_policy_allows_is_refused(live: Live) -> None:
    """Nothing is declared. Source: T-1."""
    path = f"/v1/maintenances/{draft(live, 'h1')}/declare"
    refused = live.call("POST", path, {"hand_back": "1d"})
    assert (refused.status, refused.code) == (409, "declaration-refused")
    assert live.get("/v1/declarations")["declarations"] == []
    assert live.post(path, hand_back="1d", severity="urgent")


def test_unknown_declaration_is_not_found(live: Live) -> None:
    """A maintenance that was not declared has none. Source: T-1."""
    for name in (draft(live, "h1"), "m-99"):
        assert live.call("GET", f"/v1/declarations/{name}").status == 404


def test_owner_sees_only_the_own_resources() -> None:
    """Another owner's VMs are not there, nor maintenances that concern them alone. P-3."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        owners = {
            name: {"Authorization": f"Bearer {live.add_token(name, Role.OWNER, name)}"}
            for name in ("shop", "bank")
        }

        def ask(method: str, path: str, form: object = None) -> Json:
            return live.call(method, path, form, headers=admin).json

        ask("PUT", "/v1/topology", FLEET)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        number = ask("POST", "/v1/maintenances", form)["maintenance"]["id"]
        ask("POST", f"/v1/maintenances/{number}/declare", {})
        live.planned()
        path = f"/v1/declarations/{number}"
        own = live.call("GET", path, headers=owners["shop"]).json["declaration"]["resources"]
        every = ask("GET", path)["declaration"]["resources"]
        assert [each["vms"] for each in own] == [["web-0"], ["web-1"]]
        assert own == [each for each in every if each["owner"] == "shop"]
        assert live.call("GET", path, headers=owners["bank"]).status == 404
        of_bank = live.call("GET", "/v1/declarations", headers=owners["bank"]).json
        assert of_bank == {"declarations": []}
        for name in ("h1", "web-0"):
            why = live.call("GET", f"/v1/why?id={name}", headers=owners["shop"]).json
            assert [(each["code"], each["name"]) for each in why["blockers"]] == [
                ("hand-back", number)
            ]
            assert why["blockers"][0]["text"].endswith(f"{number} is declared for host h1 (open)")
            assert live.call("GET", f"/v1/why?id={name}", headers=owners["bank"]).status == 404


def chosen(live: Live, number: str, **form: object) -> Json:
    """Choose, and return the result."""
    answer = live.post(f"/v1/declarations/{number}/choices", choices=[form])
    live.planned()
    return answer["results"][0]


def test_owner_chooses_an_opening(live: Live) -> None:
    """The choice is shown, and is the planned start. Source: T-2."""
    number = declare(live, "h2")["id"]
    path = f"/v1/declarations/{number}"
    [opening] = live.get(f"{path}/openings?vm=web-1")["openings"]
    assert opening["room"] is None
    result = chosen(live, number, vm="web-1", at=opening["start"])
    assert (result["possible"], result["start"]) == (True, opening["start"])
    [resource] = live.get(path)["declaration"]["resources"]
    assert (resource["state"], resource["decision"]) == ("chosen", "at")
    assert resource["start"] == resource["chosen_start"] == opening["start"]
    chosen(live, number, group="web", release=True)
    assert live.get(path)["declaration"]["resources"][0]["state"] == "announced"


def test_choice_on_a_shared_host_waits_for_the_other_owner(live: Live) -> None:
    """VMs without an owner have the operator. Source: T-2, T-3."""
    number = declare(live, "h1")["id"]
    chosen(live, number, vm="web-0", at="2027-01-20T02:00:00+01:00")
    states = {
        each["owner"]: each["state"]
        for each in live.get(f"/v1/declarations/{number}")["declaration"]["resources"]
    }
    assert states == {"shop": "waiting-for-other-work", "": "open"}


def test_list_for_a_vm_has_its_host_alone(live: Live) -> None:
    """An agent asks so, however many hosts its owner has; a VM of others is unknown. T-1, P-3."""
    declare(live, "h1", "h2")
    [declaration] = live.get("/v1/declarations?vm=web-1")["declarations"]
    assert {each["host"] for each in declaration["resources"]} == {"h2"}
    live.add_token("shop", Role.OWNER, "shop")
    headers = {"Authorization": f"Bearer {written_token('shop', 'secret-of-shop')}"}
    foreign = live.call("GET", "/v1/declarations?vm=db-0", headers=headers)
    assert (foreign.status, foreign.code) == (404, "unknown")
    assert foreign.json["error"]["message"] == "There is no VM db-0."
    live.post("/v1/maintenances/m-1/cancel", reason="over")
    declare(live, "h1")
    assert live.get("/v1/declarations?vm=web-1")["declarations"] == []


def test_announced_host_has_no_openings(live: Live) -> None:
    """Nothing can be chosen for it any more, and the answer says why. Source: T-2."""
    declared = declare(live, "h1")
    path = f"/v1/declarations/{declared['id']}/openings?host=h1"
    assert live.get(path)["openings"]
    due_ms = parse(live.get(f"/v1/maintenances/{declared['id']}")["maintenance"]["next_wave"])
    live.advance((due_ms - NOW_MS) / 1000)
    live.planned()
    answer = live.get(path)
    assert answer["openings"] == []
    assert answer["text"] == "Nothing can be chosen for host h1: its work is announced already."


def test_impossible_choice_is_answered_with_openings(live: Live) -> None:
    """A dry run has the blocker and the openings as members, a refusal as words. Source: T-2."""
    number = declare(live, "h2")["id"]
    path = f"/v1/declarations/{number}/choices"
    form = {"choices": [{"host": "h2", "at": "2027-03-01T00:00:00Z"}]}
    [result] = live.post(path, **form, dry_run=True)["results"]
    assert (result["possible"], result["code"]) == (False, "hand-back")
    refused = live.call("POST", path, form)
    assert (refused.status, refused.code) == (409, "choice-refused")
    assert "hand-back deadline" in refused.json["error"]["message"]
    assert result["openings"][0]["start"] in refused.json["error"]["advice"]


@pytest.mark.parametrize(
    "choice",
    [
        {"at": "2027-01-20T00:00:00Z"},
        {"host": "h2", "vm": "web-1", "now": True},
        {"host": "h2"},
        {"host": "h2", "now": True, "release": True},
        {"vm": "nobody", "now": True},
    ],
)
def test_malformed_choice_is_refused(live: Live, choice: Json) -> None:
    """One place and one way. Source: T-2."""
    number = declare(live, "h2")["id"]
    reply = live.call("POST", f"/v1/declarations/{number}/choices", {"choices": [choice]})
    assert reply.status in {400, 404, 422}
    assert live.get(f"/v1/declarations/{number}")["declaration"]["resources"][0]["state"] == "open"


def test_owner_chooses_only_for_the_own_vms() -> None:
    """Another owner's VMs and hosts are unknown. Source: P-3."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        shop = {"Authorization": f"Bearer {live.add_token('shop', Role.OWNER, 'shop')}"}
        live.call("PUT", "/v1/topology", FLEET, headers=admin)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        created = live.call("POST", "/v1/maintenances", form, headers=admin).json
        number = created["maintenance"]["id"]
        live.call("POST", f"/v1/maintenances/{number}/declare", {}, headers=admin)
        path = f"/v1/declarations/{number}"

        def choose(**choice: object) -> int:
            form = {"choices": [choice]}
            return live.call("POST", f"{path}/choices", form, headers=shop).status

        assert choose(vm="db-0", now=True) == 404
        assert choose(group="db", now=True) == 404
        assert choose(host="h1", release=True) == 200
        live.planned()
        every = live.call("GET", path, headers=admin).json["declaration"]["resources"]
        assert {each["owner"]: each["state"] for each in every if each["host"] == "h1"} == {
            "shop": "released",
            "": "open",
        }


def test_owner_orders_its_hosts_and_holds_them() -> None:
    """A test group is named, held and resumed; other owners do not see it. Source: T-8, P-3."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        shop = {"Authorization": f"Bearer {live.add_token('shop', Role.OWNER, 'shop')}"}
        bank = {"Authorization": f"Bearer {live.add_token('bank', Role.OWNER, 'bank')}"}
        groups = {"trial": {"owner": "shop"}, "main": {"owner": "shop"}, "db": {"owner": "bank"}}
        places = {"trial": "h1", "main": "h2", "db": "h2"}
        vms = {f"{each}-0": {"host": places[each], "group": each} for each in groups}
        layout = {"hosts": {"h1": {}, "h2": {}}, "groups": groups, "vms": vms}
        assert live.call("PUT", "/v1/topology", layout, headers=admin).status == 200
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        created = live.call("POST", "/v1/maintenances", form, headers=admin).json
        number = created["maintenance"]["id"]
        live.call("POST", f"/v1/maintenances/{number}/declare", {}, headers=admin)
        path = f"/v1/declarations/{number}"

        def ask(act: str, who: dict[str, str], **members: object) -> Json:
            reply = live.call("POST", f"{path}/{act}", members, headers=who)
            return reply.json["declaration"] if reply.status == 200 else reply.status

        [first] = ask("first-group", shop, group="trial", observation="2d")["first_groups"]
        assert (first["owner"], first["first"], first["after"]) == ("shop", ["h1"], ["h2"])
        assert (first["observation_s"], first["problem"]) == (172_800, "")
        choice = {"choices": [{"host": "h2", "at": "+3d"}], "dry_run": True}
        early = live.call("POST", f"{path}/choices", choice, headers=shop).json["results"][0]
        assert "test group first" in early["text"]
        held = ask("hold", shop, reason="errors")["resources"]
        release = {"choices": [{"host": "h2", "release": True}], "dry_run": True}
        [result] = live.call("POST", f"{path}/choices", release, headers=shop).json["results"]
        assert (result["held"], result["agreed"]) == (True, False), "bank has not chosen"
        assert {each["host"]: each["state"] for each in held} == {"h1": "open", "h2": "held"}
        assert live.call("GET", path, headers=bank).json["declaration"]["first_groups"] == []
        assert ask("first-group", bank, owner="shop", group="trial") == 422
        assert ask("first-group", bank, group="trial") == 409
        assert ask("first-group", admin, group="trial") == 422, "several owners"
        assert ask("resume", admin, owner="shop")["first_groups"][0]["held"] == ""


def test_test_group_names_the_choices_that_come_too_early(live: Live) -> None:
    """Their owner has to choose again. Source: T-8."""
    live.fleet(
        hosts=FLEET["hosts"],
        groups={**FLEET["groups"], "trial": {"owner": "shop"}},
        vms={"trial-0": {"host": "h1", "group": "trial"}, "web-1": {"host": "h2", "group": "web"}},
    )
    path = f"/v1/declarations/{declare(live, 'h1', 'h2')['id']}"
    live.post(f"{path}/choices", choices=[{"host": "h2", "owner": "shop", "at": "+3d"}])
    named = live.post(f"{path}/first-group", owner="shop", group="trial")
    assert [each["host"] for each in named["displaced"]] == ["h2"]
    assert live.post(f"{path}/first-group", owner="shop")["displaced"] == []


def test_deferral_is_left_to_an_operator(live: Live) -> None:
    """The list has the request; a grant moves the deadline. Source: T-4."""
    number = declare(live, "h2")["id"]
    path = f"/v1/declarations/{number}"
    form = {"vm": "web-1", "until": "2027-02-10T00:00:00Z", "reason": "closing"}
    [request] = live.post(f"{path}/deferrals", **form)["deferrals"]
    assert (request["state"], request["host"], request["owner"]) == ("asked", "h2", "shop")
    assert live.get("/v1/deferrals")["deferrals"] == [request]
    [granted] = live.post(f"{path}/deferrals/grant", owner="shop")["deferrals"]
    assert (granted["state"], granted["decide_by"]) == ("granted", None)
    [resource] = live.get(path)["declaration"]["resources"]
    assert resource["hand_back_deadline"] == granted["until"]
    assert resource["deferral"] == granted
    assert live.get(f"{path}/openings?host=h2")["openings"][-1]["latest"] == granted["until"]
    again = live.call("POST", f"{path}/deferrals/grant", {"owner": "shop"})
    assert (again.status, again.code) == (404, "deferral-undecided")


def test_refusal_of_a_deferral_needs_a_reason(live: Live) -> None:
    """The owner reads it. Source: T-4."""
    number = declare(live, "h2")["id"]
    path = f"/v1/declarations/{number}/deferrals"
    live.post(path, group="web", until="2027-02-10T00:00:00Z", reason="closing")
    assert live.call("POST", f"{path}/refuse", {"owner": "shop"}).status == 422
    [refused] = live.post(f"{path}/refuse", owner="shop", reason="known fault")["deferrals"]
    assert (refused["state"], refused["answer"]) == ("refused", "known fault")
    [resource] = live.get(f"/v1/declarations/{number}")["declaration"]["resources"]
    assert resource["deferral"]["answer"] == "known fault"


def test_deferral_needs_a_reason_and_one_place(live: Live) -> None:
    """A malformed request asks for nothing. Source: T-4."""
    number = declare(live, "h2")["id"]
    path, until = f"/v1/declarations/{number}/deferrals", "2027-02-10T00:00:00Z"
    for form in (
        {"vm": "web-1", "until": until},
        {"vm": "web-1", "until": until, "reason": " "},
        {"vm": "web-1", "host": "h2", "until": until, "reason": "closing"},
        {"until": until, "reason": "closing"},
    ):
        assert live.call("POST", path, form).status in {400, 422}
    assert live.get("/v1/deferrals")["deferrals"] == []


def test_owner_sees_and_asks_only_for_the_own_vms() -> None:
    """Requests of others do not exist, nor may an owner decide. Source: P-3, T-4."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        shop = {"Authorization": f"Bearer {live.add_token('shop', Role.OWNER, 'shop')}"}
        bank = {"Authorization": f"Bearer {live.add_token('bank', Role.OWNER, 'bank')}"}
        live.call("PUT", "/v1/topology", FLEET, headers=admin)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        created = live.call("POST", "/v1/maintenances", form, headers=admin).json
        path = f"/v1/declarations/{created['maintenance']['id']}/deferrals"
        declares = f"/v1/maintenances/{created['maintenance']['id']}/declare"
        live.call("POST", declares, {}, headers=admin)
        words = {"until": "2027-02-10T00:00:00Z", "reason": "closing"}
        assert live.call("POST", path, {"vm": "db-0", **words}, headers=shop).status == 404
        assert live.call("POST", path, {"host": "h1", **words}, headers=shop).status == 200
        assert len(live.call("GET", "/v1/deferrals", headers=shop).json["deferrals"]) == 1
        assert live.call("GET", "/v1/deferrals", headers=bank).json == {"deferrals": []}
        assert live.call("POST", f"{path}/grant", {"owner": "shop"}, headers=shop).status == 403


def test_emergency_needs_an_admin_and_a_reason() -> None:
    """Operators have the other permissions of maintenances. Source: T-6, P-2."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        roles = {"root": Role.ADMIN, "olga": Role.OPERATOR}
        heads = {
            name: {"Authorization": f"Bearer {live.add_token(name, role)}"}
            for name, role in roles.items()
        }
        live.call("PUT", "/v1/topology", FLEET, headers=heads["root"])
        form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 60}
        created = live.call("POST", "/v1/maintenances", form, headers=heads["olga"]).json
        number = created["maintenance"]["id"]
        path = f"/v1/maintenances/{number}/declare-emergency"
        words = {"reason": "leak", "hand_back": "20m", "waive": ["budgets"]}
        assert live.call("POST", path, words, headers=heads["olga"]).status == 403
        plain = f"/v1/maintenances/{number}/declare"
        severe = {"severity": "emergency"}
        assert live.call("POST", plain, severe, headers=heads["root"]).status == 422
        assert live.call("POST", path, {"hand_back": "20m"}, headers=heads["root"]).status == 422
        assert live.call("POST", path, words, headers=heads["root"]).status == 200
        shown = live.call("GET", f"/v1/declarations/{number}", headers=heads["olga"]).json
        assert shown["declaration"]["severity"] == "emergency"
        assert shown["declaration"]["waived"] == ["budgets"]
        assert shown["declaration"]["reason"] == "leak"
        [review] = live.call("GET", "/v1/tickets?type=review", headers=heads["olga"]).json[
            "tickets"
        ]
        closing = f"/v1/tickets/{review['id']}/close"
        assert live.call("POST", closing, {"text": "fine"}, headers=heads["root"]).status == 403
        assert live.call("POST", closing, {"text": "fine"}, headers=heads["olga"]).status == 200


RULE = {"weekdays": ["sun"], "from": "02:00", "to": "05:00", "time_zone": "Europe/Berlin"}


def test_rule_chooses_where_nobody_has(live: Live) -> None:
    """An owner's own choice stands; the others get the next Sunday night. Source: T-2, T-16."""
    number = declare(live, "h1", "h2")["id"]
    chosen(live, number, vm="web-0", at="2027-01-20T02:00:00+01:00")
    path = f"/v1/declarations/{number}/choices"
    choice = {"group": "web", "within": RULE, "unchosen": True}
    [result] = live.post(path, choices=[choice], dry_run=True)["results"]
    assert (result["host"], result["start"]) == ("h2", "2027-01-17T01:00:00Z")
    live.post(path, choices=[choice])
    live.planned()
    assert live.post(path, choices=[choice])["results"] == []
    every = live.get(f"/v1/declarations/{number}")["declaration"]["resources"]
    starts = {each["host"]: each["chosen_start"] for each in every if each["owner"] == "shop"}
    assert starts == {"h1": "2027-01-20T01:00:00Z", "h2": "2027-01-17T01:00:00Z"}


def test_rule_without_an_opening_does_what_it_says_otherwise(live: Live) -> None:
    """Nothing, the last opening, or handed back. Source: T-2."""
    number = declare(live, "h2")["id"]
    path = f"/v1/declarations/{number}/choices"
    never = {**RULE, "first": "2027-06-06"}

    def results(**more: object) -> Json:
        choices = [{"host": "h2", "within": never, **more}]
        return live.post(path, choices=choices, dry_run=True)["results"]

    assert results() == []
    [last] = results(otherwise="last")
    assert (last["possible"], last["start"]) == (True, "2027-01-29T08:00:00Z")
    [released] = results(otherwise="release")
    assert released["decision"] == "release"
    wrong = {"host": "h2", "within": {**RULE, "time_zone": "Mars/Base"}}
    refused = live.call("POST", path, {"choices": [wrong]})
    assert (refused.status, "time zone" in refused.json["error"]["message"]) == (422, True)


def test_one_choice_is_for_all_hosts_of_a_failure_domain(live: Live) -> None:
    """Of the named owner, by a label; another domain gets no start of it. Source: T-12."""
    racks = {f"h{n}": {"labels": {"rack": f"r{n % 2}"}} for n in range(4)}
    vms = {f"v{n}": {"host": f"h{n}", "group": "web" if n < 3 else "db"} for n in range(4)}
    live.fleet(hosts=racks, groups={"web": {"owner": "shop"}, "db": {"owner": "bank"}}, vms=vms)
    assert live.call("PUT", "/v1/policy", {"failure_domains": ["rack"]}).status == 200
    form = {"cause": "host-reboot", "all": True, "duration": 600, "failure_domain": "rack"}
    number = live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    live.post(f"/v1/maintenances/{number}/declare")
    live.planned()
    path = f"/v1/declarations/{number}/choices"

    def choose(**choice: object) -> Reply:
        reply = live.call("POST", path, {"choices": [{"at": "2027-01-20T01:00:00Z", **choice}]})
        live.planned()
        return reply

    done = choose(failure_domain="rack=r0").json["results"]
    assert [(each["host"], each["possible"]) for each in done] == [("h0", True), ("h2", True)]
    assert choose(failure_domain="rack=r1").code == "owner-unnamed"
    refused = choose(failure_domain="rack=r1", owner="shop")
    assert (refused.status, "another failure domain" in refused.json["error"]["message"]) == (
        409,
        True,
    )
    assert choose(failure_domain="rack=r9").status == 404
    assert choose(failure_domain="rack=r1", host="h1").status == 422
    resources = live.get(f"/v1/declarations/{number}")["declaration"]["resources"]
    states = {
        (each["host"], each["failure_domain"]): each["state"]
        for each in resources
        if each["owner"] == "shop"
    }
    assert states == {
        ("h0", "rack=r0"): "chosen",
        ("h1", "rack=r1"): "open",
        ("h2", "rack=r0"): "chosen",
    }


def test_ended_declaration_is_known_to_its_owners_alone() -> None:
    """It is shown as cancelled, and nothing of it is decided any more. Source: T-1, P-3."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        shop, bank = (
            {"Authorization": f"Bearer {live.add_token(name, Role.OWNER, name)}"}
            for name in ("shop", "bank")
        )
        live.call("PUT", "/v1/topology", FLEET, headers=admin)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        path = "/v1/declarations/m-1"
        for act in ("", "/m-1/declare", "/m-1/cancel"):
            live.call("POST", f"/v1/maintenances{act}", {} if act else form, headers=admin)
            live.planned()
        known = live.call("GET", path, headers=shop).json["declaration"]
        states = {each["host"]: each["state"] for each in known["resources"]}
        assert (known["state"], states) == ("cancelled", {"h1": "withdrawn", "h2": "withdrawn"})
        choice = {"choices": [{"vm": "web-0", "now": True}]}
        for method, act, body in (
            ("POST", "/choices", choice),
            ("GET", "/openings?vm=web-0", None),
            ("POST", "/deferrals", {"vm": "web-0", "until": "+20d", "reason": "a sale"}),
            ("POST", "/first-group", {"group": "web"}),
        ):
            refused = live.call(method, f"{path}{act}", body, headers=shop)
            assert (refused.status, refused.code) == (409, "declaration-ended"), act
            assert "m-1 is cancelled" in refused.json["error"]["message"]
            assert live.call(method, f"{path}{act}", body, headers=bank).status == 404, act
        assert live.call("GET", path, headers=bank).status == 404
        assert live.call("GET", "/v1/declarations", headers=shop).json == {"declarations": []}


def test_can_i_knows_the_declarations_and_tickets_of_an_owner() -> None:
    """An owner may choose for its VMs, in what concerns it. Source: P-3, T-2."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as live:
        admin = {"Authorization": f"Bearer {live.add_token('root', Role.ADMIN)}"}
        live.call("PUT", "/v1/topology", FLEET, headers=admin)
        form = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": 60}
        live.call("POST", "/v1/maintenances", form, headers=admin)
        live.call("POST", "/v1/maintenances/m-1/declare", {}, headers=admin)
        tokens = {name: live.add_token(name, Role.OWNER, name) for name in ("shop", "bank")}
        report = {"target_kind": "vm", "target": "web-0", "description": "no GPU"}
        who = {"Authorization": f"Bearer {tokens['shop']}"}
        ticket = live.call("POST", "/v1/tickets", report, headers=who).json["id"]

        def can(name: str, target: str, **more: str) -> bool:
            query = urlencode({"method": "POST", "target": target, **more})
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            allowed: bool = live.call("GET", f"/v1/access/can-i?{query}", headers=headers).json[
                "allowed"
            ]
            return allowed

        choices = "/v1/declarations/m-1/choices"
        assert can("shop", choices)
        assert can("shop", choices, vm="web-0")
        assert not can("shop", choices, vm="db-0")
        assert not can("bank", choices)
        assert not can("shop", "/v1/declarations/m-9/choices")
        assert can("shop", f"/v1/tickets/{ticket}/close")
        assert not can("bank", f"/v1/tickets/{ticket}/close")
        assert not can("shop", f"/v1/tickets/{ticket}/refuse")
