"""Records that the topology has refused lately: machines that get no notice, or too late."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.clock import Clock

log = logging.getLogger("forewarn.control")

#: How long a refusal is shown. What follows a cloud tries again every few seconds: a record that
#: is taken at last, or is gone, is not refused again.
KEPT_MS = 120_000
#: Refusals that are kept, and characters of each.
REFUSED_MAX, SENTENCE_MAX = 100, 300


class RefusedRecords:
    """The newest refusals; added on one thread, read on any."""

    def __init__(self, clock: Clock) -> None:
        """Begin empty."""
        self._clock = clock
        #: Sentence -> when it was last refused, ms since the epoch UTC; the oldest first.
        self._refused_ms: dict[str, int] = {}

    def add(self, sentence: str) -> None:
        """Store a refusal; repeats are logged once."""
        sentence = sentence[:SENTENCE_MAX]
        if sentence not in self.sentences():
            log.warning("refused: %s", sentence, extra={"action": "topology.refused"})
        self._refused_ms.pop(sentence, None)
        if len(self._refused_ms) >= REFUSED_MAX:
            del self._refused_ms[next(iter(self._refused_ms))]
        self._refused_ms[sentence] = self._clock.now_ms()

    def sentences(self) -> tuple[str, ...]:
        """Return the latest refusals, the newest last."""
        since_ms = self._clock.now_ms() - KEPT_MS
        return tuple(each for each, at_ms in self._refused_ms.copy().items() if at_ms > since_ms)
