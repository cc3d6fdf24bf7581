"""What a metadata process counts of itself; plain whole numbers, raised where answers are rare.

Answers from memory, which are nearly all, are not counted one by one: the groups that asked are,
once a second, as their marks are handed on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Figures:
    """Counts since the start of the process."""

    #: Documents that were asked for, each once for every second in which it was.
    documents_polled: int = 0
    #: Requests answered 429.
    throttled: int = 0
    #: Requests of nobody, answered 404.
    unknown_callers: int = 0
    #: Approvals, by how they were answered: 200, refused, 503.
    approvals_accepted: int = 0
    approvals_refused: int = 0
    approvals_unanswered: int = 0
    #: Changes of documents that were taken over.
    changes: int = 0

    def counts(self) -> dict[str, int]:
        """Return all of them by name."""
        return asdict(self)
