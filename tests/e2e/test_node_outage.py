"""Control plane and database are away: nodes answer every GET, and what was approved counts later.

`OUTAGE_S=600 pytest tests/e2e/test_node_outage.py` has them away for ten minutes, at a poll a
second.
"""

import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.node_processes import FLEET, VMS, Cloud, Process, ask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nodes are killed"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates"),
]

#: How long the outage lasts; 0: as long as `POLLS` polls of each VM take.
OUTAGE_S = float(os.environ.get("OUTAGE_S", "0"))
POLLS = 60
MOVED = {
    **FLEET,
    "hosts": {f"h{number}": {"fault_domain": number - 1} for number in (1, 2, 3)},
    "vms": {**VMS, "web_1": {"host": "h3", "group": "web"}},
}
HOSTS = {"web_0": "h1", "web_1": "h2", "db_0": "h1"}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Return a cloud without any process, whose nodes may accept approvals."""
    cloud = Cloud(tmp_path)
    (tmp_path / "spool.toml").write_text("[node]\nmax_spooled_approvals = 10\n")
    yield cloud
    cloud.stop()


def turns() -> Iterator[int]:
    """Yield the turns of an outage, one a second where it is to last."""
    if not OUTAGE_S:
        yield from range(POLLS)
        return
    ends_s, idle = time.monotonic() + OUTAGE_S, threading.Event()
    for turn in itertools.count():
        if time.monotonic() > ends_s:
            return
        yield turn
        idle.wait(1.0)


class Outage:
    """A cloud whose control plane goes away, and whose nodes stay."""

    def __init__(self, cloud: Cloud) -> None:
        """Have work announced to the VMs of h1."""
        self.cloud = cloud
        self.control = cloud.control()
        cloud.order("/v1/topology", FLEET, "PUT")
        self.nodes = {name: self.node(name) for name in ("h1", "h2")}
        assert [self.shown(vm)["Events"] for vm in VMS] == [[], [], []]
        cloud.order("/v1/hosts/h1/migrate", {})

    def node(self, name: str) -> Process:
        """Start a node that may accept approvals."""
        return self.cloud.node(name, "--config", "spool.toml").serving()

    def shown(self, vm: str) -> dict[str, object]:
        """Return what the node of a VM's host shows it."""
        status, document = self.nodes[HOSTS[vm]].ask(vm)
        assert status == 200, document
        return document

    def approve(self, vm: str) -> None:
        """Have a VM approve what it is shown."""
        events = self.shown(vm)["Events"]
        starts = [{"EventId": each["EventId"]} for each in events]  # type: ignore[attr-defined]  # as the protocol has it
        assert self.nodes[HOSTS[vm]].ask(vm, "POST", {"StartRequests": starts})[0] == 200

    def begin(self) -> None:
        """Take the control plane and its database away."""
        self.control.kill()
        for each in self.cloud.directory.glob("forewarn.db*"):
            each.rename(self.cloud.directory / f"away-{each.name}")
        for node in self.nodes.values():
            node.logged("cannot be followed")

    def end(self) -> None:
        """Put both back."""
        for each in self.cloud.directory.glob("away-*"):
            each.rename(self.cloud.directory / each.name.removeprefix("away-"))
        self.control = self.cloud.control()


def test_outage_costs_no_answer_and_no_approval(cloud: Cloud) -> None:
    """Every GET is answered as before; approvals are delivered once. Source: M-2, M-3."""
    outage = Outage(cloud)
    before = {vm: outage.shown(vm) for vm in VMS}
    outage.begin()
    for turn in turns():
        if turn == POLLS // 3:
            outage.approve("web_0")
            outage.approve("db_0")
        elif turn == POLLS // 2:
            outage.nodes["h1"].kill()
            outage.nodes["h1"] = outage.node("h1")
        assert {vm: outage.shown(vm) for vm in VMS} == before
    outage.end()
    for vm in ("web_0", "db_0"):
        outage.nodes["h1"].logged(f"the stored approval of {vm} was delivered: it counts")
    outage.control.logged("op-1 is running: everybody approved")
    history = ask(cloud.operator, "GET", "/v1/history?limit=100")[1]["entries"]
    approved = [each for each in history if each["action"] == "event.approved"]  # type: ignore[attr-defined]  # the same
    assert len(approved) == 2, approved


def test_approval_counts_where_its_vm_has_left_since(cloud: Cloud) -> None:
    """Its node was away with it over the move and a restart of the service. Source: M-3, M-5."""
    outage = Outage(cloud)
    outage.begin()
    outage.approve("web_1")
    outage.nodes["h2"].kill()
    outage.end()
    cloud.order("/v1/topology", MOVED, "PUT")
    outage.control.kill()
    outage.control = cloud.control()
    node = outage.node("h2")
    node.logged("the stored approval of web_1 was delivered: it counts")
    outage.approve("db_0")
    outage.control.logged("op-1 is running: everybody approved")
