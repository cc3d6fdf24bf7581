"""Answers to calls that may be repeated: kept for a day, from the transaction of the change on.

Source: P-10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.audit_chain import CallRecord
    from forewarn.store.engine import Engine, Transaction

#: How long an answer is kept, in milliseconds.
KEPT_MS = 86_400_000


@value
class KeptAnswer:
    """The first answer to a call with an Idempotency-Key."""

    principal: str
    key: str
    #: Digest of method, path and body.
    request: str
    at_ms: int
    #: HTTP status; 0: the change is made, and its answer is not kept yet, or never.
    status: int = 0
    answer: str = ""

    @classmethod
    def begun(cls, call: CallRecord) -> KeptAnswer:
        """Return the record of a call before its answer is known."""
        return cls(call.principal, call.key, call.fingerprint, call.at_ms)


class KeptAnswers:
    """The kept answers of one store; may be used on any thread."""

    def __init__(self, engine: Engine) -> None:
        """Use an engine whose schema is up to date."""
        self._engine = engine

    def find(self, principal: str, key: str, now_ms: int) -> KeptAnswer | None:
        """Return the answer to a call, unless it is older than a day."""
        with self._engine.reading() as transaction:
            rows = transaction.rows(
                "answer_of", principal=principal, key=key, since_ms=now_ms - KEPT_MS
            )
        if not rows:
            return None
        request, status, answer = rows[0]
        return KeptAnswer(principal, key, str(request), 0, int(status), str(answer))

    def keep(self, kept: KeptAnswer) -> None:
        """Keep an answer, and delete answers older than a day."""
        with self._engine.writing() as transaction:
            transaction.run("answers_forget", until_ms=kept.at_ms - KEPT_MS)
            put_answer(transaction, kept)


def put_answer(transaction: Transaction, kept: KeptAnswer) -> None:
    """Write an answer, or that its change is made, in the transaction of that."""
    transaction.run(
        "answer_put",
        principal=kept.principal,
        key=kept.key,
        request=kept.request,
        at_ms=kept.at_ms,
        status=kept.status,
        answer=kept.answer,
    )
