"""What metadata nodes and strangers at the feed do wrong: remembered for people, and logged.

Whether it is wrong is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque

REFUSED_MAX = 20
"""Refusals that are remembered for people."""

LOGGED_S, KNOWN_MAX = 60.0, 10_000
"""How often one node or source has a line in the log, and how many of them are known."""

_LOG = logging.getLogger(__name__)


class Offences:
    """The latest refusals, each once, and a line in the log once a minute for each offender."""

    def __init__(self) -> None:
        """Begin empty."""
        #: What was refused, the latest last. Source: M-5.
        self.refused: deque[str] = deque(maxlen=REFUSED_MAX)
        #: Node or source -> when it was logged, by the event loop's clock; in order.
        self._logged_s: OrderedDict[str, float] = OrderedDict()

    def refuse(self, who: str, text: str, action: str) -> None:
        """Remember and log a request of a node or source for hosts that are not its own."""
        if text not in self.refused:
            self.refused.append(text)
        self.log(who, text, action)

    def log(self, who: str, text: str, action: str) -> None:
        """Log an act of a node or source, unless one of it was logged within a minute."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(who, -LOGGED_S) < LOGGED_S:
            return
        self._logged_s[who] = now_s
        self._logged_s.move_to_end(who)
        if len(self._logged_s) > KNOWN_MAX:
            self._logged_s.popitem(last=False)
        _LOG.warning("%s", text, extra={"action": action})
