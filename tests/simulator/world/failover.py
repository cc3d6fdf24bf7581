"""A failover: the writer is paused or cut off from its store, and a standby takes that over.

Who may take over is decided by the product's lease, who may write by its store. The old writer
is alive all the time; what it does when it is back is checked like everything else. Between two
failovers the lease is not simulated: a renewal that nobody contests changes nothing.
"""

from contextlib import suppress

from forewarn_base.errors import PeerError
from forewarn_server.control.standby import RENEWALS, TERM_MS
from forewarn_store.lease import Tenure
from tests.simulator.world.control_process import SimulatedControl, SteppedLoop
from tests.simulator.world.deployment import Deployment
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.simulated_store import SimulatedStore

RENEWAL_MS = TERM_MS // RENEWALS


class Failover:
    """One contest for the lease of the store."""

    def __init__(self, deployment: Deployment, *, cut: bool) -> None:
        """Pause the writer, or cut it off, and let a standby contend for its lease."""
        assert deployment.replaced_writer is None
        self._deployment = deployment
        self._queue: EventQueue = deployment.queue
        self._cut = cut
        self._writer: SimulatedControl = deployment.service
        loop, store = deployment.service.loop, deployment.service.store
        assert loop is not None
        assert store is not None
        self._loop: SteppedLoop = loop
        self._store: SimulatedStore = store
        self._standby = deployment.new_service()
        self._opened = deployment.open_store()
        self._mine = Tenure(store, TERM_MS)
        self._theirs = Tenure(self._opened, TERM_MS)
        with suppress(PeerError):
            self._mine.attempt(self._writer.clock.now_ms())
        #: Whether the old writer is paused or cut off still.
        self.away = True
        #: Whether the standby has taken over, or has given up.
        self.over = False
        if cut:
            store.cut = True
        else:
            self._writer.pause()
            deployment.nodes[0].serves = False
        self._contend()

    def back(self) -> None:
        """The writer goes on, or reaches its store again; it renews its lease when that is due."""
        if not self.away:
            return
        self.away = False
        self._store.cut = False
        self._deployment.note_trouble()
        if self._writer.loop is not self._loop:
            return
        if not self._cut:
            self._deployment.node_of(self._writer).serves = True
            self._writer.resume()
        self._queue.after(RENEWAL_MS // 2, self._renew)

    def _contend(self) -> None:
        """The standby's part: look at the lease, and take the store over once it has lapsed."""
        if self._writer.loop is not self._loop and self._deployment.service is self._writer:
            self.over = True  # it died, and is started again before its lease has lapsed
        if self.over:
            return
        won = False
        with suppress(PeerError):
            won = self._theirs.attempt(self._standby.clock.now_ms())
        if won and (self._standby.start(self._writer, self._opened) or self._has_taken_over()):
            self.over = True
        else:
            self._queue.after(RENEWAL_MS, self._contend)

    def _has_taken_over(self) -> bool:
        return self._deployment.service is self._standby

    def _renew(self) -> None:
        """The old writer's part: renew the lease, or learn that another process has it."""
        if self._writer.loop is not self._loop:
            return
        held = True
        try:
            held = self._mine.attempt(self._writer.clock.now_ms())
        except PeerError:
            self._queue.after(RENEWAL_MS, self._renew)
            return
        if not held:
            self._writer.end("another process holds the lease")
        elif not self._has_taken_over():
            self.over = True
