"""Where the service listens, and the parts that a request on loopback does not reach. E-1, E-6."""

import asyncio
import os
import socket
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint import service
from forewarn_metadata.endpoint.fault import Outdated
from forewarn_metadata.endpoint.http import addresses
from forewarn_metadata.endpoint.http.addresses import (
    AddressInvalid,
    AddressUnavailable,
    processes_of,
)
from forewarn_metadata.endpoint.identity import Callers, Peer, canonical
from forewarn_metadata.endpoint.rate_limit import RateLimit
from forewarn_metadata.endpoint.responder import BUSY
from forewarn_metadata.endpoint.server import MetadataServer
from forewarn_metadata.replication.messages import Caller, DocumentChange
from tests.clock import VirtualClock
from tests.metadata.live import EVENTS, Control, Live, Raw, request, serving
from tests.waiting import LIMIT_S


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:80", "0.0.0.0:0", "[::1]:8080", "[fe80::1%eth0]:80", "169.254.169.254%tap0:80",
     "unix:/run/forewarn.sock", "unix:relative.sock"],
)  # fmt: skip
def test_address_reads_back_as_it_was(text: str) -> None:
    """Every form of an address is read and written alike. Source: E-1."""
    assert str(addresses.parse(text)) == text


def test_localhost_is_this_machine() -> None:
    """What everybody types is understood; no other name is looked up. Source: E-1."""
    assert str(addresses.parse("localhost:8169")) == "127.0.0.1:8169"


@pytest.mark.parametrize(
    "text",
    ["", ":80", "80", "example.net:80", "[localhost]:80", "1.2.3:80", "1.2.3.4", "1.2.3.4:",
     "1.2.3.4:x", "::1:80", "1.2.3.4:65536", "[1.2.3.4]:80", "unix:", "1.2.3.4:-1", "1.2.3.4:٢"],
)  # fmt: skip
def test_address_that_is_none_is_refused(text: str) -> None:
    """Anything else is refused, before anything is opened. Source: E-1."""
    with pytest.raises(AddressInvalid):
        addresses.parse(text)


def start(*listen: str) -> None:
    """Start a server and stop it again."""

    async def run() -> None:
        server = MetadataServer(MetadataSettings(), Control(), clock=VirtualClock(0))
        try:
            await server.start(listen)
        finally:
            await server.stop()

    asyncio.run(run())


def test_address_that_is_taken_leaves_nothing_open(tmp_path: Path) -> None:
    """Where one address cannot be had none stays open. Source: E-1."""
    path = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressUnavailable, match=f"127.0.0.1:{port}"):
            start(f"unix:{path}", f"127.0.0.1:{port}")
    assert not path.exists()
    start(f"unix:{path}", f"127.0.0.1:{port}")
    assert not path.exists()


def test_left_over_socket_file_is_replaced_but_no_other(tmp_path: Path) -> None:
    """What an earlier run left is not an obstacle; somebody's file is not touched. Source: E-1."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    start(f"unix:{path}")
    path.write_text("precious")
    with pytest.raises(AddressUnavailable):
        start(f"unix:{path}")
    assert path.read_text() == "precious"


def test_socket_file_is_open_to_every_user(tmp_path: Path) -> None:
    """Who may reach the directory may ask. Source: E-1, S-6."""
    path = tmp_path / "socket"
    with serving(listen=(f"unix:{path}",)):
        assert os.stat(path).st_mode & 0o777 == 0o666  # noqa: PTH116
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT_S)
            sock.connect(str(path))
            raw = Raw(sock)
            raw.send(request("/metadata/versions"))
            assert raw.reply().status == 404  # nobody is known there
            assert raw.closed()


@pytest.mark.parametrize(
    ("written", "is_"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("FE80:0::1", "fe80::1"),
     ("fe80::1%eth0", "fe80::1"), ("unix", "unix"), ("x:y", "x:y")],
)  # fmt: skip
def test_address_has_one_form(written: str, is_: str) -> None:
    """However an address is written, it is the same VM's. Source: S-6."""
    assert canonical(written) == is_


def test_interface_goes_before_any_interface() -> None:
    """A VM known on an interface goes before one known anywhere. Source: S-6."""
    callers = Callers(MetadataSettings())
    here = Caller("here", "g", "g", ("10.0.0.1",), "tap0", "i-here")
    anywhere = Caller("anywhere", "g", "g", ("10.0.0.1",))
    assert callers.apply(DocumentChange(1, whole=True, callers=(here, anywhere)))
    assert callers.interfaces_matter
    assert not callers.apply(DocumentChange(2, callers=(here,)))
    assert callers.by_peer(Peer("10.0.0.1", "tap0")) == here
    assert callers.by_peer(Peer("10.0.0.1", "tap1")) == anywhere
    assert callers.apply(DocumentChange(3, whole=True, callers=(anywhere,)))
    assert callers.by_peer(Peer("10.0.0.1", "tap0")) == anywhere
    assert not callers.interfaces_matter


