"""Those who follow the fleet learn of everything, also where an answer comes late or to another."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TypeVar

import pytest

from forewarn_server.api import fleet_watch
from forewarn_server.api.control_client import AnswerOverdue
from forewarn_server.api.fleet_watch import FleetWatch
from forewarn_server.api.watch import OpenStreams
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.plane import StateView
from forewarn_server.control.run_loop import ControlLoop
from tests.api.live import FLEET, NOW_MS, Live
from tests.clock import VirtualClock
from tests.waiting import LIMIT_S

T = TypeVar("T")


class UnreliableControl:
    """Asks a service's control plane; an answer may be lost after the work was done."""

    def __init__(self, loop: ControlLoop) -> None:
        """Lose none yet."""
        self._loop = loop
        #: Raised in place of the next answers of `compute`.
        self.lost: list[Exception] = []

    async def read(self, query: Callable[[StateView], T]) -> T:
        """Return what a query finds."""
        return await asyncio.wrap_future(self._loop.replica.read(query))

    async def compute(self, work: Callable[[], T]) -> T:
        """Do a piece of work, and perhaps lose its answer."""
        found = await asyncio.to_thread(work)
        if self.lost:
            raise self.lost.pop()
        return found


Story = Callable[
    [FleetWatch, UnreliableControl, AsyncGenerator[list[bytes], None]], Coroutine[None, None, None]
]


def tell(live: Live, story: Story) -> None:
    """Run a story about somebody who follows a service with two hosts."""
    live.fleet(**FLEET)

    async def whole() -> None:
        streams = OpenStreams()
        watch = FleetWatch(live.daemon.control, VirtualClock(NOW_MS), streams)
        control = UnreliableControl(live.daemon.control)
        streams.enter("anna")
        following = watch.follow(control, "", "anna")
        await until(following, b"event: reload")
        await story(watch, control, following)
        await following.aclose()

    asyncio.run(whole())


async def until(following: AsyncGenerator[list[bytes], None], wanted: bytes) -> None:
    """Read messages until one has this text."""
    async with asyncio.timeout(LIMIT_S):
        async for messages in following:
            if any(wanted in each for each in messages):
                return


async def on_thread(work: Callable[..., object], *words: object) -> None:
    """Do what waits for the service."""
    await asyncio.to_thread(work, *words)


def test_overdue_answer_does_not_end_the_news(live: Live) -> None:
    """What was found and lost is read again by all who follow, and what comes later is told."""

    async def story(
        _: FleetWatch, control: UnreliableControl, following: AsyncGenerator[list[bytes], None]
    ) -> None:
        control.lost.append(AnswerOverdue(seconds=1))
        await on_thread(live.post, "/v1/hosts/h1/fail")
        await until(following, b"event: reload")
        await on_thread(live.post, "/v1/hosts/h2/fail")
        await until(following, b"event: change")

    tell(live, story)


def test_end_while_an_answer_is_awaited_is_quiet(live: Live) -> None:
    """The task that nobody waits for fails with nothing, and loses nothing for who comes next."""
    complaints: list[object] = []

    async def story(
        watch: FleetWatch, control: UnreliableControl, following: AsyncGenerator[list[bytes], None]
    ) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        control.lost.append(Stopping())
        await on_thread(live.post, "/v1/hosts/h1/fail")
        await until(following, b"event: reload")

    tell(live, story)
    assert complaints == []


def test_stop_ends_the_encoding_of_changes(live: Live) -> None:
    """A task left behind would complain when its loop is closed, though a stream is still open."""

    async def story(
        watch: FleetWatch, _: UnreliableControl, __: AsyncGenerator[list[bytes], None]
    ) -> None:
        [encoding] = [each for each in asyncio.all_tasks() if "_tick" in repr(each)]
        watch.stop()
        await asyncio.wait([encoding], timeout=LIMIT_S)
        assert encoding.cancelled()

    tell(live, story)


def test_fleet_that_another_has_read_again_is_told(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks after many commits takes none of them from those who follow."""

    async def story(
        watch: FleetWatch, control: UnreliableControl, following: AsyncGenerator[list[bytes], None]
    ) -> None:
        await on_thread(live.post, "/v1/hosts/h1/fail")
        await until(following, b"event: change")
        monkeypatch.setattr(fleet_watch, "PAUSE_S", 3600)
        await on_thread(live.post, "/v1/hosts/h2/fail")
        await until(following, b"event: change")  # the next message is an hour away
        monkeypatch.setattr(fleet_watch, "COMMITS_MAX", 1)  # so that all is read again
        await on_thread(live.call, "PUT", "/v1/hosts/another", {})
        await on_thread(live.settle)  # a watch hears of a commit after its answer
        assert b"another" in await watch.query(control, lambda told: " ".join(told.names).encode())
        await until(following, b"event: reload")

    tell(live, story)
