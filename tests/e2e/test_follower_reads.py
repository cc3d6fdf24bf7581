"""A follower answers reads from its own state, and never claims to be newer than it is. H-4."""

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from forewarn_server.control.standby import STALE_MS_MAX
from tests.asking import ask
from tests.e2e.planes import BEARER, FLEET, Plane, running_planes
from tests.postgres import PostgresServer
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

STALE_S = STALE_MS_MAX / 1000


@pytest.fixture(scope="module")
def pair(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Plane]]:
    """An active process and a follower of it, for tests that leave them as they were."""
    folder = tmp_path_factory.mktemp("planes")
    with server.database() as address, running_planes(folder, address) as planes:
        yield planes


@pytest.fixture
def own_pair(tmp_path: Path, postgres_address: str) -> Iterator[list[Plane]]:
    """The same for one test, which ends one, or must know which leads."""
    with running_planes(tmp_path, postgres_address) as planes:
        yield planes


def read(
    plane: Plane, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """Ask a process; return status, headers and text."""
    reply = ask(f"127.0.0.1:{plane.port}", "GET", path, headers=headers)
    return reply.status, reply.headers, reply.body.decode()


def read_at(plane: Plane, path: str, generation: str) -> str:
    """Ask a process for a state that has a commit, again while it has not reached that."""
    texts: list[str] = []

    def reached() -> bool:
        status, _, text = read(plane, path, {"Forewarn-Generation": generation})
        assert status == 200 or "state-behind" in text, text
        texts.append(text)
        return status == 200

    wait_until(reached)
    return texts[-1]


def change(plane: Plane, host: str) -> str:
    """Add a host; return the number of that commit."""
    address, form = f"127.0.0.1:{plane.port}", {"fault_domain": 0}
    reply = ask(address, "PUT", f"/v1/hosts/{host}", form, headers=BEARER)
    assert reply.status < 300, reply
    return reply.headers["forewarn-generation"]


def test_every_control_plane_is_listed(pair: list[Plane]) -> None:
    """Both processes show the active one, the follower, and that none is behind. Source: H-8."""

    def roles(plane: Plane) -> list[tuple[bool, bool]]:
        found = json.loads(read(plane, "/v1/service", BEARER)[2])["processes"]
        return [(each["active"], each["runs"]) for each in found]

    both = [(True, True), (False, True)]
    wait_until(lambda: [roles(plane) for plane in pair] == [both, both])


def test_follower_reads_without_the_active_process(own_pair: list[Plane]) -> None:
    """Lists, `why`, history, page and export are its own, with commit and age."""
    active, follower = own_pair
    assert active.ask("PUT", "/v1/topology", FLEET)[0] == 200
    status, answer = active.ask(
        "POST", "/v1/operations", {"cause": "host-reboot", "targets": ["h1"]}
    )
    assert status < 300, answer
    wait_until(lambda: '"begun":null' not in read(active, "/v1/operations")[2])
    newest = change(active, "h9")
    paths = ["/v1/vms", "/v1/operations", "/v1/why?id=op-1", "/v1/events", "/v1/maintenances"]
    paths += ["/v1/history?images=true", "/v1/topology", "/v1/overview/hosts", "/v1/access"]
    known = {path: read(active, path)[2] for path in paths}
    assert "error" not in "".join(known.values())
    os.kill(active.process.pid, signal.SIGSTOP)
    try:
        for path in paths:
            status, head, text = read(follower, path, {"Forewarn-Generation": newest})
            assert (status, text) == (200, known[path]), path
            assert int(head["forewarn-generation"]) >= int(newest)
            assert int(head["forewarn-age-ms"]) < STALE_S * 1000
        assert '"h9"' in read(follower, "/v1/topology")[2]
    finally:
        active.end()


def test_client_reads_what_it_wrote(pair: list[Plane]) -> None:
    """Whichever process it asks, by the number of its change; the page's overview, too."""
    active, follower = pair
    before = json.loads(read(active, "/v1/overview")[2])["hosts"]
    read(follower, "/v1/overview")
    for number in range(20):
        newest = change((active, follower)[number % 2], f"own{number}")
        assert f'"own{number}"' in read_at(follower, "/v1/hosts", newest)
        assert json.loads(read_at(follower, "/v1/overview", newest))["hosts"] == before + number + 1
    status, _, text = read(follower, "/v1/hosts", {"Forewarn-Generation": "999999"})
    assert (status, json.loads(text)["error"]["code"]) == (503, "state-behind")


def test_follower_that_stood_still_answers_nothing_old(pair: list[Plane]) -> None:
    """After a pause longer than the bound its first answer is new, or a refusal. Invariant 20."""
    active, follower = pair
    read(follower, "/v1/hosts")
    os.kill(follower.process.pid, signal.SIGSTOP)
    until_s = time.monotonic() + STALE_S + 0.5
    change(active, "late")
    wait_until(lambda: time.monotonic() > until_s)
    os.kill(follower.process.pid, signal.SIGCONT)
    status, _, text = read(follower, "/v1/hosts")
    assert '"late"' in text if status == 200 else "state-outdated" in text
    wait_until(lambda: '"late"' in read(follower, "/v1/hosts")[2])


def test_process_that_stood_still_while_another_led_answers_nothing_old(
    own_pair: list[Plane],
) -> None:
    """The first answer of the former active process is a refusal, or it has ended. H-3."""
    active, follower = own_pair
    change(active, "early")
    os.kill(active.process.pid, signal.SIGSTOP)
    wait_until(lambda: follower.says(200))
    change(follower, "late")
    os.kill(active.process.pid, signal.SIGCONT)
    try:
        status, _, text = read(active, "/v1/hosts")
    except (OSError, http.client.HTTPException):
        return  # it has ended
    assert '"late"' in text if status == 200 else status == 503


def test_follower_cut_from_the_store_refuses_reads(pair: list[Plane]) -> None:
    """Its database answers nothing more: 503 by name, also on its watch, until it is back."""
    active, follower = pair
    wait_until(lambda: follower.ask("PUT", "/v1/hosts/h1", {"fault_domain": 0})[0] < 300)
    connection = http.client.HTTPConnection("127.0.0.1", follower.port, timeout=LIMIT_S)
    connection.request("GET", "/v1/overview/watch")
    stream = connection.getresponse()
    with psycopg.connect(active.address, autocommit=True) as server:
        sessions = server.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'follower'"
        ).fetchall()
        for (pid,) in sessions:
            os.kill(pid, signal.SIGSTOP)
        try:
            change(active, "h2")
            wait_until(lambda: follower.says(503, "/v1/hosts"))
            assert follower.ask("GET", "/v1/hosts")[1]["error"]["code"] == "state-outdated"
            assert follower.says(503, "/ready")
            assert b"event" in stream.read(), "a stream that claims to be new does not end"
            assert follower.ask("PUT", "/v1/hosts/h3", {"fault_domain": 0})[0] < 300
        finally:
            for (pid,) in sessions:
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: '"h3"' in read(follower, "/v1/hosts")[2])
    connection.close()


