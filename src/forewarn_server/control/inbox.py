"""The inbox of the run loop: requests to it, and results of work on other threads.

Any thread may add an item; the loop's thread takes it out. There are three queues, each in the
order of arrival: calls of operators, requests of VMs, and items without a waiting caller. The first
two take turns, so that a call does not wait for a thousand approvals, and both go before the third.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeAlias, TypeVar

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import OurError
from forewarn_base.values import value
from forewarn_core.access.roles import Authority
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import (
    GroupsPolled,
    PlaneStimulus,
    PlannerReport,
    Reports,
    VmRequest,
)
from forewarn_server.control.driver_calls import CallEnded
from forewarn_server.control.plane import ControlPlane, StateView
from forewarn_server.control.publishing import PublicationEnded
from forewarn_server.control.service_state import ServiceStatus
from forewarn_store.errors import StoreWentBack

T = TypeVar("T")
E = TypeVar("E", "CallEnded", CallRecord)

#: Maximum items waiting for the loop: three seconds of work at 0.3 ms each.
INBOX_MAX = 10_000
#: Places in the inbox that only operators' calls may use.
CALLS_RESERVED = 1000
#: Maximum requests of VMs that are committed in one transaction.
BATCH_MAX = 1000
#: Maximum requests that may overtake other waiting items in a row.
AHEAD_MAX = 4
#: Maximum ended driver calls that are handled in one transaction.
ENDS_MAX = 64


class Overloaded(OurError):
    """Too many requests wait for the control plane."""

    code = "overloaded"
    status = 503
    message = "The control plane has {count} requests waiting and takes no more."
    advice = "Try again in a few seconds."


class Stopping(OurError):
    """The service is stopping and did not execute the request."""

    code = "stopping"
    status = 503
    message = "The control plane is stopping; nothing was done."
    advice = "Try again when the service is back."


@value
class Submission:
    """A stimulus to be decided and committed."""

    stimulus: PlaneStimulus
    #: The actor, for history.
    actor: str
    #: Future for the answer; None if no caller waits.
    result: Future[StepResult] | None
    #: Whether the answer waits until metadata nodes show the change.
    shown: bool = False
    #: The API call, for the audit; None: the service itself acts.
    call: CallRecord | None = None
    #: The caller whom a second person may have to confirm; None: nobody. Source: P-8.
    authority: Authority | None = None

    def begin(self) -> bool:
        """Take the request; return whether its caller still waits."""
        return self.result is not None and self.result.set_running_or_notify_cancel()

    def accept(self, result: StepResult) -> None:
        """Answer that the request is durable."""
        if self.result is not None:
            self.result.set_result(result)

    def refuse(self, error: Exception) -> None:
        """Answer that the request is refused, or could not be stored."""
        if self.result is not None:
            self.result.set_exception(error)


@value
class StateQuery(Generic[T]):
    """A query on the state, run on the thread that owns the state."""

    query: Callable[[Any], T]
    result: Future[T]

    def run(self, view: StateView) -> None:
        """Run the query on the thread that owns the view."""
        if self.result.set_running_or_notify_cancel():
            try:
                self.result.set_result(self.query(view))
            except Exception as error:  # noqa: BLE001 - it belongs to who asked
                self.result.set_exception(error)


def refuse(result: Future[Any] | None) -> None:
    """Answer a waiting caller that its request was not executed because the service ends."""
    if result is not None and result.set_running_or_notify_cancel():
        result.set_exception(Stopping())


#: One item for the run loop to handle; None: check the clock.
Item: TypeAlias = (
    "Submission | StateQuery[object] | CallRecord | CallEnded | PublicationEnded | StepResult"
    " | PlannerReport | StoreWentBack | None"
)


class Inbox:
    """The waiting items of one run loop."""

    def __init__(self, status: ServiceStatus) -> None:
        """Start empty; requests are refused once `status` shows that the service has ended."""
        self._status = status
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        #: New items, which the loop's thread separates: operators' calls and queries, requests of
        #: VMs, and items without a waiting caller.
        self._calls: deque[Submission | StateQuery[object]] = deque()
        self._vm_requests: deque[Submission] = deque()
        self._others: deque[Item] = deque()
        #: Number of requests handled since the last item of `_others`.
        self._ahead = 0
        #: Whether the last of them was an operator's call.
        self._called = False

    def __len__(self) -> int:
        """Number of waiting items."""
        sorted_items = len(self._calls) + len(self._vm_requests) + len(self._others)
        return self._items.qsize() + sorted_items

    def put(self, item: Item) -> None:
        """Queue an item that must not be refused."""
        self._items.put(item)

    def submit(
        self,
        stimulus: PlaneStimulus,
        actor: str,
        *,
        shown: bool,
        call: CallRecord | None = None,
        authority: Authority | None = None,
    ) -> Future[StepResult]:
        """Queue a stimulus; the future is done once it is durable, or refused."""
        result: Future[StepResult] = Future()
        if self._status.ended:
            result.set_exception(Stopping())
        elif len(self) >= self._limit(stimulus):
            result.set_exception(Overloaded(count=len(self)))
        else:
            self.put(Submission(stimulus, actor, result, shown, call, authority))
        return result

    @staticmethod
    def _limit(stimulus: PlaneStimulus) -> int:
        """Return the number of waiting items at which the inbox refuses a stimulus."""
        return INBOX_MAX - (CALLS_RESERVED if isinstance(stimulus, VmRequest) else 0)

    def read(self, query: Callable[[ControlPlane], T]) -> Future[T]:
        """Run a query on the loop's thread, where nothing else changes the state."""
        result: Future[T] = Future()
        if self._status.ended:
            result.set_exception(Stopping())
        else:
            self.put(StateQuery(query, result))  # type: ignore[arg-type]
        return result

    def note(self, stimulus: PlaneStimulus, actor: str) -> None:
        """Queue a report without a waiting caller, such as polls."""
        if len(self) < INBOX_MAX - CALLS_RESERVED:
            self.put(Submission(stimulus, actor, None))

    def take(self, timeout_s: float) -> Item:
        """Wait up to the timeout for the next item and return it; None if no item came."""
        self._sort()
        if not (self._calls or self._vm_requests or self._others):
            try:
                self._sort_one(self._items.get(timeout=timeout_s))
            except queue.Empty:
                return None
        waiting = self._calls or self._vm_requests
        if waiting and (self._ahead < AHEAD_MAX or not self._others):
            self._ahead += 1
            of_vm = self._vm_requests and (not self._calls or self._called)
            self._called = not of_vm
            return self._vm_requests.popleft() if of_vm else self._calls.popleft()
        self._ahead = 0
        return self._others.popleft()

    def take_batch(self, first: Submission) -> Iterator[Submission]:
        """Yield a request, and if it is a VM's, the other requests of VMs that wait now.

        A request that the caller does not take stays in the inbox.
        """
        yield first
        if isinstance(first.stimulus, VmRequest):
            for _ in range(min(len(self._vm_requests), BATCH_MAX - 1)):
                yield self._vm_requests.popleft()

    def take_ends(self, first: E) -> list[E]:
        """Return an ended driver call, or a record, with all of its kind that directly follow."""
        items = [first]
        while self._others and len(items) < ENDS_MAX:
            following = self._others[0]
            if not isinstance(following, type(first)):
                break
            items.append(following)
            self._others.popleft()
        return items

    def _sort(self) -> None:
        for _ in range(self._items.qsize()):
            self._sort_one(self._items.get_nowait())

    def _sort_one(self, item: Item) -> None:
        if not isinstance(item, Submission | StateQuery) or item.result is None:
            self._others.append(item)
        elif isinstance(item, Submission) and isinstance(item.stimulus, VmRequest):
            self._vm_requests.append(item)
        else:
            self._calls.append(item)

    def refuse_waiting(self) -> None:
        """Answer every waiting caller that its request was not executed."""
        while len(self):
            item = self.take(0)
            if isinstance(item, Submission | StateQuery):
                refuse(item.result)


