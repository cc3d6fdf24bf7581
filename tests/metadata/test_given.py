"""What others give through the metadata service: tokens, signatures, and nothing to the gone."""

import asyncio
import json

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_metadata.endpoint import service
from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http.addresses import processes_of
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import Response
from forewarn_metadata.endpoint.identity import Peer
from forewarn_metadata.endpoint.responder import EmulatedAnswers
from forewarn_metadata.endpoint.server import MetadataServer
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication
from tests.clock import VirtualClock
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    NOW_MS,
    Control,
    request,
    serving,
    wait_for,
    with_settings,
)

TOKEN = "/metadata/identity/oauth2/token"
ATTESTED = "/metadata/attested/document?api-version=2020-09-01"
STRANGER = "127.0.0.9"


def test_token_is_given_to_the_vm_that_asks(portable: bool) -> None:
    """For the resource it names; 400 without an identity, which no SDK tries again. Source: Z-3."""
    with serving(portable=portable) as live:
        none = live.get(f"{TOKEN}?resource=r")
        words = {"error": "invalid_request", "error_description": "Identity not found"}
        assert (none.status, json.loads(none.body)) == (400, words)
        assert live.get(TOKEN).status == 400

    def give(vm: str, resource: str) -> Response:
        return Response(body=f"{vm} {resource}".encode())

    with serving(portable=portable, emulated=EmulatedAnswers(give_token=give)) as live:
        assert live.get(f"{TOKEN}?resource=r").body == b"vm-a r"
        assert live.get(TOKEN).status == 400
        assert live.get(f"{TOKEN}?resource=r", metadata="").status == 400


def test_document_is_signed_for_the_vm_that_asks(portable: bool) -> None:
    """With its nonce and api-version; where nobody signs there is no such path. Source: I-1."""
    with serving(portable=portable) as live:
        assert live.get(ATTESTED).status == 404
        assert live.get(f"{ATTESTED}&nonce=x").status == 404

    def attest(caller: Caller, version: str, nonce: str) -> Response:
        return Response(body=f"{caller.vm} {version} {nonce}".encode())

    with serving(portable=portable, emulated=EmulatedAnswers(attest=attest)) as live:
        assert live.get(f"{ATTESTED}&nonce=12").body == b"vm-a 2020-09-01 12"
        assert live.get(f"{ATTESTED}&nonce=x").status == 400


class Gone:
    """What the emulator does to VMs that are gone."""

    def __init__(self, disturbance: InjectedFault | None) -> None:
        self.disturbance = disturbance

    def fault_for(self, peer: Peer, request: HttpRequest) -> InjectedFault | None:  # noqa: ARG002
        """Do it to every stranger's poll."""
        return self.disturbance if request.path == "/metadata/scheduledevents" else None


@pytest.mark.parametrize("hold_s", [0.0, 0.02])
def test_gone_vm_is_held_then_cut(portable: bool, hold_s: float) -> None:
    """No answer comes, at once or after a while; another path is not found. Source: E-10."""
    gone = Gone(InjectedFault(hold_s=hold_s, reset=True))
    with serving(portable=portable, emulated=EmulatedAnswers(absence=gone)) as live:
        with live.connect(source=STRANGER) as raw:
            raw.send(request(EVENTS))
            assert raw.closed()
        with live.connect(source=STRANGER) as raw:
            raw.send(request("/metadata/versions"))
            assert raw.reply().status == 404
        gone.disturbance = None
        with live.connect(source=STRANGER) as raw:
            raw.send(request(EVENTS))
            reply = raw.reply()
            assert (reply.status, reply.headers["connection"]) == (404, "close")
        assert live.get().status == 200


def test_vm_that_goes_while_it_waits_is_cut(portable: bool) -> None:
    """It is nobody from then on, and what is for nobody is done to it. Source: S-4, E-10."""
    for disturbance in (None, InjectedFault(reset=True), InjectedFault(hold_s=0.02, reset=True)):
        emulated = EmulatedAnswers(absence=Gone(disturbance))
        with serving(portable=portable, emulated=emulated) as live, live.connect() as raw:
            raw.send(request(wait_for(30)))
            view = live.server.service.responder.snapshot.view("group-1")
            while not live.call(lambda: len(view.waiters)):  # noqa: B023
                pass
            live.apply(DocumentChange(9, gone=("vm-a",)))
            if disturbance is None:
                assert raw.reply().status == 404
            else:
                assert raw.closed()


