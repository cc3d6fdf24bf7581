"""The audit's records and the chain of digests they form; checked by anybody who has them.

Each digest covers the record and the digest before it, so an edit, a removal or another order
shows at every later record. A head, which is the digest of one record, is signed and sent
elsewhere: with it the chain up to there cannot be written again as a whole. Source: P-7.
"""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import TYPE_CHECKING

from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Digest before the first record.
START = ""
#: Request of the record that says up to which record retention has removed older ones; its object
#: is the head of what was removed.
TRIMMED = "audit.trimmed"
#: What is recorded of a call that was carried out.
DONE = "done"


@value
class CallRecord:
    """One change, or one refusal."""

    #: Ms since the epoch UTC.
    at_ms: int
    #: Who called; empty: nobody who is known.
    principal: str
    address: str
    #: Method and path.
    request: str
    #: What it was about, as its path or body names it.
    object: str
    #: `done`, or the code of the refusal.
    outcome: str = DONE
    #: The Idempotency-Key it came with, and the digest of what came; no part of the chain.
    key: str = ""
    fingerprint: str = ""


#: Members of a record that its digest covers.
SIGNED = ("at_ms", "principal", "address", "request", "object", "outcome")


def digest_after(before: str, sequence: int, record: CallRecord) -> str:
    """Return the digest of a record behind another digest."""
    fields = [before, sequence, *[getattr(record, name) for name in SIGNED]]
    return sha256(json.dumps(fields).encode()).hexdigest()


def head_of(sequence: int, digest: str) -> str:
    """Return a head as people and programs keep it."""
    return f"{sequence}:{digest}"


def signature_of(key: bytes, sequence: int, digest: str) -> str:
    """Return the signature of a head: HMAC-SHA-256."""
    return hmac.digest(key, f"{sequence} {digest}".encode(), sha256).hex()


def first_fault(
    records: Iterable[tuple[int, CallRecord, str]], heads: Mapping[int, str]
) -> tuple[int, str]:
    """Return the first wrong sequence number and the reason; 0 if the chain is valid.

    A chain may begin later than with its first record: then a record of its own says which head
    the removed records had.

    Args:
        records: every record in order, with its number and its digest.
        heads: digests that are known from elsewhere, by number.
    """
    digest, expected = START, 1
    #: The first record, until a later one proves what was before it.
    unproved: tuple[int, CallRecord, str] | None = None
    begun = 1
    for sequence, record, given in records:
        if expected == 1 < sequence:
            unproved = sequence, record, given
            begun = expected = sequence
        if sequence != expected:
            return expected, "is missing"
        begins = unproved is not None and sequence == begun
        digest = given if begins else digest_after(digest, sequence, record)
        if digest != given:
            return sequence, "was changed, or one before it"
        if heads.get(sequence, digest) != digest:
            return sequence, "is not what its signed head says"
        if unproved and record.request == TRIMMED and _follows(record.object, *unproved):
            unproved = None
        expected += 1
    if unproved:
        return begun - 1, "is missing"
    earlier = max((each for each in heads if each < begun), default=0)
    if earlier:
        return earlier, "is not among these; add the export that has it"
    return (expected, "is missing") if max(heads, default=0) >= expected else (0, "")


def _follows(head: str, sequence: int, record: CallRecord, digest: str) -> bool:
    """Whether a record is the next one after a head."""
    removed, _, before = head.partition(":")
    return removed == str(sequence - 1) and digest_after(before, sequence, record) == digest
