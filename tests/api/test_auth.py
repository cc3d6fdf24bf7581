"""Who may call: tokens, this machine, and no pages of other sites."""

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import ListenSettings, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_core.access.tokens import written_token
from tests.api.live import SETTINGS, TOKEN, Live
from tests.waiting import LIMIT_S

OTHER = written_token("ben", "secret-of-ben")


@pytest.fixture(scope="module")
def closed() -> Iterator[Live]:
    """A service that wants a token from everybody."""
    with Live(replace(SETTINGS, operator=OperatorSettings())) as service:
        service.add_token("ben", Role.OPERATOR)
        yield service


def bearer(token: str) -> dict[str, str]:
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def test_token_names_the_actor(closed: Live) -> None:
    """Whose token it was is written down as the actor. Source: P-1."""
    for token, name in ((TOKEN, "anna"), (OTHER, "ben")):
        reply = closed.call("PUT", f"/v1/hosts/{name}", {}, headers=bearer(token))
        assert reply.status == 201
        path = f"/v1/history?host={name}"
        entries = closed.call("GET", path, headers=bearer(token)).json["entries"]
        assert entries[0]["actor"] == f"operator {name} at 127.0.0.1"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "token-missing"),
        (bearer(TOKEN[:-1]), "token-wrong"),
        (bearer(TOKEN + "x"), "token-wrong"),
        (bearer(""), "token-wrong"),
        ({"Authorization": f"Basic {TOKEN}"}, "token-wrong"),
        ({"Authorization": TOKEN}, "token-wrong"),
        ({"Authorization": "Bearer \xe9\xff"}, "token-wrong"),
    ],
)
def test_wrong_token_is_401(closed: Live, headers: dict[str, str], code: str) -> None:
    """Without a known token nothing is told and nothing done, on this machine neither."""
    for method, path in (("GET", "/v1/hosts"), ("PUT", "/v1/hosts/x"), ("GET", "/v1/none")):
        reply = closed.call(method, path, headers=headers)
        assert (reply.status, reply.code) == (401, code)
        assert reply.headers["www-authenticate"] == "Bearer"
    assert closed.call("GET", "/v1/hosts/x", headers=bearer(TOKEN)).status == 404


def test_health_names_nothing_to_strangers(closed: Live) -> None:
    """What the service knows of the fleet is told to operators only."""
    assert set(closed.get("/v1/health")) == {"live", "ready", "state"}
    told = closed.call("GET", "/v1/health", headers=bearer(TOKEN))
    assert "shows" in told.json


def test_health_and_the_document_are_public(closed: Live) -> None:
    """A health check and the API's own description need no token."""
    for path in ("/v1/health", "/v1/openapi.json", "/v1/docs"):
        assert closed.call("GET", path).status == 200
    assert closed.call("GET", "/v1/health", headers=bearer("wrong")).code == "token-wrong"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8470", "[::1]:80", "LOCALHOST"])
def test_loopback_may_be_open(shared: Live, host: str) -> None:
    """Where the settings say so, this machine's own callers need no token."""
    assert shared.call("GET", "/v1/hosts", headers={"Host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0x7f.1", "10.0.0.1"])
def test_rebound_name_is_refused(shared: Live, host: str) -> None:
    """A page whose name was made to point here cannot call: its name is not ours."""
    reply = shared.call("GET", "/v1/hosts", headers={"Host": host})
    assert (reply.status, reply.code) == (403, "host-refused")
    token = shared.add_token("anna", Role.ADMIN)
    with_token = shared.call("GET", "/v1/hosts", headers={"Host": host, **bearer(token)})
    assert with_token.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_page_of_another_site_is_refused(shared: Live, headers: dict[str, str]) -> None:
    """A browser cannot be made to call by another site's page, not even with a token."""
    for more in ({}, bearer(shared.add_token("anna", Role.ADMIN))):
        reply = shared.call("POST", "/v1/hosts/h1/reboot", {}, headers={**headers, **more})
        assert (reply.status, reply.code) == (403, "cross-site")


def test_own_page_may_call(shared: Live) -> None:
    """A page that comes from the API's own address may use it."""
    host = f"127.0.0.1:{shared.port}"
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert shared.call("GET", "/v1/hosts", headers=headers).status == 200


def test_unix_socket_counts_as_this_machine(tmp_path: Path) -> None:
    """A Unix socket is guarded by its file's permissions."""
    path = tmp_path / "operator.sock"
    listen = ListenSettings(metadata=("127.0.0.1:0",), operator=f"unix:{path}")
    with Live(replace(SETTINGS, listen=listen)), socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(LIMIT_S)
        channel.connect(str(path))
        channel.sendall(b"GET /v1/health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert channel.recv(4096).startswith(b"HTTP/1.")


def test_process_without_its_lease_counts_no_unknown_tokens() -> None:
    """Another process may have made them; what is about itself it still answers. H-3, P-4."""
    service = Live(replace(SETTINGS, operator=OperatorSettings(max_refused_tokens=3)))
    try:
        service.daemon.control.lapsed = lambda: True
        codes = [service.call("GET", "/v1/hosts", headers=bearer("x")).code for _ in range(5)]
        assert codes == ["state-outdated"] * 5
        assert service.call("GET", "/live", headers=bearer("x")).status == 200
        health = service.call("GET", "/v1/health", headers=bearer("x"))
        assert (health.status, health.json["ready"]) == (503, False)
        service.daemon.control.lapsed = lambda: False
        assert service.call("GET", "/v1/hosts", headers=bearer("x")).code == "token-wrong"
    finally:
        service.stop()


def test_unknown_token_is_logged_and_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Each is logged with its address; after this many, a minute passes until one is looked at."""
    service = Live(replace(SETTINGS, operator=OperatorSettings(max_refused_tokens=3)))
    service.add_token("ben", Role.OPERATOR)
    try:
        assert service.call("GET", "/v1/hosts", headers=bearer(TOKEN)).status == 200
        with caplog.at_level(logging.WARNING):
            codes = [service.call("GET", "/v1/hosts", headers=bearer("x")).code for _ in range(5)]
        assert codes == ["token-wrong"] * 3 + ["too-many-refused"] * 2
        assert [r.getMessage() for r in caplog.records] == [
            "unknown token from 127.0.0.1 refused",
            "unknown token from 127.0.0.1 refused",
            "unknown token from 127.0.0.1 refused; no token from there is checked for a minute",
        ]
        reply = service.call("GET", "/v1/hosts", headers=bearer(OTHER))
        assert (reply.status, reply.code) == (429, "too-many-refused")
        assert service.call("GET", "/v1/hosts", headers=bearer(TOKEN)).status == 200
        service.advance(60)
        assert service.call("GET", "/v1/hosts", headers=bearer(OTHER)).status == 200
    finally:
        service.stop()
