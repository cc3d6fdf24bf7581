"""`forewarn access` and `forewarn whoami`."""

from dataclasses import replace

import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_server.cli.main import main
from tests.api.live import SETTINGS, Live
from tests.cli.conftest import Run


def test_roles_and_tokens_by_command(run: Run) -> None:
    """They are given, listed and taken away; a token is printed once. Source: P-2, P-4."""
    assert "user:lee" in run("access", "grant", "lee", "viewer").err
    assert run("access", "revoke", "lee", "viewer").status == 0
    assert run("access", "grant", "user:kim", "owner", "--owner", "shop").err == ""
    assert "owner shop" in run("access", "list").out
    gone = run("access", "revoke", "user:kim", "owner", "--owner", "shop")
    assert gone.err.startswith("No grants.")
    made = run("access", "token", "create", "sam", "--role", "viewer", "--expires", "+90d")
    token_id = made.out.split("_")[1]
    assert "it is valid until 2027-04-15T" in made.err
    lasting = run("access", "token", "create", "al", "--role", "viewer", "--expires", "never")
    assert "it is valid for ever" in lasting.err
    assert run("access", "token", "revoke", lasting.out.split("_")[1]).status == 0
    assert "accepted again" in run("access", "token", "resume", token_id).err
    listed = run("access", "token", "list")
    assert token_id in listed.out
    assert made.out.strip() not in listed.out
    assert run("access", "token", "revoke", token_id).status == 0
    assert "No tokens." in run("access", "token", "list").err


def test_what_may_be_done_is_an_exit_status(run: Run) -> None:
    """`can-i` is for scripts, too."""
    assert run("access", "can-i", "POST", "/v1/hosts/h1/reboot").out == "yes\n"
    assert run("access", "can-i", "POST", "/v1/nothing").status == 1
    assert "admin" in run("whoami").out


def test_work_on_a_host_is_for_operators(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner may request work on its VMs; `can-i` takes what the call's body names."""
    ask = ("access", "can-i", "POST", "/v1/operations")
    monkeypatch.setenv("FOREWARN_TOKEN", live.add_token("shop-ci", Role.OWNER, "shop"))
    assert run(*ask).out == "yes\n"
    assert run(*ask, "--host", "h1").out == "no: the permission operate is required\n"
    assert run(*ask, "--vm", "no-such-vm").status == 1


def test_status_leads_an_owner_to_its_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the whole fleet waits for is not an owner's to read; the rest is shown."""
    service = Live(replace(SETTINGS, operator=OperatorSettings()))
    monkeypatch.setenv("FOREWARN_SERVER", service.url)
    try:
        monkeypatch.setenv("FOREWARN_TOKEN", service.add_token("shop-ci", Role.OWNER, "shop"))
        assert main(["status"]) == 0
        assert "`forewarn operation`" in capsys.readouterr().err
    finally:
        service.stop()


def test_second_operator_confirms_by_command(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command says what it waits for; nothing is done before. Source: P-8."""
    live.call("PUT", "/v1/policy", {"confirm": ["fail-host"]})
    asked = run("host", "fail", "h1")
    assert asked.status != 0
    waiting = run("--json", "confirmation", "list").json["confirmations"][0]["id"]
    assert f"forewarn confirmation confirm {waiting}" in asked.err
    assert "hardware-failure" in run("show", waiting).out
    assert "waits for confirmation by an operator other" in run("operation", "why", waiting).out
    assert f"{waiting} of " in run("status").out
    assert "[own-confirmation]" in run("confirmation", "confirm", waiting).err
    monkeypatch.setenv("FOREWARN_TOKEN", live.add_token("ben", Role.OPERATOR))
    assert run("confirmation", "confirm", waiting).status == 0
    assert live.get("/v1/hosts/h1")["health"] == "failed"


def test_withdrawing_a_call_of_another_operator_refuses_it(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says so, and whose call it was. Source: P-8."""
    live.call("PUT", "/v1/policy", {"confirm": ["fail-host"]})
    run("host", "fail", "h1")
    [waiting] = run("--json", "confirmation", "list").json["confirmations"]
    monkeypatch.setenv("FOREWARN_TOKEN", live.add_token("cleo", Role.OPERATOR))
    refused = run("confirmation", "withdraw", waiting["id"])
    assert f"of {waiting['principal']} is refused: request hardware-failure of h1" in refused.err


def test_token_is_printed_for_the_admin_who_confirms(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who asked does not see it. Source: P-8."""
    live.call("PUT", "/v1/policy", {"confirm": ["create-principal"]})
    asked = run("access", "token", "create", "bot", "--role", "viewer")
    [waiting] = run("--json", "confirmation", "list").json["confirmations"]
    assert "waits until" in asked.err
    monkeypatch.setenv("FOREWARN_TOKEN", live.add_token("cleo", Role.ADMIN))
    printed = run("confirmation", "confirm", waiting["id"]).out
    monkeypatch.setenv("FOREWARN_TOKEN", printed.splitlines()[-1])
    assert "bot" in run("whoami").out
