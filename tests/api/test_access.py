"""Roles, scopes and tokens: who may do what, and what is outside a scope does not exist."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import ListenSettings, OperatorSettings, StoreSettings
from forewarn_core.access.roles import Role, actor_for_owner
from forewarn_core.access.stimulus import AddToken, Grant
from forewarn_core.fleet.stimulus import DriverFailed, DriverProgressed
from forewarn_core.requests import ApprovalRequest
from forewarn_metadata.tokens import TokenWrong
from forewarn_server.api.auth import Principals
from tests.api.live import FLEET, SETTINGS, TOKEN, Json, Live
from tests.asking import Reply
from tests.waiting import LIMIT_S

#: The fleet of the shop, and another owner's, on a host of its own and on one they share.
BANK: dict[str, dict[str, dict[str, object]]] = {
    "hosts": {**FLEET["hosts"], "h3": {}},
    "groups": {**FLEET["groups"], "bank": {"owner": "bank"}},
    "vms": {
        **FLEET["vms"],
        "bank-0": {"host": "h3", "group": "bank"},
        "bank-1": {"host": "h1", "group": "bank"},
    },
}


class Guarded:
    """A service that wants tokens, with a fleet, an admin and an owner."""

    def __init__(self, fleet: dict[str, dict[str, dict[str, object]]]) -> None:
        """Start it."""
        self.live = Live(replace(SETTINGS, operator=OperatorSettings(max_refused_tokens=1000)))
        self.tokens = {"admin": TOKEN}
        self.tokens["owner-of-shop"] = self.live.add_token("owner-of-shop", Role.OWNER, "shop")
        assert self.ask("admin", "PUT", "/v1/topology", fleet).status == 200
        self.live.enable("web-0")

    def ask(self, who: str, method: str, path: str, form: Json = None) -> Reply:
        """Send one request as somebody."""
        token = self.tokens.get(who)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.live.call(method, path, form, headers=headers)


@pytest.fixture(scope="module")
def both() -> Iterator[Guarded]:
    """A service with two owners."""
    guarded = Guarded(BANK)
    guarded.live.enable("bank-0")
    assert guarded.ask("admin", "POST", "/v1/vms/bank-0/reboot", {}).status == 202
    guarded.live.settle()
    yield guarded
    guarded.live.stop()


@pytest.fixture(scope="module")
def sharing() -> Iterator[Guarded]:
    """A service with work on a host that two owners share."""
    guarded = Guarded(BANK)
    guarded.live.enable("bank-1")
    assert guarded.ask("admin", "POST", "/v1/hosts/h1/reboot", {}).status == 202
    guarded.live.settle()
    yield guarded
    guarded.live.stop()


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/vms", "/v1/groups", "/v1/hosts", "/v1/topology", "/v1/events", "/v1/operations"),
        *("/v1/history?limit=1000", "/v1/overview", "/v1/overview/hosts", "/v1/vms?group=bank"),
        "/v1/history?group=bank",
    ],
)
def test_nothing_of_another_owner_is_listed(sharing: Guarded, path: str) -> None:
    """Lists, exports and history of a shared host name only what is one's own. Source: P-3."""
    reply = sharing.ask("owner-of-shop", "GET", path)
    assert reply.status in {200, 404}
    assert b'"bank-' not in reply.body
    assert b'"h3"' not in reply.body
    assert b'"images":[{' not in reply.body
    if path == "/v1/operations":
        assert [each["vms"] for each in reply.json["operations"]] == [["web-0"]]
    if path == "/v1/history?limit=1000":
        texts = [each["text"] for each in reply.json["entries"]]
        assert "op-1: An operation is announced to the groups it disturbs." in texts


@pytest.mark.parametrize(
    ("actor", "seen"),
    [
        ("vm web-0 at 10.0.0.1", "vm web-0 at 10.0.0.1"),
        ("vm db-0 at 10.0.0.2", "operator"),
        ("operator anna", "operator"),
        ("clock", "clock"),
    ],
)
def test_owner_reads_other_actors_as_somebody(actor: str, seen: str) -> None:
    """An actor is named to the owner of its VM alone. Source: P-3."""
    assert actor_for_owner(actor, {"web-0"}) == seen


