"""Calls behind a follower or a proxy: judged by what they carry, never by who carries them."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.http_client import UnixConnection
from forewarn_base.settings import ListenSettings, OperatorSettings
from forewarn_core.access.roles import Role
from forewarn_server.api.app import build_app
from forewarn_server.api.server import start_operator
from forewarn_server.api.standby import ActiveProcess, Forwarder
from tests.api.live import SETTINGS, Json, Live
from tests.api.test_auth import bearer
from tests.asking import ask
from tests.waiting import LIMIT_S

LEASE = "token of the lease"
GRANT = {"principal": "user:mallory", "role": "admin"}
HERE, STRANGER = "127.0.0.2", "127.0.0.3"


class Pair:
    """An active process and a follower of the same state, which forwards to it."""

    def __init__(self, active: str) -> None:
        """Serve the active process at an address, open to this machine."""
        self.live = Live()
        daemon = self.live.daemon
        control, store, settings = daemon.control, daemon.store, daemon.settings
        control.lease_token = lambda: LEASE
        app = build_app(control, store, settings=settings)
        self.active = self.live.beside(start_operator(app, active, settings.operator))
        forwarder = Forwarder(ActiveProcess(lambda: self.active, lambda: LEASE))
        app = build_app(control, store, settings=settings, forwarder=forwarder)
        self.follower = self.live.beside(start_operator(app, "127.0.0.1:0", settings.operator))
        self._forwarding = app
        self.token = self.live.add_token("ben", Role.OPERATOR)

    def follower_at(self, socket: Path) -> UnixConnection:
        """Serve the follower at a Unix socket, too; return a connection to it."""
        operator = self.live.daemon.settings.operator
        self.live.beside(start_operator(self._forwarding, f"unix:{socket}", operator))
        return UnixConnection(str(socket), LIMIT_S)

    def records(self) -> list[Json]:
        """Return the audit."""
        self.live.settle()
        records: list[Json] = self.live.get("/v1/audit?after=0&limit=1000")["records"]
        return records


@pytest.fixture(params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A pair whose active process knows the follower as this machine, or as the service's user."""
    pair = Pair("127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/operator.sock")
    yield pair
    pair.live.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "a=b"},
        {"Cookie": "forewarn=garbage"},
        {"Forewarn-Lease": LEASE},
        {"Authorization": "Bearer garbage"},
    ],
)
def test_follower_lends_its_identity_to_nobody(pair: Pair, headers: dict[str, str]) -> None:
    """A change is judged by its own token or session alone. Source: P-1, H-4."""
    origin = {"Origin": pair.follower} if "Cookie" in headers else {}
    reply = ask(pair.follower, "POST", "/v1/access/grant", GRANT, headers={**headers, **origin})
    known = "Authorization" in headers
    assert (reply.status, reply.code) == ((401, "token-wrong") if known else (421, "active-asked"))
    assert pair.live.get("/v1/access")["bindings"] == []


def test_forwarded_call_has_no_identity_but_its_own(pair: Pair) -> None:
    """Also without proof: the header alone takes the connection's identity away. Source: P-1."""
    if pair.active.startswith("unix:"):
        connection: http.client.HTTPConnection = UnixConnection(pair.active[5:], LIMIT_S)
    else:
        connection = http.client.HTTPConnection(pair.active.removeprefix("http://"))
    headers = {"Forewarn-Forwarded": "1", "Content-Type": "application/json"}
    connection.request("POST", "/v1/access/grant", json.dumps(GRANT), headers)
    assert json.loads(connection.getresponse().read())["error"]["code"] == "token-missing"
    connection.close()


def test_origin_of_a_forwarded_call_is_recorded(pair: Pair) -> None:
    """History and audit name the caller's address, not the follower's. Source: P-7."""
    headers = {**bearer(pair.token), "Forewarn-Origin": "192.0.2.1"}
    reply = ask(pair.follower, "PUT", "/v1/hosts/h1", {}, headers=headers, source=HERE)
    assert reply.status == 201
    assert pair.records()[-1]["address"] == HERE
    entries = pair.live.get("/v1/history?host=h1")["entries"]
    assert entries[0]["actor"] == f"operator ben at {HERE}"


