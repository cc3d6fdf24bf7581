"""Between the control plane's thread and the metadata plane's event loop: changes and approvals.

The two planes never import each other; this is the only place where they meet. No decision may
be made here, and nothing may block either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from forewarn.core.stimulus import Approve, Enable, GroupsPolled
from forewarn.errors import CallerError
from forewarn.replication.messages import ApprovalAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.control.engine import ControlEngine
    from forewarn.control.plane import Committed
    from forewarn.replication.messages import ApprovalRequest, DocumentChange


log = logging.getLogger("forewarn")

_T = TypeVar("_T")


class MetadataNode(Protocol):
    """A metadata node that follows the feed on the event loop."""

    def apply(self, change: DocumentChange) -> None:
        """Show what this change says, from now on."""


class RemoteNodes(Protocol):
    """Metadata nodes in other processes, which say when they show a change."""

    def apply(self, change: DocumentChange) -> None:
        """Send a change to all of them."""

    async def shown(self, sequence: int, *, wait_s: float) -> bool:
        """Wait until all that are connected show it; False where the time is up."""


#: How long work waits for nodes in other processes to show it, in seconds. One that is slower
#: than this does not hold the fleet's maintenance up; it is told all the same.
SHOWN_S_MAX = 2.0


class Bridge:
    """Publishes for the control loop, and is the metadata plane's upstream.

    `publish` is called on the control loop's thread, everything else on the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect nothing yet."""
        self._loop = loop
        self._control: ControlEngine | None = None
        self._nodes: tuple[MetadataNode, ...] = ()
        self._far: RemoteNodes | None = None
        self._waits: set[asyncio.Task[None]] = set()
        self._groups: dict[str, str] = {}
        #: Called on the event loop after each change was shown, for live views.
        self.on_change: Callable[[DocumentChange], None] | None = None

    def connect(
        self, control: ControlEngine, *nodes: MetadataNode, far: RemoteNodes | None = None
    ) -> None:
        """Name the two sides; before the control loop starts."""
        self._control = control
        self._nodes = nodes
        self._far = far

    # The control plane's side.

    def publish(self, change: DocumentChange) -> Future[None]:
        """Hand a change to every node; done once all of them show it. Source: L-7."""
        shown: Future[None] = Future()
        try:
            self._loop.call_soon_threadsafe(self._try_show, change, shown)
        except RuntimeError as closed:  # the event loop has ended: nobody is shown anything
            shown.set_exception(closed)
        return shown

    def call(self, act: Callable[[], object]) -> None:
        """Have the event loop do something soon; it does nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def _try_show(self, change: DocumentChange, shown: Future[None]) -> None:
        try:
            self._show(change, shown)
        except Exception as error:
            log.exception("a change could not be shown, by a bug")
            shown.set_exception(error)

    def _show(self, change: DocumentChange, shown: Future[None]) -> None:
        if change.whole:
            self._groups.clear()
        for name in change.gone:
            self._groups.pop(name, None)
        self._groups.update((caller.vm, caller.group) for caller in change.callers)
        for node in self._nodes:
            node.apply(change)
        if self.on_change is not None:
            self.on_change(change)
        if self._far is None:
            shown.set_result(None)
        else:
            self._far.apply(change)
            wait = self._loop.create_task(_wait_shown(self._far, change.sequence, shown))
            self._waits.add(wait)
            wait.add_done_callback(self._waits.discard)

    # The metadata plane's side: forewarn.replication.messages.Upstream.

    def approve(self, request: ApprovalRequest) -> asyncio.Future[ApprovalAnswer]:
        """Approve events for a VM; done once that is durable. Source: A-6."""
        assert self._control is not None
        actor = f"vm {request.vm} at {request.address}"
        asked = self._control.submit(Approve(request.vm, request.event_ids), actor)
        answer: asyncio.Future[ApprovalAnswer] = self._loop.create_future()
        asked.add_done_callback(lambda done: self._tell(_approved, done, answer))
        return answer

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of a VM that asks for the first time. Source: B-1."""
        assert self._control is not None
        answer: asyncio.Future[None] = self._loop.create_future()
        group = self._groups.get(vm, "")
        asked = self._control.submit(Enable(group), f"vm {vm}")
        asked.add_done_callback(lambda done: self._tell(_enabled, done, answer))
        return answer

    def polled(self, groups: frozenset[str]) -> None:
        """Note which groups asked. Source: B-2."""
        assert self._control is not None
        self._control.note(GroupsPolled(groups), "metadata")

    def _tell(
        self,
        settle: Callable[[Future[Committed], asyncio.Future[_T]], None],
        done: Future[Committed],
        answer: asyncio.Future[_T],
    ) -> None:
        """Settle an answer on the event loop, behind whatever was published before it."""
        self.call(lambda: settle(done, answer))


async def _wait_shown(far: RemoteNodes, sequence: int, shown: Future[None]) -> None:
    await far.shown(sequence, wait_s=SHOWN_S_MAX)
    shown.set_result(None)


def _approved(done: Future[Committed], answer: asyncio.Future[ApprovalAnswer]) -> None:
    if answer.done():
        return
    error = done.exception()
    if error is None:
        answer.set_result(ApprovalAnswer(accepted=True))
    elif isinstance(error, CallerError):
        answer.set_result(ApprovalAnswer(accepted=False, error=str(error)))
    else:
        answer.set_exception(error)


def _enabled(done: Future[Committed], answer: asyncio.Future[None]) -> None:
    if answer.done():
        return
    error = done.exception()
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
