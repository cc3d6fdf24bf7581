"""Processes that share a port: which of them meets an address. Source: E-6."""

import contextlib
import socket
import sys
from collections.abc import Iterator

import pytest

from forewarn_metadata.endpoint.http.addresses import bind_clients, processes_of
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")

PROCESSES = 3


@pytest.fixture(params=["127.0.0.1", "::1"])
def sharing(request: pytest.FixtureRequest) -> Iterator[list[socket.socket]]:
    """Three sockets that listen on one port, with clients bound to each."""
    host: str = request.param
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening: list[socket.socket] = []
    port = 0
    with contextlib.ExitStack() as stack:
        for _ in range(PROCESSES):
            sock = stack.enter_context(socket.socket(family))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind((host, port))
            sock.listen(128)
            sock.settimeout(0)
            bind_clients(sock, PROCESSES)
            port = sock.getsockname()[1]
            listening.append(sock)
        yield listening


def met(sharing: list[socket.socket], addresses: list[str]) -> list[int]:
    """Connect once from each address; return how many connections each socket has."""
    counts = [0] * PROCESSES
    with contextlib.ExitStack() as stack:
        for address in addresses:
            at = sharing[0].getsockname()[:2]
            stack.enter_context(socket.create_connection(at, LIMIT_S, source_address=(address, 0)))
        for place, sock in enumerate(sharing):
            with contextlib.suppress(BlockingIOError):
                while True:
                    sock.accept()[0].close()
                    counts[place] += 1
    return counts


def test_one_address_meets_one_process(sharing: list[socket.socket]) -> None:
    """All connections of an address come to the same socket."""
    address = sharing[0].getsockname()[0]
    assert sorted(met(sharing, [address] * 30)) == [0, 0, 30]


@pytest.mark.parametrize("sharing", ["127.0.0.1"], indirect=True)
@pytest.mark.parametrize("step", [1, 3, 16])
def test_addresses_are_spread(sharing: list[socket.socket], step: int) -> None:
    """Neighbours do not meet one socket only, however far apart they stand."""
    addresses = [f"127.0.{n * step // 250}.{1 + n * step % 250}" for n in range(90)]
    assert min(met(sharing, addresses)) >= 10


@pytest.mark.parametrize("sharing", ["127.0.0.1"], indirect=True)
def test_it_is_known_which_process_an_address_meets(sharing: list[socket.socket]) -> None:
    """What is counted in shares is what the system does. Source: E-6."""
    for address in [f"127.0.{n}.{251 - n}" for n in range(12)]:
        [place] = processes_of([address], PROCESSES)
        assert met(sharing, [address])[place] == 1


def test_processes_of_several_addresses() -> None:
    """Addresses that meet the same process count once; both families have a place."""
    one = processes_of(["10.0.0.4"], 3)
    assert processes_of(["10.0.0.4", "10.0.0.4"], 3) == one
    assert one | processes_of(["fd00::4"], 3) == processes_of(["10.0.0.4", "fd00::4"], 3)


def test_missing_process_is_stood_in_for(sharing: list[socket.socket]) -> None:
    """Where one has ended everybody is still served."""
    sharing.pop(0).close()
    address = sharing[0].getsockname()[0]
    assert sum(met(sharing, [address] * 12)) == 12
