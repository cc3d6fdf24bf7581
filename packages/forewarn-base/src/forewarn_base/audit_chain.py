"""Audit records and their chain of digests, for verification by any reader of the records.

Each digest covers the record and the previous digest, so an edit, a removal or a reordering makes
every later digest wrong. A head is the digest of one record. Heads are signed and sent elsewhere,
so that nobody can rewrite the whole chain. Source: P-7.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from forewarn_base.values import value

#: Digest before the first record.
START = ""
#: Request of the record about a deletion of older records; its object is the head of the deleted
#: records.
TRIMMED = "audit.trimmed"
#: Request of the record about a principal's calls beyond the limit, which have no records of their
#: own; its object is their number, and its other members are those of the last one.
OMITTED = "audit.omitted"
#: Outcome of an executed call.
DONE = "done"


@value
class CallRecord:
    """The audit record of one call: a change or a refusal."""

    #: Ms since the epoch UTC.
    at_ms: int
    #: The caller; empty: unauthenticated.
    principal: str
    address: str
    #: Method and path.
    request: str
    #: The object of the call, from its path or body.
    object: str
    #: `done`, or the code of the refusal.
    outcome: str = DONE
    #: Id of the caller's token; empty: another proof, or none.
    token: str = ""
    #: The Idempotency-Key of the call, the caller to whom the key belongs, and the digest of the
    #: request; not part of the chain.
    key: str = ""
    key_owner: str = ""
    fingerprint: str = ""


#: Members of a record that its digest covers.
SIGNED = ("at_ms", "principal", "address", "request", "object", "outcome", "token")


def read_record(members: Mapping[str, Any]) -> CallRecord:
    """Return an exported record; earlier releases exported no token."""
    return CallRecord(**{name: members[name] for name in SIGNED if name in members})


def digest_after(before: str, sequence: int, record: CallRecord) -> str:
    """Return the digest of a record after a previous digest."""
    fields = [before, sequence, *[getattr(record, name) for name in SIGNED]]
    if not record.token:  # as in earlier releases, whose records have no token
        fields.pop()
    return sha256(json.dumps(fields).encode()).hexdigest()


def head_of(sequence: int, digest: str) -> str:
    """Return a head in its text form."""
    return f"{sequence}:{digest}"


def signature_of(key: bytes, sequence: int, digest: str) -> str:
    """Return the signature of a head: HMAC-SHA-256."""
    return hmac.digest(key, f"{sequence} {digest}".encode(), sha256).hex()


def first_fault(
    records: Iterable[tuple[int, CallRecord, str]],
    heads: Mapping[int, str],
    *,
    signed: bool = False,
) -> tuple[int, str]:
    """Return the first wrong sequence number and the reason; 0 if the chain is valid.

    The first records of a chain may be deleted; then a later record states their head. Anybody who
    can write to the store can add such a record after the last known head. So this record counts
    only up to the last head, or if it is signed; without heads and signatures nothing is proved.

    Args:
        records: every record in order, with its number and its digest.
        heads: digests from another source, by number.
        signed: whether the caller checks a signature of each record.
    """
    known = max(heads, default=0)
    digest, expected = START, 1
    #: The first record counts as valid until a later record proves its previous head.
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
        counts = signed or not known or sequence <= known
        if unproved and counts and record.request == TRIMMED:
            unproved = None if _follows(record.object, *unproved) else unproved
        expected += 1
    if unproved:
        return begun - 1, "is missing, and no proved record says that it was exported"
    earlier = max((each for each in heads if each < begun), default=0)
    if earlier:
        return earlier, "is missing from the input; add the export that contains it"
    return (expected, "is missing") if known >= expected else (0, "")


def _follows(head: str, sequence: int, record: CallRecord, digest: str) -> bool:
    """Whether a record directly follows a head."""
    removed, _, before = head.partition(":")
    return removed == str(sequence - 1) and digest_after(before, sequence, record) == digest
