"""Moved VMs; the old node serves a VM until the new node shows it.

Source: M-1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_metadata.replication.nodes import NodeTable
from forewarn_metadata.replication.scopes import Scopes

#: Time limit in seconds of a move to a node that has never connected, and may not exist.
#:
#: Other moves have no time limit.
ABSENT_S_MAX = 3600.0

#: Maximum number of awaited nodes that have never connected.
ABSENT_MAX = 1000


class _Move(NamedTuple):
    """VMs that were sent to a new node while other nodes still serve them."""

    to: str
    sequence: int
    vms: frozenset[str]


class Moves:
    """The current moves of one feed."""

    def __init__(
        self,
        nodes: NodeTable,
        scopes: Scopes,
        *,
        access: NodeAccess | None,
        is_here: Callable[[str], bool],
        over: Callable[[list[str]], None],
    ) -> None:
        """`over` receives the VMs that old nodes must stop serving.

        `is_here` returns whether a node is connected.
        """
        self._nodes = nodes
        self._scopes = scopes
        self._access = access
        self._is_here = is_here
        self._over = over
        self._under_way: list[_Move] = []
        #: Destination nodes that have never connected, until their time limit.
        self._absent: dict[str, asyncio.TimerHandle] = {}

    def expect(self, change: DocumentChange) -> None:
        """Open a feed for each destination node that has never connected.

        Call this function before the change is sent to the feeds. O(VMs of the change).
        """
        if self._access is None or change.whole:
            return
        for name in self._access.expected(self._scopes.unserved(change)):
            if not self._scopes.has(name) and len(self._absent) < ABSENT_MAX:
                self._scopes.open(name, self._access.permitted(name) or frozenset((name,)))
                later = asyncio.get_running_loop().call_later
                self._absent[name] = later(ABSENT_S_MAX, self._give_up, name)

    def begin(self, to: str, sequence: int, vms: frozenset[str]) -> None:
        """Note that a change sends these VMs to a node."""
        self._under_way.append(_Move(to, sequence, vms))

    def settle(self, name: str) -> None:
        """Remove VMs from their old nodes once the new node shows them."""
        if self._under_way:
            shown = self._nodes.shown(name)
            self._end([m for m in self._under_way if m.to == name and m.sequence <= shown])

    def settle_relayed(self) -> None:
        """After a follower's report, remove moved VMs from the old nodes of all awaited nodes."""
        for name in {move.to for move in self._under_way}:
            self.settle(name)

    def stop(self) -> None:
        """Stop the timers of absent nodes."""
        for timer in self._absent.values():
            timer.cancel()

    def _give_up(self, name: str) -> None:
        del self._absent[name]
        if not self._is_here(name) and not self._nodes.counts(name):
            self._end([move for move in self._under_way if move.to == name])
            self._scopes.close(name)

    def _end(self, ended: list[_Move]) -> None:
        if not ended:
            return
        self._under_way = [move for move in self._under_way if move not in ended]
        left = ((move.to, vm) for move in self._under_way for vm in move.vms)
        waits = {vm for to, vm in left if self._scopes.is_at(to, vm)}  # the VM may have moved again
        vms = dict.fromkeys(vm for move in ended for vm in move.vms)
        self._over([vm for vm in vms if vm not in waits])
