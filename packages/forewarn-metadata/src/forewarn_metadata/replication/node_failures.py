"""What a metadata process does after a change that it could not show because of a bug."""

from __future__ import annotations

import asyncio
import logging

from forewarn_base.ids import Ids

#: Number of failures at a change after which the process stops.
FAILURES_MAX = 3

#: Maximum time in seconds that a process continues after its first failure.
#:
#: The actual time is random, at least half of it, so that nodes end at different times.
DOUBT_S_MAX = 60.0

_LOG = logging.getLogger("forewarn.replication.node_failures")


class NodeFailures:
    """The failures of one process."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._doubts: list[asyncio.TimerHandle] = []
        self.count = 0
        #: Event that is set after too many failures, or too long after the first failure; the
        #: process must restart.
        self.failed = asyncio.Event()

    def note(self) -> None:
        """Record the current exception; the process may show a change in part."""
        _LOG.exception("the node could not show a change because of a bug")
        self.count += 1
        if self.count >= FAILURES_MAX:
            self.failed.set()
        else:  # a new whole may help, but after a partial change the process must restart later
            pause_s = DOUBT_S_MAX * (1 + self._ids.fraction("doubt")) / 2
            self._doubts.append(asyncio.get_running_loop().call_later(pause_s, self.failed.set))

    def stop(self) -> None:
        """Stop the timers."""
        for doubt in self._doubts:
            doubt.cancel()
