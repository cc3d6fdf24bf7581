"""An event loop for processes that mostly serve VMs; it answers polls before asyncio runs.

A node with a hundred polls a second sleeps between polls. In asyncio, the path from the kernel to a
callback costs as much as the answer. This loop waits for the transport's set of sockets, which
includes asyncio's own set. Linux only.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from functools import partial
from select import epoll
from typing import TypeAlias

EVENTS_MAX = 256  # maximum number of sockets served in one round
ROUNDS_MAX = 4  # maximum number of rounds before the event loop's other work runs

Events: TypeAlias = list[tuple[int, int]]


def watch(
    loop: asyncio.AbstractEventLoop, sockets: epoll, serve: Callable[[Events], bool]
) -> Callable[[], object]:
    """Make an event loop serve the sockets of a set; return a function that stops serving.

    `serve` receives the ready events, and returns whether the event loop may have new work.
    """
    if isinstance(loop, PollingEventLoop) and not loop.selector.is_given:
        loop.selector.give(sockets, serve)
        return loop.selector.take_back

    def ready() -> None:
        for _ in range(ROUNDS_MAX):
            events = sockets.poll(0, EVENTS_MAX)
            serve(events)
            if len(events) <= 1:  # after a single event, the next event seldom follows immediately
                return

    loop.add_reader(sockets.fileno(), ready)
    return partial(loop.remove_reader, sockets.fileno())


class PollingSelector(selectors.EpollSelector):
    """asyncio's selector, combined with sockets that another function serves."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Start with asyncio's sockets only; `now_s` is the event loop's clock."""
        super().__init__()
        self._now_s = now_s
        self._sockets: epoll | None = None
        self._serve: Callable[[Events], bool] = _nobody

    @property
    def is_given(self) -> bool:
        """Return whether the selector serves other sockets."""
        return self._sockets is not None

    def give(self, sockets: epoll, serve: Callable[[Events], bool]) -> None:
        """Start serving the sockets of another set; see `watch`."""
        assert not self.is_given
        sockets.register(self.fileno(), selectors.EVENT_READ)
        self._sockets, self._serve = sockets, serve

    def take_back(self) -> None:
        """Stop serving the other set, before its close."""
        self._sockets, self._serve = None, _nobody

    def select(self, timeout_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve the other sockets until asyncio has events, at most `timeout_s`; return those."""
        sockets, serve, now_s = self._sockets, self._serve, self._now_s
        if sockets is None:
            return super().select(timeout_s)
        left_s = -1.0 if timeout_s is None else max(timeout_s, 0.0)
        ends_s = now_s() + left_s
        while events := sockets.poll(left_s, EVENTS_MAX):
            if serve(events):
                return super().select(0)
            if timeout_s is not None:
                left_s = ends_s - now_s()
                if left_s <= 0:
                    break
        return []


class PollingEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop on a `PollingSelector`."""

    def __init__(self) -> None:
        self.selector = PollingSelector(self.time)
        super().__init__(self.selector)


def _nobody(_: Events) -> bool:
    return True
