"""What an order of many hosts costs: its check, its acceptance, each portion, and cancelling it.

    python -m bench.scale.orders [--hosts N] [--unasked] [--folder PATH]

The control plane alone on a SQLite file, each step with its commit, in processor time; a host has
10 VMs of as many groups, all of which have asked for their documents unless `--unasked`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.control.plane import ControlPlane
from forewarn.core import ordering
from forewarn.core.draft import Terms
from forewarn.core.impact import Cause
from forewarn.core.policy import Policy
from forewarn.core.step import PORTION_MAX, step
from forewarn.core.stimulus import (
    CancelOrder,
    ChangeTopology,
    Enable,
    PlaceOrder,
    Proceed,
    RequestMaintenance,
)
from forewarn.core.topology import Group, Host, Vm
from forewarn.ids import Ids
from forewarn.store import open_store

if TYPE_CHECKING:
    from forewarn.control.plane import Committed
    from forewarn.core.stimulus import Stimulus

NOW_MS, HOUR_MS = 1_790_000_000_000, 3_600_000
VMS_A_HOST, BLOCK = 10, 4
#: Blocks of hosts that one change of the fleet adds.
BLOCKS_AT_ONCE = 500


class Plane:
    """A control plane on a file, and the processor time of its last step, in ms."""

    def __init__(self, folder: Path) -> None:
        """Open a new store."""
        self._ids = Ids(1)
        self.store = open_store(str(folder / "forewarn.db"))
        self.plane = ControlPlane(self.store, Policy(), lambda: self._ids.guid("event"))
        self.plane.recover(NOW_MS)
        self.took_ms = 0.0

    def commit(self, stimulus: Stimulus) -> Committed:
        """Decide, write and adopt."""
        begun = time.process_time()
        committed = self.plane.commit(stimulus, actor="bench", now_ms=NOW_MS)
        self.took_ms = (time.process_time() - begun) * 1000
        return committed

    def add(self, hosts: int) -> None:
        """Add hosts in blocks, whose groups have a VM on each."""
        blocks = range(hosts // BLOCK)
        for first in range(0, len(blocks), BLOCKS_AT_ONCE):
            some = blocks[first : first + BLOCKS_AT_ONCE]
            on = [(block, block * BLOCK + n) for block in some for n in range(BLOCK)]
            self.commit(
                ChangeTopology(
                    hosts=tuple(Host(f"h{host}", 0, host % BLOCK) for _, host in on),
                    groups=tuple(Group(f"g{b}-{n}") for b in some for n in range(VMS_A_HOST)),
                    vms=tuple(
                        Vm(f"v{host}-{n}", f"h{host}", f"g{block}-{n}")
                        for block, host in on
                        for n in range(VMS_A_HOST)
                    ),
                )
            )

    def enable(self) -> None:
        """Have every group asked once; not durable, which takes too long and is not measured."""
        state = self.plane.state
        terms = Terms(Policy(), "bench", lambda: "")
        for group in list(state.topology.groups):
            changes = step(state, Enable(group), now_ms=NOW_MS, terms=terms).changes
            state.adopt(changes)


def measure(plane: Plane, hosts: int) -> None:
    """Print what each part of an order takes."""
    names = tuple(f"h{n}" for n in range(hosts))
    later_ms = NOW_MS + HOUR_MS
    work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=names, not_before_ms=later_ms)
    draft = plane.plane.view().draft(NOW_MS)
    begun = time.process_time()
    ordering.check(draft, work)
    print(f"checked, on the readers' thread: {(time.process_time() - begun) * 1000:.1f} ms")
    placed = plane.commit(PlaceOrder(work, checked=True))
    assert placed.order is not None
    print(f"accepted: {plane.took_ms:.1f} ms")
    rest, found = dict.fromkeys(placed.rest), []
    while rest:
        portion = tuple(itertools.islice(rest, PORTION_MAX))
        for number in portion:
            del rest[number]
        committed = plane.commit(Proceed(portion))
        rest.update(dict.fromkeys(committed.rest))
        if committed.entries:
            found.append(plane.took_ms)
    p99 = statistics.quantiles(found, n=100)[98]
    text = f"{statistics.median(found):.1f} ms median, {p99:.1f} ms at the 99th percentile"
    print(f"{len(found)} portions: {text}, {sum(found) / 1000:.1f} s in all")
    plane.commit(CancelOrder(placed.order.number))
    print(f"cancelled: {plane.took_ms:.1f} ms")


def main() -> None:
    """Measure one order of a whole fleet."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.orders", description=__doc__)
    parser.add_argument("--hosts", type=int, default=20_000)
    parser.add_argument("--unasked", action="store_true", help="no group has asked")
    parser.add_argument("--folder", type=Path, help="where the store is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        plane = Plane(Path(folder))
        plane.add(given.hosts)
        if not given.unasked:
            plane.enable()
        gc.freeze()  # as a service does that starts on such a store
        measure(plane, given.hosts)
        plane.store.close()


if __name__ == "__main__":
    main()
