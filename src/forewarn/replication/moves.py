"""Moved VMs, whose old nodes serve them until the new nodes show them.

Source: M-1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.replication.access import NodeAccess
    from forewarn.replication.messages import DocumentChange
    from forewarn.replication.nodes import NodeTable
    from forewarn.replication.scopes import Scopes

ABSENT_S_MAX = 3600.0
"""How long the old node serves a moved VM if the new node has never connected, in seconds. Such a
node may not exist. A node that has connected before is waited for without limit.
"""

ABSENT_MAX = 1000
"""Maximum awaited nodes that never connected."""


class _Move(NamedTuple):
    """VMs sent to a node while other nodes still serve them."""

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
        over: Callable[[list[str]], None],
    ) -> None:
        """Start without moves.

        Args:
            nodes: the last change that each node shows.
            scopes: the hosts of the VMs.
            access: the permitted nodes.
            over: called with VMs that their old nodes must stop serving.
        """
        self._nodes = nodes
        self._scopes = scopes
        self._access = access
        self._over = over
        self._under_way: list[_Move] = []
        self._absent: dict[str, asyncio.TimerHandle] = {}
        """Destination nodes of moved VMs that never connected, until they are given up."""

    def expect(self, change: DocumentChange) -> None:
        """Open a feed for each destination node that has never connected.

        Costs the VMs of the change; call it before the change is sent to the feeds.
        """
        if self._access is None or change.whole:
            return
        for name in self._access.expected(self._scopes.unserved(change)):
            if not self._scopes.has(name) and len(self._absent) < ABSENT_MAX:
                self._scopes.open(name, self._access.hosts.get(name, frozenset((name,))))
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
        """Do the same for every awaited node after a report of a follower."""
        for name in {move.to for move in self._under_way}:
            self.settle(name)

    def stop(self) -> None:
        """Stop the timers that give up absent nodes."""
        for timer in self._absent.values():
            timer.cancel()

    def _give_up(self, name: str) -> None:
        del self._absent[name]
        if self._nodes.silent(name) and not self._nodes.counts(name):
            self._end([move for move in self._under_way if move.to == name])
            self._scopes.close(name)

    def _end(self, ended: list[_Move]) -> None:
        if not ended:
            return
        self._under_way = [move for move in self._under_way if move not in ended]
        left = ((move.to, vm) for move in self._under_way for vm in move.vms)
        waits = {vm for to, vm in left if self._scopes.is_at(to, vm)}  # the VM may have moved on
        vms = dict.fromkeys(vm for move in ended for vm in move.vms)
        self._over([vm for vm in vms if vm not in waits])
