"""Stores the answers to repeatable calls for a day, with the transaction of the change.

A key belongs to a token, or to a principal with certain roles. The release before stored answers
by principal alone. So that no call is executed twice while both run, each answer has a second row
under its principal: the release before finds that row without an answer, and this release finds
rows of the release before. Source: H-8, P-10.
"""

from __future__ import annotations

from forewarn_base.audit_chain import CallRecord
from forewarn_base.values import replace, value
from forewarn_store.engine import Engine, Transaction, Value

#: Time for which an answer is stored, in milliseconds.
KEPT_MS = 86_400_000
#: Answer in the row for the release before.
ELSEWHERE = "see the row of its owner"


@value
class KeptAnswer:
    """The first answer to a call with an Idempotency-Key."""

    principal: str
    #: The caller to whom the key belongs, as text with a space, which no principal's name has.
    owner: str
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
        return cls(call.principal, call.key_owner, call.key, call.fingerprint, call.at_ms)


class KeptAnswers:
    """The stored answers of one store; usable on any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, call: CallRecord) -> KeptAnswer | None:
        """Return the stored answer to a call, unless it is older than a day.

        The answer to another token of the principal, as before a token was replaced, or to a caller
        that the release before has not stored, is not for this caller: its request is returned. A
        call without a fingerprint asks for any request with the key.
        """
        wanted = KeptAnswer.begun(call)
        facts: dict[str, Value] = {"key": call.key, "since_ms": call.at_ms - KEPT_MS}
        with self._engine.reading() as transaction:
            own = transaction.rows("answer_of", owner=wanted.owner, **facts)
            older = transaction.rows("answer_of", owner=wanted.principal, **facts)
        for request, status, body in own:
            return replace(wanted, request=str(request), status=int(status), answer=str(body))
        for request, _, body in older:
            if body != ELSEWHERE or call.fingerprint in {"", request}:
                return replace(wanted, request=str(request))
        return None

    def keep(self, kept: KeptAnswer) -> None:
        """Store an answer, and delete answers older than a day."""
        with self._engine.writing() as transaction:
            transaction.run("answers_forget", until_ms=kept.at_ms - KEPT_MS)
            put_answer(transaction, kept)


def put_answer(transaction: Transaction, kept: KeptAnswer) -> None:
    """Write an answer, or the record of a change without an answer, in the change's transaction."""
    facts: dict[str, Value] = {"key": kept.key, "request": kept.request, "at_ms": kept.at_ms}
    transaction.run("answer_put", owner=kept.owner, status=kept.status, answer=kept.answer, **facts)
    transaction.run("answer_put", owner=kept.principal, status=0, answer=ELSEWHERE, **facts)
