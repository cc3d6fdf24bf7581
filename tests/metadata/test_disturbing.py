"""Faults on demand, at the service's own port. E-10."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import TEXT, Response
from forewarn_metadata.replication.messages import DocumentChange, Publication
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    Live,
    Reply,
    approval,
    request,
    serving,
    wait_for,
)


class OneFault:
    """A fault that disturbs the first `count` requests in one way."""

    def __init__(self, disturbance: InjectedFault, count: int = 1) -> None:
        self.disturbance = disturbance
        self.count = count

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault | None:
        """Disturb, as long as there is any left."""
        assert (vm, request.path[:9]) == ("vm-a", "/metadata")
        self.count -= 1
        return self.disturbance if self.count >= 0 else None


def disturbed(live: Live, disturbance: InjectedFault) -> Reply:
    """Return the answer to a GET under a fault; afterwards the fault is gone."""
    assert live.get().status == 200
    live.call(lambda: live.server.service.set_fault(OneFault(disturbance)))
    try:
        return live.get()
    finally:
        live.call(lambda: live.server.service.set_fault(None))
        assert live.get().status == 200


@pytest.mark.parametrize("status", [410, 429, 500])
def test_fault_gives_another_status(live: Live, status: int) -> None:
    """410, 429 and 500 can be had on demand. Source: E-10."""
    fault = InjectedFault(answer=Response(status, b"no", TEXT))
    assert (disturbed(live, fault).status, disturbed(live, fault).body) == (status, b"no")


def test_fault_holds_an_answer(live: Live) -> None:
    """A slow answer is right in the end, or gone with its client. Source: E-10."""
    assert disturbed(live, InjectedFault(hold_s=0.05)).status == 200
    live.call(lambda: live.server.service.set_fault(OneFault(InjectedFault(hold_s=0.05), 2)))
    with live.connect() as raw:
        raw.send(request(EVENTS))
        assert raw.reply().status == 200
        raw.send(request(EVENTS))
    live.call(lambda: live.server.service.set_fault(None))
    assert live.get().status == 200


@pytest.mark.parametrize("hold_s", [0.0, 0.05])
def test_fault_resets_the_connection(live: Live, hold_s: float) -> None:
    """The connection breaks instead of an answer. Source: E-10."""
    with pytest.raises(ConnectionResetError):
        disturbed(live, InjectedFault(hold_s=hold_s, reset=True))


@pytest.mark.parametrize("hold_s", [0.0, 0.05])
def test_fault_truncates_the_body(live: Live, hold_s: float) -> None:
    """Half a body comes, then the end. Source: E-10."""
    with pytest.raises(EOFError) as caught:
        disturbed(live, InjectedFault(hold_s=hold_s, truncate=True))
    assert caught.value.args[0] == b'{"DocumentIncarnat'


@contextlib.contextmanager
def ahead(live: Live, by: int = 3) -> Iterator[None]:
    """Move the incarnation of every answer."""
    live.call(
        lambda: live.server.service.set_fault(OneFault(InjectedFault(incarnation_ahead=by), 99))
    )
    yield
    live.call(lambda: live.server.service.set_fault(None))


def test_moved_incarnation_is_answered_like_any(live: Live) -> None:
    """HEAD has no body, a known ETag gives 304, HTTP/1.0 is kept. Source: E-7, E-8, E-10."""
    with ahead(live), live.connect() as raw:
        etag = live.get().headers["etag"]
        assert etag.startswith('"3-')
        assert live.get(if_none_match=etag).status == 304
        raw.send(request(EVENTS, method="HEAD"))
        assert raw.reply(head_only=True).headers["etag"] == etag
        raw.send(request(EVENTS, connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert raw.reply().headers["connection"] == "keep-alive"


def test_moved_incarnation_is_what_is_waited_for(live: Live) -> None:
    """A long poll compares the number it was shown. Source: E-9, E-10."""
    with ahead(live), live.connect() as raw:
        assert live.get(wait_for(100, 0)).status == 200
        raw.send(request(wait_for(100, 3)))
        assert raw.silent()
        live.show(FREEZE, incarnation=1)
        assert json.loads(raw.reply().body)["DocumentIncarnation"] == 4


def test_moved_incarnation_enables_the_group(portable: bool) -> None:
    """A fault of the number is not a fault of enabling: the first GET is one. Source: B-1, E-10."""
    with serving(portable=portable) as live, ahead(live):
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        live.control.on_enable = lambda _: live.server.service.apply(
            DocumentChange(51, publications=(Publication("group-1", True, Document()),))
        )
        assert json.loads(live.get().body)["DocumentIncarnation"] == 3
        assert live.control.enabled == ["vm-a"]


def test_fault_truncates_what_was_waited_for(live: Live) -> None:
    """A held answer is cut as any other is. Source: E-9, E-10."""
    live.call(lambda: live.server.service.set_fault(OneFault(InjectedFault(truncate=True))))
    with live.connect() as raw:
        raw.send(request(wait_for(100)))
        assert raw.silent()
        live.show(FREEZE)
        with pytest.raises(EOFError):
            raw.reply()
    live.call(lambda: live.server.service.set_fault(None))


def test_fault_that_does_nothing_changes_nothing(live: Live) -> None:
    """A fault may leave a request alone; approvals meet it like GETs. Source: E-10."""
    live.call(
        lambda: live.server.service.set_fault(OneFault(InjectedFault(incarnation_ahead=1), 1))
    )
    assert live.post(approval("A")).status == 200
    assert live.get().status == 200
    live.call(lambda: live.server.service.set_fault(None))
