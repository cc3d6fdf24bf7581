"""Recognises a store that has lost commits, as a replica that was promoted or a restored copy has.

Theory of operation: a commit's id is the epoch of the store, the commit's number, and a digest of
its content and of the commit before. The table `commit_digest` has the digests of the newest
commits. Processes, metadata nodes and drivers know ids of commits. If the store has a lower number
in the same epoch, or another digest under the number, then it has gone back. The process that
notices this marks the row of `service`. From then on no commit of any process succeeds, until a
restore begins a new epoch. Source: H-10.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from forewarn_base.values import value
from forewarn_store.engine import Engine, Row, Transaction
from forewarn_store.errors import StoreFull, StoreLost, StoreWentBack
from forewarn_store.sqlite_file import PRIVATE_MODE

log = logging.getLogger("forewarn.store")

#: Number of newest commits whose digests the store has, about 3 MB.
DIGESTS_MAX = 65_536
#: Interval in commits at which older digests are removed.
DIGESTS_TRIMMED = 256
#: Length of the line in a commit file, in bytes; a shorter id is padded.
LINE_BYTES = 128
#: Lengths of a digest and of a signature, in bytes.
DIGEST_BYTES, SIGNATURE_BYTES = 16, 16
#: The witness of a process's own memory, as messages name it.
MEMORY = "a control plane's memory"


@value
class CommitId:
    """Identifies a commit of one store."""

    #: Name of the store's sequence of commits; empty: no commit.
    epoch: str = ""
    #: Number of the commit.
    generation: int = 0
    #: Digest of the commit; empty: written by an earlier version.
    digest: str = ""

    @property
    def text(self) -> str:
        """The id as text."""
        return f"{self.epoch}/{self.generation}/{self.digest}"

    def signed(self, key: str) -> str:
        """Return the id as text with a signature, for a process without access to the store."""
        return f"{self.text}/{_signature(self.text, key)}"


NOTHING = CommitId()


@value
class ServiceRow:
    """The row in the table `service`, in the order of the statements `claim` and `service`."""

    generation: int
    history_seq: int
    last_number: int
    boot: str
    clock_ahead_ms: int
    epoch: str
    lost_epoch: str
    #: Commit that the store lacks, and its witness, for people.
    lost_commit: str
    commit_key: str
    #: Digest of the commit `generation`; for a claim, that of the commit before.
    digest: str

    @property
    def commit(self) -> CommitId:
        """The newest commit."""
        return CommitId(self.epoch, self.generation, self.digest)


def read_commit(text: str) -> CommitId | None:
    """Return the commit in a text; None for another text."""
    with suppress(ValueError):
        epoch, generation, digest = text.split("/")
        return CommitId(epoch, int(generation), digest)
    return None


def read_signed_commit(text: str, key: str) -> CommitId | None:
    """Return the commit in a signed text; None for a text that this store has not signed."""
    unsigned, _, signature = text.rpartition("/")
    right = _signature(unsigned, key)
    genuine = key and hmac.compare_digest(right.encode(), signature.encode())
    return read_commit(unsigned) if genuine else None


def _signature(text: str, key: str) -> str:
    return blake2b(text.encode(), key=key.encode(), digest_size=SIGNATURE_BYTES).hexdigest()


def digest_after(before: str, generation: int, content: Iterable[Sequence[object]]) -> str:
    """Return the digest of a commit, from the digest before it and the rows that it writes."""
    digest = blake2b(f"{before}/{generation}".encode(), digest_size=DIGEST_BYTES)
    for row in content:
        digest.update(repr(row).encode())
    return digest.hexdigest()


class CommitFile:
    """A small file beside a process, with the process's last commit.

    The file is not synced: after a power failure it may name an earlier commit, never a later one.
    """

    def __init__(self, path: Path) -> None:
        """Use the file at a path; it is created with the first commit."""
        self.path = path
        self._file = -1
        self._failed = False

    def read(self) -> CommitId:
        """Return the last commit; an empty id without one."""
        try:
            text = self.path.read_text("utf-8", "replace")
        except OSError:
            return NOTHING
        return read_commit(text.strip()) or NOTHING

    def write(self, commit: CommitId) -> None:
        """Write a commit; log the first failure."""
        try:
            if self._file < 0:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
            os.pwrite(self._file, commit.text.ljust(LINE_BYTES - 1).encode() + b"\n", 0)
        except OSError as error:
            if not self._failed:
                text = "the last commit cannot be noted in %s: %s"
                log.warning(text, self.path, error.strerror, extra={"action": "commit-file.failed"})
            self._failed = True
        else:
            self._failed = False

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class CommitMissing(Exception):
    """A read database seems to lack a commit; `Lineage.prove` decides."""

    def __init__(self, commit: CommitId, witness: str) -> None:
        super().__init__(commit, witness)
        self.commit = commit
        self.witness = witness


class Lineage:
    """The commits that this process knows, compared with those of the store; on any thread."""

    def __init__(self, engine: Engine, file: CommitFile | None) -> None:
        self._engine = engine
        self._file = file
        #: The last commit that this process has written or read.
        self.newest = NOTHING
        #: Key of the store that signs ids of commits; empty: unknown.
        self.key = ""
        #: Whether this process has documents of a commit that the store has lost.
        self.ahead = False
        #: A commit that the store has lost, and its witness; empty: unknown.
        self._commit, self._witness = NOTHING, ""

    @property
    def lost(self) -> StoreWentBack | None:
        """Why no process may decide; None: no commit is known to be lost."""
        if not self._witness:
            return None
        facts = {"commit": self._commit.generation, "witness": self._witness}
        return StoreWentBack(place=self._engine.place, **facts)

    def note(self, commit: CommitId) -> None:
        """Note a durable commit of this process, or one that it has read."""
        self.newest = commit
        if self._file is not None:
            self._file.write(commit)

    def check_start(self, transaction: Transaction, row: ServiceRow, generation: int) -> None:
        """Compare the commits known at a start with the store, whose last one is `generation`.

        Raises:
            CommitMissing: the store seems to lack a commit.
            StoreWentBack: a process has marked the store.
        """
        self.key = row.commit_key
        witnesses = [(self.newest, MEMORY)]
        if self._file is not None:
            witnesses.append((self._file.read(), f"the file {self._file.path}"))
        for commit, witness in witnesses:
            digests = transaction.rows("commit_digest", generation=commit.generation)
            if _lacks(commit, row.epoch, generation, digests):
                raise CommitMissing(commit, witness)
        self._check_mark(row)

    def check(
        self, transaction: Transaction, row: ServiceRow, newest: CommitId, *, witness: str = MEMORY
    ) -> None:
        """Compare a commit that this process or another witness knows with the store.

        Raises:
            CommitMissing: the store seems to lack the commit.
            StoreWentBack: a process has marked the store.
        """
        self.key = row.commit_key
        if newest != row.commit:
            digests = transaction.rows("commit_digest", generation=newest.generation)
            if _lacks(newest, row.epoch, row.generation, digests):
                raise CommitMissing(newest, witness)
        self._check_mark(row)

    def prove(self, commit: CommitId, witness: str) -> None:
        """Mark the store if it lacks a commit.

        The database that takes writes decides, because a replica may be behind.

        Raises:
            StoreWentBack: the store has lost the commit, or was marked before.
            StoreUnavailable, StoreFull, StoreUncertain: the result is unknown.
        """
        facts: dict[str, str | int] = {
            "epoch": commit.epoch,
            "generation": commit.generation,
            "digest": commit.digest,
            "lost": f"{commit.generation} {witness}",
        }
        try:
            with self._engine.writing() as transaction:
                marked = bool(transaction.rows("commit_lost", **facts))
        except StoreFull:
            if self._engine.is_shared:
                raise
            marked = True  # a file has no replicas
        if marked:
            self.ahead = self.ahead or witness == MEMORY
            raise self._went_back(commit, witness)

    def prove_lost(self, commit: CommitId, writer: str, witness: str) -> None:
        """Mark the store, which lacks the commit of a later writer than its writer.

        Each writer of an epoch has a higher generation than the writers before.

        Raises:
            StoreWentBack: the store has lost the commit.
            StoreUnavailable, StoreFull, StoreUncertain: the result is unknown.
        """
        lost = f"{commit.generation} {witness}"
        with self._engine.writing() as transaction:
            [(_, newest)] = transaction.rows("settle")
            if newest == writer:
                transaction.rows("commit_lost_mark", epoch=commit.epoch, lost=lost)
        if newest == writer:
            raise self._went_back(commit, witness)

    def insist(self) -> None:
        """Refuse to decide once the store has lost commits, and see that the store is marked.

        Raises:
            StoreWentBack: the store has lost a commit.
            StoreLost: a restore has begun another epoch, so another process decides.
            StoreUnavailable, StoreFull, StoreUncertain: the store does not answer.
        """
        lost = self.lost
        if lost is None:
            return
        text = f"{self._commit.generation} {self._witness}"
        with self._engine.writing() as transaction:
            marked = transaction.rows("commit_lost_mark", epoch=self._commit.epoch, lost=text)
        raise lost if marked else StoreLost(place=self._engine.place)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _check_mark(self, row: ServiceRow) -> None:
        if row.epoch and row.lost_epoch == row.epoch:
            number, _, witness = row.lost_commit.partition(" ")
            raise self._went_back(CommitId(row.epoch, int(number)), witness)

    def _went_back(self, commit: CommitId, witness: str) -> StoreWentBack:
        """Note that the store has lost a commit; return the error."""
        if not self._witness:
            self._commit, self._witness = commit, witness
        lost = self.lost
        assert lost is not None
        return lost


def lost_commit(engine: Engine, file: str) -> StoreWentBack | None:
    """Return why a store has gone back, by its mark and a file with a last commit; or None."""
    lineage = Lineage(engine, CommitFile(Path(file)) if file else None)
    try:
        with engine.reading() as transaction:
            row = ServiceRow(*transaction.rows("service")[0])  # type: ignore[arg-type]
            lineage.check_start(transaction, row, row.generation)
    except CommitMissing as missing:
        facts = {"commit": missing.commit.generation, "witness": missing.witness}
        return StoreWentBack(place=engine.place, **facts)
    except StoreWentBack as error:
        return error
    return None


def _lacks(commit: CommitId, epoch: str, generation: int, digests: Sequence[Row]) -> bool:
    """Return whether a store with this epoch and last commit lacks a commit.

    `digests` has the digest under the commit's number, if the store has it still.
    """
    if not commit.epoch or commit.epoch != epoch:
        return False
    if commit.generation > generation:
        return True
    return bool(commit.digest and digests and digests[0][0] != commit.digest)
