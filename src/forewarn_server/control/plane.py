"""The control plane: the live state, queries on it, and its only writer.

Each use case is one transaction. The phases are separate so that the caller can order them, and the
simulator can break them: `commit`, then publish the `change_of` the result, then begin its
effects (L-7). `run_loop.py` adds the thread, the clock and the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import CallerError
from forewarn_base.garbage import uncollected
from forewarn_base.values import replace
from forewarn_core.access.roles import Authority
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.policy import NoticePolicy, maintenance_policy
from forewarn_core.fleet.refusals import MaintenanceWrongState, Unknown, WrongState
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.step import StepResult, joined, next_deadline_ms, take
from forewarn_core.fleet.stimulus import (
    WORDS,
    Cancel,
    ChangeTopology,
    Complete,
    DecideDeferral,
    DeclareMaintenance,
    GroupsPolled,
    OperatorWord,
    PlaneStimulus,
    Recover,
    ReopenTicket,
    Retry,
    act_of,
)
from forewarn_core.fleet.targets import silent_groups
from forewarn_core.fleet.topology import Topology
from forewarn_core.fleet.waiting import unseen_vms, waits_until_shown
from forewarn_core.fleet.why import why
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import Blocker
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_server.control import document_changes
from forewarn_store import HistoryPage, Store


class StateView:
    """The state as of one commit; the run loop uses the original, and other threads use a copy.

    Not thread-safe: one thread owns it.
    """

    def __init__(
        self,
        state: State,
        store: Store,
        policy: NoticePolicy,
        *,
        new_guid: Callable[[], str],
        missing_driver: Callable[[str], str] = lambda _: "",
        driver_waits: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Wrap a state; the store has ended operations, `new_guid` returns ids for drafts.

        `missing_driver` returns why a driver is missing here, by its name; empty while it is there.
        `driver_waits` returns what the driver of an operation waits for; empty while it works.
        """
        self.state = state
        self.store = store
        self.policy = policy
        #: Grows by one with each writing commit.
        self.sequence = store.generation
        #: Number of the last entry of history in the state that the store's owner changes.
        self.history_seq = store.history_seq
        self._new_guid = new_guid
        self._missing_driver = missing_driver
        self._driver_waits = driver_waits
        self._follower: Callable[[tuple[Changes, int]], None] = lambda _: None
        #: Cached views of the state and its layout, each restricted to some owners (P-3).
        self.scoped: dict[frozenset[str], StateView] = {}
        self.scoped_layouts: dict[frozenset[str], Topology] = {}
        #: The view of the whole state, if this view is restricted to some owners: for questions
        #: that restrict their answer themselves.
        self.unscoped: StateView | None = None

    @property
    def maintenance_policy(self) -> MaintenancePolicy:
        """The budgets, windows, pauses and confirmations in force."""
        return maintenance_policy(self.state.applied_policy, self.policy)

    def follow(self, follower: Callable[[tuple[Changes, int]], None]) -> None:
        """Call a quick follower with each further change and its sequence number."""
        self._follower = follower

    def note(self, changes: Changes, sequence: int) -> None:
        """Pass a change of the state to the follower; its sequence number is this view's now."""
        self._follower((changes, sequence))
        self.history_seq = self.store.history_seq
        self.sequence = sequence  # callers notified of it may read it

    def adopt(self, changes: Changes, sequence: int) -> None:
        """Apply durable changes of a commit; costs the records they touch."""
        if changes.of_fleet or changes.topology is not None:
            self.scoped_layouts.clear()
        self.scoped.clear()
        self.state.adopt(changes)
        self.sequence = sequence

    def fleet(self) -> Topology:
        """Return an unchanging view of the fleet for other threads, at no cost.

        A change of the fleet copies the fleet first if a reader still uses the view.
        """
        return self.state.topology.shared()

    def view(self, driver_waits: Callable[[int], str] = lambda _: "") -> StateView:
        """Return a copy of the current state for another thread; costs the tables."""
        return self.beside(self.state.copy(), driver_waits)

    def beside(self, state: State, driver_waits: Callable[[int], str] | None = None) -> StateView:
        """Return a view of another state as of the same commit."""
        view = StateView(
            state,
            self.store,
            self.policy,
            new_guid=self._new_guid,
            missing_driver=self._missing_driver,
            driver_waits=driver_waits or self._driver_waits,
        )
        view.sequence = self.sequence
        return view

    def why(self, number: int, now_ms: int) -> tuple[Blocker, ...]:
        """Return all blockers of a live operation; empty if it has ended or never existed."""
        operation = self.state.operations.get(number)
        if operation is None:
            return ()
        return why(self.draft(now_ms), operation)

    def draft(self, now_ms: int) -> Draft:
        """Return a draft to read the state; its changes are never committed."""
        terms = Terms(
            self.policy,
            "",
            self._new_guid,
            driver_waits=self._driver_waits,
            missing_driver=self._missing_driver,
        )
        return Draft(self.state, now_ms, terms)


