"""The store: the durable state and history, written by one process and read by many threads.

The control plane keeps the live state in memory; the store makes each step durable before it is
shown. No rule about what may change lives here, and no SQL: see `queries.sql`.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

from forewarn.core.document import Enrolment
from forewarn.core.records import to_row
from forewarn.core.state import Changes, State
from forewarn.errors import ForewarnError
from forewarn.garbage import uncollected
from forewarn.ids import Ids
from forewarn.store.addresses import engine_of
from forewarn.store.answers import KeptAnswer, KeptAnswers, put_answer
from forewarn.store.audit import AuditTrail
from forewarn.store.cursors import OutboxCursors
from forewarn.store.errors import (
    FollowedTooLate,
    StoreDamaged,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    StoreUncertain,
    StoreUnrestored,
)
from forewarn.store.following import changes_since
from forewarn.store.images import history_rows
from forewarn.store.lease import Lease
from forewarn.store.loading import loaded
from forewarn.store.maintenances import MaintenanceReader
from forewarn.store.migrations import migrate
from forewarn.store.reading import HistoryPage, OperationPage, Recorded, StoreReader
from forewarn.store.retention import Retention, trim
from forewarn.store.statements import APART

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forewarn.audit_chain import CallRecord
    from forewarn.store.engine import Engine, Row, Transaction

log = logging.getLogger("forewarn.store")

__all__ = [
    "HistoryPage",
    "Lease",
    "OperationPage",
    "Recorded",
    "Retention",
    "Store",
    "open_store",
]

#: The epoch of a store whose restore has not ended.
RESTORING = "restoring"
#: Entries of history that a follower takes up at once; beyond that it loads the whole state.
FOLLOWED_MAX = 20_000
#: How far the clocks of writer and database may differ before that is reported, in ms.
CLOCK_OFF_MS = 1000
#: VMs from which on a fleet is not looked through for garbage: a million took 1.5 s each time.
FROZEN_VMS_MIN = 10_000


class Store(StoreReader):
    """One open store.

    `load`, `commit` and `settle` belong to the one writing thread; everything else may be called
    from any thread while it writes.

    Every commit is a compare-and-set on a generation that grows by one each time. `load` advances
    it too, so the writer before gets `StoreLost` at its next commit: two processes can never
    both write, whatever they believe about the lease. Source: L-7, invariant 8.
    """

    def __init__(self, engine: Engine) -> None:
        """Use an engine whose schema is up to date."""
        super().__init__(engine)
        self.maintenances = MaintenanceReader(self)
        self.cursors = OutboxCursors(engine)
        self.audit = AuditTrail(engine)
        self.answers = KeptAnswers(engine)
        self._writer = Ids().token("writer")
        #: Generation with which this process became the writer: greater than any before it.
        self.writer_generation = 0
        #: Names the sequence that generations are numbers of; kept with them.
        self.epoch = ""
        #: Number of the last commit; it grows by one with each, and is durable.
        self.generation = 0
        self._history_seq = 0
        #: What `load` has added to the state that was followed; None: it has loaded the whole.
        self.taken_up: Changes | None = None
        #: The service's clock, once it decides by it; compared with the database's.
        self.clock_ms: Callable[[], int] | None = None
        self._clock_off = False
        #: Where other processes reach the operator API of this one; empty: not yet.
        self.url = ""
        #: Whether this process goes on with a restore that has not ended.
        self.restoring = False
        #: Whether this process has become the writer of the loaded state.
        self._claimed = True
        #: The commit whose end is unknown, if one is.
        self._uncertain: Changes | None = None
        #: Why the last commit was refused, if it was; may be read on any thread.
        self.commit_refused = ""
        #: VMs of live operations as `operation_vm` has them.
        self._placed: dict[int, tuple[str, ...]] = {}
        #: Live maintenances whose hosts are written.
        self._described: set[int] = set()

    @property
    def place(self) -> str:
        """What is open, for people; never holds a password."""
        return self._engine.place

    @property
    def shared(self) -> bool:
        """Whether other processes may take part in it."""
        return self._engine.is_shared

    @property
    def history_seq(self) -> int:
        """Sequence number of the last entry of history that this process knows of; 0: none."""
        return self._history_seq

    def load(self, followed: State | None = None) -> State:
        """Become the writer and return everything that is true now.

        `followed`, as `look` and `catch_up` left it, is brought up to date, which costs what other
        processes have changed since, and the groups. A store that can only be read now is loaded
        all the same, so that VMs are shown what they were shown before; this process becomes the
        writer as soon as it can be written.

        Raises:
            StoreUnrestored: a restore has not ended.
            StoreDamaged: a record cannot be what the store says it is.
            StoreUnavailable: this process is not the writer now.
        """
        self._uncertain = None
        try:
            with uncollected(), self._engine.writing() as transaction:
                service = transaction.rows("claim", writer=self._writer)
                state = self._followed(transaction, service, followed)
                if self.epoch == RESTORING and not self.restoring:
                    raise StoreUnrestored(place=self.place)
            self._claimed = True
        except StoreFull as error:
            log.warning(
                "%s The documents it holds are served.", error, extra={"action": error.code}
            )
            state = self.look()
            self._claimed = False
        if len(state.topology.vms) >= FROZEN_VMS_MIN:
            gc.freeze()
        return state

    def look(self) -> State:
        """Return everything that is true now; another process may be the writer.

        Raises:
            StoreDamaged: a record cannot be what the store says it is.
        """
        with uncollected(), self._engine.reading() as transaction:
            return self._loaded(transaction, transaction.rows("service"))

    def catch_up(self, state: State) -> Changes | None:
        """Bring a state from `look` up to what other processes have committed since.

        Returns:
            What they changed; None: nothing.

        Raises:
            FollowedTooLate: too much has changed; `look` again.
            StoreUnavailable: the database cannot be asked; nothing was changed.
        """
        with self._engine.reading() as transaction:
            service = transaction.rows("service")
            if int(service[0][0]) == self.generation:
                return None
            changes = self._changes_since(transaction, service, state)
            if not changes.entries[0].images:  # poll marks have no image
                changes.enrolments = {
                    each.group: each
                    for each in self.live(transaction, Enrolment)
                    if each != state.enrolments.get(each.group)
                }
        state.adopt(changes)
        self._count(service)
        return changes

    def _followed(self, transaction: Transaction, service: list[Row], state: State | None) -> State:
        """Return the live state, from one that was followed if that is possible."""
        if state is None:
            return self._loaded(transaction, service)
        try:
            changes = self._changes_since(transaction, service, state)
        except FollowedTooLate:
            return self._loaded(transaction, service)
        changes.enrolments = {each.group: each for each in self.live(transaction, Enrolment)}
        state.adopt(changes)
        self.taken_up = changes
        self._count(service)
        self._placed = {each.number: each.vms for each in state.operations.values()}
        self._described = set(state.maintenances)
        return state

    def _changes_since(self, transaction: Transaction, service: list[Row], state: State) -> Changes:
        seq, last_number = int(service[0][1]), int(service[0][2])
        new = seq - self._history_seq
        if not 0 <= new <= FOLLOWED_MAX:
            raise FollowedTooLate(place=self.place)
        rows = transaction.rows("images_since", after=self._history_seq, until=seq) if new else []
        if len(rows) != new:  # a part of history was removed meanwhile
            raise FollowedTooLate(place=self.place)
        changes = changes_since(state, [str(text) for (text,) in rows], last_number)
        changes.mark = str(service[0][3]), int(service[0][4])
        return changes

    def _count(self, service: list[Row]) -> None:
        """Count on from the store's own row."""
        self.generation, self._history_seq = int(service[0][0]), int(service[0][1])
        self.writer_generation, self.epoch = self.generation, str(service[0][5])

    def _loaded(self, transaction: Transaction, service: list[Row]) -> State:
        """Return the live state beside the store's own row."""
        if len(service) != 1:
            raise StoreDamaged(place=self.place, reason="its row in `service` is missing")
        last_number = int(service[0][2])
        changes = loaded(self, transaction, last_number, place=self.place)
        changes.mark = str(service[0][3]), int(service[0][4])
        state = State()
        state.adopt(changes)
        self._count(service)
        self._placed = {each.number: each.vms for each in state.operations.values()}
        self._described = set(state.maintenances)
        assert state.last_number == last_number
        return state

    def _claim(self) -> None:
        """Become the writer of a store that was loaded while it could only be read.

        Where it was not known whether an earlier claim happened, this one finds that out: it may
        be made twice, as nobody else has written as this process.
        """
        if self._claimed:
            return
        with self._engine.writing() as transaction:
            claimed = transaction.rows(
                "claim_seen", writer=self._writer, generation=self.generation
            )
        if not claimed:
            raise StoreLost(place=self.place)
        self.generation = self.writer_generation = int(claimed[0][0])
        self._claimed = True

    def commit(self, changes: Changes) -> int:
        """Make one step durable, whole; return the history sequence it ends with.

        When this returns, the step survives the loss of power. Source: A-6, L-7.

        Raises:
            StoreLost: another process is the writer now; nothing was changed.
            StoreUnavailable, StoreFull: nothing was changed; the same changes may be tried again.
            StoreUncertain: it may have happened; call `settle` until it says, before anything else.
            StoreDamaged, StoreContradiction: nothing was changed; trying again will not help.
        """
        self._claim()
        assert self.generation, "load() makes this process the writer"
        assert self._uncertain is None, "an uncertain commit must be settled first"
        try:
            self._write(changes, self._history_seq + len(changes.entries))
        except StoreUncertain as lost:
            self._uncertain = changes
            if self.settle() is None:
                raise StoreUnavailable(**lost.facts) from lost
        except (StoreFull, StoreUnavailable) as refused:
            self.commit_refused = str(refused)
            raise
        else:
            self._advance(changes)
        self.commit_refused = ""
        return self._history_seq

    def confirm(self) -> None:
        """See that this process is still the writer, before something that cannot be undone.

        May be called from any thread, also while this process commits.

        Raises:
            StoreLost: another process is.
            StoreUnavailable: the database cannot be asked.
            StoreFull: it can only be read, and this process could not become its writer yet.
        """
        self._claim()
        with self._engine.reading() as transaction:
            [(writer,)] = transaction.rows("writer")
        if writer != self._writer:
            raise StoreLost(place=self.place)

    def settle(self) -> Changes | None:
        """Find out whether the uncertain commit happened; afterwards `commit` may be called again.

        Waits for the lost transaction's lock, so that it cannot be decided after the answer.

        Returns:
            What is durable by that commit; None if it did not happen, or none was uncertain.

        Raises:
            StoreUncertain: the database still cannot be asked.
            StoreUnavailable, StoreFull: it cannot be asked, and no commit was uncertain.
            StoreLost: another process has become the writer; only that one knows the outcome.
        """
        self._claim()
        try:
            with self._engine.writing() as transaction:
                [(generation, writer)] = transaction.rows("settle")
        except ForewarnError as error:  # also a full disk says nothing about the lost commit
            if self._uncertain is None:
                raise
            raise StoreUncertain(**error.facts) from error
        changes, self._uncertain = self._uncertain, None
        if writer != self._writer:
            raise StoreLost(place=self.place)
        if generation == self.generation:
            return None
        assert changes is not None, "another process has written as this one"
        assert generation == self.generation + 1, generation
        self._advance(changes)
        return changes

    def end_restore(self) -> None:
        """Allow services to load the restored store; nodes begin a new sequence of changes. M-1."""
        with self._engine.writing() as transaction:
            transaction.run("restore_ended")

    def trim(self, retention: Retention, now_ms: int) -> int:
        """Export and delete history beyond its limits; return how many entries: `retention.py`."""
        return trim(self, self._engine, retention, now_ms=now_ms)

    def write_calls(self, records: Sequence[CallRecord]) -> None:
        """Write calls into the audit that have changed nothing; on the writer's thread.

        Raises:
            StoreLost: another process is the writer.
            StoreUnavailable, StoreFull, StoreUncertain: it may not have been written.
        """
        self._claim()
        with self._engine.writing() as transaction:
            [(_, writer)] = transaction.rows("settle")
            if writer != self._writer:
                raise StoreLost(place=self.place)
            self.audit.add(transaction, records)
        self.audit.added(records[-1].at_ms)

    def note_use(self, token_id: str, used_ms: int) -> None:
        """Write when a token was used, ms since the epoch UTC; on any thread."""
        with self._engine.writing() as transaction:
            transaction.run("token_used", id=token_id, used_ms=used_ms)

    def note_process(self, token: str, url: str, version: str, *, kept_ms: int) -> None:
        """Write a sign of life of this process, and remove rows of a greater age; on any thread."""
        fills = {"now_ms": self._engine.now_ms}
        facts: dict[str, str | int] = {
            "token": token,
            "url": url,
            "version": version,
            "generation": self.generation,
        }
        with self._engine.lease_writing() as transaction:
            transaction.rows_filled("processes_gone", fills, kept_ms=kept_ms)
            transaction.rows_filled("process_noted", fills, **facts)

    def remove_process(self, token: str) -> None:
        """Remove the row of this process."""
        with self._engine.lease_writing() as transaction:
            transaction.run("process_gone", token=token)

    def lease(self) -> Lease:
        """Return who holds the lease; `lease.Tenure` contends for it."""
        with self._engine.lease_reading() as transaction:
            [(holder, beat, url)] = transaction.rows("lease")
        return Lease(str(holder), int(beat), str(url))

    def move_lease(self, seen: Lease, holder: str) -> Lease | None:
        """Give the lease to `holder` if it is still as it was seen; else return None."""
        with self._engine.lease_writing() as transaction:
            moved = transaction.rows(
                "lease_move",
                holder=holder,
                url=self.url,
                seen_holder=seen.holder,
                seen_beat=seen.beat,
            )
            if moved and holder and self.clock_ms is not None:
                self._compare_clocks(transaction, holder, self.clock_ms)
        return Lease(holder, int(moved[0][0]), self.url) if moved else None

    def _compare_clocks(
        self, transaction: Transaction, holder: str, clock_ms: Callable[[], int]
    ) -> None:
        """Write how far the writer's clock is ahead of the database's; the heir goes on by it. H-6.

        What the message takes makes that too little, so that a notice is longer by it.
        """
        before_ms, fills = clock_ms(), {"now_ms": self._engine.now_ms}
        [(database_ms,)] = transaction.rows_filled(
            "lease_clock", fills, now_ms=before_ms, holder=holder
        )
        late_ms, early_ms = before_ms - int(database_ms), int(database_ms) - clock_ms()
        off_ms = max(late_ms, early_ms)
        if (off_ms > CLOCK_OFF_MS) is not self._clock_off:
            self._clock_off = off_ms > CLOCK_OFF_MS
            if self._clock_off:
                text = "this machine's clock differs from the database's by %.1f s: keep both right"
                log.warning(text, off_ms / 1000, extra={"action": "clock.off"})

    def writer_now_ms(self) -> int | None:
        """Return the time by the last writer's clock, ms since the epoch UTC; None: not known."""
        with self._engine.lease_reading() as transaction:
            rows = transaction.rows_filled("writer_now", {"now_ms": self._engine.now_ms})
        return int(rows[0][0]) if rows else None

    def notice(self, timeout_s: float) -> bool:
        """Wait for a commit of any process, at most `timeout_s` seconds; return whether one came.

        A hint only: one may be missed while the database is away, so look for yourself as well.
        """
        return self._engine.notice(timeout_s)

    def close(self) -> None:
        """Close the database."""
        self._engine.close()

    def _advance(self, changes: Changes) -> None:
        """Move the counters on after a durable commit."""
        self.generation += 1
        self._history_seq += len(changes.entries)
        if changes.call:
            self.audit.added(changes.call.at_ms)
        for number, operation in changes.operations.items():
            if operation.live:
                self._placed[number] = operation.vms
            else:
                self._placed.pop(number, None)
        for number, maintenance in changes.maintenances.items():
            if maintenance.live:
                self._described.add(number)
            else:
                self._described.discard(number)

    def _write(self, changes: Changes, history_seq: int) -> None:
        written, gone = _rows(changes)
        beside = self._rows_beside(changes)
        with self._engine.writing() as transaction:
            advanced = transaction.rows(
                "advance",
                entries=len(changes.entries),
                last_number=changes.last_number,
                generation=self.generation,
            )
            if not advanced:
                raise StoreLost(place=self.place)
            entries = history_rows(changes.entries, self._history_seq + 1)
            assert advanced == [(history_seq,)], (advanced, history_seq)
            for kind, rows in written.items():
                transaction.run_many(f"put_{kind}", rows)
            for kind, rows in reversed(gone.items()):  # what others refer to goes last
                transaction.run_many(f"remove_{kind}", rows)
            for name, rows in (*beside.items(), ("record", entries)):
                if rows:
                    transaction.run_many(name, rows)
            if changes.mark:
                transaction.run("mark", boot=changes.mark[0], ahead_ms=changes.mark[1])
            if changes.call:
                self.audit.add(transaction, [changes.call])
                if changes.call.key:
                    put_answer(transaction, KeptAnswer.begun(changes.call))
            self._engine.notify(transaction)

    def _rows_beside(self, changes: Changes) -> dict[str, list[Row]]:
        """Return what comes and goes beside the records, by the statements that write it."""
        come: list[Row] = []
        went: list[Row] = []
        for number, operation in changes.operations.items():
            known = self._placed.get(number, ())
            if known != operation.vms:
                come += [(vm, number) for vm in operation.vms if vm not in known]
                went += [(vm, number) for vm in known if vm not in operation.vms]
        described: list[Row] = [
            (number, to_row(maintenance)["hosts"])
            for number, maintenance in changes.maintenances.items()
            if number not in self._described
        ]
        return {"put_maintenance_hosts": described, "displace_vm": went, "place_vm": come}


