"""Cursors of the outbox: each destination's position in history, which only moves forwards.

The package `outbox` delivers entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn_store.engine import Engine


class OutboxCursors:
    """The cursors of one store; usable on any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take_up(self, names: Sequence[str], newest: int) -> dict[str, int]:
        """Return the positions of these destinations, and delete all other cursors.

        A new destination begins after the entry `newest`.
        """
        with self._engine.writing() as transaction:
            transaction.run("cursors_rest")
            for name in names:
                transaction.run("cursor_take_up", name=name, seq=newest)
            rows = transaction.rows("cursors")
        return {str(name): int(seq) for name, seq in rows if name in names}

    def names(self) -> frozenset[str]:
        """Return the names of all destinations that have a position."""
        return frozenset(str(name) for name, _ in self._engine.rows("cursors"))

    def save(self, moved: Mapping[str, int]) -> None:
        """Store new positions, except positions below the stored position."""
        with self._engine.writing() as transaction:
            for name, seq in moved.items():
                transaction.run("cursor_move", name=name, seq=seq)

    def held(self) -> int | None:
        """Return the number of the entry after which history is needed; None without need."""
        [(count, seq)] = self._engine.rows("cursors_held")
        return int(seq) if count else None

    def next_ms(self, seq: int) -> int:
        """Return the time of the next entry, ms since the epoch UTC; 0: no next entry."""
        rows = self._engine.rows("history_next", seq=seq)
        return int(rows[0][0]) if rows else 0
