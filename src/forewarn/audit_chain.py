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


def digest_after(before: str, sequence: int, record: CallRecord) -> str:
    """Return the digest of a record behind another digest."""
    fields = [
        before,
        sequence,
        record.at_ms,
        record.principal,
        record.address,
        record.request,
        record.object,
        record.outcome,
    ]
    return sha256(json.dumps(fields).encode()).hexdigest()


def signature_of(key: bytes, sequence: int, digest: str) -> str:
    """Return the signature of a head: HMAC-SHA-256."""
    return hmac.digest(key, f"{sequence} {digest}".encode(), sha256).hex()


def first_fault(
    records: Iterable[tuple[int, CallRecord, str]], heads: Mapping[int, str]
) -> tuple[int, str]:
    """Return the first wrong sequence number and the reason; 0 if the chain is valid.

    Args:
        records: every record from the first, with its number and its digest.
        heads: digests that are known from elsewhere, by number.
    """
    digest, expected = START, 1
    for sequence, record, given in records:
        if sequence != expected:
            return expected, "is missing"
        digest = digest_after(digest, sequence, record)
        if digest != given:
            return sequence, "was changed, or one before it"
        if heads.get(sequence, digest) != digest:
            return sequence, "is not what its signed head says"
        expected += 1
    last = max(heads, default=0)
    return (expected, "is missing") if last >= expected else (0, "")