def _rows(changes: Changes) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Return rows written and keys removed, by kind, in the order of foreign keys."""
    written: dict[str, list[Row]] = {}
    gone: dict[str, list[Row]] = {}
    # The last image of a record has its row; a poll is written to an enrolment without one.
    known = {
        (image.kind, image.key): image.row
        for entry in changes.entries
        for image in entry.images
        if image.kind != "enrolment"
    }
    for kind, key, record in changes.images():
        if record is None:
            gone.setdefault(kind, []).append((key,))
            continue
        row = known.get((kind, key)) or to_row(record)
        if kind in APART:
            row = {name: each for name, each in row.items() if name != APART[kind][0]}
        written.setdefault(kind, []).append(tuple(row.values()))
    return written, gone


def open_store(address: str, *, must_exist: bool = False) -> Store:
    """Open a store, make it if need be, bring its schema up to date, and look whether it is whole.

    Cost: of a SQLite file that was there before every page is read, and of its history the newest
    `CHECKED_MAX` entries.

    Args:
        must_exist: whether a store must be there already.
        address: a file's path, `sqlite:///absolute/path`, `sqlite::memory:`, or
            `postgresql://user@host/database` as PostgreSQL's own programs take it.

    Raises:
        StoreAddressInvalid: no engine understands the address.
        StoreMissing: the store does not exist, and it must.
        StoreInUse: another process writes this SQLite store.
        StoreTooNew: a newer version has migrated it.
        StoreUnavailable, StoreFull, StoreDamaged: it cannot be opened.
    """
    engine = engine_of(address)(must_exist=must_exist)
    store = Store(engine)
    try:
        migrate(engine, must_exist=must_exist)
        store.check()
    except BaseException:
        engine.close()
        raise
    return store
