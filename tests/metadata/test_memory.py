"""Answers given from memory, on kept connections and on new ones: nothing else may tell them apart.

The second answer to the same bytes is from memory, so each test asks more than once.
"""

import json
import time

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http.request import HttpRequest
from forewarn_metadata.endpoint.http.response import Response
from forewarn_metadata.endpoint.snapshot import READY_MAX
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication
from tests.metadata.live import EVENTS, FREEZE, VM_A, VM_C, Live, request, serving, with_settings
from tests.waiting import LIMIT_S

KEPT = request(EVENTS)
LAST = request(EVENTS, connection="close")


def statuses(live: Live, count: int) -> list[int]:
    """Ask on one kept connection, on new kept ones and on new ones that close, in turn."""
    found = []
    with live.connect() as raw:
        for n in range(count):
            if n % 3 == 0:
                raw.send(KEPT)
                found.append(raw.reply().status)
            else:
                found.append(live.ask(KEPT if n % 3 == 1 else LAST).status)
    return found


def test_rate_counts_answers_from_memory(portable: bool) -> None:
    """All connections of a VM share its tokens, whatever way they are answered. Source: E-6."""
    with serving(with_settings(rate_per_s=0.001, rate_burst=7), portable=portable) as live:
        assert statuses(live, 13) == [200] * 7 + [429] * 6
        reply = live.ask(LAST)
        assert reply.headers["retry-after"] == "1000"
        assert reply.body == b"Throttle Result: Too Many Requests"


def test_rate_allows_again_from_memory(portable: bool) -> None:
    """A VM that was refused is answered as soon as it has a token again. Source: E-6."""
    with serving(with_settings(rate_per_s=5.0, rate_burst=1), portable=portable) as live:
        with live.connect() as raw:
            found: list[int] = []
            until_s = time.monotonic() + LIMIT_S
            while 429 not in found or found[-1] != 200:
                assert time.monotonic() < until_s
                raw.send(KEPT)
                found.append(raw.reply().status)
        assert set(found) == {200, 429}


def test_large_last_answer_is_whole(portable: bool) -> None:
    """A client that reads slowly gets each byte once, also from memory. Source: E-7."""
    big = ScheduledEvent(
        event_id=FREEZE.event_id, event_type="Freeze", resources=("vm-a",), description="x" * 6**9
    )
    with serving(portable=portable) as live:
        live.show(big)
        for _ in range(3):
            with live.connect(receive_bytes=256 * 1024) as raw:
                raw.send(LAST)
                reply = raw.reply()
                assert len(json.loads(reply.body)["Events"][0]["Description"]) == 6**9
                assert raw.closed()


def test_client_that_does_not_read_its_last_answer_stops_nobody(portable: bool) -> None:
    """Other clients are served while a long answer waits to be read. Source: E-8."""
    big = ScheduledEvent(
        event_id=FREEZE.event_id, event_type="Freeze", resources=("vm-a",), description="x" * 6**9
    )
    with serving(portable=portable) as live, live.connect(receive_bytes=4096) as idle:
        live.show(big)
        assert live.ask(LAST).status == 200
        idle.send(LAST)
        assert live.get("/metadata/versions").status == 200


def test_date_from_memory_is_the_present_one(portable: bool) -> None:
    """Each answer has the date at which it was given. Source: E-7."""
    with serving(portable=portable) as live, live.connect() as raw:
        for minute in range(3):
            raw.send(KEPT)
            dates = {raw.reply().headers["date"], live.ask(LAST).headers["date"]}
            assert dates == {f"Tue, 14 Nov 2023 22:{13 + minute}:20 GMT"}
            live.clock.advance(60_000)
            live.call(live.server.service.clock_moved)


def test_polls_from_memory_are_noted(portable: bool) -> None:
    """A group that asks is known to ask, in each second that it does. Source: B-2."""
    with serving(portable=portable) as live, live.connect() as raw:
        service = live.server.service
        for octets in (KEPT, LAST) * 3:
            live.call(service.second)
            live.control.groups.clear()
            if octets is KEPT:
                raw.send(octets)
                assert raw.reply().status == 200
            else:
                assert live.ask(octets).status == 200
            live.call(service.last_polls)
            assert live.control.groups == [frozenset({"group-1"})]


class Always:
    """A fault that answers everything with 500."""

    def fault_for(self, vm: str, request: HttpRequest) -> InjectedFault:  # noqa: ARG002  of the interface
        """Disturb."""
        return InjectedFault(answer=Response(500))


def test_fault_goes_before_memory(portable: bool) -> None:
    """A fault meets those who were answered from memory as well, and only while it lasts. E-10."""
    with serving(portable=portable) as live:
        assert statuses(live, 6) == [200] * 6
        live.call(lambda: live.server.service.set_fault(Always()))
        assert statuses(live, 6) == [500] * 6
        live.call(lambda: live.server.service.set_fault(None))
        assert statuses(live, 6) == [200] * 6


def test_document_withdrawn_is_not_remembered(portable: bool) -> None:
    """A group that is disabled is asked to wait, as at its first request. Source: B-1, B-3."""
    with serving(with_settings(enable_timeout_s=0.01), portable=portable) as live:
        assert statuses(live, 6) == [200] * 6
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        assert statuses(live, 3) == [503] * 3


def test_held_request_leaves_no_memory_of_who_it_was(portable: bool) -> None:
    """An address that moves while its VM's first answer is held is the other VM's. Source: S-4."""
    with serving(portable=portable) as live:
        live.apply(DocumentChange(50, publications=(Publication("group-1", False, Document()),)))
        live.control.enables = False
        with live.connect() as raw:
            raw.send(KEPT)
            while not live.control.enabled:
                live.call(lambda: None)
            moved = Caller("vm-c", "group-2", "group-2", ("127.0.0.1",))
            live.apply(DocumentChange(51, callers=(moved,), gone=("vm-a",)))
            live.show(FREEZE)
            assert b"Freeze" not in raw.reply().body
            raw.send(KEPT)
            assert b"Freeze" not in raw.reply().body
        for octets in (KEPT, LAST, KEPT, LAST):
            assert b"Freeze" not in live.ask(octets).body
        live.know(VM_C, VM_A)
        assert b"Freeze" in live.ask(LAST).body


def test_memory_of_a_view_is_bounded(portable: bool) -> None:
    """However many ways there are to ask, few are remembered, the last ones. Source: E-8."""
    with serving(portable=portable) as live:
        with live.connect() as raw:
            for n in range(3 * READY_MAX):
                raw.send(request(EVENTS, x_n=str(n)))
                assert raw.reply().status == 200
                assert live.get(x_n=str(n), connection="close").status == 200
            raw.send(request(EVENTS, x_n="y" * 3000))
            assert raw.reply().status == 200
        view = live.server.service.responder.snapshot.view(VM_A.view)
        assert len(view.ready) == len(view.ready_last) == READY_MAX
        assert request(EVENTS, x_n=str(3 * READY_MAX - 1)) in view.ready
