"""A control plane and metadata nodes as processes: outages, kills, moves, and who may ask what."""

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.node_processes import FLEET, Cloud, Process
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nodes are killed"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates"),
]

KILLS = 4


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Return a cloud without any process."""
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.stop()


def incarnation(process: Process, vm: str) -> int:
    """Return what a node shows a VM."""
    status, document = process.ask(vm)
    assert status == 200, document
    return int(str(document["DocumentIncarnation"]))


def event_ids(process: Process, vm: str) -> list[str]:
    """Return the events a node shows a VM."""
    events = process.ask(vm)[1]["Events"]
    assert isinstance(events, list)
    return [str(event["EventId"]) for event in events]


def test_no_incarnation_goes_back_whoever_is_killed(cloud: Cloud) -> None:
    """Nodes and control plane die at random moments, under events. Source: M-1, M-2, L-7."""
    chance = random.Random(7)
    control = cloud.control()
    cloud.order("/v1/topology", FLEET, "PUT")
    nodes = {name: cloud.node(name).serving() for name in ("h1", "h2")}
    placed = (("web_0", "h1"), ("web_1", "h2"), ("db_0", "h1"))
    # Groups that poll have notice, so that nothing has moved by the end.
    seen = {vm: incarnation(nodes[name], vm) for vm, name in placed}
    for _ in range(KILLS):
        cloud.order(f"/v1/hosts/{chance.choice(('h1', 'h2'))}/migrate", {"queue": True})
        for vm, name in placed:
            shows = incarnation(nodes[name], vm)
            assert shows >= seen[vm]
            seen[vm] = shows
        died = chance.choice(("h1", "h2", "control"))
        if died == "control":
            control.kill()
            control = cloud.control()
        else:
            nodes[died].kill()
            nodes[died] = cloud.node(died).serving()
    assert max(seen.values()) > 0


def test_work_goes_on_without_a_node_that_is_away(cloud: Cloud) -> None:
    """After the time that is set, people are told which node and which VMs. Source: M-4."""
    cloud.control()
    cloud.order("/v1/topology", FLEET, "PUT")
    one = cloud.node("h1").serving()
    assert incarnation(one, "web_0") == 0
    cloud.order("/v1/hosts/h1/migrate", {})
    cloud.processes[0].logged("node h2 did not show op-1 in time: other VMs of its groups")
    wait_until(lambda: cloud.health()["nodes_behind"] == ["h2"])
    assert event_ids(one, "web_0")


def test_vm_that_moves_is_never_unknown(cloud: Cloud) -> None:
    """Its new node has its document before the old one stops answering. Source: M-1, M-5."""
    cloud.control()
    cloud.order("/v1/topology", FLEET, "PUT")
    one, two = cloud.node("h1").serving(), cloud.node("h2").serving()
    assert (incarnation(one, "db_0"), incarnation(one, "web_0")) == (0, 0)
    assert (one.ask("web_1")[0], two.ask("db_0")[0]) == (404, 404)
    cloud.order("/v1/hosts/h1/migrate", {})
    for vm in ("db_0", "web_0"):
        [event] = event_ids(one, vm)
        assert one.ask(vm, "POST", {"StartRequests": [{"EventId": event}]})[0] == 200
    before = 0
    while (answer := one.ask("db_0"))[0] == 200:
        before = int(str(answer[1]["DocumentIncarnation"]))
    assert answer[0] == 404
    assert incarnation(two, "db_0") >= before > 0


def test_node_with_a_foreign_certificate_is_refused(cloud: Cloud) -> None:
    """It is sent nothing, it says why, and people are told. Source: M-5."""
    cloud.control()
    cloud.order("/v1/topology", FLEET, "PUT")
    liar = cloud.node("h2", "--name", "h1")
    liar.logged("the node's certificate belongs to h2")
    refused = cloud.health()["nodes_refused"]
    assert refused == ["Metadata node h1 is refused: the node's certificate belongs to h2."]
    liar.kill()
    assert cloud.node("h2", token=True).serving().ask("web_1")[0] == 200
    forger = cloud.node("h1", token=True)
    forger.logged("no certificate or token proves the node's name")
    forger.kill()
    greedy = cloud.node("h1", "--hosts", "h1,h2")
    greedy.logged("the node may not serve host h2")