def take(limit: RateLimit, vm: str, now_s: float) -> bool:
    """Take one of the VM's tokens."""
    return limit.bucket(vm).take(*limit.times(now_s))


def test_token_comes_back_with_time() -> None:
    """A bucket fills at its rate and never above its burst. Source: E-6."""
    limit = RateLimit(2.0, 3)
    assert [take(limit, "a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [take(limit, "a", 0.5) for _ in range(2)] == [True, False]
    assert [take(limit, "a", 99.0) for _ in range(4)] == [True, True, True, False]
    assert limit.retry_after_s() == 1


@given(st.floats(0.001, 1e6), st.integers(1, 50), st.floats(0, 1e8))
def test_burst_is_exact(rate_per_s: float, burst: int, now_s: float) -> None:
    """At one moment a full bucket has as many tokens as its burst. Source: E-6."""
    limit = RateLimit(rate_per_s, burst)
    assert [take(limit, "a", now_s) for _ in range(burst + 1)] == [True] * burst + [False]


@given(st.floats(0.001, 1e6), st.integers(1, 9), st.lists(st.floats(0, 3), max_size=60))
def test_bucket_decides_as_counted_tokens_do(
    rate_per_s: float, burst: int, gaps: list[float]
) -> None:
    """The one number kept of a bucket decides as tokens that are counted do. Source: E-6."""
    limit = RateLimit(rate_per_s, burst)
    now_s, at, tokens = 3_000.7, Fraction(0), Fraction(burst)
    for gap in gaps:
        now_s += gap / rate_per_s
        now = Fraction(now_s) * Fraction(rate_per_s)
        tokens, at = min(Fraction(burst), tokens + (now - at)), now
        allowed = take(limit, "a", now_s)
        assert allowed == (tokens >= 1) or abs(tokens - 1) < Fraction(1, 1000)
        tokens -= allowed


def test_no_limit_counts_nothing() -> None:
    """A rate of 0 allows any number. Source: E-6."""
    limit = RateLimit(0, 1)
    assert all(take(limit, "a", 1.0) for _ in range(100))


def test_limit_holds_over_all_processes_a_vm_meets() -> None:
    """A VM whose addresses meet two processes has half of its burst at each. Source: E-6."""
    limit = RateLimit(1.0, 6)
    limit.shared = 2
    at = {tuple(processes_of([f"10.0.0.{n}"], 2)): f"10.0.0.{n}" for n in range(1, 30)}
    both = limit.bucket("both", at.values())
    assert [both.take(*limit.times(0.0)) for _ in range(4)] == [True, True, True, False]
    one = limit.bucket("one", [next(iter(at.values()))])
    assert [one.take(*limit.times(0.0)) for _ in range(7)] == [True] * 6 + [False]


def test_limit_behind_proxies_is_once_for_each_process_they_meet() -> None:
    """A VM without addresses, behind many proxies, is bounded by the workers. Source: E-6, S-6."""
    workers, burst, proxies = 3, 6, [f"10.1.0.{n}" for n in range(1, 30)]
    limits = [RateLimit(1.0, burst) for _ in range(workers)]
    taken = 0
    for proxy in proxies:
        (worker,) = processes_of([proxy], workers)
        limits[worker].shared = workers
        bucket = limits[worker].bucket("proxied")
        taken += sum(bucket.take(*limits[worker].times(0.0)) for _ in range(burst + 1))
    assert taken == burst * len(processes_of(proxies, workers)) == burst * workers


def test_many_requests_are_not_all_remembered(live: Live) -> None:
    """What is remembered of requests is bounded. Source: E-8."""
    with live.connect() as raw:
        for first in range(0, 5000, 100):
            pieces = [request(f"/metadata/versions?n={first + n}") for n in range(100)]
            raw.send(b"".join(pieces))
            assert {raw.reply().status for _ in pieces} == {200}
    service = live.server.service
    assert len(service.responder.known) <= 1024


def test_nothing_old_is_answered_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, portable: bool
) -> None:
    """A process that was stopped looks at its lease before it answers what waited. H-3."""
    asked, outdated = request(EVENTS, method="GET", body=b""), False

    def look() -> None:
        if outdated:
            live.server.service.set_fault(Outdated(BUSY))

    with serving(portable=portable, on_pause=look) as live, live.connect() as raw:
        raw.send(asked)
        assert raw.reply().status == 200
        outdated = True
        monkeypatch.setattr(service, "PAUSE_S", 0.0)
        raw.send(asked)
        assert raw.reply().status == 503
