"""How many requests a VM may send: one token bucket each. Source: E-6. No answers in here."""

from __future__ import annotations

BUCKETS_MAX = 65_536
"""Buckets kept before full ones are thrown away, which changes nothing. More are kept where more
VMs are asking at the moment: only VMs that are known have a bucket."""


class RateLimit:
    """Token buckets by VM name; a VM unheard of has a full one."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        """Allow `rate_per_s` requests a second and `burst` at once."""
        assert rate_per_s > 0
        assert burst >= 1
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, float]] = {}
        self._sweep_at = BUCKETS_MAX

    def take(self, vm: str, now_s: float) -> bool:
        """Take one token at monotonic time `now_s`; False where there is none."""
        tokens, at_s = self._buckets.get(vm, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._rate_per_s)
        allowed = tokens >= 1.0
        if len(self._buckets) >= self._sweep_at and vm not in self._buckets:
            self._sweep(now_s)
        self._buckets[vm] = (tokens - 1.0 if allowed else tokens, now_s)
        return allowed

    def retry_after_s(self) -> int:
        """Return the whole seconds after which a refused VM has a token again."""
        return max(1, int(-(-1.0 // self._rate_per_s)))

    def _sweep(self, now_s: float) -> None:
        fill_s = self._burst / self._rate_per_s
        self._buckets = {vm: old for vm, old in self._buckets.items() if now_s - old[1] < fill_s}
        self._sweep_at = max(BUCKETS_MAX, 2 * len(self._buckets))  # rarely, however many ask
