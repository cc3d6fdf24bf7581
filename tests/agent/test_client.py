"""The SDK's clients, sync and async, before a small metadata service."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import forewarn
from forewarn.agent.http_exchange import Line
from forewarn.agent.sdk.dialogue import FIXED_ENDPOINT, ApiVersionInvalid
from forewarn.agent.sdk.discovery import endpoints, option_245
from forewarn.agent.sdk.http import target_of
from forewarn.agent.sdk.sockets import KEEPALIVE
from forewarn_base.errors import PeerError
from forewarn_base.protocol.documents import Document
from forewarn_base.protocol.versions import VERSIONS
from tests.agent.making import event
from tests.agent.service import Fault, Handler, Service, cut, reset, status
from tests.waiting import LIMIT_S

EVENT = event(not_before_ms=4_000_000_000_000)
Kind: TypeAlias = type[forewarn.Client] | type[forewarn.AsyncClient]
KINDS = pytest.mark.parametrize("kind", [forewarn.Client, forewarn.AsyncClient])


@pytest.mark.parametrize("version", VERSIONS)
def test_client_negotiates_down_to_any_version(version: str) -> None:
    """Whatever the service's newest version is, it is found. Source: E-3, V-1."""
    known = VERSIONS[: VERSIONS.index(version) + 1]
    with Service(versions=known) as service, forewarn.Client(service.endpoint) as client:
        service.show(EVENT)
        document = client.get()
        assert client.version == version
        assert document.events[0].resources == ("vm_0",)
        client.approve(*document.events)
        assert service.approvals == ["E1"]


def test_client_with_one_version_does_not_negotiate() -> None:
    """A version that was asked for is used or refused."""
    with Service(versions=VERSIONS[:2]) as service:
        client = forewarn.Client(service.endpoint, api_version="2020-07-01", patience_s=0)
        with client, pytest.raises(forewarn.RequestRejected):
            client.get()


def test_service_without_a_common_version_is_said_so() -> None:
    """Nothing is guessed where nothing is common."""
    with Service(versions=("2031-01-01",)) as service:
        client = forewarn.Client(service.endpoint)
        with client, pytest.raises(forewarn.UnsupportedApiVersion):
            client.get()


@pytest.mark.parametrize("waits", [True, False])
def test_changes_follow_one_another(waits: bool) -> None:
    """A change is yielded once, with and without a service that can wait. Source: E-9."""
    with Service(waits=waits) as service, forewarn.Client(service.endpoint) as client:
        changes = client.changes(interval_s=0.01)
        assert next(changes) == Document(0)
        service.show(EVENT)
        assert next(changes).events == (EVENT,)
        service.show()
        assert next(changes).incarnation == 2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(404), id="404"),
        pytest.param(status(410), id="410"),
        pytest.param(status(429, b"Throttle Result: Too Many Requests"), id="429"),
        pytest.param(status(500), id="500"),
        pytest.param(status(200), id="empty 200"),
        pytest.param(reset, id="reset"),
        pytest.param(cut, id="cut"),
    ],
)
def test_what_passes_is_tried_again(service: Service, fault: Fault) -> None:
    """What real clients meet, and what passes by itself, is not an error. Source: C-7, E-10."""
    service.faults = [fault, fault]
    with forewarn.Client(service.endpoint) as client:
        assert client.get() == Document(0)


def call(kind: Kind, endpoint: str, name: str, *arguments: object) -> object:
    """Have a client of either kind do one thing."""
    if issubclass(kind, forewarn.Client):
        with kind(endpoint) as client:
            return getattr(client, name)(*arguments)

    async def run() -> object:
        async with kind(endpoint) as client:
            return await getattr(client, name)(*arguments)

    return asyncio.run(run())


