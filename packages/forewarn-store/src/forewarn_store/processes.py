"""The control planes that share a store, each with its last read commit.

Each process writes its own row. The rows are only for operators. Source: H-8, U-4.
"""

from __future__ import annotations

from forewarn_base.values import value
from forewarn_store.engine import Engine

#: Age in seconds of a heartbeat from which its process counts as stopped.
SILENT_S_MAX = 15
#: Maximum number of rows in an answer.
PROCESSES_MAX = 100


@value
class ControlProcess:
    """One control plane, as of its last heartbeat."""

    #: URL of the process's operator API; empty: not known.
    url: str
    version: str
    #: Number of commits that the process lacks.
    behind: int
    #: Age of the last heartbeat, in seconds.
    age_s: float
    #: Whether the process holds the lease.
    active: bool

    @property
    def runs(self) -> bool:
        """Whether the process has a recent heartbeat."""
        return self.age_s <= SILENT_S_MAX


def processes(engine: Engine) -> tuple[ControlProcess, ...]:
    """Return the current and recent processes of a shared store, the active process first.

    Raises:
        StoreContradiction: the schema has no table of processes yet.
    """
    with engine.reading() as transaction:
        holder = transaction.rows("lease")[0][0]
        generation = int(transaction.rows("service")[0][0])
        fills = {"now_ms": engine.now_ms}
        rows = transaction.rows_filled("processes", fills, limit=PROCESSES_MAX)
    seen = [
        ControlProcess(
            str(url),
            str(version_),
            behind=max(generation - int(has), 0),
            age_s=max(int(age_ms), 0) / 1000,
            active=token == holder,
        )
        for token, url, version_, has, age_ms in rows
    ]
    return tuple(sorted(seen, key=lambda each: (not each.active, each.url)))