def test_view_that_is_dropped_wakes_whoever_waits(portable: bool) -> None:
    """A group that is gone is no reason to wait to the end. Source: E-9, B-1."""
    with serving(portable=portable, control=Control(enables=False)) as live, live.connect() as raw:
        raw.send(request(wait_for(30)))
        view = live.server.service.responder.snapshot.view("group-1")
        while not live.call(lambda: len(view.waiters)):
            pass
        moved = Caller("vm-a", "group-2", "group-2", ("127.0.0.1",))
        shown = Publication("group-2", True, Document(5, (FREEZE,)))
        live.apply(DocumentChange(9, whole=True, callers=(moved,), publications=(shown,)))
        assert b'"DocumentIncarnation":5' in raw.reply().body


def test_group_that_another_node_enabled_is_not_enabled_again(portable: bool) -> None:
    """After the delay that is seen; disabled again, it is enabled once more. Source: B-1, B-2."""
    settings = with_settings(enable_delay_s=0.5, enable_timeout_s=20.0)
    with serving(settings, portable=portable) as live:

        def disable() -> None:
            live.sequence += 1
            off = Publication("group-1", False, Document())
            live.apply(DocumentChange(live.sequence, publications=(off,)))

        disable()
        view = live.server.service.responder.snapshot.view("group-1")
        with live.connect() as raw:
            raw.send(request(EVENTS))
            while not live.call(lambda: view.enabling):
                pass
            live.show(FREEZE, incarnation=3)
            assert raw.reply().status == 200
            while live.call(lambda: view.enabling):
                pass
            assert live.control.enabled == []
            disable()
            shown = Publication("group-1", True, Document(4))

            def enable(_: str) -> None:
                change = DocumentChange(99, publications=(shown,))
                live.loop.call_soon(live.server.service.apply, change)

            live.control.on_enable = enable
            raw.send(request(EVENTS))
            assert b'"DocumentIncarnation":4' in raw.reply().body
            assert live.control.enabled == ["vm-a"]


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        ({"rate_per_s": 5.0}, 2),
        ({"rate_per_s": 0}, 0),
        ({"rate_per_s": 5.0, "proxy_addresses": ("127.0.0.250",)}, 0),
    ],
    ids=["counted", "no-limit", "proxy"],
)
def test_processes_share_a_port_by_address_where_requests_are_counted(
    settings: dict[str, object], shared: int
) -> None:
    """Each VM meets the process that counts it, and its limit is shared out. Source: E-6."""

    async def story() -> None:
        first, second = (
            MetadataServer(with_settings(**settings), Control(), clock=VirtualClock(NOW_MS))
            for _ in range(2)
        )
        [bound] = await first.start(("127.0.0.1:0",), shared=2)
        assert await second.start((bound,), shared=2) == (bound,)
        assert [each.service.responder.limit.shared for each in (first, second)] == [shared] * 2
        port = int(bound.rpartition(":")[2])
        if shared:
            for n in range(20):
                source = f"127.0.0.{n + 100}"
                [place] = processes_of([source], 2)
                met = (first, second)[place]
                before = met.figures()["unknown_callers"]
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(source, 0)
                )
                writer.write(request(EVENTS))
                assert (await reader.readline()).startswith(b"HTTP/1.1 404")
                assert met.figures()["unknown_callers"] == before + 1
                writer.close()
        await first.stop()
        await second.stop()
        assert first.figures() == {}

    asyncio.run(story())


def test_addresses_that_are_remembered_are_bounded(
    portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many VMs ask, each is answered, and what is kept of them stays small. E-8."""
    monkeypatch.setattr(service, "VIEWS_BY_ADDRESS_MAX", 3)
    with serving(portable=portable) as live:
        sources = [f"127.0.0.{n + 100}" for n in range(8)]
        live.know(*(Caller(f"vm-{each}", "group-1", "group-1", (each,)) for each in sources))
        views_by_address = live.server.service.views_by_address
        for source in (*sources, *sources):
            for _ in range(2):
                with live.connect(source=source) as raw:
                    raw.send(request(EVENTS, connection="close"))
                    assert raw.reply().status == 200
            assert source in views_by_address
            assert len(views_by_address) <= 3
        live.know(Caller("vm-new", "group-2", "group-2", (sources[-1],)))
        assert not views_by_address
        with live.connect(source=sources[-1]) as raw:
            raw.send(request(EVENTS))
            assert b"[]" in raw.reply().body
