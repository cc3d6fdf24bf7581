"""The audit in the store: a hash chain of records in the transactions of their changes.

Only the writer's thread calls `add`; any thread may read pages. Source: P-7.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from forewarn_base.audit_chain import (
    SIGNED,
    START,
    TRIMMED,
    CallRecord,
    digest_after,
    head_of,
    signature_of,
)
from forewarn_base.values import value
from forewarn_store.engine import Engine, Transaction
from forewarn_store.retention import PAGE, write_export

log = logging.getLogger("forewarn.audit")

#: Minimum interval between two log lines with the last digest, in milliseconds.
HEAD_LOGGED_MS = 60_000


@value
class AuditEntry:
    """One stored record of the audit."""

    seq: int
    record: CallRecord
    digest: str
    #: Signature of the digest; empty without a key.
    signature: str


class AuditTrail:
    """The audit of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Key that signs each record, set by the service; empty: records are not signed.
        self.key = b""
        #: Number and digest of the last record; None: read them from the store.
        self._last: tuple[int, str] | None = None
        self._drafted: tuple[int, str] = (0, START)
        self._logged_ms = 0

    def add(self, transaction: Transaction, records: Sequence[CallRecord]) -> None:
        """Write the next records; call `added` once the transaction is durable."""
        last, self._last = self._last, None
        if last is None:
            rows = transaction.rows("audit_last")
            last = (int(rows[0][0]), str(rows[0][1])) if rows else (0, START)
        for record in records:
            sequence = last[0] + 1
            digest = digest_after(last[1], sequence, record)
            signature = signature_of(self.key, sequence, digest) if self.key else ""
            transaction.run(
                "audit_add",
                seq=sequence,
                at_ms=record.at_ms,
                principal=record.principal,
                address=record.address,
                request=record.request,
                object=record.object,
                outcome=record.outcome,
                token=record.token,
                digest=digest,
                signature=signature,
            )
            last = sequence, digest
        self._drafted = last

    def added(self, now_ms: int) -> None:
        """Handle the durability of the records; log the last digest at intervals."""
        self._last = self._drafted
        if abs(now_ms - self._logged_ms) >= HEAD_LOGGED_MS:
            self._logged_ms = now_ms
            log.info(
                "audit record %d has digest %s", *self._drafted, extra={"action": "audit.head"}
            )

    def trim(
        self, directory: Path, *, oldest_ms: int, now_ms: int, creates: bool = False
    ) -> CallRecord | None:
        """Export older records; return a record of the export, which the caller must write.

        The next call deletes the exported records, after the export and its record are durable.

        Raises:
            ExportFailed: the records could not be exported.
        """
        rows = self._engine.rows("audit_trimmed")
        removed = int(str(rows[0][0]).partition(":")[0]) if rows else 0
        while (first := self.page(0, 1)) and first[0].seq <= removed:
            with self._engine.writing() as transaction:
                transaction.run("audit_trim", last=removed, count=PAGE)
        [(last,)] = self._engine.rows("audit_old", oldest_ms=oldest_ms)
        if int(last) <= removed:
            return None
        name = f"audit-{removed + 1:012}-{last:012}"
        write_export(directory, name, self._export(removed, int(last)), creates=creates)
        [newest] = self.page(int(last) - 1, 1)
        head = head_of(newest.seq, newest.digest)
        return CallRecord(now_ms, "", "", TRIMMED, head)

    def _export(self, after: int, last: int) -> Iterator[dict[str, object]]:
        """Yield records in the form of an export."""
        while after < last:
            for each in self.page(after, min(PAGE, last - after)):
                after = each.seq
                yield {
                    "sequence": each.seq,
                    **{name: getattr(each.record, name) for name in SIGNED},
                    "digest": each.digest,
                    "signature": each.signature,
                }

    def newest(self, count: int) -> list[AuditEntry]:
        """Return the last records, oldest first."""
        rows = self._engine.rows("audit_last")
        return self.page(max(int(rows[0][0]) - count, 0), count) if rows else []

    def page(self, after: int, limit: int) -> list[AuditEntry]:
        """Return records after a sequence number, oldest first."""
        rows = self._engine.rows("audit", after=after, limit=limit)
        return [
            AuditEntry(
                int(row[0]), CallRecord(int(row[1]), *map(str, row[2:8])), str(row[8]), str(row[9])
            )
            for row in rows
        ]
