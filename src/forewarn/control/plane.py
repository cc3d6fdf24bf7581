"""The control plane: the live state, what can be asked of it, and the one who changes it.

Each use case is one transaction. The phases stand apart so that their order can be kept, and
broken in the simulator: `commit`, then the caller publishes `Committed.change`, then begins
`Committed.follow_up` (L-7). No thread, no clock and no network may live here: see `engine.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from forewarn.control import publication
from forewarn.core.draft import Draft, Terms
from forewarn.core.lifecycle import Operation
from forewarn.core.policy import maintenance_policy
from forewarn.core.refusals import MaintenanceWrongState, Unknown, WrongState
from forewarn.core.state import Entry
from forewarn.core.step import FollowUp, next_deadline_ms, step
from forewarn.core.stimulus import (
    WORDS,
    Cancel,
    ChangeTopology,
    Complete,
    GroupsPolled,
    OperatorWord,
    Recover,
    Retry,
)
from forewarn.core.targets import silent_groups
from forewarn.core.unseen import unseen_vms, waits_until_shown
from forewarn.core.why import why
from forewarn.garbage import uncollected
from forewarn.replication.messages import DocumentChange
from forewarn.store import HistoryPage
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from forewarn.audit_chain import CallRecord
    from forewarn.core.maintenance import Maintenance
    from forewarn.core.policy import NoticePolicy
    from forewarn.core.state import Changes, State
    from forewarn.core.stimulus import Stimulus
    from forewarn.core.topology import Topology
    from forewarn.errors import CallerError
    from forewarn.planning.blockers import Blocker
    from forewarn.planning.policy import MaintenancePolicy
    from forewarn.store import Store


@value
class Committed:
    """What is durable now, and what must be done about it, in this order: publish, begin, abort."""

    #: Operations the stimulus was about, as they are now.
    operations: tuple[Operation, ...] = ()
    #: To be published; None if no VM sees a difference.
    change: DocumentChange | None = None
    #: Numbers of further operations that it shows, in documents that were not there before.
    shown: tuple[int, ...] = ()
    #: To be done once that is published.
    follow_up: FollowUp = FollowUp()
    #: Operations to go on with in a commit of its own: see `Proceed`.
    rest: tuple[int, ...] = ()
    #: Maintenances to make a plan for.
    plan: tuple[int, ...] = ()
    #: The maintenance the stimulus was about, as it is now.
    maintenance: Maintenance | None = None
    #: What was written, for those who keep a copy of the state; None: nothing.
    changes: Changes | None = None
    #: Grows by one with each commit that has written something.
    sequence: int = 0

    @property
    def entries(self) -> Sequence[Entry]:
        """What history has of it."""
        return self.changes.entries if self.changes else ()


class StateView:
    """The state as of one commit; the run loop asks its own, everybody else a copy.

    Not for several threads: one owns it.
    """

    def __init__(
        self, state: State, store: Store, policy: NoticePolicy, *, new_guid: Callable[[], str]
    ) -> None:
        """Look at a state.

        Args:
            state: the current state.
            store: holds ended operations and events.
            policy: notice and limits.
            new_guid: gives ids to the events of drafts.
        """
        self.state = state
        self.store = store
        self.policy = policy
        #: Grows by one with each commit that has written something.
        self.sequence = store.generation
        self._new_guid = new_guid
        #: Given what was adopted, with the sequence as of it; must be quick.
        self.on_adopted: Callable[[tuple[Changes, int]], None] = lambda _: None
        #: Who or what the driver of an operation waits for; set by the engine.
        self.driver_waits: Callable[[int], str] = lambda _: ""
        #: What some owners may see of the state, and of its layout, made when they ask (P-3).
        self.scoped: dict[frozenset[str], StateView] = {}
        self.scoped_layouts: dict[frozenset[str], Topology] = {}

    @property
    def maintenance_policy(self) -> MaintenancePolicy:
        """The budgets, windows, pauses and confirmations in force."""
        return maintenance_policy(self.state.applied_policy, self.policy)

    def adopt(self, changes: Changes, sequence: int) -> None:
        """Apply durable changes, as of a commit; costs the records they touch."""
        if changes.of_fleet or changes.topology is not None:
            self.scoped_layouts.clear()
        self.scoped.clear()
        self.state.adopt(changes)
        self.sequence = sequence

    def fleet(self) -> Topology:
        """Return an unchanging view of the fleet, for other threads to read; costs nothing.

        A change of the fleet copies it first, if a reader still has it by then.
        """
        return self.state.topology.shared()

    def view(self) -> StateView:
        """Return a copy of the current state, for another thread; costs the tables."""
        return self.beside(self.state.copy())

    def beside(self, state: State) -> StateView:
        """Return a view of another state, as of the same commit."""
        view = StateView(state, self.store, self.policy, new_guid=self._new_guid)
        view.driver_waits = self.driver_waits
        view.sequence = self.sequence
        return view

    def why(self, number: int, now_ms: int) -> tuple[Blocker, ...]:
        """Everything a live operation waits for; empty if it has ended or never was."""
        operation = self.state.operations.get(number)
        if operation is None:
            return ()
        return why(self.draft(now_ms), operation)

    def draft(self, now_ms: int) -> Draft:
        """Return a draft to read the state; nothing of it is kept."""
        terms = Terms(self.policy, "", self._new_guid, driver_waits=self.driver_waits)
        return Draft(self.state, now_ms, terms)


class ControlPlane(StateView):
    """Holds the state, and is the only one who changes it.

    Not for several threads: the loop owns it.
    """

    def __init__(
        self,
        store: Store,
        policy: NoticePolicy,
        new_guid: Callable[[], str],
        *,
        followed: State | None = None,
    ) -> None:
        """Load the state, or what `followed` lacks of it; call `recover` before anything else."""
        super().__init__(store.load(followed), store, policy, new_guid=new_guid)
        #: Driver of hosts that name none.
        self.default_driver = ""
        #: Marks of polls up to this time may be ours, ms since the epoch UTC. Source: B-2, F-5.
        self._forgiven_ms = 0

    def recover(self, now_ms: int) -> Committed:
        """Resume work that a crash cut off; publish `whole` in place of the change. Source: L-7.

        Raises:
            ForewarnError: the store cannot be written; nothing may be decided.
        """
        self.store.confirm()
        recovered = self.commit(Recover(self._away_ms(now_ms)), actor="clock", now_ms=now_ms)
        self._forgiven_ms = now_ms
        return recovered

    def forgive_silence(self, now_ms: int) -> None:
        """Count all groups as polled now: the clock skipped time in which they may have. B-2.

        Raises:
            ForewarnError: the store cannot be written; nothing may be decided.
        """
        polled = GroupsPolled(frozenset(self.state.enrolments))
        self.commit(polled, actor="clock", now_ms=now_ms)
        self._forgiven_ms = now_ms

    def doubt_polls(self, now_ms: int) -> None:
        """Count no poll so far as one after a wave: the clock was put back, to this time. F-5.

        Raises:
            ForewarnError: the store cannot be written; nothing may be decided.
        """
        enrolments = self.state.enrolments.items()
        ahead = frozenset(group for group, each in enrolments if each.polled_ms > now_ms)
        self.commit(GroupsPolled(ahead), actor="clock", now_ms=now_ms)
        self._forgiven_ms = now_ms

    def commit(
        self, stimulus: Stimulus, *, actor: str, now_ms: int, call: CallRecord | None = None
    ) -> Committed:
        """Decide, write in one transaction, or undo it; `call` is what the audit says of it.

        Raises:
            CallerError: the stimulus is refused; nothing was changed.
            ForewarnError: the store could not write; nothing was changed here. After
                `StoreUncertain`, `settle` before anything else.
        """
        # A change of the fleet may be thousands of records, all of which stay.
        with uncollected() if isinstance(stimulus, ChangeTopology) else nullcontext():
            return self._committed(stimulus, actor=actor, now_ms=now_ms, call=call)

    def _committed(
        self, stimulus: Stimulus, *, actor: str, now_ms: int, call: CallRecord | None
    ) -> Committed:
        terms = Terms(self.policy, actor, self._new_guid, self.default_driver)
        try:
            outcome = step(self.state, stimulus, now_ms=now_ms, terms=terms)
        except Unknown as unknown:
            raise self._ended(stimulus) or unknown from unknown
        written = outcome.changes
        if written:
            written.call = call
            try:
                self.store.commit(written)
            except BaseException:
                self.state.rollback()
                raise
        self.state.keep()
        if written:
            self._note(written)
        # An approval that others must follow shows VMs nothing new, and a question even less.
        visible = written.views or written.operations or written.of_fleet
        generation = self.store.generation
        return Committed(
            operations=self._now(outcome.operations, written.operations),
            change=(publication.difference(self.state, written, generation) if visible else None),
            shown=self._shown_in_new_documents(written),
            follow_up=outcome.follow_up,
            rest=outcome.rest,
            plan=outcome.plan,
            maintenance=self._maintenance(outcome.operations, written),
            changes=written or None,
            sequence=self.sequence,
        )

    def settle(self) -> None:
        """Adopt a commit whose end was unknown, if it happened; `recover` before anything else.

        Raises:
            StoreLost: another process has become the writer.
            ForewarnError: the store cannot say now.
        """
        happened = self.store.settle()
        if happened is not None:
            self.state.adopt(happened)
            self._note(happened)

    def silent_groups(self, number: int, now_ms: int) -> tuple[str, ...]:
        """Return the groups that polled before a maintenance's last wave, and not since. F-5."""
        self._forgiven_ms = min(self._forgiven_ms, now_ms)  # put back by less than is followed
        return silent_groups(self.draft(now_ms), number, self._forgiven_ms)

    def whole(self) -> DocumentChange:
        """Everything metadata nodes must know now."""
        return publication.whole(self.state, self.store.generation)

    def taken_up(self) -> DocumentChange | None:
        """What VMs see of the commits that a followed state lacked.

        None: the whole is to be shown first, as nothing was followed, or a notice was never shown.
        """
        changes = self.store.taken_up
        if changes is None or publication.hidden_groups(self.state):
            return None
        generation = self.store.generation
        change = publication.difference(self.state, changes, generation)
        return change or DocumentChange(generation)

    def confirmed(self) -> DocumentChange:
        """The same, once the store has confirmed that this process is still the writer. L-7.

        Raises:
            StoreLost: another process is.
            ForewarnError: the store cannot say now.
        """
        self.store.confirm()
        return self.whole()

    def waiting_to_be_shown(
        self, numbers: tuple[int, ...], hosts: tuple[str, ...], now_ms: int
    ) -> tuple[int, ...]:
        """Return the operations that wait until their VMs on these hosts are shown them. H-7.

        Without hosts, that is on any.
        """
        draft, operations = self.draft(now_ms), self.state.operations
        live = (operations[number] for number in numbers if number in operations)
        return tuple(
            each.number
            for each in live
            if waits_until_shown(draft, each, unseen_vms(draft, each, hosts))
        )

    def unshown(self, numbers: Iterable[int]) -> tuple[DocumentChange, tuple[int, ...]]:
        """Return the documents of announced work whose notice is not known to be shown yet.

        With the numbers of those operations. Costs the documents of their groups. Source: H-7.

        Raises:
            StoreLost: another process is the writer.
            ForewarnError: the store cannot say now.
        """
        self.store.confirm()
        operations = (self.state.operations.get(number) for number in numbers)
        left = [each for each in operations if each and each.unnoticed]
        change = publication.documents_of(self.state, left, self.store.generation)
        return change, tuple([each.number for each in left])

    def loaded(self) -> DocumentChange:
        """What metadata nodes may know while nothing can be decided."""
        return publication.loaded(self.state, self.store.generation)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When time alone makes something happen, ms since the epoch UTC; None if never."""
        return next_deadline_ms(self.state, self.policy, now_ms)

    def _away_ms(self, now_ms: int) -> int:
        """How long there was no sign of the service, in ms: no entry of history, no poll. (B-2)."""
        entries = self.store.history(HistoryPage(limit=1, newest_first=True))
        seen_ms = [each.polled_ms for each in self.state.enrolments.values()]
        seen_ms += [recorded.entry.at_ms for recorded in entries]
        return max(now_ms - max(seen_ms, default=now_ms), 0)

    def _shown_in_new_documents(self, written: Changes) -> tuple[int, ...]:
        """Return the operations that VMs see in documents that were not there before.

        A group whose kind changes has new documents; its VMs must see work there before it begins.
        Source: L-7.
        """
        entries = [each for each in written.entries if each.action == "document.opened"]
        new = {image.key for entry in entries for image in entry.images}
        views = [view for key, view in written.views.items() if view and key in new]
        ids = {event.event_id for view in views for event in view.document.events}
        events = [written.events.get(each) or self.state.events.get(each) for each in ids]
        return tuple(
            sorted({each.operation for each in events if each} - written.operations.keys())
        )

    def _note(self, written: Changes) -> None:
        """Pass a change to those who keep a copy of the state."""
        sequence = self.store.generation
        self.on_adopted((written, sequence))
        self.sequence = sequence  # who sees it may read what it has

    def _now(
        self, numbers: tuple[int, ...], written: dict[int, Operation]
    ) -> tuple[Operation, ...]:
        state = self.state
        live = [
            written.get(n) or state.operations.get(n) or state.aborts.get(n)
            for n in dict.fromkeys(numbers)
        ]
        return tuple(operation for operation in live if operation is not None)

    def _maintenance(self, numbers: tuple[int, ...], written: Changes) -> Maintenance | None:
        live = [
            written.maintenances.get(number) or self.state.maintenances.get(number)
            for number in numbers[:1]
        ]
        return live[0] if live else None

    def _ended(self, stimulus: Stimulus) -> CallerError | None:
        """Return an error if an operation or maintenance has ended; else None."""
        asked = WORDS.get(type(stimulus), "")
        if isinstance(stimulus, OperatorWord):
            ended = self.store.maintenances.get(stimulus.maintenance)
            if ended is not None:
                state = ended.state.value
                return MaintenanceWrongState(maintenance=ended.id, state=state, asked=asked)
        elif isinstance(stimulus, Cancel | Complete | Retry):
            known = self.store.operation(stimulus.operation)
            if known is not None:
                return WrongState(operation=known.id, state=known.state.value, asked=asked)
        return None
