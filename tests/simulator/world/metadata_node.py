"""A metadata node as a process runs it: the product's service and connections on a virtual loop.

Nothing is answered in here; how requests travel is decided in `network.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from forewarn_base.ids import Ids
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.http.addresses import Listener
from forewarn_metadata.endpoint.http.asyncio_transport import StreamConnection
from forewarn_metadata.endpoint.service import MetadataService
from forewarn_metadata.endpoint.snapshot import Snapshot
from forewarn_metadata.replication.messages import DocumentChange, Publication, Upstream
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.memory_transport import ClientEnd, MemoryTransport
from tests.simulator.world.virtual_loop import VirtualLoop

SECOND_MS = 1000
#: Status of a request that got no answer at all.
LOST = 0
#: What stands for 200 where an approval is safe at its node alone. Source: M-3.
KEPT = 202


class SimulatedReply(NamedTuple):
    """What a VM gets."""

    status: int
    body: bytes = b""
    #: The name of what it shows.
    view: str = ""
    version: str = ""


class SimulatedNode:
    """One process that answers VMs."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        new_upstream: Callable[[SimulatedNode], Upstream],
    ) -> None:
        """Begin with nothing to show.

        Args:
            name: what it is called.
            settings: how it serves.
            service: whom its approvals go to.
            queue: the time.
            new_upstream: how a process of it reaches the control plane.
        """
        self.name = name
        self.service = service
        self._settings = settings
        self._queue = queue
        self._new_upstream = new_upstream
        self._serves = False
        self._open: dict[MemoryTransport, None] = {}
        self._begun_ms = queue.now_ms
        self._next_ms = 0
        self.loop = _new_loop(queue)
        self.clear()

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
        #: View -> the VMs that read it.
        self.readers: dict[str, dict[str, None]] = {}
        self._views: dict[str, str] = {}
        self.loop.end()
        self.loop = _new_loop(self._queue)
        for transport in tuple(self._open):
            transport.cut()
        self._begun_ms, self._next_ms = self._queue.now_ms, 0
        upstream = self.loop.run(self._new_upstream, self)
        self.server = self.loop.run(self._new_server, upstream)

    def _new_server(self, upstream: Upstream) -> MetadataService:
        return MetadataService(self._settings, upstream, clock=self.service.clock, ids=Ids(1))

    @property
    def snapshot(self) -> Snapshot:
        """What it shows."""
        return self.server.responder.snapshot

    @property
    def is_cut(self) -> bool:
        """Whether it cannot reach the service; a remote one shows what it knows without that."""
        return False

    def cut(self) -> None:
        """Cut it off from the service."""
        raise NotImplementedError

    def join(self) -> None:
        """Let it reach the service again."""
        raise NotImplementedError

    def apply(self, change: DocumentChange) -> None:
        """Take over a change of the feed; those who wait for it are answered."""
        self.serves = True
        if change.whole:
            self.readers.clear()
            self._views.clear()
        for name in change.gone:
            self._remove_caller(name)
        for caller in change.callers:
            self._remove_caller(caller.vm)
            self._views[caller.vm] = caller.view
            self.readers.setdefault(caller.view, {})[caller.vm] = None
        self._catch_up()
        self.loop.run(self.server.apply, change)
        self._plan_second()

    def _remove_caller(self, vm: str) -> None:
        view = self._views.pop(vm, None)
        if view is not None:
            self.readers[view].pop(vm, None)

    def shows_otherwise(self, publication: Publication) -> bool:
        """Whether this publication would change what is shown."""
        view = self.snapshot.view(publication.view)
        return view.enabled != publication.enabled or view.document != publication.document

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
        transport.connect(StreamConnection(self.server, cast("Listener", LISTENER)))
        self._plan_second()
        return transport

    def asked(self) -> None:
        """Something comes on a connection that is open: its mark is handed on with the second."""
        self._catch_up()
        self._plan_second()

    # ---- seconds: only those in which something happens are simulated ----------------------------

    def _catch_up(self) -> None:
        """Let the seconds pass of which none has changed anything, all but the present one."""
        passed = (self._queue.now_ms - self._begun_ms) // SECOND_MS
        if passed > self.server.tick and self.loop.runs:
            self.server.tick = passed - 1
            self.loop.run(self.server.second)

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
        connections = tuple(self.server.connections)
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
