"""VMs that were evicted or deleted: what is left of their requests, on real sockets."""

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from emulator_tests.asking import PATH
from emulator_tests.conftest import Stage
from forewarn_emulator.options import Options

Staged = Callable[..., Stage]

FLEET = """
[hosts.h1]
[groups.web]
[vms]
web-1 = { host = "h1", group = "web", addresses = ["127.0.0.1"] }
web-2 = { host = "h1", group = "web", addresses = ["127.0.0.2"], spot = true }
"""


def connected(stage: Stage, address: str) -> socket.socket:
    """Return a connection from an address to the metadata service."""
    place = urlsplit(stage.emulator.url)
    return socket.create_connection(
        (place.hostname or "", place.port or 0), 30, source_address=(address, 0)
    )


def ask(vm: socket.socket, path: str = PATH, method: str = "GET", body: str = "") -> None:
    """Send a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n"
    vm.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


def status(vm: socket.socket) -> bytes:
    """Return the status of the answer; nothing where the connection was closed."""
    return vm.recv(65_536)[9:12]


def of_two(staged: Staged, gone_vm: str) -> Stage:
    """Return an emulator of two VMs that are known by their addresses."""
    return staged(topology=FLEET, topology_name="fleet.toml", gone_vm=gone_vm)


def evicted(staged: Staged, gone_vm: str) -> Stage:
    """Return an emulator from which web-2 was evicted."""
    stage = of_two(staged, gone_vm)
    stage.api.post("/v1/vms/web-2/evict", {"duration": "5s"})
    stage.advance("40s")
    assert [vm["name"] for vm in stage.api.get("/v1/vms")["vms"]] == ["web-1"]
    return stage


def test_gone_vm_is_answered_404(staged: Staged) -> None:
    """Where it is asked for, a VM that is gone is nobody. Source: S-4."""
    stage = evicted(staged, "404")
    with connected(stage, "127.0.0.2") as vm:
        ask(vm)
        assert status(vm) == b"404"


def test_gone_vm_is_refused_until_it_is_back(staged: Staged) -> None:
    """With `refuse` its connections are reset, other VMs are answered. Source: E-10."""
    stage = evicted(staged, "refuse")
    for path, method in ((PATH, "GET"), ("/metadata/instance", "GET"), (PATH, "POST")):
        with connected(stage, "127.0.0.2") as vm:
            ask(vm, path, method)
            with pytest.raises(ConnectionResetError):
                status(vm)
    with connected(stage, "127.0.0.1") as vm:
        ask(vm)
        assert status(vm) == b"200"
        ask(vm, f"{PATH}&vm=nobody")
        assert status(vm) == b"404"
    stage.advance("1m")
    with connected(stage, "127.0.0.2") as vm:
        ask(vm)
        assert status(vm) == b"200"


def test_request_of_a_gone_vm_is_answered_once_the_vm_is_back(staged: Staged) -> None:
    """By default its client waits, and goes on with the VM. Source: E-10."""
    stage = evicted(staged, Options().gone_vm)
    with connected(stage, "127.0.0.2") as vm:
        ask(vm)
        with connected(stage, "127.0.0.1") as present:  # answered after the other has arrived
            ask(present)
            assert status(present) == b"200"
        stage.advance("1m")
        assert status(vm) == b"200"


def test_gone_vm_hangs(staged: Staged) -> None:
    """With `hang` nothing comes; the emulator can be stopped all the same. Source: E-10."""
    stage = evicted(staged, "hang")
    approval = '{"StartRequests":[{"EventId":"A"}]}'
    with connected(stage, "127.0.0.2") as vm, connected(stage, "127.0.0.2") as other:
        ask(vm)
        ask(other, PATH, "POST", approval)
        with connected(stage, "127.0.0.1") as present:  # answered after both have arrived
            ask(present)
            assert status(present) == b"200"
        for each in (vm, other):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)


def test_poll_that_is_held_goes_with_its_vm(staged: Staged) -> None:
    """A request that waits for a change when its VM goes is cut off with it. Source: E-9, E-10."""
    stage = of_two(staged, "refuse")
    stage.api.post("/v1/vms/web-2/evict", {"duration": "5s"})
    stage.advance("32s")
    [started] = stage.sees("web-2")
    assert "Started" in started
    shown = stage.emulator.document("web-2").incarnation
    with connected(stage, "127.0.0.2") as vm:
        ask(vm)
        assert status(vm) == b"200"
        ask(vm, f"{PATH}&wait=60&incarnation={shown}")
        stage.advance("20s")
        told = iter(lambda: status(vm), b"")
        with pytest.raises(ConnectionResetError):
            list(told)


def test_vm_that_an_operator_removes_is_nobody(staged: Staged) -> None:
    """What is removed by hand was never taken by the cloud: 404 as ever. Source: S-4."""
    stage = of_two(staged, "refuse")
    stage.api.delete("/v1/vms?name=web-2")
    stage.advance("0s")
    with connected(stage, "127.0.0.2") as vm:
        ask(vm, f"{PATH}&vm=web-2")
        assert status(vm) == b"404"
