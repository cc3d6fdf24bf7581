"""Stores the answers to repeatable calls for a day, with the transaction of the change.

Source: P-10.
"""

from __future__ import annotations

from forewarn.audit_chain import CallRecord
from forewarn.store.engine import Engine, Transaction
from forewarn.values import value

#: Time for which an answer is stored, in milliseconds.
KEPT_MS = 86_400_000


@value
class KeptAnswer:
    """The first answer to a call with an Idempotency-Key."""

    principal: str
    key: str
    #: Digest of the request's method, path and body.
    request: str
    at_ms: int
    #: HTTP status; 0: the change was made, but its answer has not been stored.
    status: int = 0
    answer: str = ""

    @classmethod
    def begun(cls, call: CallRecord) -> KeptAnswer:
        """Return the record of a call without an answer."""
        return cls(call.principal, call.key, call.fingerprint, call.at_ms)


class KeptAnswers:
    """The stored answers of one store; usable on any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, principal: str, key: str, now_ms: int) -> KeptAnswer | None:
        """Return the stored answer to a call, unless it is older than a day."""
        with self._engine.reading() as transaction:
            rows = transaction.rows(
                "answer_of", principal=principal, key=key, since_ms=now_ms - KEPT_MS
            )
        if not rows:
            return None
        request, status, answer = rows[0]
        return KeptAnswer(principal, key, str(request), 0, int(status), str(answer))

    def keep(self, kept: KeptAnswer) -> None:
        """Store an answer, and delete answers older than a day."""
        with self._engine.writing() as transaction:
            transaction.run("answers_forget", until_ms=kept.at_ms - KEPT_MS)
            put_answer(transaction, kept)


def put_answer(transaction: Transaction, kept: KeptAnswer) -> None:
    """Write an answer, or the record of a change without an answer, in the change's transaction."""
    transaction.run(
        "answer_put",
        principal=kept.principal,
        key=kept.key,
        request=kept.request,
        at_ms=kept.at_ms,
        status=kept.status,
        answer=kept.answer,
    )
