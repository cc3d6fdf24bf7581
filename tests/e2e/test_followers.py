"""Several control planes on one PostgreSQL: each answers, one decides. Source: H-2, H-4."""

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from forewarn_base.settings import OperatorSettings
from forewarn_store import open_store
from tests.e2e.planes import FLEET, TOKEN, Plane, running_planes
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

GUESSES_MAX = OperatorSettings().max_refused_tokens


@pytest.fixture
def planes(tmp_path: Path, postgres_address: str) -> Iterator[list[Plane]]:
    """An active process and a follower of it."""
    with running_planes(tmp_path, postgres_address) as planes:
        yield planes


def test_changes_with_a_key_survive_a_takeover(planes: list[Plane]) -> None:
    """Asked of the follower while the active process is killed, each is done once. H-2, P-10."""
    active, follower = planes
    wait_until(lambda: follower.says(200, "/v1/leader"))
    assert follower.ask("PUT", "/v1/topology", FLEET)[0] == 200
    done = threading.Event()
    refused: list[object] = []

    def change() -> None:
        for number in range(40):
            path, host = f"/v1/hosts/x{number}", {"fault_domain": 0}
            while True:
                try:
                    status, answer = follower.ask("PUT", path, host, f"key-{number}")
                except (OSError, http.client.HTTPException):
                    continue  # it takes over, and opens its address again
                if status < 300:
                    break
                if status != 503:
                    refused.append(answer)
                    break
        done.set()

    threading.Thread(target=change, daemon=True).start()
    wait_until(lambda: len(active.ask("GET", "/v1/hosts")[1]["hosts"]) > 10)
    active.end()
    assert done.wait(LIMIT_S)
    assert refused == []
    assert len(follower.ask("GET", "/v1/hosts")[1]["hosts"]) == 42
    actions = [
        each["action"] for each in follower.ask("GET", "/v1/history?limit=500")[1]["entries"]
    ]
    assert actions.count("host.added") == 42


def test_leader_steps_down(planes: list[Plane]) -> None:
    """The command ends it in order, and the follower need not wait for a term. Source: H-2."""
    active, follower = planes
    wait_until(lambda: follower.says(200, "/v1/leader"))
    store = open_store(active.address)
    holder = store.lease().holder
    words = [sys.executable, "-m", "forewarn_server.cli.main", "leader", "step-down"]
    words += ["--server", f"http://127.0.0.1:{follower.port}"]
    subprocess.run(words, check=True, env={**os.environ, "FOREWARN_TOKEN": TOKEN})
    assert active.process.wait(LIMIT_S) == 0
    assert store.lease().holder != holder
    store.close()
    wait_until(lambda: follower.says(200))


def test_process_that_does_not_reach_its_store_claims_no_freshness(planes: list[Plane]) -> None:
    """Reads are refused by name after a term, and answered once it renews again. Source: H-3."""
    active, follower = planes
    follower.end()
    assert active.ask("PUT", "/v1/topology", FLEET)[0] == 200
    assert active.poll() == 200
    with psycopg.connect(active.address) as held:
        held.execute("LOCK TABLE lease IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: active.says(503, "/v1/vms"))
        assert active.ask("GET", "/v1/vms")[1]["error"]["code"] == "state-outdated"
        assert active.says(200, "/live")
        wait_until(lambda: active.poll() == 503)
    wait_until(lambda: active.says(200, "/v1/vms"))
    wait_until(lambda: active.poll() == 200)


def test_follower_without_its_state_judges_nobody(tmp_path: Path, postgres_address: str) -> None:
    """It forwards calls with tokens, counts none as a guess, and is not ready. Source: H-4, P-4."""
    with running_planes(tmp_path, postgres_address, 1) as planes:
        assert planes[0].ask("PUT", "/v1/topology", FLEET)[0] == 200
        with psycopg.connect(postgres_address) as held:
            held.execute("LOCK TABLE host IN ACCESS EXCLUSIVE MODE")  # it cannot load
            follower = Plane(tmp_path, postgres_address, "loading")
            planes.append(follower)
            follower.wait_started("/live")
            statuses = {follower.ask("GET", "/v1/hosts")[0] for _ in range(GUESSES_MAX + 2)}
            assert statuses == {200}
            for path in ("/ready", "/v1/health"):
                status, health = follower.ask("GET", path)
                assert (status, health["state"]) == (503, "standby")
        follower.wait_started("/ready")
        assert follower.ask("GET", "/v1/health")[1]["state"] == "standby"
