"""Refused requests of metadata nodes and other clients of the feed, for operators and the log.

Other modules detect the refused requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque

REFUSED_MAX = 20
"""Maximum number of refusals shown to operators."""

LOGGED_S, KNOWN_MAX = 60.0, 10_000
"""Minimum interval between log lines about one node or source, and maximum tracked offenders."""

_LOG = logging.getLogger(__name__)


class Offences:
    """The latest refusals without repetitions. Each offender has at most one log line a minute."""

    def __init__(self) -> None:
        #: Refused requests, the latest last. Source: M-5.
        self.refused: deque[str] = deque(maxlen=REFUSED_MAX)
        #: Node or source -> time of its last log line, by the event loop's clock; in order.
        self._logged_s: OrderedDict[str, float] = OrderedDict()

    def refuse(self, who: str, text: str, action: str) -> None:
        """Record and log a request of a node or source for hosts that it may not serve."""
        if text not in self.refused:
            self.refused.append(text)
        self.log(who, text, action)

    def log(self, who: str, text: str, action: str) -> None:
        """Log a refusal of a node or source, unless its last log line is less than a minute old."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(who, -LOGGED_S) < LOGGED_S:
            return
        self._logged_s[who] = now_s
        self._logged_s.move_to_end(who)
        if len(self._logged_s) > KNOWN_MAX:
            self._logged_s.popitem(last=False)
        _LOG.warning("%s", text, extra={"action": action})
