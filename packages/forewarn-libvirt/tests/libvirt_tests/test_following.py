"""The topology is kept in step with libvirt, also where work, refusals or silence come between."""

import socket
from collections.abc import Iterator

import pytest

from forewarn_cli.topology_import import Importer
from forewarn_libvirt import connection
from forewarn_libvirt.config import HostConfig, LibvirtConfig
from forewarn_libvirt.connection import Connections, HypervisorFailed
from forewarn_libvirt.discovery import LibvirtSource
from forewarn_server.cli.api_client import ApiClient, ApiRefused
from tests.api.live import Live
from tests.clock import VirtualClock

pytest.importorskip("libvirt", reason="libvirt-python is an extra")

LOST_AFTER_S = 10
#: libvirt's own driver for tests: one host, with one domain of the name `test`.
HERE = HostConfig("test:///default")


@pytest.fixture
def live() -> Iterator[Live]:
    """A service that knows two hosts, and a VM on each."""
    with Live() as service:
        vms = {"test": {"host": "h2", "group": "web"}, "far": {"host": "h2", "group": "web"}}
        service.fleet(hosts={"h1": {}, "h2": {"fault_domain": 1}}, groups={"web": {}}, vms=vms)
        yield service


@pytest.fixture
def closed() -> Iterator[socket.socket]:
    """An address of this machine where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def clock() -> VirtualClock:
    """The follower's own."""
    return VirtualClock(1)


@pytest.fixture
def importer(live: Live, closed: socket.socket, clock: VirtualClock) -> Importer:
    """A follower of two hosts, the second of which is silent."""
    away = HostConfig(f"qemu+tcp://127.0.0.1:{closed.getsockname()[1]}/system")
    config = LibvirtConfig({"h1": HERE, "h2": away}, lost_after_s=LOST_AFTER_S)
    return Importer(ApiClient(live.url), LibvirtSource(config), clock=clock)


def lost(live: Live) -> list[str]:
    """The hosts that were reported lost."""
    found = live.get("/v1/operations")["operations"]
    return [each["host"] for each in found if each["cause"] == "host-lost"]


def turn_after(importer: Importer, clock: VirtualClock, seconds: float) -> None:
    """Let time pass, and the follower look."""
    clock.advance(int(seconds * 1000))
    importer.turn()


def test_silent_host_is_reported_lost(live: Live, importer: Importer, clock: VirtualClock) -> None:
    """A host that does not answer for the time that is set is lost, once. Source: R-5, L-4."""
    importer.turn()
    turn_after(importer, clock, LOST_AFTER_S - 1)
    assert lost(live) == []
    turn_after(importer, clock, 1)
    turn_after(importer, clock, LOST_AFTER_S)
    assert lost(live) == ["h2"]


def test_host_that_is_rebooted_is_not_lost(
    live: Live, importer: Importer, clock: VirtualClock
) -> None:
    """Its driver waits for it; once the work is stuck nobody does any more. Source: R-5, L-8."""
    work = live.post("/v1/hosts/h2/reboot")["operations"][0]["id"]
    live.settle()  # nobody is asked; a driver that is being called must not see time pass
    assert live.get(f"/v1/operations/{work}")["operation"]["state"] == "running"
    importer.turn()
    turn_after(importer, clock, LOST_AFTER_S)
    assert lost(live) == []
    live.post(f"/v1/operations/{work}/complete")
    turn_after(importer, clock, LOST_AFTER_S)
    assert lost(live) == ["h2"]


def test_refused_record_does_not_stop_the_others(
    live: Live, importer: Importer, clock: VirtualClock
) -> None:
    """What live work names is taken over once that has ended. Source: R-5."""
    live.post("/v1/vms/test/redeploy")
    importer.turn()
    turn_after(importer, clock, LOST_AFTER_S)
    assert live.get("/v1/topology?format=json")["vms"]["test"]["host"] == "h2"
    assert lost(live) == ["h2"]
    with pytest.raises(ApiRefused):
        importer.once()


def test_host_that_drops_packets_is_silent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up long before the system gives it up, and holds nobody up. Source: R-1."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.1)
    with socket.socket() as deaf, socket.socket() as first:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        first.connect(deaf.getsockname())  # its queue is full now: more are dropped
        config = LibvirtConfig({"h": HostConfig(f"qemu+tcp://127.0.0.1:{deaf.getsockname()[1]}/")})
        with pytest.raises(HypervisorFailed, match="no connection to 127"):
            Connections(config).to("h")
