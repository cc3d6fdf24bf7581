"""Whether the parts of a service answer that everything else waits for.

A part is asked again and again to answer, and nobody waits for it: one that hangs keeps its last
question unanswered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long a part may take to answer, in milliseconds: longer than a commit of 10,000 VMs.
SILENT_MS_MAX = 5000


class Liveness:
    """Asks the event loop and the deciding thread; may be used on any thread."""

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        """Begin without parts; `elapsed_ms` is a monotonic clock."""
        self._elapsed_ms = elapsed_ms
        self._parts: dict[str, Callable[[Callable[[], object]], object]] = {}
        #: Part -> since when it has not answered.
        self._asked: dict[str, int] = {}

    def watch(self, part: str, ask: Callable[[Callable[[], object]], object]) -> None:
        """Watch a part from now on: `ask` makes it call the given function, some time."""
        self._parts[part] = ask

    def silent(self) -> tuple[str, ...]:
        """Ask every part that has answered again; return those that have not for too long."""
        now_ms = self._elapsed_ms()
        for part, ask in tuple(self._parts.items()):
            if part not in self._asked:
                self._asked[part] = now_ms
                ask(partial(self._asked.pop, part, None))
        asked = tuple(self._asked.items())
        return tuple(part for part, since_ms in asked if now_ms - since_ms > SILENT_MS_MAX)
