"""A metadata node as a process runs it: the product's service and connections on a virtual loop.

Nothing is answered in here; how requests travel is decided in `shell_network.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from forewarn.ids import Ids
from forewarn.metadata.http.asyncio_transport import StreamConnection
from forewarn.metadata.service import MetadataService
from tests.simulator.world.memory_transport import MemoryTransport
from tests.simulator.world.metadata_node import SimulatedNode, SimulatedReply
from tests.simulator.world.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.metadata.http.addresses import Listener
    from forewarn.replication.messages import DocumentChange, Upstream
    from forewarn.settings import MetadataSettings
    from tests.simulator.world.control_process import SimulatedControl
    from tests.simulator.world.event_queue import EventQueue
    from tests.simulator.world.memory_transport import ClientEnd

SECOND_MS = 1000


class ShellNode(SimulatedNode):
    """One process that answers VMs."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        new_upstream: Callable[[ShellNode], Upstream],
    ) -> None:
        """Begin with nothing to show.

        Args:
            name: what it is called.
            settings: how it serves.
            service: whom its approvals go to.
            queue: the time.
            new_upstream: how a process of it reaches the control plane.
        """
        self._queue = queue
        self._new_upstream = new_upstream
        self._serves = False
        self._open: dict[MemoryTransport, None] = {}
        self._begun_ms = queue.now_ms
        self._next_ms = 0
        self.loop = _new_loop(queue)
        super().__init__(name, settings, service)

    @property
    def serves(self) -> bool:
        """Whether its process runs and has something to show."""
        return self._serves

    @serves.setter
    def serves(self, serves: bool) -> None:
        self._serves = serves
        if serves:
            self.loop.resume()
        else:
            self.loop.pause()

    def clear(self) -> None:
        """End the process, with all its connections; the next one knows nothing."""
        super().clear()
        self.loop.end()
        self.loop = _new_loop(self._queue)
        for transport in tuple(self._open):
            transport.cut()
        self._begun_ms, self._next_ms = self._queue.now_ms, 0
        upstream = self.loop.run(self._new_upstream, self)
        self.shell = self.loop.run(self._new_shell, upstream)
        self._responder = self.shell.responder

    def _new_shell(self, upstream: Upstream) -> MetadataService:
        return MetadataService(self._settings, upstream, clock=self.service.clock, ids=Ids(1))

    def show(self, change: DocumentChange) -> None:
        """Have documents shown; those who wait for them are answered."""
        self._catch_up()
        self.loop.run(self.shell.apply, change)
        self._plan_second()

    @property
    def listens(self) -> bool:
        """Whether connections are taken; those of a process that stands still are, in silence."""
        return self._serves or not self.loop.runs

    def accept(self, address: str, client: ClientEnd) -> MemoryTransport | None:
        """Open a connection; None where nobody listens."""
        if not self.listens:
            return None
        self._catch_up()
        transport = MemoryTransport(self.loop, address, client, opened=self._open)
        transport.connect(StreamConnection(self.shell, cast("Listener", LISTENER)))
        self._plan_second()
        return transport

    def asked(self) -> None:
        """Something comes on a connection that is open: its mark is handed on with the second."""
        self._catch_up()
        self._plan_second()

    def ask(self, address: str, raw: bytes, body: bytes = b"") -> SimulatedReply:
        """Answer nothing that came on no connection."""
        raise NotImplementedError

    # ---- seconds: only those in which something happens are simulated ----------------------------

    def _catch_up(self) -> None:
        """Let the seconds pass of which none has changed anything, all but the present one."""
        passed = (self._queue.now_ms - self._begun_ms) // SECOND_MS
        if passed > self.shell.tick and self.loop.runs:
            self.shell.tick = passed - 1
            self.loop.run(self.shell.second)

    def _plan_second(self) -> None:
        """Have the next second happen in which a connection, or a mark, may need it."""
        now_ms = self._queue.now_ms
        next_ms = now_ms + SECOND_MS - (now_ms - self._begun_ms) % SECOND_MS
        if now_ms < self._next_ms <= next_ms:
            return
        self._next_ms = next_ms
        loop = self.loop
        self._queue.at(self._next_ms, lambda: self._second(loop))

    def _second(self, loop: VirtualLoop) -> None:
        if loop is not self.loop:
            return
        self._catch_up()
        connections = tuple(self.shell.connections)
        if any(each.unfinished or each.over or each.stalled for each in connections):
            self._plan_second()
        elif connections:
            self._next_ms = self._queue.now_ms + int(self._settings.idle_timeout_s * SECOND_MS)
            self._queue.at(self._next_ms, lambda: self._second(loop))


def _new_loop(queue: EventQueue) -> VirtualLoop:
    # Only the stubs declare an event loop's other acts abstract; none of them is used.
    return VirtualLoop(queue)  # type: ignore[abstract]


class _Listener:
    """Where connections in memory come in: nowhere in particular."""

    interface = ""
    is_unix = False


LISTENER = _Listener()
