"""Where a process can end in the middle of its work, and the errors that say so."""

from collections import Counter

#: Between any two effects: commit, publish, begin, abort. Source: L-7.
POINTS = (
    "before commit",
    "after commit",
    "before publish",
    "after publish",
    "before begin",
    "after begin",
    "before abort",
    "after abort",
)


class Crash(BaseException):
    """The control plane's process ends here and now.

    No `Exception`: nothing in the product may catch it, as nothing can catch SIGKILL.
    """


class NeverReturns(BaseException):
    """A call of a driver does not come back. No `Exception`: nobody hears of it."""


class Violation(BaseException):
    """The product broke a promise. No `Exception`, for the same reason.

    Attributes:
        invariant: The number of the contract's invariant, or a word.
        line: The line of the transcript's command it came after; 0 in a random world.
    """

    def __init__(self, invariant: str, text: str) -> None:
        """Say which promise, and how."""
        super().__init__(f"invariant {invariant}: {text}")
        self.invariant = invariant
        self.line = 0


class CrashPoint:
    """One armed crash; it goes off the next time the work comes by its point."""

    def __init__(self) -> None:
        """Begin unarmed."""
        self.armed = ""
        #: Point -> times it went off there.
        self.hits: Counter[str] = Counter()

    def arm(self, point: str) -> None:
        """Crash at a point."""
        assert point in POINTS, point
        self.armed = point

    def passes(self, point: str) -> None:
        """Come by a point of the work.

        Raises:
            Crash: this point is armed.
        """
        if self.armed == point:
            self.armed = ""
            self.hits[point] += 1
            raise Crash(point)
