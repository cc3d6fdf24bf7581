"""Standby: on a shared store one process writes, and the others wait for its lease to end.

`store/lease.py` decides who holds the lease. A separate thread and connection renew the lease, so
that a long commit, a large load or a busy event loop causes no failover. While the event loop or
the deciding thread hangs, the lease is not renewed, so that another process takes over. Source:
H-3.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

from forewarn_base.audit_chain import OMITTED, CallRecord
from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError, OurError, PeerError
from forewarn_base.values import replace
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.step import StepResult
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_server.control import document_changes
from forewarn_server.control.inbox import StateQuery
from forewarn_server.control.plane import StateView
from forewarn_server.control.readable import ALONE, Freshness, ProcessFacts, ReadableControl
from forewarn_server.control.service_state import ServiceState, ServiceStatus
from forewarn_store import Store
from forewarn_store.errors import FollowedTooLate, StoreLost, StoreWentBack
from forewarn_store.lease import Tenure

log = logging.getLogger("forewarn.control")

#: Duration of a lease without renewal: long enough for a database's failover, and short enough for
#: a takeover within the shortest notice except Preempt's.
TERM_MS = 5000
#: Renewals within a term; two may fail before the lease is at risk.
RENEWALS = 3
#: Maximum interval between two checks of a standby, in seconds.
LOOK_S_MAX = 0.2


#: Maximum age of a follower's state for answering reads and serving the feed, in ms: a term.
STALE_MS_MAX = TERM_MS
UNLOADED = "This follower has not loaded the state yet."
STALE = "This follower has not reached the store for as long as a lease lasts."


#: Time limit for a running renewal once the service stops, in seconds.
LAST_RENEWAL_S_MAX = 1.0


class ServiceHangs(OurError):
    """A part of this process does not respond."""

    code = "service-hangs"
    message = "This process does not respond: {parts}."
    advice = (
        "Another process takes over. If this process does not recover, stop it and report a bug."
    )


async def become_writer(
    tenure: Tenure, clock: Clock, on_standby: Callable[[], Awaitable[None]]
) -> None:
    """Wait until this process holds the lease, also through an outage of the database.

    `on_standby` is awaited once if the lease is not free at once.
    """
    message = ""
    while True:
        try:
            if await _attempt(tenure, clock):
                return
            reason = "another process is the writer"
        except PeerError as error:
            reason = str(error)
        if not message:
            await on_standby()
        if reason != message:
            log.info("standing by: %s", reason, extra={"action": "standby"})
            message = reason
        await asyncio.sleep(min(tenure.term_ms / RENEWALS / 1000, LOOK_S_MAX))


async def _attempt(tenure: Tenure, clock: Clock) -> bool:
    """Try once to acquire the lease.

    A cancelled try ends first, so that `leave` can release what it acquired. Source: H-2.
    """
    trying = asyncio.to_thread(tenure.attempt, clock.now_ms(), clock.now_ms)
    attempt = asyncio.ensure_future(trying)
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        await asyncio.wait((attempt,), timeout=LAST_RENEWAL_S_MAX)
        raise


class StateFollower(ReadableControl):
    """Follows the state that another process writes, and answers reads from it.

    So a takeover need not load the state. Cost: the changed records of each commit. Notifications
    of the database wake the follower. Source: H-2, H-4.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy: NoticePolicy,
        *,
        new_guid: Callable[[], str],
        show: Callable[[DocumentChange | None, int], object],
        process: ProcessFacts = ALONE,
    ) -> None:
        """Start without following.

        `show` receives the visible changes of some commits (None: no difference) and the last
        commit's number, on the follower's thread.
        """
        process = replace(process, lapsed=self._is_stale)
        super().__init__(clock, ServiceStatus("follower"), decides=False, process=process)
        self._store = store
        self._policy = policy
        self._new_guid = new_guid
        self._show = show
        self._stopping = threading.Event()
        self._sequence = 0
        #: Groups whose documents are withheld until they show the restarted notice. Source: L-7.
        self._hidden = frozenset[str]()
        self._fresh = Freshness(0, clock.elapsed_ms() - STALE_MS_MAX - 1)
        #: Why the state could not be followed last; empty while it is followed.
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Start following on a separate thread."""
        self._thread.start()

    def stop(self) -> State | None:
        """Stop; return the last followed state, None without one."""
        self._stopping.set()
        self._thread.join()
        return self.view.state if self.view else None

    def stop_reads(self) -> None:
        """Refuse all reads; call it after `stop`."""
        self._status.become(ServiceState.STOPPING)
        self._inbox.refuse_waiting()
        self.replica.stop()

    @property
    def trouble(self) -> str:
        """Why this process cannot answer reads; empty while it can."""
        lost = self._store.lineage.lost
        if self.view is None and not lost:
            return UNLOADED
        return str(lost) if lost else STALE if self.lapsed() else ""

    def freshness(self) -> Freshness:
        """Return the last followed commit, and when it was last known as the newest."""
        return self._fresh

    def record(self, call: CallRecord) -> None:
        """Log a refused call, because only the active process writes the audit."""
        what = call.object if call.request == OMITTED else "a call"
        facts = (what, call.principal or call.address, call.outcome)
        log.warning("refused %s of %s: %s", *facts, extra={"action": "refused"})

    def _is_stale(self) -> bool:
        return self.age_ms(self._fresh) > STALE_MS_MAX

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
                self.record_omitted()
                self._store.wait_for_commit(LOOK_S_MAX)
            except FollowedTooLate:
                self.view = None
            except ForewarnError as error:
                if isinstance(error, StoreWentBack):
                    self._status.trouble_with(error)
                else:
                    self._note_trouble(error)
                self._stopping.wait(1)
            except Exception:
                log.exception("following a commit failed because of a bug; loading the state again")
                self.view = None
                self._stopping.wait(1)

    def _note_trouble(self, error: ForewarnError) -> None:
        """Log once why the state cannot be followed, since this process could not take over."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            text = "the state cannot be followed: %s %s"
            log.warning(text, error, error.advice_text(), extra={"action": error.code})

    def _follow(self) -> None:
        as_of_ms = self._clock.elapsed_ms()
        if self.view is None:
            view = self._load()
        else:
            view = self.view
            if (changes := self._store.catch_up(view.state)) is not None:
                self._take(view, changes)
        self._fresh = Freshness(self._store.generation, as_of_ms, self._store.history_seq)
        self.on_committed.notify()
        if self._trouble:
            self._trouble = ""
            log.info("the state is followed again", extra={"action": "standby.follows"})
        while isinstance(item := self._inbox.take(0), StateQuery):
            item.run(view)

    def _load(self) -> StateView:
        state = self._store.follow()
        view = self.view = StateView(state, self._store, self._policy, new_guid=self._new_guid)
        # Readers count adoptions, each of one or more commits.
        view.sequence = max(self._store.generation, self._sequence + 2)
        self._hidden = document_changes.hidden_groups(state)
        self._show(document_changes.loaded(state, self._store.generation), self._store.generation)
        self.replica.begin(view)
        self._announce(view, Changes(last_number=state.last_number))
        return view

    def _take(self, view: StateView, changes: Changes) -> None:
        """Forward the changes of commits that the view's state already contains."""
        generation = self._store.generation
        change = document_changes.difference(view.state, changes, generation)
        if self._hidden and self._hidden != (hidden := document_changes.hidden_groups(view.state)):
            self._hidden = hidden
            change = document_changes.loaded(view.state, generation)
        self._show(change, generation)
        view.note(changes, view.sequence + 1)
        self._announce(view, changes)

    def _announce(self, view: StateView, changes: Changes) -> None:
        self._sequence = view.sequence
        self.on_committed.put(StepResult(changes=changes, sequence=view.sequence))


