"""Records that the topology refused recently: their machines get late or no notice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.clock import Clock

log = logging.getLogger("forewarn.control")

#: How long a refusal is shown. Importers repeat refused records every few seconds, so older
#: refusals are outdated.
KEPT_MS = 120_000
#: Maximum stored refusals, and characters of each.
REFUSED_MAX, SENTENCE_MAX = 100, 300


class RefusedRecords:
    """The newest refusals; added on one thread, read on any."""

    def __init__(self, clock: Clock) -> None:
        """Start empty."""
        self._clock = clock
        #: Sentence -> last refusal, ms since the epoch UTC; oldest first.
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
        """Return the latest refusals, newest last."""
        since_ms = self._clock.now_ms() - KEPT_MS
        return tuple(each for each, at_ms in self._refused_ms.copy().items() if at_ms > since_ms)