def test_follower_knows_tokens_at_once(own_pair: list[Plane]) -> None:
    """A new token reads there, a revoked one does not, and an unknown one is in the audit. P-4."""
    active, follower = own_pair
    form = {"principal": "kim", "role": "viewer", "expires": "+1h"}
    token = active.ask("POST", "/v1/access/tokens", form)[1]
    bearer = {"Authorization": f"Bearer {token['token']}"}
    status, head, _ = read(follower, "/v1/hosts", bearer)
    assert (status, "forewarn-generation" in {name.lower() for name in head}) == (200, True)
    assert active.ask("DELETE", f"/v1/access/tokens/{token['id']}")[0] == 204
    wait_until(lambda: read(follower, "/v1/hosts", bearer)[0] == 401)
    wait_until(lambda: "token-wrong" in read(active, "/v1/audit")[2])


def test_follower_answers_for_the_active_process(own_pair: list[Plane]) -> None:
    """Reads, changes and a watch; what is asked of one is seen by the other. Source: H-4."""
    active, follower = own_pair
    wait_until(lambda: follower.says(200, "/v1/leader"))
    assert follower.ask("GET", "/v1/leader")[1]["url"] == f"http://127.0.0.1:{active.port}"
    assert follower.ask("PUT", "/v1/topology", FLEET)[0] == 200
    assert [each["name"] for each in active.ask("GET", "/v1/vms")[1]["vms"]] == ["web_0", "web_1"]
    watch = http.client.HTTPConnection("127.0.0.1", follower.port, timeout=LIMIT_S)
    watch.request("GET", "/v1/watch")
    stream = watch.getresponse()
    form = {"cause": "host-reboot", "targets": ["h1"]}
    first = follower.ask("POST", "/v1/operations", form, "key-1")
    assert active.ask("POST", "/v1/operations", form, "key-1") == first, "it was doubled"
    assert any(b"operation.planned" in line for line in iter(stream.readline, b""))
    stream.close()
    watch.close()


def test_change_at_a_follower_has_the_address_of_its_caller(pair: list[Plane]) -> None:
    """The follower proves itself by the lease, and lends its identity to nobody. P-1, P-7, H-4."""
    active, follower = pair
    address, form = f"127.0.0.1:{follower.port}", {"fault_domain": 0}
    wait_until(lambda: follower.says(200, "/v1/leader"))
    reply = ask(address, "PUT", "/v1/hosts/far", form, headers=BEARER, source="127.0.0.2")
    assert reply.status == 201
    entries = json.loads(read(active, "/v1/history?host=far")[2])["entries"]
    assert entries[0]["actor"] == "operator tester at 127.0.0.2"
    for headers in ({}, {"Cookie": "a=b"}):
        assert ask(address, "PUT", "/v1/hosts/far", form, headers=headers).code == "active-asked"
