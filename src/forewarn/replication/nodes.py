"""Metadata nodes by name: how far each is, when it was last heard of, and who waits for them.

A node counts from the moment it may serve until somebody knows that it no longer does: one that
has lost its feed may still show what it had. No connection may go in here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

SILENT_S_MAX = 10.0
"""How long either end of a feed may say nothing before the other takes it for hung."""


class _Waiting(NamedTuple):
    sequence: int
    done: asyncio.Future[tuple[str, ...]]
    timer: asyncio.TimerHandle


class NodeTable:
    """The nodes of one feed. Use it on one event loop only."""

    def __init__(self) -> None:
        """Start without any."""
        self._shown: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}
        self._waiting: deque[_Waiting] = deque()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes that count."""
        return tuple(self._shown)

    def counts(self, name: str) -> bool:
        """Whether publications wait for this node."""
        return name in self._shown

    def enlist(self, name: str) -> None:
        """Let publications wait for a node from now on."""
        self._shown.setdefault(name, -1)

    def shows(self, name: str, sequence: int) -> None:
        """Note that a node shows everything up to a change."""
        if name in self._shown:
            self._shown[name] = sequence
            self._settle()

    def dismiss(self, name: str) -> None:
        """Forget a node that certainly serves nobody any more."""
        self._shown.pop(name, None)
        self._heard_s.pop(name, None)
        self._settle()

    def outdated(self, sequence: int) -> None:
        """Note that a whole with this sequence replaces everything: nobody shows it yet."""
        for name, shown in self._shown.items():
            self._shown[name] = min(shown, sequence - 1)

    def heard(self, name: str) -> None:
        """Note a sign of life."""
        self._heard_s[name] = asyncio.get_running_loop().time()

    def forgive(self) -> None:
        """Start all silences anew: it was this process that could not hear."""
        now_s = asyncio.get_running_loop().time()
        self._heard_s = dict.fromkeys(self._heard_s, now_s)

    def silent(self, name: str) -> bool:
        """Whether a node has said nothing for too long, or never anything."""
        heard_s = self._heard_s.get(name)
        now_s = asyncio.get_running_loop().time()
        return heard_s is None or now_s - heard_s > SILENT_S_MAX

    def behind(self, sequence: int) -> tuple[str, ...]:
        """Names of the nodes that do not show a change yet."""
        return tuple(name for name, shown in self._shown.items() if shown < sequence)

    def wait(self, sequence: int, wait_s: float) -> asyncio.Future[tuple[str, ...]]:
        """Wait until all nodes show a change; done with who does not once the time is up.

        The cost of a sign of life grows with the nodes, not with who waits.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[str, ...]] = loop.create_future()
        if self.behind(sequence):
            timer = loop.call_later(wait_s, self._overdue, sequence, done)
            self._waiting.append(_Waiting(sequence, done, timer))
        else:
            done.set_result(())
        return done

    def _settle(self) -> None:
        if not self._waiting:
            return
        least = min(self._shown.values(), default=None)
        while self._waiting and (least is None or self._waiting[0].sequence <= least):
            waiting = self._waiting.popleft()
            waiting.timer.cancel()
            if not waiting.done.done():
                waiting.done.set_result(())

    def _overdue(self, sequence: int, done: asyncio.Future[tuple[str, ...]]) -> None:
        if not done.done():
            done.set_result(self.behind(sequence))
        while self._waiting and self._waiting[0].done.done():
            self._waiting.popleft().timer.cancel()
