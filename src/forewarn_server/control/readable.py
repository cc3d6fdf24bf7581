"""Queries on a control plane, active or following, and the listeners of its commits; on any thread.

Readers ask a copy of the state on its own thread, so that they never delay the writer. Changes
arrive in the order of commits, before their callers are answered, so every caller reads its own
writes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeAlias, TypeVar

from forewarn_base.audit_chain import CallRecord
from forewarn_base.clock import Clock
from forewarn_base.values import replace, value
from forewarn_core.access.roles import Principal
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.state import Changes, Entry
from forewarn_core.fleet.step import StepResult
from forewarn_core.rules.blockers import Blocker
from forewarn_metadata.replication.messages import NodeTroubles, VmPoll
from forewarn_server.control.inbox import Inbox, StateQuery, Stopping, refuse
from forewarn_server.control.plane import StateView
from forewarn_server.control.record_limit import RecordLimit
from forewarn_server.control.service_state import STANDBY, ServiceStatus

log = logging.getLogger("forewarn.control")

T = TypeVar("T")
#: Work of the reading thread: a whole state, a change of it, or a query. None: end.
_Item: TypeAlias = "StateView | tuple[Changes, int] | StateQuery[object] | None"

#: Maximum changes that wait for the next query, because waking the thread for each change would
#: cost the writer more.
UNREAD_MAX = 64
#: Time limit for earlier queries when the replica stops, in seconds.
STOP_TIMEOUT_S = 10
#: How long a refusal is shown. Importers repeat refused records every few seconds, so older
#: refusals are outdated.
KEPT_MS = 120_000
#: Maximum stored refusals, and characters of each.
REFUSED_MAX, SENTENCE_MAX = 100, 300
#: Actions that are logged as warnings for operators. Source: L-8, T-6.
ALERTS = frozenset(
    {
        "operation.blocked",
        "operation.stuck",
        "operation.overdue",
        "operation.abort-failed",
        "operation.not-shown",
        "maintenance.emergency",
    }
)


@value
class Freshness:
    """The age of a state; answers to reads are at least this new."""

    #: Number of the state's last commit.
    generation: int
    #: When the state was the newest, by elapsed time in ms.
    as_of_ms: int
    #: Number of the last entry of history that the state contains.
    history_seq: int = 0


@value
class ProcessFacts:
    """What a control plane reports about the other parts of its process; on any thread."""

    #: Return a VM's last poll, and the number of polling VMs by client.
    poll_of: Callable[[str], VmPoll | None] = lambda _: None
    user_agents: Callable[[], Mapping[str, int]] = dict
    #: Returns the metadata nodes in trouble.
    node_troubles: Callable[[], NodeTroubles] = NodeTroubles
    #: Returns the number of changes that each metadata node lacks; -1: disconnected.
    node_lags: Callable[[], Mapping[str, int]] = dict
    #: Returns when the certificates of this process expire, by section, ms since the epoch UTC.
    certificates: Callable[[], Mapping[str, int]] = dict
    #: Returns a sentence about each part that this process cannot use.
    degraded: Callable[[], tuple[str, ...]] = tuple
    #: Returns whether another process may have had a newer state for longer than a term.
    lapsed: Callable[[], bool] = lambda: False
    #: Returns the token of this process's lease, by which followers prove themselves; empty:
    #: this process is not active.
    lease_token: Callable[[], str] = str
    #: Returns the URL of this process's operator API for other processes; empty: not known yet.
    operator_url: Callable[[], str] = str


#: A process of which the control plane is the only part.
ALONE = ProcessFacts()


class ReadableControl:
    """The part of a control plane that active processes and followers share."""

    def __init__(
        self, clock: Clock, status: ServiceStatus, *, decides: bool, process: ProcessFacts
    ) -> None:
        """Start without a copy; `decides`: this process makes the commits, and logs them."""
        #: The service's time.
        self.clock = self._clock = clock
        #: The state of the owning thread, for table look-ups only; None: no state.
        self.view: StateView | None = None
        self._status = status
        self._limit = RecordLimit()
        self._inbox = Inbox(status)
        self.replica = StateReplica(self._inbox, status, self.driver_waits)
        #: Whether this process makes the commits.
        self.decides = decides
        #: Called for each commit, once it can be read.
        self.on_committed = CommitListeners(self.replica.look, logged=decides)
        self.refused_records = RefusedRecords(clock)
        #: The functions of `ProcessFacts`.
        self.poll_of = process.poll_of
        self.user_agents = process.user_agents
        self.node_troubles = process.node_troubles
        self.node_lags = process.node_lags
        self.certificates = process.certificates
        self.degraded = process.degraded
        self.lapsed = process.lapsed
        self.lease_token = process.lease_token
        self.operator_url = process.operator_url

    @property
    def word(self) -> str:
        """The state of the service, or `standby`, in a word."""
        return self._status.state.value if self.decides else STANDBY

    @property
    def trouble(self) -> str:
        """Why this process cannot answer for the newest state; empty while it can."""
        raise NotImplementedError

    @property
    def shows(self) -> bool:
        """Whether changes can be sent to metadata nodes."""
        return True

    @property
    def knows_callers(self) -> bool:
        """Whether a token that the state does not have is unknown.

        A state that is missing or outdated may lack new tokens.
        """
        return self.view is not None and not self.lapsed()

    def freshness(self) -> Freshness:
        """Return how new the answers to the next queries will be."""
        raise NotImplementedError

    def age_ms(self, fresh: Freshness) -> int:
        """Return how long ago a state was the newest, in ms."""
        return max(self._clock.elapsed_ms() - fresh.as_of_ms, 0)

    def token(self, token_id: str) -> AccessToken | None:
        """Return a token by its id."""
        view = self.view
        return view.state.access.tokens.get(token_id) if view else None

    def principal(self, name: str) -> Principal:
        """Return a principal with its bindings; without any if it is unknown."""
        view = self.view
        return (view and view.state.access.principals.get(name)) or Principal(name)

    @property
    def has_principals(self) -> bool:
        """Whether callers are served."""
        view = self.view
        return view is not None and bool(view.state.access.tokens or view.state.access.principals)

    def read(self, query: Callable[[StateView], T]) -> Future[T]:
        """Run a query on the thread that owns the state, while it does not change."""
        return self._inbox.read(query)

    def why(self, number: int) -> Future[tuple[Blocker, ...]]:
        """Return all blockers of a live operation; empty if it has ended or never existed."""
        now = self._clock.now_ms
        return self.replica.read(lambda view: view.why(number, now()))

    def driver_waits(self, number: int) -> str:  # noqa: ARG002 - a follower calls no driver
        """Return what the driver of an operation waits for; empty while the driver works."""
        return ""

    def may_record(self, call: CallRecord) -> bool:
        """Return whether a call that was refused or changed nothing is recorded; or count it.

        Callable on any thread. Source: P-7.
        """
        return self._limit.admits(call, self._clock.now_ms())

    def record(self, call: CallRecord) -> None:
        """Record a call that was refused or changed nothing; callable on any thread."""
        raise NotImplementedError

    def record_omitted(self) -> None:
        """Record the number of calls beyond the limit of a principal, once it is due."""
        now_ms = self._clock.now_ms()
        for each in self._limit.due(now_ms):
            self.record(replace(each, at_ms=now_ms))


class StateReplica:
    """Answers queries on the live state; callable on any thread.

    The first query copies the state; each later commit costs its changes.
    """

    def __init__(
        self,
        inbox: Inbox,
        status: ServiceStatus,
        driver_waits: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Start without a copy; the replica requests one through the `inbox` of the run loop.

        `driver_waits` returns what the driver of an operation waits for, on any thread.
        """
        self._inbox = inbox
        self._driver_waits = driver_waits
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
        result: Future[T] = Future()
        with self._lock:
            if self._status.ended:
                result.set_exception(Stopping())
                return result
            if self._thread is None:
                self._inbox.read(self.copy)
                self._start()
            self._put(StateQuery(query, result))  # type: ignore[arg-type]
        return result

    def copy(self, owner: StateView) -> None:
        """Copy a state, and follow its changes from now on; runs on the owner's thread."""
        self._put(owner.view(self._driver_waits))
        owner.follow(self._items.append)

    def look(self, committed: StepResult) -> None:
        """Update the copy if many changes, or a possibly large one, wait."""
        large = bool(self._items) and committed.changes.of_fleet
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
            refuse(query.result)

    def _adopted(self, view: StateView, changes: Changes, sequence: int) -> StateView | None:
        """Return the view after a change; None: the view failed and is copied again."""
        try:
            view.adopt(changes, sequence)
        except Exception:
            log.exception("the readers' copy of the state missed a change because of a bug")
            self._inbox.read(self.copy)
            return None
        return view


