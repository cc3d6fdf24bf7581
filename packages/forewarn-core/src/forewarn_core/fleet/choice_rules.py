"""Rules that choose the start of declared work among the openings of a host. Source: T-2, T-16.

A window of a rule has the members and the meaning of a policy's window (`rules/local_time.py`): a
time that daylight saving leaves out is the next instant, and of a time that occurs twice the first
counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn_base.values import Word, value
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.openings import Opening
from forewarn_core.rules.local_time import Window, open_spans


class Otherwise(Word):
    """What a rule chooses if no opening lies within its window."""

    #: The latest start of the last opening.
    LAST = "last"
    #: The earliest start of the first opening.
    FIRST = "first"
    #: The VMs are handed back.
    RELEASE = "release"
    NOTHING = "nothing"


@value
class ChoiceRule:
    """The earliest start within a window, or else what `otherwise` says."""

    window: Window
    otherwise: Otherwise = Otherwise.NOTHING

    def start_ms(self, openings: Sequence[Opening]) -> int:
        """Return the start that the rule chooses, ms since the epoch UTC; 0: it chooses none.

        The openings are sorted by time.
        """
        for each in openings:
            end_ms = each.latest_ms + SECOND_MS
            for from_ms, _ in open_spans((self.window,), each.start_ms, end_ms):
                return -(-from_ms // SECOND_MS) * SECOND_MS
        if openings and self.otherwise is Otherwise.LAST:
            return openings[-1].latest_ms
        if openings and self.otherwise is Otherwise.FIRST:
            return openings[0].start_ms
        return 0
