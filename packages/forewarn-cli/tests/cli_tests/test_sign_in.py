"""`forewarn login` and `logout`, against an issuer with the device flow."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.settings import OidcSettings, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import Grant
from tests.api.issuer import CLIENT, Issuer
from tests.api.live import SETTINGS, Live
from tests.cli.conftest import Run
from tests.waiting import LIMIT_S


@pytest.fixture(autouse=True)
def settings_of_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for the user's logins."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer."""
    started = Issuer()
    yield started
    started.stop()


@pytest.fixture
def live(issuer: Issuer) -> Iterator[Live]:
    """A service that accepts the issuer's tokens and no callers without a token."""
    oidc = OidcSettings(issuer=issuer.url, client_id=CLIENT)
    with Live(replace(SETTINGS, operator=OperatorSettings(), oidc=oidc)) as service:
        grant = Grant("group:sre", Role.OPERATOR, "")
        service.daemon.control.submit(grant, "test").result(LIMIT_S)
        yield service


def test_login_is_used_until_logout(run: Run, issuer: Issuer, tmp_path: Path) -> None:
    """The person types a code; commands work; after the logout the token is worth nothing."""
    assert run("host", "list").status == REFUSED
    issuer.device_answers = ["authorization_pending"]
    signed_in = run("login")
    assert signed_in.status == OK
    assert f"Open {issuer.url}/device and type the code WDJB-MJHT" in signed_in.err
    assert "as oidc:kim; roles: operator" in signed_in.err
    assert run("host", "list").status == OK
    file = tmp_path / "forewarn" / "logins.json"
    assert file.stat().st_mode & 0o077 == 0
    text = file.read_text()
    assert "signed out" in run("logout").err
    assert run("host", "list").status == REFUSED
    file.write_text(text)
    ended = run("host", "list")
    assert ended.status == REFUSED
    assert "sign in again with `forewarn login`" in ended.err
    assert "did not confirm" in run("logout").err
    assert "not signed in" in run("logout").err


@pytest.mark.parametrize(
    ("error", "reason"),
    [("access_denied", "was denied"), ("expired_token", "has expired"), ("odd", "answered odd")],
)
def test_refused_login_says_why(run: Run, issuer: Issuer, error: str, reason: str) -> None:
    """Nothing is stored."""
    issuer.device_answers = [error]
    refused = run("login")
    assert refused.status != OK
    assert reason in refused.err
    assert "not signed in" in run("logout").err


def test_issuer_without_a_device_flow_is_named(run: Run, issuer: Issuer) -> None:
    """The advice names tokens, which always work."""
    issuer.endpoints = False
    refused = run("login")
    assert "offers no device flow" in refused.err
    assert "--token-file" in refused.err


def test_token_goes_before_the_login(
    run: Run, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that was given for this command is more specific."""
    run("login")
    monkeypatch.setenv("FOREWARN_TOKEN", "fw_x_y")
    assert run("host", "list").status == REFUSED


def test_malformed_logins_are_named(run: Run, tmp_path: Path) -> None:
    """A file that another program wrote is an error, and no traceback."""
    (tmp_path / "forewarn").mkdir()
    (tmp_path / "forewarn" / "logins.json").write_text("[]")
    assert "logins-unreadable" in run("host", "list").err