class LeaseKeeper:
    """Renews the lease until it is stopped, or another process holds it.

    The thread continues during an outage of the database: VMs are answered from memory, without
    commits. If another process becomes the writer during the outage, the store refuses this
    process's commits. A term after the last renewal, the lease counts as `lapsed`.
    """

    def __init__(
        self,
        tenure: Tenure,
        clock: Clock,
        lost: Callable[[ForewarnError], None],
        *,
        silent: Callable[[], tuple[str, ...]] = tuple,
        on_lapse: Callable[[bool], object] = lambda _: None,
        on_renewal: Callable[[int], object] = lambda _: None,
        on_return: Callable[[], object] = lambda: None,
    ) -> None:
        """Start renewing the lease; `silent` returns the hanging parts of the service.

        `lost` is called on the keeper's thread once another process holds the lease, `on_lapse` on
        any thread when the lease has lapsed, and when it is held again. `on_renewal` receives how
        long the lease is held, in ms, on any thread. `on_return` is called on the keeper's thread
        after a failed renewal, before the next one, which does not happen if it fails.
        """
        self._tenure = tenure
        self._clock = clock
        self._lost = lost
        self._silent = silent
        self._on_lapse = on_lapse
        self._on_renewal = on_renewal
        self._on_return = on_return
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._was_lapsed = False
        self._looking = threading.Lock()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="lease watch", daemon=True).start()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopping.set()
        self._due.set()
        self._thread.join(LAST_RENEWAL_S_MAX)

    def renew(self) -> None:
        """Renew now, so that followers learn this process's URL; returns at once."""
        self._due.set()

    def lapsed(self) -> bool:
        """Whether another process may be the writer by now; callable on any thread."""
        return not self._tenure.held(self._clock.now_ms())

    def look(self) -> bool:
        """Report a lapse of the lease or its end; return whether it has lapsed. On any thread."""
        with self._looking:
            if self.lapsed() is not self._was_lapsed:
                self._was_lapsed = not self._was_lapsed
                self._on_lapse(self._was_lapsed)
            return self._was_lapsed

    def report(self) -> None:
        """Report for how long the lease is held."""
        self._on_renewal(self._tenure.left_ms(self._clock.now_ms()))

    def _watch(self) -> None:
        """Report a lapse of the lease, even while a renewal hangs because of the database."""
        while not self._stopping.wait(LOOK_S_MAX):
            self.look()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._due.wait(self._tenure.term_ms / RENEWALS / 1000)
            self._due.clear()
            if self._stopping.is_set():
                return
            try:
                if silent := self._silent():
                    raise ServiceHangs(parts=" and ".join(silent))
                if self._said:
                    self._on_return()
                held = self._tenure.attempt(self._clock.now_ms())
            except ForewarnError as error:
                if str(error) != self._said:
                    self._said = str(error)
                    text = "the lease could not be renewed: %s"
                    log.warning(text, error, extra={"action": error.code})
                continue
            if not held:
                self.report()
                self._lost(StoreLost(place=self._tenure.place))
                return
            self.report()
            if self._said:
                self._said = ""
                log.info("the lease is renewed again", extra={"action": "lease.renewed"})


class UnsharedLease:
    """The lease of a store that only this process uses; it never lapses."""

    def lapsed(self) -> bool:
        """Whether another process may be the writer by now."""
        return False

    def look(self) -> bool:
        """Whether the lease has lapsed."""
        return False

    def renew(self) -> None:
        """Do nothing: no process waits for a renewal."""

    def report(self) -> None:
        """Do nothing: nobody follows the lease."""


async def leave(tenure: Tenure) -> None:
    """Release the lease if the database is reachable; otherwise the lease ends with its term."""
    try:
        await asyncio.to_thread(tenure.release)
    except PeerError as error:
        log.warning("the lease could not be released: %s", error, extra={"action": error.code})
