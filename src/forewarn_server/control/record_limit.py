"""Limits the audit records of calls that changed nothing, for each principal.

Such calls cost their caller nothing, so without a limit one principal could fill the store. Calls
beyond the limit are answered alike; a record counts them. Source: P-7.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from forewarn_base.audit_chain import OMITTED, CallRecord
from forewarn_base.values import replace, value

#: Maximum number of principals whose records are counted; the longest silent one is forgotten.
PRINCIPALS_MAX = 10_000
#: Time between the first call without a record and the record that counts such calls, in ms.
COUNTED_MS = 60_000


@value
class _Room:
    """How many records are written at once, and after how many ms there is room for another."""

    records: int
    interval_ms: int


#: Room of each principal, and of all callers without a principal together.
_OF_PRINCIPAL, _OF_STRANGERS = _Room(100, 6000), _Room(1000, 600)


@value
class _Omitted:
    """Calls of one principal without records."""

    since_ms: int
    count: int
    last: CallRecord


class RecordLimit:
    """Token buckets of principals; usable on any thread. Times are ms since the epoch UTC."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Principal -> when its bucket is full again.
        self._full_ms: OrderedDict[str, int] = OrderedDict()
        self._omitted: dict[str, _Omitted] = {}

    def admits(self, call: CallRecord, now_ms: int) -> bool:
        """Return whether a call is recorded; otherwise count it."""
        name = call.principal
        room = _OF_PRINCIPAL if name else _OF_STRANGERS
        with self._lock:
            longest_ms = room.records * room.interval_ms
            full_ms = self._full_ms.get(name, 0)
            if not now_ms <= full_ms <= now_ms + longest_ms:  # later: the clock was set back
                full_ms = now_ms
            if full_ms > now_ms + longest_ms - room.interval_ms:
                omitted = self._omitted.get(name, _Omitted(now_ms, 0, call))
                self._omitted[name] = replace(omitted, count=omitted.count + 1, last=call)
                return False
            self._full_ms[name] = full_ms + room.interval_ms
            self._full_ms.move_to_end(name)
            if len(self._full_ms) > PRINCIPALS_MAX:
                self._full_ms.popitem(last=False)
        return True

    def due(self, now_ms: int | None = None) -> list[CallRecord]:
        """Return a record for each principal whose calls were left out; None: without waiting."""
        if not self._omitted:
            return []
        with self._lock:
            due = [
                name
                for name, each in self._omitted.items()
                if now_ms is None or not 0 <= now_ms - each.since_ms < COUNTED_MS
            ]
            omitted = [self._omitted.pop(name) for name in due]
        return [
            replace(each.last, request=OMITTED, object=f"{each.count} calls") for each in omitted
        ]
