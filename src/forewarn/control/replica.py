"""A copy of the live state that readers ask on a thread of its own: none of them visits the writer.

Each change comes in the order of its commit, before its caller has the answer, so that everybody
reads what he has written.
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
#: What the reading thread takes: a whole state, a change of it, or a question. None: it ends.
_Item: TypeAlias = "StateView | tuple[Changes, int] | StateQuery[object] | None"

#: Changes that may wait until somebody asks: waking a thread for each costs the writer more than
#: the change costs that thread.
UNREAD_MAX = 64
#: How long ending waits for the questions asked before it, in seconds.
STOP_TIMEOUT_S = 10

log = logging.getLogger("forewarn.control")


class StateReplica:
    """Answers questions about the live state; may be asked on any thread.

    The state is copied when somebody asks first, once; each commit then costs its changes.
    """

    def __init__(self, inbox: Inbox, status: ServiceStatus) -> None:
        """Copy nothing yet; the copy is asked for through the `inbox` of the run loop."""
        self._inbox = inbox
        self._status = status
        self._items: deque[_Item] = deque()
        #: Wakes the reading thread; never left out after a question.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def read(self, query: Callable[[StateView], T]) -> Future[T]:
        """Return the result of a query on the state as of the last commit, which does not change.

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
        """Copy a state, and follow its changes from here on; on the thread that owns it."""
        self._put(owner.view())
        owner.on_adopted = self._items.append

    def look(self, committed: Committed) -> None:
        """Update the copy once many changes wait for it, or one that may be large."""
        changes = committed.changes
        large = bool(self._items) and changes is not None and changes.of_fleet
        if large or len(self._items) >= UNREAD_MAX:
            self._wake.put(None)

    def begin(self, owner: StateView) -> None:
        """Copy a large state before it changes, so that no reader makes that wait."""
        with self._lock:
            self.copy(owner)
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        """End; answer pending queries first, unless that takes longer than `STOP_TIMEOUT_S`."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._put(None)
        thread.join(STOP_TIMEOUT_S)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="readers", daemon=True)
        self._thread.start()

    def _put(self, item: _Item) -> None:
        self._items.append(item)
        self._wake.put(None)

    def _next(self) -> _Item:
        """Return what comes next, waiting until the thread is to look."""
        while not self._items:
            self._wake.get()
        return self._items.popleft()

    def _serve(self) -> None:
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
        """Return the view with a change; None: it is of no use, and a new one is on its way."""
        try:
            view.adopt(changes, sequence)
        except Exception:
            log.exception("the readers' copy of the state missed a change, by a bug")
            self._inbox.read(self.copy)
            return None
        return view