def test_owner_acts_on_own_vms_only(both: Guarded) -> None:
    """Work, and how a group is asked; not the group's owner, nor a host. Source: P-2."""
    assert both.ask("owner-of-shop", "POST", "/v1/vms/web-1/reboot", {}).status == 202
    assert both.ask("owner-of-shop", "POST", "/v1/vms/bank-0/reboot", {}).status == 404
    for host in ("h1", "h3", "none"):
        asked = {"cause": "host-reboot", "targets": [host]}
        refused = both.ask("owner-of-shop", "POST", "/v1/operations", asked)
        assert (refused.status, refused.code) == (403, "not-permitted")
    kept = {"owner": "shop", "strict_approval": True}
    assert both.ask("owner-of-shop", "PUT", "/v1/groups/web", kept).status == 200
    for other in ({"owner": "bank"}, {"keep_apart": ["rack"]}, {"keep_together": ["rack"]}):
        taken = both.ask("owner-of-shop", "PUT", "/v1/groups/web", {**kept, **other})
        assert (taken.status, taken.code) == (403, "not-permitted")
    assert both.ask("owner-of-shop", "PUT", "/v1/groups/bank", kept).status == 404


def test_token_works_until_it_is_revoked_or_expires(both: Guarded) -> None:
    """Its secret is shown once and not kept; a revocation counts at once. Source: P-4."""
    form = {"principal": "kim", "role": "viewer", "expires": "+1h"}
    made = both.ask("admin", "POST", "/v1/access/tokens", form).json
    assert re.fullmatch(rf"fw_{made['id']}_[0-9a-f]{{64}}", made["token"])
    both.tokens["kim"] = made["token"]
    assert both.ask("kim", "GET", "/v1/whoami").json["principal"] == "kim"
    listed = both.ask("admin", "GET", "/v1/access/tokens").body
    assert made["token"].encode() not in listed
    both.live.clock.advance(3600_001)
    assert both.ask("kim", "GET", "/v1/whoami").code == "token-wrong"
    made = both.ask("admin", "POST", "/v1/access/tokens", {**form, "expires": "+9h"}).json
    both.tokens["kim"] = made["token"]
    assert both.ask("kim", "GET", "/v1/hosts").status == 200
    assert both.ask("admin", "DELETE", f"/v1/access/tokens/{made['id']}").status == 204
    assert both.ask("kim", "GET", "/v1/hosts").code == "token-wrong"
    assert both.ask("admin", "DELETE", f"/v1/access/tokens/{made['id']}").code == "unknown-binding"


@pytest.mark.parametrize(
    ("role", "owner"), [("owner", ""), ("operator", "shop"), ("admin", "shop"), ("node", "shop")]
)
def test_role_has_its_own_scope(both: Guarded, role: str, owner: str) -> None:
    """An owner's role is for an owner, an operator's for the fleet. Source: P-2."""
    form = {"principal": "user:kim", "role": role, "owner": owner}
    assert both.ask("admin", "POST", "/v1/access/grant", form).code == "scope-invalid"


def test_binding_is_granted_and_revoked(both: Guarded) -> None:
    """It is kept with history; taking away what is not there is refused. Source: P-2."""
    form = {"principal": "user:kim", "role": "owner", "owner": "shop"}
    granted = both.ask("admin", "POST", "/v1/access/grant", form).json["bindings"]
    assert form in granted
    assert form not in both.ask("admin", "POST", "/v1/access/revoke", form).json["bindings"]
    assert both.ask("admin", "POST", "/v1/access/revoke", form).code == "unknown-binding"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/vms/web-0/reboot", True),
        ("/v1/vms/bank-0/reboot", False),
        ("/v1/hosts/h1/reboot", False),
        ("/v1/none", False),
    ],
)
def test_can_i_says_what_would_be_answered(both: Guarded, path: str, allowed: bool) -> None:
    """It knows roles and scope."""
    reply = both.ask("owner-of-shop", "GET", f"/v1/access/can-i?method=POST&target={path}")
    assert reply.json["allowed"] is allowed


def test_store_keeps_who_may_do_what(tmp_path: Path) -> None:
    """Tokens and bindings are there after a restart. Source: P-4."""
    store = StoreSettings(url=str(tmp_path / "forewarn.db"))
    settings = replace(SETTINGS, operator=OperatorSettings(), store=store)
    first = Live(settings)
    kim = first.add_token("kim", Role.VIEWER, "shop")
    first.stop()
    again = Live(replace(settings, operator=OperatorSettings()))
    reply = again.call("GET", "/v1/whoami", headers={"Authorization": f"Bearer {kim}"})
    again.stop()
    assert reply.json["bindings"] == [{"principal": "kim", "role": "viewer", "owner": "shop"}]


