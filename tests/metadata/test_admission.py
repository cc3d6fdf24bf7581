"""Who may have how many connections: no caller can take those of another one. Sections E and S."""

import contextlib
import sys
from collections import Counter

import pytest

from forewarn_metadata.endpoint.http.open_connections import (
    LOOKS_MAX,
    ConnectedClient,
    OpenConnection,
    OpenConnections,
)
from forewarn_metadata.endpoint.identity import Callers, Peer
from forewarn_metadata.replication.messages import Caller, DocumentChange
from tests.metadata.hostile import GOOD, chunked
from tests.metadata.live import EVENTS, SETTINGS, VM_A, Live, request, serving, with_settings

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere loopback has one address only"
)
STRANGER = "127.0.0.9"
LOOKS: Counter[str] = Counter()


def count(live: Live) -> int:
    """Return the number of open connections."""
    return live.call(lambda: len(live.server.service.connections))


def test_unknown_callers_leave_room_for_vms(portable: bool) -> None:
    """Half a request from each of many addresses takes nothing from a known VM. E-8, S-6."""
    few = with_settings(max_connections=20)
    with serving(few, portable=portable) as live, contextlib.ExitStack() as stack:
        kept = stack.enter_context(live.connect())
        for n in range(60):
            raw = stack.enter_context(live.connect(source=f"127.0.1.{n + 1}"))
            raw.send(b"G")
            kept.send(GOOD)
            assert kept.reply().status == 200
            assert live.ask(GOOD).status == 200
        assert count(live) <= 8  # a quarter of 20, the kept one, those just answered


def test_unknown_address_has_its_limit(portable: bool) -> None:
    """One address cannot have all connections of unknown callers. Source: E-8."""
    few = with_settings(max_connections_per_client=3)
    with serving(few, portable=portable) as live, contextlib.ExitStack() as stack:
        raws = [stack.enter_context(live.connect(source=STRANGER)) for _ in range(5)]
        for raw in raws:
            raw.send(b"G")
        assert all(raw.closed() for raw in raws[3:])
        assert not any(raw.buffer for raw in raws)
        with live.connect(source="127.0.0.10") as other:
            other.send(GOOD)
            assert other.reply().status == 404


def test_vm_with_too_many_connections_loses_its_own(portable: bool) -> None:
    """The oldest of a VM's connections makes room, never another VM's. Source: E-8."""
    few = with_settings(max_connections_per_client=3)
    with serving(few, portable=portable) as live, contextlib.ExitStack() as stack:
        live.know(Caller("vm-c", "group-2", "group-2", (STRANGER,)))
        other = stack.enter_context(live.connect(source=STRANGER))
        other.send(GOOD)
        assert other.reply().status == 200
        raws = []
        for _ in range(6):
            raws.append(stack.enter_context(live.connect()))
            raws[-1].send(GOOD)
            assert raws[-1].reply().status == 200
        assert all(raw.closed() for raw in raws[:3])
        for raw in (*raws[3:], other):
            raw.send(GOOD)
            assert raw.reply().status == 200


def test_unknown_caller_is_cut_before_its_request_is_complete(portable: bool) -> None:
    """Who is nobody by its address gets two seconds, a VM the whole time. Source: S-6."""
    with serving(portable=portable) as live, live.connect() as known:
        with live.connect(source=STRANGER) as unknown:
            for raw in (known, unknown):
                raw.send(GOOD[:9])
            while count(live) < 2:
                live.call(lambda: None)
            for _ in range(2):
                live.call(live.server.service.second)
            assert unknown.closed()
        known.send(GOOD[9:])
        assert known.reply().status == 200


def test_unknown_caller_gets_one_answer(portable: bool) -> None:
    """It is told 404 once, then the connection ends. Source: S-6."""
    with serving(portable=portable) as live, live.connect(source=STRANGER) as raw:
        raw.send(GOOD + GOOD)
        reply = raw.reply()
        assert (reply.status, reply.headers["connection"]) == (404, "close")
        assert raw.closed()


def test_body_of_unknown_caller_is_not_waited_for(portable: bool) -> None:
    """Who asks is judged before a body is looked at. Source: S-6, A-5."""
    with serving(portable=portable) as live:
        for octets in (chunked(b""), request(EVENTS, method="POST", content_length="60000")):
            with live.connect(source=STRANGER) as raw:
                raw.send(octets)
                assert raw.reply().status == 404


def test_rate_is_judged_before_the_body(portable: bool) -> None:
    """A refused request costs no reading of its body; one that is here is passed over. E-6."""
    with serving(with_settings(rate_per_s=0.001, rate_burst=1), portable=portable) as live:
        assert live.get().status == 200
        with live.connect() as raw:
            for _ in range(2):
                raw.send(request(EVENTS, method="POST", body=b"{}"))
                assert raw.reply().status == 429
            raw.send(chunked(b""))
            reply = raw.reply()
            assert (reply.status, reply.headers["connection"]) == (429, "close")


def test_requests_sent_ahead_get_one_refusal(portable: bool) -> None:
    """A VM above its rate is told once; the rest of what it sent costs nothing. Source: E-6."""
    settings = with_settings(rate_per_s=0.001, rate_burst=2)
    with serving(settings, portable=portable) as live, live.connect() as raw:
        raw.send(GOOD * 25)
        assert [raw.reply().status for _ in range(3)] == [200, 200, 429]
        assert raw.closed()


def test_files_are_left_for_others() -> None:
    """A quarter of the file descriptors is never a metadata connection. Source: E-8."""
    callers = Callers(SETTINGS)
    limits = [OpenConnections(SETTINGS, callers, fds_max=fds).limit for fds in (0, 1024, 65_536)]
    assert limits == [20_000, 768, 20_000]


class Silent:
    """A connection on which nothing happens; counts how often it is looked at."""

    def __init__(self, connections: OpenConnections, peer: Peer, client: ConnectedClient) -> None:
        self.peer = peer
        self.client = client
        self.stamp = self.since = 0
        self.over = self.stalled = self.unfinished = False
        self._connections = connections

    @property
    def idle(self) -> bool:
        """Whether nothing is under way: always."""
        LOOKS["idle"] += 1
        return True

    def make_way(self) -> bool:
        """Go."""
        connections: OpenConnections = self._connections
        connections.remove(self)  # type: ignore[arg-type]  # it has what is looked at here
        return True


def opened(connections: OpenConnections, address: str) -> OpenConnection | None:
    """Open a connection from this address, if it may be."""
    peer = Peer(address)
    client = connections.admit(peer)
    if client is None:
        return None
    connection: OpenConnection = Silent(connections, peer, client)  # type: ignore[assignment]
    connections.add(connection)
    return connection


@pytest.mark.parametrize("size", [100, 10_000])
def test_admitting_costs_the_same_however_many_there_are(size: int) -> None:
    """Where all connections are taken a few are looked at, never all. Source: E-8."""
    settings = with_settings(max_connections=size, max_connections_per_client=size)
    callers = Callers(settings)
    callers.apply(DocumentChange(1, callers=(VM_A,)))
    connections = OpenConnections(settings, callers, fds_max=0)
    first = [opened(connections, "127.0.0.1") for _ in range(size)]
    LOOKS.clear()
    for _ in range(50):
        opened(connections, "127.0.0.1")
    assert LOOKS["idle"] <= 50 * 3 * LOOKS_MAX
    assert len(connections) == size
    assert [each for each in first[:50] if each in set(connections)] == []  # the oldest went
