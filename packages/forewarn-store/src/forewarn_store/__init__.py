"""The store: the durable state and history, with one writing process and many reading threads.

The control plane has the live state in memory. The store makes each step durable before VMs or
operators see it. Other packages define the permitted changes. `queries.sql` contains the SQL.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import ForewarnError
from forewarn_base.garbage import uncollected
from forewarn_base.ids import Ids
from forewarn_base.values import replace
from forewarn_core.fleet.document import Enrolment
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy
from forewarn_core.fleet.records import to_row
from forewarn_core.fleet.state import TABLES, Changes, State
from forewarn_store.addresses import location_of
from forewarn_store.answers import KeptAnswer, KeptAnswers, put_answer
from forewarn_store.audit import AuditTrail
from forewarn_store.availability import (
    AvailabilityPage,
    RecordedAvailability,
    availability_rows,
    trim_records,
)
from forewarn_store.cursors import OutboxCursors
from forewarn_store.durations import duration_rows, trim_durations
from forewarn_store.engine import Engine, Row, Transaction
from forewarn_store.errors import (
    FollowedTooLate,
    StoreDamaged,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    StoreUncertain,
    StoreUnrestored,
    StoreWentBack,
)
from forewarn_store.images import history_rows
from forewarn_store.lease import Lease
from forewarn_store.lineage import (
    DIGESTS_MAX,
    DIGESTS_TRIMMED,
    CommitFile,
    CommitId,
    CommitMissing,
    Lineage,
    ServiceRow,
    digest_after,
    read_signed_commit,
)
from forewarn_store.loading import changes_since, counted_ms, loaded
from forewarn_store.maintenances import MaintenanceReader
from forewarn_store.migrations import check_live_pages, migrate
from forewarn_store.reading import (
    HistoryPage,
    OperationPage,
    PastProgress,
    Recorded,
    StoreReader,
)
from forewarn_store.retention import PastSize, Retention, Trimmed, size_of, trim
from forewarn_store.statements import APART
from forewarn_store.tickets import TicketPage, trim_tickets

log = logging.getLogger("forewarn.store")

__all__ = [
    "AvailabilityPage",
    "HistoryPage",
    "Lease",
    "OperationPage",
    "Recorded",
    "RecordedAvailability",
    "Retention",
    "Store",
    "TicketPage",
    "Trimmed",
    "open_store",
]

#: Epoch of a store while its restore is unfinished.
RESTORING = "restoring"
#: Maximum number of entries that a follower applies at once; for more entries it loads the whole
#: state.
FOLLOWED_MAX = 20_000
#: Clock difference in ms between writer and database above which the writer logs a warning.
CLOCK_OFF_MS = 1000
#: How long the outcome of an event can be read, in ms. Source: X-1.
OUTCOMES_MS = 7 * 86_400_000
#: Number of VMs above which the fleet is exempt from garbage collection; a collection of a million
#: VMs took 1.5 s.
FROZEN_VMS_MIN = 10_000


class Store(StoreReader):
    """One open store.

    `load`, `commit` and `settle` belong to the only writing thread. All other methods may be called
    from any thread at any time.

    Every commit is a compare-and-set on a generation, which grows by one. `load` also advances the
    generation, so that the previous writer gets `StoreLost` at its next commit. Two processes can
    therefore never both write, even if both believe that they hold the lease. Source: L-7,
    invariant 8.
    """

    def __init__(self, engine: Engine, commit_file: CommitFile | None = None) -> None:
        super().__init__(engine)
        #: The commits that this process knows.
        self.lineage = Lineage(engine, commit_file)
        self.maintenances = MaintenanceReader(self)
        self.cursors = OutboxCursors(engine)
        self.audit = AuditTrail(engine)
        self.answers = KeptAnswers(engine)
        self._writer = Ids().token("writer")
        #: Generation at which this process became the writer.
        self.writer_generation = 0
        #: Name of the sequence of generations; the store contains the name.
        self.epoch = ""
        #: The last durable commit that this process has written or read.
        self.newest = CommitId()
        self._history_seq = 0
        #: Changes that `load` added to the followed state; None after loading the whole state.
        self.taken_up: Changes | None = None
        #: Clock of the active service, which is compared with the database's clock.
        self._clock_ms: Callable[[], int] | None = None
        self._clock_off = False
        #: Whether this process finishes an unfinished restore.
        self.restoring = False
        #: Whether this process is the writer of the loaded state.
        self._claimed = True
        #: The commit with an unknown result; None: no such commit.
        self._uncertain: Changes | None = None
        #: Digest of the last commit that was tried.
        self._drafted_digest = ""
        #: Reason for the refusal of the last commit, or empty; readable on any thread.
        self.commit_refused = ""
        #: Progress of the check of ended work and history; None: it has not begun.
        self.past_progress: PastProgress | None = None
        #: Why ended work and history exceed their limits; empty if they do not.
        self.past_excess = ""
        #: VMs of live operations, as stored in the table `operation_vm`.
        self._placed: dict[int, tuple[str, ...]] = {}
        #: Live maintenances whose hosts the store contains.
        self._described: set[int] = set()

    @property
    def place(self) -> str:
        """Name of the open store for messages, without passwords."""
        return self._engine.place

    @property
    def generation(self) -> int:
        """Number of the last durable commit; each commit increases it by one."""
        return self.newest.generation

    @property
    def shared(self) -> bool:
        """Whether several processes may use the store."""
        return self._engine.is_shared

    @property
    def history_seq(self) -> int:
        """Sequence number of the last entry that this process has read or written; 0: no entry."""
        return self._history_seq

    def load(self, followed: State | None = None) -> State:
        """Become the writer, and return the current state.

        With a state `followed` from `look` and `catch_up`, the method reads only the changes after
        that state, and the groups. The method also loads a read-only store, so that VMs still see
        their documents. This process then becomes the writer once the store is writable.

        A store that has gone back is loaded, too, for reads; no method then changes the store.
        `lineage.ahead`: the returned state is `followed`, which is newer than the store's.

        Raises:
            StoreUnrestored: a restore is unfinished.
            StoreDamaged: a record is invalid or contradicts others.
            StoreUnavailable: this process could not become the writer.
        """
        self._uncertain = None
        self._engine.end_silent_sessions()
        try:
            with self._proving(), uncollected(), self._engine.writing() as transaction:
                key = Ids().token("commit key")
                row = _service(transaction.rows("claim", writer=self._writer, key=key), self.place)
                self.lineage.check_start(transaction, row, row.generation - 1)
                digest = digest_after(row.digest, row.generation, [(self._writer,)])
                row = replace(row, digest=digest)
                transaction.run("commit_digest_put", generation=row.generation, digest=digest)
                state = self._load_after(transaction, row, followed)
                if self.epoch == RESTORING and not self.restoring:
                    raise StoreUnrestored(place=self.place)
            self.lineage.note(self.newest)
            self._claimed = True
        except StoreFull as error:
            log.warning(
                "%s The service continues to serve the stored documents.",
                error,
                extra={"action": error.code},
            )
            state = self._look(checked=True)
            self._claimed = False
        except StoreWentBack as error:
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400 - the sentence says it
            state = followed if followed and self.lineage.ahead else self._look()
            self._claimed = False
            with suppress(ForewarnError):
                self.lineage.insist()
        if len(state.topology.vms) >= FROZEN_VMS_MIN:
            gc.freeze()
        return state

    def look(self) -> State:
        """Return the current state, without becoming the writer.

        Raises:
            StoreDamaged: a record is invalid or contradicts others.
        """
        return self._look()

    def follow(self) -> State:
        """Return the current state, for `catch_up`.

        Raises:
            StoreUnrestored: a restore is unfinished.
            StoreWentBack: the store has lost commits.
            StoreDamaged: a record is invalid or contradicts others.
        """
        state = self._look(checked=True)
        if self.epoch == RESTORING:
            raise StoreUnrestored(place=self.place)
        self.lineage.note(self.newest)
        return state

    def _look(self, *, checked: bool = False) -> State:
        with self._proving(), uncollected(), self._engine.reading() as transaction:
            row = self._row(transaction)
            if checked:
                self.lineage.check_start(transaction, row, row.generation)
            return self._load_all(transaction, row)

    def catch_up(self, state: State) -> Changes | None:
        """Apply the commits of other processes to a state from `follow`.

        Returns: The changes; None without changes.

        Raises:
            FollowedTooLate: there are too many changes for a follower; call `follow` again.
            StoreWentBack: the store has lost commits; nothing was changed.
            StoreUnavailable: the database does not answer; nothing was changed.
        """
        with self._proving(), self._engine.reading() as transaction:
            row = self._row(transaction)
            self.lineage.check(transaction, row, self.newest)
            if row.commit == self.newest:
                return None
            changes = self._changes_since(transaction, row, state)
            if not changes.entries[0].images:  # history has no images of polls
                changes.enrolments = {
                    each.group: each
                    for each in self.live(transaction, Enrolment)
                    if each != state.enrolments.get(each.group)
                }
        state.adopt(changes)
        self._count(row)
        self.lineage.note(self.newest)
        return changes

    @contextmanager
    def _proving(self) -> Iterator[None]:
        """Decide whether the store has lost a commit that a read database seems to lack.

        Raises:
            StoreWentBack: the store has lost the commit.
            StoreUnavailable: the read database is a replica that is behind.
        """
        try:
            yield
        except CommitMissing as missing:
            self._engine.forget_readers()
            self.lineage.prove(missing.commit, missing.witness)
            reason = f"a database without commit {missing.commit.generation} answers"
            raise StoreUnavailable(place=self.place, reason=reason) from missing

    def _load_after(self, transaction: Transaction, row: ServiceRow, state: State | None) -> State:
        """Return the live state, based on a followed state if possible."""
        if state is None:
            return self._load_all(transaction, row)
        try:
            changes = self._changes_since(transaction, row, state)
        except FollowedTooLate:
            return self._load_all(transaction, row)
        changes.enrolments = {each.group: each for each in self.live(transaction, Enrolment)}
        state.adopt(changes)
        self.taken_up = changes
        self._count(row)
        self._placed = {each.number: each.vms for each in state.operations.values()}
        self._described = set(state.maintenances)
        return state

    def _changes_since(self, transaction: Transaction, row: ServiceRow, state: State) -> Changes:
        new = row.history_seq - self._history_seq
        if row.epoch != self.epoch or not 0 <= new <= FOLLOWED_MAX:
            raise FollowedTooLate(place=self.place)
        seqs = {"after": self._history_seq, "until": row.history_seq}
        rows = transaction.rows("images_since", **seqs) if new else []
        if len(rows) != new:  # a part of the required history was removed
            raise FollowedTooLate(place=self.place)
        changes = changes_since(
            state, [(str(earlier), str(later)) for earlier, later in rows], row.last_number
        )
        changes.mark = row.boot, row.clock_ahead_ms
        return changes

    def _count(self, row: ServiceRow) -> None:
        """Set the counters from the store's row in `service`."""
        self._history_seq = row.history_seq
        self.writer_generation, self.epoch = row.generation, row.epoch
        self.newest = row.commit

    def _load_all(self, transaction: Transaction, row: ServiceRow) -> State:
        """Return the live state, given the store's row in `service`."""
        changes = loaded(self, transaction, row.last_number, place=self.place)
        changes.mark = row.boot, row.clock_ahead_ms
        state = State()
        state.adopt(changes)
        self._count(row)
        self._placed = {each.number: each.vms for each in state.operations.values()}
        self._described = set(state.maintenances)
        assert state.last_number == row.last_number
        return state

    def _claim(self) -> None:
        """Become the writer of a store that was read-only when it was loaded.

        This attempt also determines the unknown result of an earlier attempt. A repeated attempt is
        harmless, because only this process writes with its token.

        Raises:
            StoreWentBack: the store has lost commits.
            StoreLost: another process is the writer.
        """
        self.lineage.insist()
        if self._claimed:
            return
        with self._proving(), self._engine.writing() as transaction:
            claimed = transaction.rows(
                "claim_seen", writer=self._writer, generation=self.generation
            )
            if not claimed:
                self._check_place(transaction)
            [(generation,)] = claimed
            digest = digest_after(self.newest.digest, int(generation), [(self._writer,)])
            transaction.run("commit_digest_put", generation=generation, digest=digest)
        self.newest = CommitId(self.epoch, int(generation), digest)
        self.writer_generation = self.generation
        self.lineage.note(self.newest)
        self._claimed = True

    def _row(self, transaction: Transaction) -> ServiceRow:
        return _service(transaction.rows("service"), self.place)

    def _check_place(self, transaction: Transaction) -> NoReturn:
        """Find out why this process is not the writer.

        Raises:
            CommitMissing, StoreWentBack: the store has lost commits.
            StoreLost: another process is the writer.
        """
        self.lineage.check(transaction, self._row(transaction), self.newest)
        raise StoreLost(place=self.place)

    def commit(self, changes: Changes) -> int:
        """Make one step durable atomically; return the number of its last entry of history.

        After the return, the step survives a power loss. Source: A-6, L-7.

        Raises:
            StoreLost: another process is the writer now; nothing was changed.
            StoreUnavailable, StoreFull: nothing was changed; the caller may retry the same changes.
            StoreUncertain: the result is unknown; call `settle` until it returns, before anything
                else.
            StoreDamaged, StoreContradiction: nothing was changed; a retry will not help.
        """
        self._claim()
        assert self.generation, "load() makes this process the writer"
        assert self._uncertain is None, "an uncertain commit must be settled first"
        try:
            with self._proving():
                self._write(changes, self._history_seq + len(changes.entries))
        except StoreUncertain as lost:
            self._uncertain = changes
            if self.settle() is None:
                raise StoreUnavailable(**lost.facts) from lost
        except (StoreFull, StoreUnavailable, StoreWentBack) as refused:
            self.commit_refused = str(refused)
            raise
        else:
            self._advance(changes)
        self.commit_refused = ""
        return self._history_seq

    def confirm(self) -> None:
        """Check that this process is still the writer, before an irreversible action.

        Any thread may call this method, even during a commit.

        Raises:
            StoreLost: another process is the writer.
            StoreWentBack: the store has lost commits.
            StoreUnavailable: the database does not answer.
            StoreFull: the store is read-only, and this process could not become its writer yet.
        """
        self._claim()
        newest = self.newest  # another thread may commit
        with self._proving(), self._engine.reading() as transaction:
            [(writer,)] = transaction.rows("writer")
            self.lineage.check(transaction, self._row(transaction), newest)
        if writer != self._writer:
            raise StoreLost(place=self.place)

    def check_writer(self, generation: int, witness: str) -> None:
        """Check that no later writer than this process ever was; on any thread.

        Args:
            generation: that of a writer in this epoch, as of its start.
            witness: who has heard of the writer, for messages.

        Raises:
            StoreWentBack: the store has lost the commits of that writer.
            StoreLost: another process is the writer.
            StoreUnavailable, StoreFull, StoreUncertain: the result is unknown.
        """
        self.confirm()
        if generation > self.writer_generation:
            self.lineage.prove_lost(CommitId(self.epoch, generation), self._writer, witness)

    def settle(self) -> Changes | None:
        """Determine the result of the uncertain commit, so that `commit` may be called again.

        The method waits for the lock of the lost transaction, so that the result is final.

        Returns:
            The changes of the commit; None if the commit failed, or no commit was uncertain.

        Raises:
            StoreUncertain: the database still does not answer.
            StoreUnavailable, StoreFull: the database does not answer, and no commit was uncertain.
            StoreLost: another process has become the writer; only that process knows the result.
        """
        self._claim()
        try:
            with self._proving(), self._engine.writing() as transaction:
                [(generation, writer)] = transaction.rows("settle")
                self.lineage.check(transaction, self._row(transaction), self.newest)
        except StoreWentBack:
            raise
        except ForewarnError as error:  # with a full disk, too, the lost commit's result is unknown
            if self._uncertain is None:
                raise
            reason = error.facts.get("reason") or error.clause
            raise StoreUncertain(place=self.place, reason=reason) from error
        changes, self._uncertain = self._uncertain, None
        if writer != self._writer:
            raise StoreLost(place=self.place)
        if generation == self.generation:
            return None
        assert changes is not None, "another process has written with this process's token"
        assert generation == self.generation + 1, generation
        self._advance(changes)
        return changes

    def end_restore(self) -> None:
        """Allow services to load the restored store; nodes begin a new sequence of changes. M-1."""
        with self._engine.writing() as transaction:
            transaction.run("restore_ended")

    def trim(self, retention: Retention, now_ms: int) -> Trimmed:
        """Export and delete the past beyond its limits."""
        return trim(self, self._engine, retention, now_ms=now_ms)

    def trim_availability(self, now_ms: int) -> int:
        """Delete records of availability older than 400 days; return their number. See T-13."""
        return trim_records(self._engine, self.confirm, now_ms)

    def trim_tickets(self, now_ms: int) -> int:
        """Delete tickets that ended more than 400 days ago; return their number. See T-10."""
        return trim_tickets(self._engine, self.confirm, now_ms)

    def trim_durations(self) -> int:
        """Delete the oldest samples of durations beyond their limit; return their number. F-9."""
        return trim_durations(self._engine, self.confirm)

    def past_size(self) -> PastSize:
        """Estimate the size of the past."""
        return size_of(self._engine)

    def past_since_ms(self) -> int:
        """Return the time of the oldest entry of history, ms since the epoch UTC; 0: none."""
        return self.cursors.next_ms(0)

    def work_kept_ms(self) -> int:
        """Return how long ended work must stay: for outcomes, and while the policy counts it."""
        with self._engine.reading() as transaction:
            policies = {each.name: each for each in self.live(transaction, AppliedPolicy)}
        return max(OUTCOMES_MS, counted_ms(policies.get(FLEET_POLICY)))

    def return_space(self) -> bool:
        """Return some free space of the store to the disk; return whether there is more."""
        return self._engine.return_space()

    def write_calls(self, records: Sequence[CallRecord]) -> None:
        """Write audit records of calls that changed nothing; on the writer's thread.

        Raises:
            StoreLost: another process is the writer.
            StoreWentBack: the store has lost commits.
            StoreUnavailable, StoreFull, StoreUncertain: the records may be missing.
        """
        self._claim()
        with self._proving(), self._engine.writing() as transaction:
            [(_, writer)] = transaction.rows("settle")
            if writer != self._writer:
                self._check_place(transaction)
            self.lineage.check(transaction, self._row(transaction), self.newest)
            self.audit.add(transaction, records)
        self.audit.added(records[-1].at_ms)

    def note_use(self, token_id: str, used_ms: int) -> None:
        """Record the time of a token's last use, ms since the epoch UTC; on any thread."""
        with self._engine.writing() as transaction:
            transaction.run("token_used", id=token_id, used_ms=used_ms)

    def note_sign_out(self, digest: str, expires_ms: int, now_ms: int) -> None:
        """End the session of a token, by its digest, and forget expired ones; on any thread."""
        with self._engine.writing() as transaction:
            transaction.run("sign_outs_forget", until_ms=now_ms)
            transaction.run("signed_out", digest=digest, at_ms=expires_ms)

    def check_file(self) -> None:
        """Check that the store's file is still in its place; on any thread.

        Raises:
            StoreReplaced: the file was removed or replaced.
        """
        self._engine.check_file()

    def note_process(self, token: str, url: str, version: str, *, kept_ms: int) -> None:
        """Write a heartbeat of this process, and remove older rows; on any thread."""
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
        """Return the current lease; processes compete for it with `lease.Tenure`."""
        with self._engine.lease_reading() as transaction:
            [(holder, beat, url)] = transaction.rows("lease")
        return Lease(str(holder), int(beat), str(url))

    def move_lease(self, seen: Lease, holder: str, url: str = "") -> Lease | None:
        """Move the lease to `holder` if it equals `seen`; otherwise return None.

        `url` is that of this process's operator API, for other processes; empty: not known yet.
        """
        if holder and seen.holder not in {"", holder}:
            self._engine.end_silent_sessions()
        with self._engine.lease_writing() as transaction:
            moved = transaction.rows(
                "lease_move",
                holder=holder,
                url=url,
                seen_holder=seen.holder,
                seen_beat=seen.beat,
            )
            if moved and holder and self._clock_ms is not None:
                self._compare(transaction, holder, self._clock_ms)
        return Lease(holder, int(moved[0][0]), url) if moved else None

    def compare_clocks(self, clock_ms: Callable[[], int]) -> None:
        """Compare a clock with the database's from now on, because this process decides by it."""
        self._clock_ms = clock_ms

    def _compare(self, transaction: Transaction, holder: str, clock_ms: Callable[[], int]) -> None:
        """Store the difference of the writer's and the database's clocks, for the next writer. H-6.

        The delay of the message makes the difference too small, which can only lengthen a notice.
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
                text = "this machine's clock differs from the database's by %.1f s: correct both"
                log.warning(text, off_ms / 1000, extra={"action": "clock.off"})

    def writer_now_ms(self) -> int | None:
        """Return the time by the last writer's clock, ms since the epoch UTC; None: unknown."""
        with self._engine.lease_reading() as transaction:
            rows = transaction.rows_filled("writer_now", {"now_ms": self._engine.now_ms})
        return int(rows[0][0]) if rows else None

    def wait_for_commit(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for a commit of any process; return whether it happened.

        Also poll, because a notification can be lost while the database is unreachable.
        """
        return self._engine.wait_for_commit(timeout_s)

    def close(self) -> None:
        """Close the database."""
        self._engine.close()
        self.lineage.close()

    def newest_commit(self) -> str:
        """Return the signed id of this process's last commit; empty: no key. On any thread."""
        key, newest = self.lineage.key, self.newest
        return newest.signed(key) if key and newest.epoch else ""

    def check_commits(self, witnesses: Mapping[str, str]) -> None:
        """Check that the store has commits that others know; on any thread.

        A text that this store has not signed is ignored.

        Args:
            witnesses: signed commit -> its witness, for messages.

        Raises:
            StoreWentBack: the store has lost a commit.
            StoreUnavailable, StoreFull, StoreUncertain: the result is unknown.
        """
        key = self.lineage.key
        signed = ((read_signed_commit(text, key), who) for text, who in witnesses.items())
        commits = [(commit, who) for commit, who in signed if commit is not None]
        with self._proving(), self._engine.reading() as transaction:
            row = self._row(transaction)
            for commit, witness in commits:
                self.lineage.check(transaction, row, commit, witness=witness)

    def _advance(self, changes: Changes) -> None:
        """Advance the counters after a durable commit."""
        self.newest = CommitId(self.epoch, self.generation + 1, self._drafted_digest)
        self.lineage.note(self.newest)
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
                self._check_place(transaction)
            entries = history_rows(changes.entries, self._history_seq + 1)
            assert advanced == [(history_seq,)], (advanced, history_seq)
            number, content = self.generation + 1, [(changes.last_number,), *entries]
            digest = self._drafted_digest = digest_after(self.newest.digest, number, content)
            transaction.run("commit_digest_put", generation=number, digest=digest)
            if number % DIGESTS_TRIMMED == 0:
                transaction.run("commit_digest_trim", until=number - DIGESTS_MAX)
            for kind, rows in written.items():
                transaction.run_many(f"put_{kind}", rows)
            for kind, rows in reversed(gone.items()):  # remove referenced records last
                transaction.run_many(f"remove_{kind}", rows)
            records = availability_rows(changes.availability, number)
            durations = duration_rows(changes.durations)
            for name, rows in (
                *beside.items(),
                ("record", entries),
                ("availability_put", records),
                ("duration_put", durations),
            ):
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
        """Return the rows of secondary tables that statements write or delete, by statement."""
        come: list[Row] = []
        went: list[Row] = []
        for number, operation in changes.operations.items():
            placed = self._placed.get(number, ())
            if placed != operation.vms:
                come += [(vm, number) for vm in operation.vms if vm not in placed]
                went += [(vm, number) for vm in placed if vm not in operation.vms]
        described: list[Row] = [
            (number, to_row(maintenance)["hosts"])
            for number, maintenance in changes.maintenances.items()
            if number not in self._described
        ]
        concerned: list[Row] = [
            (owner, ticket.number) for ticket in changes.tickets.values() for owner in ticket.owners
        ]
        return {
            "put_maintenance_hosts": described,
            "displace_vm": went,
            "place_vm": come,
            "ticket_concerns": concerned,
        }


def _service(rows: list[Row], place: str) -> ServiceRow:
    """Return the row of the store itself.

    Raises:
        StoreDamaged: there is no row, or there are several.
    """
    if len(rows) != 1:
        raise StoreDamaged(place=place, reason="the row in the table `service` is missing")
    # the columns have these types, which the type checker cannot derive from a row
    return ServiceRow(*rows[0])  # type: ignore[arg-type]


def _rows(changes: Changes) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Return the rows to write and the keys to remove, by kind, in the order of foreign keys."""
    written: dict[str, list[Row]] = {}
    gone: dict[str, list[Row]] = {}
    # The last image of a record contains its row. A poll changes an
    # enrolment without writing an image, so enrolments are excluded.
    rows = {
        (image.kind, image.key): image.row
        for entry in changes.entries
        for image in entry.images
        if image.kind != "enrolment"
    }
    for kind in TABLES:
        for key, record in changes.records(kind).items():
            if record is None:
                gone.setdefault(kind, []).append((key,))
                continue
            row = rows.get((kind, key)) or to_row(record)
            if kind in APART:
                row = {name: each for name, each in row.items() if name != APART[kind][0]}
            written.setdefault(kind, []).append(tuple(row.values()))
    return written, gone


def open_store(address: str, *, must_exist: bool = False, commit_file: str = "") -> Store:
    """Open a store: create it if necessary, and upgrade its schema.

    Cost: O(live state); `PastCheck` checks the past later.

    Args:
        must_exist: whether the store must exist already.
        commit_file: path of the file for this process's last commit; empty: beside a SQLite file,
            otherwise none.
        address: a file's path, `sqlite:///absolute/path`, `sqlite::memory:`, or
            `postgresql://user@host/database` in the syntax of PostgreSQL's own programs.

    Raises:
        StoreAddressInvalid: no engine supports the address.
        StoreMissing: the store does not exist, and it must.
        StoreInUse: another process writes the SQLite store.
        StoreTooNew: a newer version has migrated the store.
        StoreUnavailable, StoreFull, StoreDamaged: the store cannot be opened.
    """
    engine = location_of(address).open(must_exist=must_exist)
    commit_file = commit_file or engine.commit_file
    store = Store(engine, CommitFile(Path(commit_file)) if commit_file else None)
    try:
        migrate(engine, must_exist=must_exist)
        check_live_pages(engine)
    except BaseException:
        store.close()
        raise
    return store
