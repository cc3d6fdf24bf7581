"""Metadata nodes by name: their progress, their last message, and the publications that wait.

A node counts from its first complete feed until it has certainly stopped, because a node without a
feed may still show old documents.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from forewarn_metadata.replication.messages import RelayReport

#: Time of silence after which a worker or follower counts as hung.
SILENT_S_MAX = 10.0

#: Maximum requests of a node per second, and in a burst.
#:
#: After a reconnect a node repeats up to 10,000 requests.
COST_PER_S, COST_MAX = 2000, 20_000

#: Number of bytes of a request that cost as much as an additional request.
COST_BYTES = 4096

#: Cost of a part that a node receives, in requests.
PART_COST = 20


class _Waiting(NamedTuple):
    sequence: int
    #: Nodes that have not confirmed the change.
    left: set[str]
    done: asyncio.Future[tuple[str, ...]]
    timer: asyncio.TimerHandle


class _Relay:
    """The nodes of one follower."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.report = RelayReport("", -1)
        self.heard_s = 0.0


class NodeTable:
    """The nodes of one feed. Use it on one event loop only."""

    def __init__(self, silent_s_max: float = SILENT_S_MAX) -> None:
        self._silent_s_max = silent_s_max
        self._shown: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}
        #: Node -> when its messages so far no longer count against its rate limit, by the event
        #: loop's clock.
        self._paid_s: dict[str, float] = {}
        self._waiting: deque[_Waiting] = deque()
        self._relays: dict[str, _Relay] = {}
        #: Follower that sends the feed to a node, by node.
        self._relay_of: dict[str, _Relay] = {}
        #: When a second follower reported a node, by node that two followers have.
        self._claimed_s: dict[str, float] = {}

    def take_report(self, report: RelayReport) -> bool:
        """Apply a follower's report; return False if the follower must start over.

        Cost: O(nodes that connected, disconnected, are behind or are awaited).
        """
        relay = self._relays.get(report.process)
        if report.begins:
            self._forget(report.process)
            relay = self._relays[report.process] = _Relay()
        if relay is None:
            return False
        relay.heard_s = asyncio.get_running_loop().time()
        self._leave(relay, report.left)
        relay.report = report
        for name in report.joined:
            self._shown[name] = self.shown(name)  # its follower before may not have reported yet
            if self._relay_of.get(name, relay) is not relay:
                self._claimed_s.setdefault(name, relay.heard_s)
            relay.names.add(name)
            self._relay_of[name] = relay
        for waiting in self._waiting:
            waiting.left.difference_update(
                [name for name in waiting.left if self.shown(name) >= waiting.sequence]
            )
            self._end(waiting)
        self._tidy()
        return True

    def relayed(self, name: str) -> bool:
        """Return whether a follower with a recent report sends the feed to a node."""
        relay = self._relay_of.get(name)
        now_s = asyncio.get_running_loop().time()
        return relay is not None and now_s - relay.heard_s <= self._silent_s_max

    def cloned(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the nodes that two followers have had for longer than a move takes, with both.

        A node that went from one follower to another leaves the first within its limit of silence.
        Source: M-5.
        """
        now_s = asyncio.get_running_loop().time()
        for name, since_s in tuple(self._claimed_s.items()):
            processes = tuple(
                process
                for process, relay in self._relays.items()
                if name in relay.names and now_s - relay.heard_s <= self._silent_s_max
            )
            if len(processes) < 2:
                del self._claimed_s[name]
            elif now_s - since_s > 2 * self._silent_s_max:
                yield name, processes

    def _forget(self, process: str) -> None:
        relay = self._relays.pop(process, None)
        if relay is not None:
            self._leave(relay, tuple(relay.names))

    def _leave(self, relay: _Relay, names: Collection[str]) -> None:
        """Record that nodes have left a follower; these nodes still show their documents."""
        for name in names:
            if self._relay_of.get(name) is relay:
                self._shown[name] = self.shown(name)
                del self._relay_of[name]
            relay.names.discard(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the nodes that count."""
        return tuple(self._shown)

    def counts(self, name: str) -> bool:
        """Return whether publications wait for this node."""
        return name in self._shown

    def enlist(self, name: str) -> None:
        """Make publications wait for a node from now on."""
        self._shown.setdefault(name, -1)

    def record_shown(self, name: str, sequence: int) -> None:
        """Record that a node shows everything up to a change."""
        if name in self._shown:
            self._shown[name] = sequence
            self._settle(name, sequence)

    def dismiss(self, name: str) -> None:
        """Forget a node that has certainly stopped serving VMs."""
        self._shown.pop(name, None)
        self._heard_s.pop(name, None)
        self._settle(name)

    def reset_shown(self, sequence: int) -> None:
        """Record a whole feed that replaces everything, and that no node shows yet."""
        for name, shown in self._shown.items():
            self._shown[name] = min(shown, sequence - 1)

    def heard(self, name: str) -> None:
        """Record a message of a node."""
        self._heard_s[name] = asyncio.get_running_loop().time()

    def charge(self, name: str, cost: int) -> bool:
        """Charge a node for its messages on all connections; return False above the rate limit."""
        now_s = asyncio.get_running_loop().time()
        paid_s = max(self._paid_s.get(name, now_s), now_s) + cost / COST_PER_S
        if paid_s - now_s > COST_MAX / COST_PER_S:
            return False
        self._paid_s[name] = paid_s
        return True

    def forgive(self) -> None:
        """Restart all silence timers, because this process itself was suspended."""
        now_s = asyncio.get_running_loop().time()
        self._heard_s = dict.fromkeys(self._heard_s, now_s)

    def silent(self, name: str) -> bool:
        """Return whether a node has been silent for too long, or has never sent a message."""
        if self.relayed(name):
            return False
        heard_s = self._heard_s.get(name)
        now_s = asyncio.get_running_loop().time()
        return heard_s is None or now_s - heard_s > self._silent_s_max

    def shown(self, name: str) -> int:
        """Return the last change that a node shows; -1: unknown."""
        shown, relay = self._shown.get(name, -1), self._relay_of.get(name)
        if relay is None:
            return shown
        return max(shown, relay.report.behind.get(name, relay.report.generation))

    def wait(
        self, sequence: int, wait_s: float, names: Collection[str] | None = None
    ) -> asyncio.Future[tuple[str, ...]]:
        """Wait until nodes show a change; at the time limit, return the missing nodes.

        `sequence` never decreases between calls; `names` None: all nodes that count.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[str, ...]] = loop.create_future()
        concerned = self._shown if names is None else names
        left = {name for name in concerned if self.shown(name) < sequence}
        if left:
            timer = loop.call_later(wait_s, self._overdue, left, done)
            self._waiting.append(_Waiting(sequence, left, done, timer))
        else:
            done.set_result(())
        return done

    def _settle(self, name: str, sequence: int | None = None) -> None:
        """Record the change that nodes show (None: all nodes); O(waits up to the change)."""
        for waiting in self._waiting:
            if sequence is not None and waiting.sequence > sequence:
                break
            waiting.left.discard(name)
            self._end(waiting)
        self._tidy()

    def _end(self, waiting: _Waiting) -> None:
        if not waiting.left and not waiting.done.done():
            waiting.timer.cancel()
            waiting.done.set_result(())

    def _overdue(self, left: set[str], done: asyncio.Future[tuple[str, ...]]) -> None:
        if not done.done():
            done.set_result(tuple(sorted(left)))
        self._tidy()

    def _tidy(self) -> None:
        while self._waiting and self._waiting[0].done.done():
            self._waiting.popleft().timer.cancel()
