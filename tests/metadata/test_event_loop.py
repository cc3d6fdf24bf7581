"""The service on each event loop that it may run on; nodes and workers have one of their own."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from forewarn_base.ids import Ids
from forewarn_metadata.endpoint.server import MetadataServer, new_event_loop
from tests.clock import VirtualClock
from tests.metadata.live import (
    EVENTS,
    FREEZE,
    NOW_MS,
    SETTINGS,
    VM_A,
    Control,
    Live,
    approval,
    request,
    serving,
    wait_for,
)
from tests.waiting import LIMIT_S

LOOPS = {"of-its-own": new_event_loop, "asyncio": asyncio.new_event_loop}
if sys.platform == "linux":
    uvloop = pytest.importorskip("uvloop")
    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=LOOPS)
def event_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop of one kind."""
    return LOOPS[request.param]


@pytest.fixture
def live(event_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[Live]:
    """A server on it."""
    with serving(event_loop=event_loop) as server:
        yield server


class Asking:
    """A client that polls without a pause, in a thread of its own, until told to stop."""

    def __init__(self, live: Live) -> None:
        """Begin."""
        self._live = live
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered = threading.Event()

    def _run(self) -> None:
        with self._live.connect() as raw:
            while not self._over.is_set():
                raw.send(request(EVENTS))
                assert raw.reply().status == 200
                self.answered.set()

    def __enter__(self) -> None:
        """Wait for the first answer."""
        self._thread.start()
        assert self.answered.wait(LIMIT_S)

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._over.set()
        self._thread.join(LIMIT_S)


def test_polls_hold_up_nothing_else(live: Live) -> None:
    """Timers, threads and held requests have their turn under polls without end. Source: E-9."""
    fired = threading.Event()
    with Asking(live), live.connect() as held:
        live.call(lambda: live.loop.call_later(0.01, fired.set))
        assert fired.wait(LIMIT_S)
        held.send(request(wait_for(60)))
        assert held.silent()
        live.show(FREEZE)
        assert FREEZE.event_id in held.reply().body.decode()


def test_answers_that_wait_are_sent(live: Live) -> None:
    """What a request asks of the event loop happens though nobody polls. Source: A-6, E-9."""
    live.show(FREEZE)
    assert live.post(approval(FREEZE.event_id)).status == 200
    live.show(FREEZE, incarnation=2)
    assert live.get(wait_for(0.01, 2)).status == 200


def test_servers_share_an_event_loop(live: Live) -> None:
    """A second one is served as well, and the first goes on when it has stopped. Source: E-1."""

    async def another() -> tuple[MetadataServer, str]:
        server = MetadataServer(SETTINGS, Control(), clock=VirtualClock(NOW_MS), ids=Ids(1))
        [address] = await server.start(["127.0.0.1:0"])
        return server, address

    second, address = asyncio.run_coroutine_threadsafe(another(), live.loop).result(LIMIT_S)
    other = Live(second, live.control, live.clock, live.loop, (address,))
    other.know(VM_A)
    other.show(incarnation=7)
    for _ in range(2):
        assert other.get().status == live.get().status == 200
    asyncio.run_coroutine_threadsafe(second.stop(), live.loop).result(LIMIT_S)
    assert live.get().status == 200