class ControlPlane(StateView):
    """The state and its only writer.

    Not thread-safe: the loop owns it.
    """

    def __init__(
        self,
        store: Store,
        policy: NoticePolicy,
        new_guid: Callable[[], str],
        *,
        followed: State | None = None,
        missing_driver: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Load the state, or only the changes since `followed`; call `recover` next."""
        state = store.load(followed)
        super().__init__(state, store, policy, new_guid=new_guid, missing_driver=missing_driver)
        #: Default driver, for hosts without a named driver.
        self.default_driver = ""
        #: The service itself may have set poll times up to this time, ms since the epoch UTC.
        #: Source: B-2, F-5.
        self._forgiven_ms = 0

    def recover(self, now_ms: int) -> StepResult:
        """Resume interrupted work; publish `whole` instead of the change. Source: L-7.

        Raises:
            ForewarnError: the store cannot be written; the caller must not decide anything.
        """
        self.store.confirm()
        recovered = self.commit(Recover(self._away_ms(now_ms)), actor="clock", now_ms=now_ms)
        self._forgiven_ms = now_ms
        return recovered

    def forgive_silence(self, step_ms: int, now_ms: int) -> None:
        """Count groups as polled now, because the clock was stepped. Source: B-2, F-5.

        After a step ahead, no group was silent for the skipped time. After a step back, poll times
        ahead of the clock prove nothing.

        Raises:
            ForewarnError: the store cannot be written; the caller must not decide anything.
        """
        enrolments = self.state.enrolments.items()
        groups = (name for name, each in enrolments if step_ms > 0 or each.polled_ms > now_ms)
        self.commit(GroupsPolled(frozenset(groups), forgiven=True), actor="clock", now_ms=now_ms)
        self._forgiven_ms = now_ms

    def commit(self, stimulus: PlaneStimulus, *, actor: str, now_ms: int) -> StepResult:
        """Decide and write in one transaction, or undo.

        Raises:
            CallerError: the stimulus is refused; nothing was changed.
            ForewarnError: the store could not write; nothing was changed here. After
                `StoreUncertain`, call `settle` first.
        """
        drafts = [self.decide(stimulus, actor=actor, now_ms=now_ms)]
        return self.write(drafts)

    def decide(
        self,
        stimulus: PlaneStimulus,
        *,
        actor: str,
        now_ms: int,
        authority: Authority | None = None,
    ) -> Draft:
        """Take one of the steps that `write` stores together.

        `authority` is that of a caller whom a second person may have to confirm. Source: P-8.

        Raises:
            CallerError: the stimulus is refused; the earlier steps remain.
        """
        terms = Terms(
            self.policy,
            actor,
            self._new_guid,
            self.default_driver,
            authority=authority,
            missing_driver=self._missing_driver,
        )
        # A change of the fleet may contain thousands of records, which all stay in memory.
        act = act_of(stimulus)
        if isinstance(stimulus, ReopenTicket):
            stimulus = replace(stimulus, ended=self.store.ticket(stimulus.ticket))
        with uncollected() if isinstance(act, ChangeTopology) else nullcontext():
            try:
                return take(self.state, stimulus, now_ms=now_ms, terms=terms)
            except Unknown as unknown:
                raise self._ended(act) or unknown from unknown

    def write(self, drafts: Sequence[Draft], call: CallRecord | None = None) -> StepResult:
        """Write all steps in one transaction, or undo all of them; at least one step.

        `call` describes their request for the audit.

        Raises:
            ForewarnError: as `commit`.
        """
        try:
            result = joined(drafts, call)
            written = result.changes
            if written:
                with uncollected() if written.of_fleet else nullcontext():
                    self.store.commit(written)
        except BaseException:
            self.state.rollback()
            raise
        self.state.keep()
        if written:
            self.note(written, self.store.generation)
        return replace(result, sequence=self.sequence)

    def change_of(self, result: StepResult) -> DocumentChange | None:
        """Return the last commit as a change for metadata nodes; None if no VM sees a difference.

        An approval that waits for other approvals, or a query, shows VMs nothing new.
        """
        written = result.changes
        if not (written.views or written.operations or written.of_fleet):
            return None
        return document_changes.difference(self.state, written, self.store.generation)

    def settle(self) -> None:
        """Adopt a commit with unknown result if the store has it; call `recover` next.

        Raises:
            StoreLost: another process has become the writer.
            ForewarnError: the store does not answer now.
        """
        happened = self.store.settle()
        if happened is not None:
            self.state.adopt(happened)
            self.note(happened, self.store.generation)

    def silent_groups(self, number: int, now_ms: int) -> tuple[str, ...]:
        """Return the groups that polled before a maintenance's last wave and not since. F-5."""
        self._forgiven_ms = min(self._forgiven_ms, now_ms)  # smaller steps back are not followed
        return silent_groups(self.draft(now_ms), number, self._forgiven_ms)

    def whole(self) -> DocumentChange:
        """Return the complete content for metadata nodes."""
        return document_changes.whole(self.state, self.store.generation)

    def taken_up(self) -> DocumentChange | None:
        """Return the visible changes of commits that a followed state lacked.

        None: show everything first, because nothing was followed or a notice was never shown.
        """
        changes = self.store.taken_up
        if changes is None or document_changes.hidden_groups(self.state):
            return None
        generation = self.store.generation
        change = document_changes.difference(self.state, changes, generation)
        return change or DocumentChange(generation)

    def waiting_to_be_shown(
        self, numbers: tuple[int, ...], hosts: tuple[str, ...], now_ms: int
    ) -> tuple[int, ...]:
        """Return the operations that wait until their VMs on these hosts can see them. H-7.

        Without hosts, the VMs of every host count.
        """
        draft, operations = self.draft(now_ms), self.state.operations
        live = (operations[number] for number in numbers if number in operations)
        return tuple(
            each.number
            for each in live
            if waits_until_shown(draft, each, unseen_vms(draft, each, hosts))
        )

    def unshown(self, numbers: Iterable[int]) -> tuple[DocumentChange, tuple[int, ...]]:
        """Return the documents of announced work whose notice is not known to be published yet.

        Also returns the numbers of those operations. Costs the documents of their groups. Source:
        H-7.

        Raises:
            StoreLost: another process is the writer.
            ForewarnError: the store does not answer now.
        """
        self.store.confirm()
        operations = (self.state.operations.get(number) for number in numbers)
        left = [each for each in operations if each and each.unnoticed]
        change = document_changes.documents_of(self.state, left, self.store.generation)
        return change, tuple([each.number for each in left])

    def loaded(self) -> DocumentChange:
        """Return the documents that metadata nodes may show while the service cannot decide."""
        return document_changes.loaded(self.state, self.store.generation, nodes_wait=True)

    def withheld(self) -> DocumentChange:
        """Return the VMs without documents; metadata nodes keep the documents that they show."""
        groups = frozenset(self.state.topology.groups)
        generation = self.store.generation
        return document_changes.whole(self.state, generation, hidden=groups, nodes_wait=True)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return the next deadline, ms since the epoch UTC; None without one."""
        return next_deadline_ms(self.state, self.policy, now_ms)

    def _away_ms(self, now_ms: int) -> int:
        """Return the time since the last entry of history or poll, in ms. (B-2)."""
        entries = self.store.history(HistoryPage(limit=1, newest_first=True))
        seen_ms = [each.polled_ms for each in self.state.enrolments.values()]
        seen_ms += [recorded.entry.at_ms for recorded in entries]
        return max(now_ms - max(seen_ms, default=now_ms), 0)

    def shown_by(self, result: StepResult) -> tuple[int, ...]:
        """Return the operations that VMs see because of a commit.

        These are the changed ones, and those in new documents. A group whose kind changes has new
        documents, and its VMs must see work there before the work begins. Source: L-7.
        """
        written = result.changes
        entries = [each for each in written.entries if each.action == "document.opened"]
        if not entries:
            return tuple(written.operations)
        new = {image.key for entry in entries for image in entry.images}
        views = [view for key, view in written.views.items() if view and key in new]
        ids = {event.event_id for view in views for event in view.document.events}
        events = [written.events.get(each) or self.state.events.get(each) for each in ids]
        others = {each.operation for each in events if each} - written.operations.keys()
        return (*written.operations, *sorted(others))

    def _ended(self, stimulus: PlaneStimulus) -> CallerError | None:
        """Return an error if an operation or maintenance has ended; otherwise None."""
        verb = WORDS.get(type(stimulus), "")
        if isinstance(stimulus, OperatorWord | DeclareMaintenance | DecideDeferral):
            ended = self.store.maintenances.get(stimulus.maintenance)
            if ended is not None:
                state = ended.state.value
                return MaintenanceWrongState(maintenance=ended.id, state=state, asked=verb)
        elif isinstance(stimulus, Cancel | Complete | Retry):
            operation = self.store.operation(stimulus.operation)
            if operation is not None:
                return WrongState(operation=operation.id, state=operation.state.value, asked=verb)
        return None
