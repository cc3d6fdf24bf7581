"""Checks that the essential parts of a service respond.

Each part is asked at intervals, without waiting for the answer. A hanging part does not answer its
last question.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Time limit for a part's answer, in milliseconds: longer than a commit of 10,000 VMs.
SILENT_MS_MAX = 5000


class Liveness:
    """Asks the event loop and the deciding thread; callable on any thread."""

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        """Start without parts; `elapsed_ms` is a monotonic clock."""
        self._elapsed_ms = elapsed_ms
        self._parts: dict[str, Callable[[Callable[[], object]], object]] = {}
        #: Part -> start of its unanswered question.
        self._asked: dict[str, int] = {}

    def watch(self, part: str, ask: Callable[[Callable[[], object]], object]) -> None:
        """Start watching a part: `ask` makes the part call the given function."""
        self._parts[part] = ask

    def silent(self) -> tuple[str, ...]:
        """Ask all parts without an open question; return the parts with an overdue answer."""
        now_ms = self._elapsed_ms()
        for part, ask in tuple(self._parts.items()):
            if part not in self._asked:
                self._asked[part] = now_ms
                ask(partial(self._asked.pop, part, None))
        asked = tuple(self._asked.items())
        return tuple(part for part, since_ms in asked if now_ms - since_ms > SILENT_MS_MAX)
