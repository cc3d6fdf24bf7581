"""What is due when: the heap of a simulated world, and the true time in it.

No thing of the world may be known here.
"""

import heapq
from collections.abc import Callable

from tests.simulator.world.crash_points import Violation

#: 2026-01-01T00:00:00Z: a world begins at a fixed instant, never at 0, which means "not yet".
START_MS = 1_767_225_600_000

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

#: Steps in a simulated minute beyond which a world runs in a circle: something that wakes once a
#: millisecond has 60,000, an ordinary minute to a hundred. Many machines need more.
STEPS_MAX = 40_000


class EventQueue:
    """Acts in the order of their times; acts of the same time in the order they were noted."""

    def __init__(self, now_ms: int = START_MS) -> None:
        """Begin with nothing due."""
        self.now_ms = now_ms
        self.steps = 0
        self.steps_max = STEPS_MAX
        self._minute_ms = self._minute_steps = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, at_ms: int, act: Callable[[], None]) -> None:
        """Do something at a true time, ms since the epoch; what is past is done next.

        Python may collect garbage in here, and what ends with that may note something, too.
        """
        self._count = count = self._count + 1
        heapq.heappush(self._heap, (max(at_ms, self.now_ms), count, act))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something this many milliseconds from now."""
        self.at(self.now_ms + delay_ms, act)

    def step(self, until_ms: int) -> bool:
        """Do the next thing that is due by then; False if there is none, and it is then.

        Raises:
            Violation: time hardly passes any more, however much is done.
        """
        if not self._heap or self._heap[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return False
        self.now_ms, _, act = heapq.heappop(self._heap)
        self.steps += 1
        if self.now_ms >= self._minute_ms:
            self._minute_ms = self.now_ms + MINUTE_MS
            self._minute_steps = self.steps + self.steps_max
        elif self.steps > self._minute_steps:
            raise Violation("loop", f"{self.steps_max} steps have come in a simulated minute")
        act()
        return True