def test_caller_at_a_followers_socket_states_no_origin(pair: Pair, tmp_path: Path) -> None:
    """It has no address: the follower's proof must not vouch for one in its headers. P-1, P-7."""
    connection = pair.follower_at(tmp_path / "follower.sock")
    stated = {"Forewarn-Origin": "192.0.2.1", "Forewarn-Lease": "guessed"}
    headers = {**bearer(pair.token), **stated, "Content-Type": "application/json"}
    connection.request("PUT", "/v1/hosts/h1", "{}", headers)
    assert connection.getresponse().status == 201
    connection.close()
    address = pair.records()[-1]["address"]
    assert address in {"", "127.0.0.1"}, f"P-7: the audit has the stated address {address}"
    [entry] = pair.live.get("/v1/history?host=h1")["entries"]
    assert "192.0.2.1" not in entry["actor"], f"P-7: history has {entry['actor']}"


def test_strangers_at_a_follower_lock_out_nobody_else(pair: Pair) -> None:
    """Wrong tokens are counted by their origin, in each process. Source: P-7."""
    codes = []
    for number in range(25):
        wrong = bearer(f"fw_wrong_{number}")
        reply = ask(pair.follower, "POST", "/v1/reload", {}, headers=wrong, source=STRANGER)
        codes.append(reply.code)
    assert set(codes) == {"token-wrong", "too-many-refused"}
    assert {each["address"] for each in pair.records()[1:]} == {STRANGER}
    path, headers = "/v1/hosts/h1", bearer(pair.token)
    assert ask(pair.follower, "PUT", path, {}, headers=headers, source=HERE).status == 201
    assert ask(pair.follower, "GET", path, headers=headers, source=HERE).status == 200


@pytest.mark.parametrize("lease", ["", "guessed"])
def test_origin_is_believed_only_with_proof(pair: Pair, lease: str) -> None:
    """Who does not know the lease's token is recorded with the own address. Source: P-7."""
    headers = {**bearer(pair.token), "Forewarn-Origin": "192.0.2.1", "Forewarn-Lease": lease}
    assert ask(pair.live.url, "PUT", "/v1/hosts/h1", {}, headers=headers, source=HERE).status == 201
    assert pair.records()[-1]["address"] == HERE


PROXIED = [{"X-Forwarded-For": "192.0.2.1"}, {"Forwarded": "for=192.0.2.1"}, {"Via": "1.1 proxy"}]


@pytest.mark.parametrize("headers", PROXIED)
def test_proxy_on_this_machine_lends_no_identity(shared: Live, headers: dict[str, str]) -> None:
    """Its callers need a token; health checks need none. Source: P-1."""
    reply = shared.call("GET", "/v1/hosts", headers=headers)
    assert (reply.status, reply.code) == (403, "proxy-refused")
    assert shared.call("GET", "/ready", headers=headers).status == 200
    token = bearer(shared.add_token("ben", Role.OPERATOR))
    assert shared.call("GET", "/v1/hosts", headers={**headers, **token}).status == 200


@pytest.mark.parametrize("headers", PROXIED)
def test_proxy_at_the_unix_socket_lends_no_identity(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """The service's own user is admin there, and a proxy of that user is not. Source: P-1."""
    listen = ListenSettings(metadata=("127.0.0.1:0",), operator=f"unix:{tmp_path}/operator.sock")
    with Live(replace(SETTINGS, listen=listen, operator=OperatorSettings())):
        for more, status in (({}, 200), (headers, 403)):
            connection = UnixConnection(f"{tmp_path}/operator.sock", LIMIT_S)
            connection.request("GET", "/v1/hosts", headers=more)
            assert connection.getresponse().status == status
            connection.close()


@pytest.mark.parametrize("name", ["Host", "Authorization", "Origin", "Idempotency-Key"])
def test_repeated_header_is_refused(shared: Live, name: str) -> None:
    """Two readers could take different ones of them. Source: P-1."""
    lines = f"{name}: 127.0.0.1\r\n{name}: evil.example\r\n"
    host = "" if name == "Host" else "Host: localhost\r\n"
    with socket.create_connection((shared.host, int(shared.port)), LIMIT_S) as connection:
        head = f"GET /v1/hosts HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"header-repeated"' in answer
