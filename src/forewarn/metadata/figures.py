"""Counters of a metadata process, as plain integers.

The counters exclude cached answers, which are most answers. Instead the service counts the groups
with polls once a second, when it reports their polls.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Figures:
    """Counts since the start of the process."""

    #: Requested documents; a document counts once for each second with a request.
    documents_polled: int = 0
    #: Requests with answer 429.
    throttled: int = 0
    #: Requests of unknown callers, answered 404.
    unknown_callers: int = 0
    #: Approvals by answer: 200, refused, 503.
    approvals_accepted: int = 0
    approvals_refused: int = 0
    approvals_unanswered: int = 0
    #: Document changes received.
    changes: int = 0

    def counts(self) -> dict[str, int]:
        """Return all counters by name."""
        return asdict(self)
