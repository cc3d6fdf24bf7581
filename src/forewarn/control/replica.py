"""A copy of the live state for readers, on its own thread, so that they never delay the writer.

Changes arrive in the order of commits, before their callers are answered, so every caller reads its
own writes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from forewarn.control.inbox import StateQuery, Stopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.control.inbox import Inbox
    from forewarn.control.plane import Committed, StateView
    from forewarn.control.service_state import ServiceStatus
    from forewarn.core.state import Changes

T = TypeVar("T")
#: Work of the reading thread: a whole state, a change of it, or a query. None: end.
_Item: TypeAlias = "StateView | tuple[Changes, int] | StateQuery[object] | None"

#: Maximum changes that wait for the next query, because waking the thread for each change would
#: cost the writer more.
UNREAD_MAX = 64
#: Time limit for earlier queries when the replica stops, in seconds.
STOP_TIMEOUT_S = 10

log = logging.getLogger("forewarn.control")


class StateReplica:
    """Answers queries on the live state; callable on any thread.

    The first query copies the state; each later commit costs its changes.
    """

    def __init__(self, inbox: Inbox, status: ServiceStatus) -> None:
        """Start without a copy; the replica requests one through the `inbox` of the run loop."""
        self._inbox = inbox
        self._status = status
        self._items: deque[_Item] = deque()
        #: Wakes the reading thread. Each new query puts an entry here.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def read(self, query: Callable[[StateView], T]) -> Future[T]:
        """Return the result of a query on the unchanging state of the last commit.

        The future fails with `Stopping` if the service ends.
        """
        answer: Future[T] = Future()
        with self._lock:
            if self._status.ended:
                answer.set_exception(Stopping())
                return answer
            if self._thread is None:
                self._inbox.read(self.copy)
                self._start()
            self._put(StateQuery(query, answer))  # type: ignore[arg-type]
        return answer

    def copy(self, owner: StateView) -> None:
        """Copy a state, and follow its changes from now on; runs on the owner's thread."""
        self._put(owner.view())
        owner.on_adopted = self._items.append

    def look(self, committed: Committed) -> None:
        """Update the copy if many changes, or a possibly large one, wait."""
        changes = committed.changes
        large = bool(self._items) and changes is not None and changes.of_fleet
        if large or len(self._items) >= UNREAD_MAX:
            self._wake.put(None)

    def begin(self, owner: StateView) -> None:
        """Copy a large state early, so that no later query delays changes by the copy."""
        with self._lock:
            self.copy(owner)
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        """Stop; answer pending queries first, for at most `STOP_TIMEOUT_S`."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._put(None)
        thread.join(STOP_TIMEOUT_S)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="readers", daemon=True)
        self._thread.start()

    def _put(self, item: _Item) -> None:
        self._items.append(item)
        self._wake.put(None)

    def _next(self) -> _Item:
        """Wait for the next wake-up, and return the next item of work."""
        while not self._items:
            self._wake.get()
        return self._items.popleft()

    def _run(self) -> None:
        view: StateView | None = None
        early: list[StateQuery[object]] = []
        while (item := self._next()) is not None:
            if isinstance(item, StateQuery):
                if view is None:
                    early.append(item)
                else:
                    item.run(view)
            elif not isinstance(item, tuple):
                view = item
                while early:
                    early.pop(0).run(view)
            elif view is not None:
                view = self._adopted(view, *item)
        for query in early:
            query.refuse()

    def _adopted(self, view: StateView, changes: Changes, sequence: int) -> StateView | None:
        """Return the view after a change; None: the view failed and is copied again."""
        try:
            view.adopt(changes, sequence)
        except Exception:
            log.exception("the readers' copy of the state missed a change because of a bug")
            self._inbox.read(self.copy)
            return None
        return view