@KINDS
def test_approval_says_what_it_approved(service: Service, kind: Kind) -> None:
    """An event that was withdrawn meanwhile is left out; the others are approved. Source: A-3."""
    service.show(EVENT)
    assert call(kind, service.endpoint, "approve", "GONE", "e1") == ("e1",)
    assert service.approvals == ["E1"]
    assert call(kind, service.endpoint, "approve", "GONE") == ()


@KINDS
def test_refused_approval_of_a_shown_event_is_an_error(service: Service, kind: Kind) -> None:
    """A service that takes no approvals is not taken for one that has withdrawn the event."""
    service.show(EVENT)
    service.faults = [status(403)]
    with pytest.raises(forewarn.RequestRejected):
        call(kind, service.endpoint, "approve", EVENT)


def test_change_that_is_read_meanwhile_is_yielded(service: Service) -> None:
    """The next poll does not wait for a change after one that only `get` has seen."""
    with forewarn.Client(service.endpoint) as client:
        changes = client.changes()
        next(changes)
        service.show(EVENT)
        client.get()
        assert next(changes).events == (EVENT,)


def test_refusal_ends_no_changes_that_have_begun(service: Service) -> None:
    """What has answered before is asked again, although it redirects. Source: C-7."""
    with forewarn.Client(service.endpoint) as client:
        changes = client.changes()
        next(changes)
        service.faults = [status(302)]
        service.show(EVENT)
        assert next(changes).events == (EVENT,)


@KINDS
@pytest.mark.parametrize(
    "wrong",
    [
        *({"endpoint": 5}, {"endpoint": "https://x"}, {"api_version": 20200701}),
        *({"timeout_s": "10"}, {"patience_s": None}, {"wait_s": float("nan")}, {"wait_s": -1}),
    ],
    ids=str,
)
def test_wrong_argument_of_a_client_is_named(kind: Kind, wrong: dict[str, Any]) -> None:
    """What cannot be used is refused at once, with its name."""
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        kind(**wrong)


@pytest.mark.parametrize("wrong", [None, 5])
def test_name_that_is_not_text_is_refused(wrong: object) -> None:
    """A name that could not be found out is not looked for."""
    with pytest.raises(ValueError, match="vm must be text"):
        EVENT.names(wrong)  # type: ignore[arg-type]


@KINDS
@pytest.mark.parametrize("wrong", [None, "", 5, (EVENT,)], ids=str)
def test_what_is_no_event_is_not_approved(service: Service, kind: Kind, wrong: object) -> None:
    """A list in place of its events is the usual slip."""
    with pytest.raises(ValueError, match="events must be events or their ids"):
        call(kind, service.endpoint, "approve", wrong)
    with pytest.raises(ValueError, match="interval_s must be seconds"):
        kind(service.endpoint).changes(interval_s=-1)
    assert service.requests == []


def test_impatient_client_says_why(service: Service) -> None:
    """A client that may not wait raises what it met."""
    service.faults = [status(500)]
    client = forewarn.Client(service.endpoint, patience_s=0)
    with client, pytest.raises(forewarn.TemporarilyUnavailable, match="500"):
        client.get()


def test_name_is_what_the_service_calls_this_vm(service: Service) -> None:
    """The name is needed to tell one's own events. Source: I-2, C-3."""
    with forewarn.Client(service.endpoint) as client:
        assert client.instance_name() == "vm_0"


def test_async_client_does_the_same(service: Service) -> None:
    """The async client has the same manners."""

    async def story() -> None:
        service.faults = [status(500), reset, cut]
        async with forewarn.AsyncClient(service.endpoint) as client:
            assert await client.get() == Document(0)
            assert await client.instance_name() == "vm_0"
            changes = client.changes(interval_s=0.01)
            assert await anext(changes) == Document(0)
            service.show(EVENT)
            document = await anext(changes)
            assert await client.approve(*document.events) == ("E1",)
            await changes.aclose()

    asyncio.run(story())
    assert service.approvals == ["E1"]


def late(gate: threading.Event) -> Fault:
    """Return the fault of answering only when a gate is opened."""

    def answer(handler: Handler) -> None:
        gate.wait(LIMIT_S)
        with contextlib.suppress(ConnectionError):
            handler._answer(200, b"{}")

    return answer


