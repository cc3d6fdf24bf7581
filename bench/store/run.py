"""Measures the cost of a durable step: each engine's commit, compared with fdatasync.

    python -m bench.store.run [--rounds N] [--folder PATH] [--no-postgres]

Every round runs each candidate once, so that other load affects all candidates.
A step is one of a host reboot's: asked for, shown, approved, begun, done; two groups, three VMs.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.sizes import Parser
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    DriverBegun,
    DriverDone,
    NoticeShown,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_store import Store, open_store
from tests.postgres import running_postgres
from tests.store.story import Story, begin

BLOCK = b"\xa5" * 4096


def steps(story: Story) -> Iterator[PlaneStimulus]:
    """Yield the steps of successive host reboots."""
    while True:
        for host in ("h0", "h1"):
            yield RequestMaintenance(cause=Cause.HOST_REBOOT, targets=(host,))
            number = story.state.last_number
            yield NoticeShown((number,))
            for event_id in story.state.operations[number].events:
                yield Acknowledge((event_id,))
            attempt = story.state.operations[number].execution.attempt
            yield DriverBegun(number, attempt)
            yield DriverDone(number, attempt)


class Committing:
    """One store, with its sequence of steps."""

    def __init__(self, store: Store) -> None:
        """Store a small fleet."""
        self._story = begin(store)
        self._steps = steps(self._story)

    def __call__(self) -> float:
        """Take one step; return the duration of its commit in seconds."""
        self._story.now_ms += 1000
        changes: Changes = self._story.decide(next(self._steps))
        began = time.perf_counter()
        self._story.store.commit(changes)
        took = time.perf_counter() - began
        self._story.state.adopt(changes)
        return took


def syncing(path: Path, blocks: int) -> Callable[[], float]:
    """Append to a file and wait for the disk."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sync = getattr(os, "fdatasync", os.fsync)

    def measure() -> float:
        began = time.perf_counter()
        os.write(file, BLOCK * blocks)
        sync(file)
        return time.perf_counter() - began

    return measure


def row(name: str, times_s: list[float]) -> str:
    """Return one line of the table, in microseconds."""
    ordered = sorted(times_s)
    marks = [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]]
    return f"{name:32}" + "".join(f"{mark * 1e6:12,.0f}" for mark in marks)


def main() -> None:
    """Measure and print."""
    parser = Parser("bench.store.run", __doc__)
    parser.add_size("--rounds", 3000, 300, 5, "number of measured commits of each store")
    parser.add_size("--warm-up", 20, 20, 1, "number of rounds before the measured ones")
    parser.add_argument("--folder", type=Path, help="directory of the files, on the measured disk")
    parser.add_argument("--no-postgres", action="store_true")
    asked = parser.sized()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.folder)))
        stores = {"SQLite, memory": ":memory:", "SQLite, file": f"{folder}/store.db"}
        if not asked.no_postgres:
            server = stack.enter_context(running_postgres(on_disk=True))
            stores["PostgreSQL, Unix socket"] = stack.enter_context(server.database())
        candidates: dict[str, Callable[[], float]] = {
            "fdatasync of 4 KiB": syncing(folder / "small", 1),
            "fdatasync of 64 KiB": syncing(folder / "large", 16),
        }
        for name, address in stores.items():
            store = open_store(address)
            stack.callback(store.close)
            candidates[f"commit: {name}"] = Committing(store)
        times: dict[str, list[float]] = {name: [] for name in candidates}
        for number in range(asked.rounds + asked.warm_up):
            for name, measure in candidates.items():
                took = measure()
                if number >= asked.warm_up:
                    times[name].append(took)
    print(f"{asked.rounds} rounds, Python {platform.python_version()}", end=", ")
    print(f"SQLite {sqlite3.sqlite_version}, {platform.system()} {platform.machine()}")
    print(f"{'microseconds':32}{'median':>12}{'p99':>12}{'worst':>12}")
    for name, measured in times.items():
        print(row(name, measured))


if __name__ == "__main__":
    main()
