"""VMs that have moved, until their new nodes show them: their old nodes serve them until then.

Nothing is sent in here. Source: M-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forewarn.replication.nodes import NodeTable


class _Move(NamedTuple):
    """VMs that a node is sent, and others serve still."""

    to: str
    sequence: int
    vms: frozenset[str]


class Moves:
    """The moves of one feed that are under way."""

    def __init__(self, nodes: NodeTable) -> None:
        """Begin with none; `nodes` says who shows what."""
        self._nodes = nodes
        self._under_way: list[_Move] = []

    def __bool__(self) -> bool:
        """Whether any is under way."""
        return bool(self._under_way)

    def begin(self, to: str, sequence: int, vms: frozenset[str]) -> None:
        """Note that a node is sent these VMs with a change."""
        self._under_way.append(_Move(to, sequence, vms))

    def settle(self, name: str) -> list[str]:
        """Return the VMs that nobody waits for any more: a node shows them, or serves nobody."""
        shown, over = self._nodes.shown(name), not self._nodes.counts(name)
        settled = [m for m in self._under_way if m.to == name and (over or m.sequence <= shown)]
        if not settled:
            return []
        self._under_way = [move for move in self._under_way if move not in settled]
        waits = {vm for move in self._under_way for vm in move.vms}
        vms = dict.fromkeys(vm for move in settled for vm in move.vms)
        return [vm for vm in vms if vm not in waits]