class CommitListeners:
    """Listeners called for each commit, after its answer, on the run loop's thread."""

    def __init__(self, *listeners: Callable[[StepResult], None], logged: bool = True) -> None:
        """Start with these quick listeners. `logged`: also log the entries."""
        self._listeners = [*listeners]
        self._logged = logged
        self._pending: list[StepResult] = []

    def add(self, listener: Callable[[StepResult], None]) -> None:
        """Add a quick listener."""
        self._listeners.append(listener)

    def put(self, committed: StepResult) -> None:
        """Store a commit until `notify`."""
        self._pending.append(committed)

    def notify(self) -> None:
        """Call every listener for the stored commits, and log them, in order.

        A failure of a listener is a bug, but delays no event.
        """
        pending, self._pending = self._pending, []
        for committed in pending:
            for listener in self._listeners:
                try:
                    listener(committed)
                except Exception:
                    log.exception("a listener for commits failed because of a bug")
            if self._logged:
                log_entries(committed.entries)


def log_entries(entries: Iterable[Entry]) -> None:
    """Log the entries that have become durable, for people and for machines."""
    silent = not log.isEnabledFor(logging.INFO)
    for entry in entries:
        level = logging.WARNING if entry.action in ALERTS else logging.INFO
        if silent and level == logging.INFO:
            continue
        facts = {"action": entry.action, "actor": entry.actor}
        log.log(level, "%s", entry.text, extra=facts)


class RefusedRecords:
    """The newest refusals; added on one thread, read on any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Sentence -> last refusal, ms since the epoch UTC; oldest first.
        self._refused_ms: dict[str, int] = {}

    def add(self, sentence: str) -> None:
        """Store a refusal; repeats are logged once."""
        sentence = sentence[:SENTENCE_MAX]
        if sentence not in self.sentences():
            log.warning("refused: %s", sentence, extra={"action": "topology.refused"})
        self._refused_ms.pop(sentence, None)
        if len(self._refused_ms) >= REFUSED_MAX:
            del self._refused_ms[next(iter(self._refused_ms))]
        self._refused_ms[sentence] = self._clock.now_ms()

    def sentences(self) -> tuple[str, ...]:
        """Return the latest refusals, newest last."""
        since_ms = self._clock.now_ms() - KEPT_MS
        return tuple(each for each, at_ms in self._refused_ms.copy().items() if at_ms > since_ms)
