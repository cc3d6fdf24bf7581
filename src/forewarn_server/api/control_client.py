"""The routes' client of the running service; every call has a deadline.

A hanging database blocks the control plane and the threads that read the store. The deadline ends a
caller's wait for the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

from forewarn_base.clock import Clock
from forewarn_base.errors import OurError
from forewarn_base.validation.complexity import abandonable
from forewarn_base.values import replace, value
from forewarn_core.access.roles import NO_AUTHORITY, Authority, Permission, Principal
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import Confirmed, PlaneStimulus
from forewarn_core.fleet.topology import Topology
from forewarn_core.rules.blockers import Blocker
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.call_audit import CallAudit
from forewarn_server.api.fleet_watch import FleetWatch
from forewarn_server.api.name_index import FleetIndex
from forewarn_server.api.scope import (
    ScopedReader,
    check_stimulus,
    narrowed_operation,
    neutral_waiting,
    scoped_view,
)
from forewarn_server.api.standby import Forwarder
from forewarn_server.api.watch import HistoryWatch
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.plane import StateView
from forewarn_server.control.readable import ReadableControl
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store import Store

T = TypeVar("T")

#: Maximum number of parallel long computations, such as parsing files and encoding pages.
COMPUTING_MAX = 2
#: Maximum number of files that are read at the same time, each in its own process.
FILES_MAX = 2


class AnswerOverdue(OurError):
    """The control plane or the store did not answer in time; nothing was changed."""

    code = "answer-overdue"
    status = 503
    message = "The service has not answered within {seconds:g} s; nothing was done."
    advice = "Check that the service's database answers (`/v1/health`), then try again."


class CallResultUnknown(OurError):
    """The caller's wait has ended, but the service may still execute the change."""

    code = "outcome-unknown"
    status = 503
    message = (
        "The change was started, but {reason} before the end of the change, which may still "
        "complete."
    )
    advice = "Check `forewarn history` for the change before you try again."


