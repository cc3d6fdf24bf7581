"""A store that has lost commits: VMs keep their documents, and nothing is decided. Source: H-10."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.settings import StoreSettings
from forewarn_base.values import replace
from forewarn_store.backup import restore
from tests.api.live import FLEET, NOW_MS, SETTINGS, Live
from tests.asking import Reply, ask
from tests.e2e.node_processes import FLEET as CLOUD_FLEET
from tests.e2e.node_processes import Cloud
from tests.e2e.planes import FLEET as PLANES_FLEET
from tests.e2e.planes import Plane, running_planes
from tests.store.rewinding import Snapshot
from tests.waiting import wait_until

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01&vm="


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a store in a file."""
    return f"sqlite://{tmp_path}/store.db"


def serving(url: str, file: str = "") -> Live:
    """Start a service on a store."""
    return Live(replace(SETTINGS, store=StoreSettings(url=url, last_commit_file=file)))


def vm_asks(live: Live, vm: str, body: object = None) -> Reply:
    """Be a VM."""
    address = live.metadata_url.removeprefix("http://").partition("/")[0]
    return ask(address, "POST" if body else "GET", EVENTS + vm, body)


def test_running_service_stops_deciding_and_shows_what_it_showed(url: str) -> None:
    """Documents stay, approvals get 503, `/ready` names the cause, nothing begins. H-10."""
    with serving(url) as live:
        live.fleet(**FLEET)
        live.enable("web-0", "db-0")
        before = Snapshot(url)
        live.post("/v1/operations", cause="host-reboot", targets=["h1"])
        live.settle()
        shown = live.document("db-0")
        before.put_back()
        approval = {"StartRequests": [{"EventId": shown["Events"][0]["EventId"]}]}
        assert vm_asks(live, "db-0", approval).status == 503
        assert live.document("db-0") == shown
        assert live.call("GET", "/ready").status == 503
        refused = live.call("PUT", "/v1/hosts/h9", {"fault_domain": 0})
        assert (refused.status, refused.json["error"]["code"]) == (503, "store-went-back")
        live.advance(3600)
        assert live.document("db-0") == shown


def test_approval_that_is_repeated_after_an_outage_is_503(url: str) -> None:
    """Its answer needs no commit, which would show that the store lacks the first one. H-10."""
    with serving(url) as live:
        live.fleet(**FLEET)
        live.enable("web-0", "db-0")
        before = Snapshot(url)
        live.post("/v1/operations", cause="host-reboot", targets=["h1"])
        live.settle()
        [event] = live.document("db-0")["Events"]
        approval = {"StartRequests": [{"EventId": event["EventId"]}]}
        assert vm_asks(live, "db-0", approval).status == 200
        before.put_back()
        live.daemon.compare_newest_commit()
        assert vm_asks(live, "db-0", approval).status == 503


def test_service_on_an_older_copy_shows_nothing_old(url: str, tmp_path: Path) -> None:
    """Its file is ahead: VMs get 503 and keep what they have, until a restore. H-10, U-2."""
    file = str(tmp_path / "last-commit")
    with serving(url, file) as live:
        live.fleet(**FLEET)
        live.enable("web-0", "db-0")
        before = Snapshot(url)
        live.post("/v1/operations", cause="host-reboot", targets=["h1"])
        live.settle()
        shown = live.document("db-0")["DocumentIncarnation"]
    before.put_back()
    with serving(url, file) as live:
        assert vm_asks(live, "db-0").status == 503
        health = live.call("GET", "/v1/health")
        assert health.status == 503
        assert "has gone back" in str(health.json["reason"])
        assert live.get("/v1/vms")
    restore(None, url, now_ms=NOW_MS)
    with serving(url, file) as live:
        assert live.document("db-0")["DocumentIncarnation"] > shown
        assert live.call("GET", "/ready").status == 200


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Return a cloud without any process."""
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.stop()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the service is killed")
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
def test_metadata_node_is_a_witness(cloud: Cloud) -> None:
    """It keeps its documents, and the service learns from it that it runs on a copy. H-10, M-1."""
    store = f"sqlite://{cloud.directory}/forewarn.db"
    control = cloud.control()
    cloud.order("/v1/topology", CLOUD_FLEET, "PUT")
    node = cloud.node("h1").serving()
    assert node.ask("db_0")[0] == 200
    before = Snapshot(store)
    cloud.order("/v1/operations", {"cause": "host-reboot", "targets": ["h1"]})
    wait_until(lambda: node.ask("db_0")[1]["Events"], what="an event at the node")
    shown = node.ask("db_0")
    control.kill()
    before.put_back()
    (cloud.directory / "forewarn.db.commit").unlink()
    cloud.control()
    wait_until(lambda: "node h1" in str(cloud.health().get("reason")), what="the node's word")
    assert node.ask("db_0") == shown
    status, _ = node.ask("db_0", "POST", {"StartRequests": [{"EventId": "A"}]})
    assert status == 503


def generation_of(plane: Plane) -> object:
    """Return the last commit that a process knows."""
    return plane.ask("GET", "/v1/health")[1].get("generation")


@pytest.mark.slow
@pytest.mark.postgres
def test_follower_takes_over_what_it_has_followed(tmp_path: Path, postgres_address: str) -> None:
    """The leader dies with the commits: VMs read on what they have read, nothing begins. H-10."""
    with running_planes(tmp_path, postgres_address) as (active, follower):
        assert active.ask("PUT", "/v1/topology", PLANES_FLEET)[0] == 200
        assert active.poll() == 200
        before = Snapshot(postgres_address)
        work = {"cause": "host-reboot", "targets": ["h1"]}
        assert active.ask("POST", "/v1/operations", work)[0] == 202
        wait_until(lambda: generation_of(follower) == generation_of(active))
        shown = active.document()
        os.kill(active.process.pid, signal.SIGSTOP)
        before.put_back()
        wait_until(lambda: follower.says(200), what="the follower to lead")
        assert follower.document() == shown
        status, health = follower.ask("GET", "/v1/health")
        assert (status, "has gone back" in health["reason"]) == (503, True)
        restore(None, postgres_address, now_ms=SystemClock().now_ms())
        assert follower.process.wait() == 1
