"""A clock that only moves when a test moves it."""

from forewarn_base.clock import WAIT_TIMEOUT_S, Clock


class VirtualClock(Clock):
    """A clock that a test sets."""

    def __init__(self, now_ms: int = 0) -> None:
        """Start at `now_ms`."""
        super().__init__()
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time the clock was last set to."""
        return self._now_ms

    def wait_s(self, until_ms: int) -> float:
        """Return the virtual seconds until `until_ms`."""
        return min(max((until_ms - self._now_ms) / 1000.0, 0.0), WAIT_TIMEOUT_S)

    def set(self, now_ms: int) -> None:
        """Advance to `now_ms`."""
        assert now_ms >= self._now_ms
        self._now_ms = now_ms
        self._notify()

    def advance(self, by_ms: int) -> None:
        """Advance by `by_ms` milliseconds."""
        self.set(self._now_ms + by_ms)