@value
class ControlClient:
    """The routes' view of the running service."""

    loop: ReadableControl
    store: Store
    clock: Clock
    tail: HistoryWatch
    #: The fleet overview.
    overview: FleetWatch
    #: Time limit of an answer, in seconds.
    answer_timeout_s: float
    #: Largest topology accepted, in bytes.
    max_topology_bytes: int = 4 * 1024 * 1024
    #: Forwards calls to the active process; None: this process is active.
    forwarder: Forwarder | None = None
    #: Sorted names of hosts, groups and VMs, for lists.
    index: FleetIndex = field(default_factory=FleetIndex)
    #: Owners whose VMs are visible; None: all.
    owners: frozenset[str] | None = None
    #: Audit of the current call; None: changes are not recorded.
    call: CallAudit | None = None
    #: The caller. A second person may have to confirm its calls, unless it is an owner.
    authority: Authority = NO_AUTHORITY
    #: Number of the stored call that is executed after its confirmation; 0: none.
    confirming: int = 0
    #: Running calls with an Idempotency-Key, by owner of the key and key.
    in_flight: set[tuple[str, str]] = field(default_factory=set)
    #: Threads for long computations.
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(COMPUTING_MAX))
    #: Threads that wait for the processes that read files.
    file_pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(FILES_MAX))

    @property
    def writer(self) -> ControlLoop:
        """The active process's control plane. A follower forwards changes and does not use it."""
        assert isinstance(self.loop, ControlLoop), self.loop
        return self.loop

    def permitted(
        self,
        principal: Principal,
        permission: Permission,
        *,
        authority: Authority,
        call: CallAudit,
    ) -> ControlClient:
        """Return a client for one call, whose audit record is written with its change.

        Raises:
            NotPermitted: the caller lacks the permission for every owner.
        """
        owners = principal.owners_for(permission)
        if owners is not None and not owners:
            raise NotPermitted(principal=principal.name, permission=permission.value)
        return replace(self.within(owners), call=call, authority=authority)

    def within(self, owners: frozenset[str] | None) -> ControlClient:
        """Return a client restricted to these owners; None: no restriction.

        Routes read a state without the other owners' records. Source: P-3.
        """
        if owners is None:
            return self
        return replace(self, owners=owners, index=FleetIndex())

    async def read(self, query: Callable[[StateView], T]) -> T:
        """Return the result of a query on the state as of the last commit.

        The query runs on a copy for readers, so that the writer continues meanwhile.

        Raises:
            AnswerOverdue: no answer arrived in time.
            Stopping: the service ends.
        """
        owners = self.owners
        if owners is None:
            return await self._await_answer(self.loop.replica.read(query))
        return await self._await_answer(
            self.loop.replica.read(lambda view: query(scoped_view(view, owners)))
        )

    async def see_writer(self) -> None:
        """Wait until the control plane has processed all queued work; raises as `read`."""
        await self._await_answer(self.loop.read(lambda _: None))

    async def why(self, number: int) -> tuple[Blocker, ...]:
        """Return all blockers of a live operation; raises as `read`."""
        waiting = await self._await_answer(self.loop.why(number))
        if self.owners is None:
            return waiting
        return neutral_waiting(waiting, await self.fleet())

    async def fleet(self) -> Topology:
        """Return the fleet as of the last commit, for any thread; raises as `read`.

        The call costs O(1). The next change copies the fleet if a caller still uses it.
        """
        return await self.read(StateView.fleet)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run a long computation on a thread, and abandon it when the caller disconnects.

        Few computations run at a time, so that polls get the processor and the store gets threads.

        Raises:
            AnswerOverdue: the computation took too long.
            Stopping: the service ends.
        """
        return await self._abandonable(self.pool, work)

    async def read_file(self, work: Callable[[], T]) -> T:
        """Read a file on a thread, beside long computations; raises as `compute`."""
        return await self._abandonable(self.file_pool, work)

    async def _abandonable(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        here = asyncio.get_running_loop()
        gone = threading.Event()
        try:
            return await self._await_answer(here.run_in_executor(pool, abandonable, gone, work))
        finally:
            gone.set()

    async def submit(self, stimulus: PlaneStimulus, actor: str) -> StepResult:
        """Send a stimulus to the control plane; return once its change is durable and published.

        The policy limits the wait for a metadata node that does not confirm. Source: M-4.

        Raises:
            AnswerOverdue, Stopping: the change was not and will not be started.
            CallResultUnknown: the change was started and may still complete.
            ConfirmationNeeded: a second principal must first confirm the change.
        """
        if self.owners is not None:
            check_stimulus(stimulus, await self.fleet())
        call = self.call.record if self.call else None
        submission = self.writer.submit(
            Confirmed(self.confirming, stimulus) if self.confirming else stimulus,
            actor,
            shown=True,
            call=call,
            authority=self.authority if self.owners is None else None,
        )
        committed = await self._await_answer(submission, changes=True)
        if self.call and committed.changes:
            self.call.written = True
        if self.owners is None:
            return committed
        fleet = await self.fleet()
        shown = [narrowed_operation(each, fleet) for each in committed.operations]
        changes = StepResult().changes  # the caller may not see all
        return replace(committed, operations=tuple(shown), changes=changes, maintenance=None)

    async def look_up(self, question: Callable[[Store], T]) -> T:
        """Query the store on a thread.

        Raises:
            AnswerOverdue: the store has not answered in time.
            Stopping: the service ends.
        """
        here = asyncio.get_running_loop()
        store: Any = self.store
        if self.owners is not None:
            store = ScopedReader(self.store, self.owners, await self.fleet())
        return await self._await_answer(here.run_in_executor(None, question, store))

    async def _await_answer(
        self, source: Future[T] | asyncio.Future[T], *, changes: bool = False
    ) -> T:
        """Return an answer; after the deadline, cancel work that has not started, and raise."""
        here = asyncio.get_running_loop()
        result: asyncio.Future[T] = here.create_future()
        # The request must not be part of a reference cycle: the garbage collector's runs would take
        # 0.2 ms of every twelfth call.
        source.add_done_callback(partial(_tell, here, result))
        timer = here.call_later(self.answer_timeout_s, result.cancel)
        try:
            return await result
        except asyncio.CancelledError:
            if not source.cancel() and source.done():
                return source.result()
            late = here.time() >= timer.when()
            if changes and not source.cancelled():
                reason = f"{self.answer_timeout_s:g} s passed" if late else "the service stopped"
                raise CallResultUnknown(reason=reason) from None
            raise (AnswerOverdue(seconds=self.answer_timeout_s) if late else Stopping()) from None
        finally:
            timer.cancel()


def _tell(
    here: asyncio.AbstractEventLoop,
    result: asyncio.Future[T],
    source: Future[T] | asyncio.Future[T],
) -> None:
    """Resolve an answer on the event loop; ignore it once the loop has closed."""
    with contextlib.suppress(RuntimeError):
        here.call_soon_threadsafe(_copy_result, source, result)


def _copy_result(source: Future[T] | asyncio.Future[T], result: asyncio.Future[T]) -> None:
    if source.cancelled():
        return
    error = source.exception()  # read the exception, so that asyncio does not log it as unused
    if result.done():
        return
    if error is None:
        result.set_result(source.result())
    else:
        result.set_exception(error)