def test_connection_notices_that_its_vm_was_moved(service: Service) -> None:
    """What was asked of the host before is not waited for at the next one. Source: C-6, C-7."""

    async def asked() -> int:
        async with forewarn.AsyncClient(service.endpoint) as client:
            await client.get()
            assert client._streams is not None
            option = client._streams[1].get_extra_info("socket").getsockopt
            return int(option(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    with forewarn.Client(service.endpoint) as client:
        client.get()
        assert client._socket is not None
        assert client._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):  # macOS has another name for it
            idle_s = client._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle_s == KEEPALIVE["TCP_KEEPIDLE"]
    assert asyncio.run(asked())
    line = Line()
    line.begin(target_of(service.endpoint), "GET", request=b"")
    assert line._socket is not None
    assert line._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    line.close()


def test_cancelled_poll_does_not_answer_an_approval(service: Service) -> None:
    """Whoever gives up waiting must not take the late answer for that of what comes next."""
    gate = threading.Event()
    service.faults = [late(gate)]

    async def story() -> None:
        async with forewarn.AsyncClient(service.endpoint) as client:
            poll = asyncio.create_task(client.get())
            await asyncio.to_thread(service.until, lambda: service.requests, "the poll")
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            gate.set()
            assert await client.approve("no-such-event") == ()

    asyncio.run(story())


def test_interrupted_poll_does_not_answer_an_approval(service: Service) -> None:
    """The same for the sync client, interrupted by a signal."""
    gate = threading.Event()

    def interrupt(handler: Handler) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        late(gate)(handler)

    service.faults = [interrupt]
    with forewarn.Client(service.endpoint) as client:
        with pytest.raises(KeyboardInterrupt):
            client.get()
        gate.set()
        assert client.approve("no-such-event") == ()


def test_endpoint_is_given_or_discovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given endpoint wins, then the environment, then the known ones. Source: C-8."""
    (tmp_path / "dhclient.eth0.leases").write_text("  option unknown-245 a8:3f:81:10;\n")
    (tmp_path / "2").write_text("OPTION_245=c0a80001\nADDRESS=10.0.0.4\n")
    (tmp_path / "3").write_text("OPTION_245=nonsense\n")
    leases = (str(tmp_path), str(tmp_path / "missing"))
    assert option_245(leases) == ("192.168.0.1", "168.63.129.16")
    found = endpoints(leases=leases)
    assert found == (FIXED_ENDPOINT, "http://192.168.0.1", "http://168.63.129.16")
    monkeypatch.setenv("FOREWARN_ENDPOINT", "http://127.0.0.1:9")
    assert endpoints(leases=leases) == ("http://127.0.0.1:9",)
    assert endpoints("unix:/x", leases=leases) == ("unix:/x",)


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("  option unknown-245 a8:3f:81:10;", "168.63.129.16"),
        ("  option unknown-245 a:0:0:c8;", "10.0.0.200"),
        ("  option unknown-245 0:0:0:0;", "0.0.0.0"),
        ('  option unknown-245 "d@4!";', "100.64.52.33"),
        ('  option unknown-245 "\\250?\\201\\020";', "168.63.129.16"),
        ('  option unknown-245 "d\\"\\\\!";', "100.34.92.33"),
        ('  option unknown-245 "a8:3f:81:10";', "168.63.129.16"),
        ("private_245 = a8:3f:81:10", "168.63.129.16"),
        ("OPTION_245=a83f8110", "168.63.129.16"),
    ],
)
def test_address_is_read_in_every_form_of_a_lease(tmp_path: Path, line: str, address: str) -> None:
    """Dhclient writes octets without padding, and printable ones as text. Source: C-8."""
    (tmp_path / "lease").write_text(f"lease {{\n{line}\n}}\n")
    assert option_245((str(tmp_path),)) == (address,)


@pytest.mark.parametrize(
    "value",
    [
        "a:0:0",
        "a:0:0:c8:1",
        "a:0:0:100",
        "a:0:0:-1",
        "a:::8",
        '"d@4"',
        '"d@4!?"',
        '"',
        '"\\',
        "x",
        "",
    ],
)
def test_what_is_no_address_is_left_out(tmp_path: Path, value: str) -> None:
    """A lease that says something else of the option has no endpoint. Source: C-8."""
    (tmp_path / "lease").write_text(f"  option unknown-245 {value};\n")
    assert option_245((str(tmp_path),)) == ()


def test_public_names_are_there() -> None:
    """What `import forewarn` promises can be had, and nothing else."""
    assert set(dir(forewarn)) == set(forewarn.__all__)
    for name in forewarn.__all__:
        assert getattr(forewarn, name) is not None
    with pytest.raises(AttributeError):
        _ = forewarn.nothing


def test_refused_connection_is_said_without_its_number() -> None:
    """A refused connection names the place that refused it, and no error number. Source: C-7."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    wanted = re.escape(f"connection refused ({endpoint}).")

    async def ask() -> None:
        async with forewarn.AsyncClient(endpoint, patience_s=0) as client:
            await client.get()

    with forewarn.Client(endpoint, patience_s=0) as client, pytest.raises(PeerError, match=wanted):
        client.get()
    with pytest.raises(PeerError, match=wanted):
        asyncio.run(ask())


@pytest.mark.parametrize("version", ["2020-07-01\r\nA: b", "2020-07-01&vm=x", "a b", "-", "\u0661"])
def test_version_that_would_change_the_request_is_refused(version: str) -> None:
    """A version is part of the request line; nothing else may come with it. Source: E-3."""
    for kind in (forewarn.Client, forewarn.AsyncClient):
        with pytest.raises(ApiVersionInvalid):
            kind("http://127.0.0.1:9", api_version=version)


# -- A client of the SDK that is closed while it waits -------------------------------------------


WAITS = pytest.mark.parametrize("waits", [True, False], ids=["held", "between polls"])


@WAITS
def test_closing_ends_changes_in_another_thread(waits: bool) -> None:
    """A thread that follows changes ends long before its next poll, whatever it waits for."""
    with Service(waits=waits) as service:
        client = forewarn.Client(service.endpoint)
        changes = client.changes(interval_s=60)
        next(changes)
        follower = threading.Thread(target=next, args=(changes, None))
        follower.start()
        service.until(lambda: len(service.requests) > waits, "the poll that is held")
        client.close()
        follower.join(LIMIT_S)
        assert not follower.is_alive()
        with pytest.raises(forewarn.ClientClosed):
            client.get()


@WAITS
def test_closing_ends_changes_in_another_task(waits: bool) -> None:
    """The same for the async client."""

    async def story(service: Service) -> None:
        client = forewarn.AsyncClient(service.endpoint)
        changes = client.changes(interval_s=60)
        await anext(changes)
        follower = asyncio.ensure_future(anext(changes, None))
        await asyncio.to_thread(service.until, lambda: len(service.requests) > waits)
        await client.close()
        assert await asyncio.wait_for(follower, 10) is None
        with pytest.raises(forewarn.ClientClosed):
            await client.get()

    with Service(waits=waits) as service:
        asyncio.run(story(service))


@pytest.mark.skipif(sys.platform != "linux", reason="a full queue of connections hangs on Linux")
def test_closing_ends_a_connection_that_is_being_made() -> None:
    """So does one that waits for a service that does not accept."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as first:
        first.connect(full.getsockname())
        client = forewarn.Client(f"http://127.0.0.1:{full.getsockname()[1]}")
        follower = threading.Thread(target=next, args=(client.changes(), None))
        follower.start()
        follower.join(0.1)
        client.close()
        follower.join(LIMIT_S)
        assert not follower.is_alive()
