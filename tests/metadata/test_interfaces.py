"""VMs that are known on one network interface, and services that listen on one. S-6, E-1."""

import socket
import sys

import pytest
from msgspec.structs import replace

from forewarn_metadata.endpoint.http.addresses import AddressUnavailable, open_listener, parse
from tests.metadata.live import EVENTS, VM_A, Live, Raw, request, serving
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells")
LISTEN = ["127.0.0.1:0", "127.0.0.1%lo:0", "[::1]:0", "[::1%lo]:0"]


def connect(live: Live) -> Raw:
    """Connect to the first address of a server."""
    address = parse(live.bound[0])
    return Raw(socket.create_connection((address.host, address.port), LIMIT_S))


def status(live: Live, raw: Raw | None = None) -> int:
    """Ask for the document on a connection, a new one where none is given."""
    with raw or connect(live) as asking:
        asking.send(request(EVENTS))
        return asking.reply().status


@pytest.mark.parametrize("listen", LISTEN)
def test_vm_is_known_on_its_interface_alone(listen: str, portable: bool) -> None:
    """The system says by which one a connection came in. Source: S-6."""
    with serving(listen=(listen,), portable=portable) as live:
        assert status(live) == 200
        live.know(replace(VM_A, interface="lo"))
        assert [status(live) for _ in range(3)] == [200] * 3
        live.know(replace(VM_A, interface="tap9"))
        assert [status(live) for _ in range(3)] == [404] * 3
        live.know(replace(VM_A, interface=""))
        assert status(live) == 200


@pytest.mark.parametrize("listen", LISTEN)
def test_connection_that_is_open_already_has_an_interface_too(listen: str, portable: bool) -> None:
    """It is asked for once that matters. Source: S-6."""
    with serving(listen=(listen,), portable=portable) as live:
        for interface, expected in (("lo", 200), ("tap9", 404)):
            live.know(replace(VM_A, interface=""))
            with connect(live) as raw:
                raw.send(request(EVENTS))
                assert raw.reply().status == 200
                live.know(replace(VM_A, interface=interface))
                raw.send(request(EVENTS))
                assert raw.reply().status == expected


@pytest.mark.parametrize("listen", LISTEN)
def test_address_says_where_it_really_listens(listen: str) -> None:
    """With the port that the system chose, and the interface that was named. Source: E-1."""
    with serving(listen=(listen,)) as live:
        bound, wanted = parse(live.bound[0]), parse(listen)
        assert (bound.host, bound.interface) == (wanted.host, wanted.interface)
        assert bound.port > 0


@pytest.mark.parametrize("listen", LISTEN)
@pytest.mark.parametrize("shared", [False, True])
def test_listening_socket_is_as_it_must_be(listen: str, shared: bool) -> None:
    """At once, on its interface alone, shared where that is asked for, one family each. E-1."""
    wanted = parse(listen)
    listener = open_listener(wanted, shared=shared)
    options = {
        (socket.IPPROTO_TCP, socket.TCP_NODELAY): True,
        (socket.SOL_SOCKET, socket.SO_REUSEADDR): True,
        (socket.SOL_SOCKET, socket.SO_REUSEPORT): shared,
    }
    if listener.family == socket.AF_INET6:
        options[socket.IPPROTO_IPV6, socket.IPV6_V6ONLY] = True
    try:
        sock = listener.sock
        assert {each: bool(sock.getsockopt(*each)) for each in options} == options
        device = sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
        assert device.rstrip(b"\0").decode() == wanted.interface
        assert sock.gettimeout() == 0
        with pytest.raises(BlockingIOError):
            listener.accept()
        if shared:
            open_listener(listener.address, shared=True).close()
        else:
            with pytest.raises(AddressUnavailable, match="in use"):
                open_listener(listener.address)
    finally:
        listener.close()