def test_local_user_makes_the_first_token(tmp_path: Path) -> None:
    """The service's own user is admin at the Unix socket, by the kernel's word. Source: P-4."""
    listen = ListenSettings(
        metadata=("127.0.0.1:0",), operator="127.0.0.1:0", local=f"unix:{tmp_path}/s"
    )
    live = Live(replace(SETTINGS, operator=OperatorSettings(), listen=listen))
    command = [sys.executable, "-m", "forewarn_server.cli.main", "--server", f"unix:{tmp_path}/s"]
    more = ["access", "token", "create", "kim", "--role", "admin"]
    made = subprocess.run(
        [*command, *more], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    reply = live.call("GET", "/v1/whoami", headers=headers)
    live.stop()
    assert reply.json["principal"] == "kim"


def test_other_users_of_the_machine_have_no_role(both: Guarded) -> None:
    """Only root and the service's own user are admin by themselves. Source: P-4."""
    daemon, settings = both.live.daemon, OperatorSettings()
    callers = Principals(daemon.control, daemon.store, clock=both.live.clock, settings=settings)
    assert callers.by_user(os.geteuid()).principal.bindings
    assert callers.by_user(54_321).principal.bindings == ()
    daemon.control.submit(Grant("user:54321", Role.VIEWER), "test").result(LIMIT_S)
    assert callers.by_user(54_321).principal.bindings == (("viewer", ""),)


def test_token_is_kept_as_a_hash(tmp_path: Path) -> None:
    """Neither the store's files nor its log has the secret. Source: P-4."""
    settings = replace(SETTINGS, store=StoreSettings(url=str(tmp_path / "forewarn.db")))
    live = Live(settings)
    form = {"principal": "kim", "role": "viewer", "expires": "+1h"}
    made = live.call("POST", "/v1/access/tokens", form).json
    secret = made["token"].rpartition("_")[2].encode()
    assert not [each for each in tmp_path.iterdir() if secret in each.read_bytes()]
    live.stop()


def test_token_expires_after_90_days_unless_its_creator_says_otherwise(both: Guarded) -> None:
    """A token that never expires is a choice. Source: P-4."""
    form = {"principal": "kim", "role": "viewer"}
    made = both.ask("admin", "POST", "/v1/access/tokens", form).json
    assert made["expires"].startswith("2027-04-15T")
    made = both.ask("admin", "POST", "/v1/access/tokens", {**form, "expires": "never"}).json
    assert made["expires"] is None
    refused = both.ask("admin", "POST", "/v1/access/tokens", {**form, "expires": "Never"})
    assert refused.code == "validation-failed"


def test_suspended_token_is_refused_until_it_is_resumed(both: Guarded) -> None:
    """Only an administrator resumes it; so does no token that was issued for it. Source: U-5."""
    both.tokens["kim"] = both.live.add_token("kim", Role.VIEWER)
    control = both.live.daemon.control
    kim = control.read(lambda plane: plane.state.access.tokens["kim"]).result(LIMIT_S)
    control.submit(AddToken(replace(kim, suspended=True)), "test").result(LIMIT_S)
    assert both.ask("kim", "GET", "/v1/whoami").code == "token-wrong"
    callers = Principals(
        control, both.live.daemon.store, clock=both.live.clock, settings=OperatorSettings()
    )
    with pytest.raises(TokenWrong):
        callers.by_given_out("kim", "issued", "127.0.0.1")
    listed = both.ask("admin", "GET", "/v1/access/tokens").json["tokens"]
    assert [each["id"] for each in listed if each["suspended"]] == ["kim"]
    assert both.ask("owner-of-shop", "POST", "/v1/access/tokens/kim/resume", {}).status == 403
    assert both.ask("admin", "POST", "/v1/access/tokens/kim/resume", {}).status == 204
    assert both.ask("kim", "GET", "/v1/whoami").status == 200
    reply = both.ask("admin", "POST", "/v1/access/tokens/none/resume", {})
    assert reply.code == "unknown-binding"


def test_watch_ends_with_its_token(both: Guarded) -> None:
    """Who may not read any more is not sent any more. Source: P-4."""
    both.tokens["kim"] = both.live.add_token("kim", Role.VIEWER)
    connection = both.live.stream("/v1/watch", both.tokens["kim"])
    assert both.ask("admin", "DELETE", "/v1/access/tokens/kim").status == 204
    assert b"stopped" in connection.read()


@pytest.fixture
def told() -> Iterator[Guarded]:
    """A service with running work on a shared host, of which a driver says a secret."""
    guarded = Guarded(BANK)
    guarded.live.enable("bank-1")
    assert guarded.ask("admin", "POST", "/v1/hosts/h1/reboot", {}).status == 202
    assert guarded.ask("admin", "POST", "/v1/operations/op-1/approve", {}).status == 200
    guarded.live.settle()
    control = guarded.live.daemon.control
    control.submit(DriverProgressed(1, 1, f"{SECRET} resists", 40), "driver").result(LIMIT_S)
    yield guarded
    guarded.live.stop()


#: What a driver says of another owner's VM, in words that no name of a record has.
SECRET = "guest 7731 of the vault"


@pytest.mark.parametrize("end", ["runs", "fails", "ends"])
def test_driver_text_of_a_shared_host_is_no_owners(told: Guarded, end: str) -> None:
    """Progress and reasons may speak of others. Source: P-3."""
    control = told.live.daemon.control
    if end in {"fails", "ends"}:
        control.submit(DriverFailed(1, 1, f"{SECRET} is stuck"), "driver").result(LIMIT_S)
    if end == "ends":
        reason = {"reason": f"{SECRET} is lost"}
        assert told.ask("admin", "POST", "/v1/operations/op-1/complete", reason).status == 200
    told.live.settle()
    assert SECRET in told.ask("admin", "GET", "/v1/operations/op-1").body.decode()
    [event] = told.ask("owner-of-shop", "GET", "/v1/operations/op-1").json["events"]
    for path in (
        *("/v1/operations/op-1", "/v1/operations", "/v1/overview", "/v1/outcomes", "/v1/events"),
        *("/v1/history?limit=1000", "/v1/why?id=op-1", f"/v1/events/{event['id']}/outcome"),
    ):
        reply = told.ask("owner-of-shop", "GET", path)
        assert reply.status in {200, 404}, reply
        assert SECRET not in reply.body.decode(), f"{path} shows the driver's text: {reply.body!r}"


def test_history_of_shared_work_does_not_name_who_approved_for_others() -> None:
    """An owner reads that the work started, not which VM of another owner approved. P-3."""
    guarded = Guarded(BANK)
    guarded.live.enable("bank-1")
    assert guarded.ask("admin", "POST", "/v1/hosts/h1/reboot", {}).status == 202
    events = guarded.ask("admin", "GET", "/v1/operations/op-1").json["events"]
    ids = {each["group"]: each["id"] for each in events}
    for group, vm in (("web", "web-0"), ("bank", "bank-1")):
        approval = ApprovalRequest(vm, (ids[group],), "")
        guarded.live.daemon.control.submit(approval, f"vm {vm} at 10.7.7.7").result(LIMIT_S)
    history = guarded.ask("owner-of-shop", "GET", "/v1/history?limit=1000")
    started = [each for each in history.json["entries"] if each["action"] == "operation.started"]
    assert started, history
    assert b"bank" not in history.body, f"an owner reads of another's VM: {started}"
    guarded.live.stop()


def test_history_does_not_name_a_host_that_the_owners_vms_have_left() -> None:
    """What is done there later, and what was done before, names other hosts only. Source: P-3."""
    guarded = Guarded(BANK)
    assert guarded.ask("admin", "POST", "/v1/hosts/h1/reboot", {}).status == 202
    guarded.live.settle()
    before = guarded.ask("owner-of-shop", "GET", "/v1/history?limit=1000").json["entries"]
    moved = {**BANK, "vms": {**BANK["vms"], "web-0": {**BANK["vms"]["web-0"], "host": "h2"}}}
    assert guarded.ask("admin", "PUT", "/v1/topology", moved).status == 200
    guarded.live.settle()
    after = guarded.ask("owner-of-shop", "GET", "/v1/history?limit=1000").json["entries"]
    guarded.live.stop()
    assert "h1" in {each["host"] for each in before}
    named = [(each["action"], each["host"]) for each in after if each["host"] in {"h1", "h3"}]
    assert named == [], f"P-3: history names hosts without a VM of the owner: {named}"