class KeptReports:
    """Reports to commit once the store works again; on the writer's thread only."""

    def __init__(self) -> None:
        self._reports: list[tuple[PlaneStimulus, str]] = []
        #: Group -> its last poll, ms since the epoch UTC: one entry per group, however long the
        #: store is unavailable.
        self._polled_ms: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether there are reports."""
        return bool(self._reports or self._polled_ms)

    def keep(self, stimulus: PlaneStimulus, actor: str, now_ms: int) -> None:
        """Store a report; only the last poll of a group is stored."""
        if not isinstance(stimulus, GroupsPolled):
            self._reports.append((stimulus, actor))
            return
        at_ms = now_ms - stimulus.age_ms
        for group in stimulus.groups:
            self._polled_ms[group] = max(self._polled_ms.get(group, 0), at_ms)

    def take(self) -> list[tuple[PlaneStimulus, str]]:
        """Remove and return all reports except polls, oldest first."""
        reports, self._reports = self._reports, []
        return reports

    def write_polls(self, commit: Callable[..., object], now_ms: int) -> bool:
        """Commit the polls together, each with its own time; return whether there were any.

        After a failure they stay stored. `commit` receives a stimulus and its `actor`.
        """
        if not self._polled_ms:
            return False
        groups: dict[int, set[str]] = {}
        for group, at_ms in self._polled_ms.items():
            groups.setdefault(max(now_ms - at_ms, 0), set()).add(group)
        polls = (GroupsPolled(frozenset(each), age_ms) for age_ms, each in groups.items())
        commit(Reports(tuple(polls)), actor="metadata")
        self._polled_ms.clear()
        return True
