"""Rate limit and last poll of each VM. Source: E-6, B-5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from forewarn.metadata.http.reuseport import processes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_PARTS = 1024


class Bucket:
    """The tokens of one VM, as one number: the time at which all of them will be back.

    The unit of time is the return of one token, so taking a token adds 1. Times are rounded to
    parts of a token that a float represents exactly, so a burst is exact.
    """

    __slots__ = ("_cost", "_full_at", "polled_tick", "user_agent")

    def __init__(self, cost: int = 1) -> None:
        """Start full.

        Args:
            cost: tokens per request; a VM that reaches several processes has a share in each.
        """
        self._full_at = 0.0
        self._cost = float(cost)
        self.polled_tick = 0
        """Second of the service's count in which the VM polled last."""
        self.user_agent: str | None = None
        """User-Agent of that poll; None: the VM has not polled."""

    def take(self, now: float, full_at_max: float) -> bool:
        """Take one token; return False if the bucket is empty.

        Args:
            now: the current time, in tokens.
            full_at_max: a bucket that is full only after this time has no token.
        """
        full_at = self._full_at
        if full_at > full_at_max:
            return False
        self._full_at = (full_at if full_at > now else now) + self._cost
        return True


class RateLimit:
    """Buckets by VM name, for known VMs only; a removed VM's bucket goes, too."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        """Allow `rate_per_s` requests a second and `burst` at once; a rate of 0: unlimited."""
        assert rate_per_s >= 0
        assert burst >= 1
        self._rate_per_s = rate_per_s
        self._spare = burst - 1.0 if rate_per_s else math.inf
        self._buckets: dict[str, Bucket] = {}
        self.shared = 0
        """Processes that count separately, with clients assigned by address; 0: only this one."""

    def bucket(self, vm: str, addresses: Iterable[str] = ()) -> Bucket:
        """Return a VM's bucket; the same one as long as the VM is known.

        Args:
            vm: its name.
            addresses: all of its addresses, which share one limit.
        """
        bucket = self._buckets.get(vm)
        if bucket is None:
            met = processes_of(addresses, self.shared) if self.shared > 1 else ()
            bucket = self._buckets[vm] = Bucket(max(len(met), 1))
        return bucket

    def known(self, vm: str) -> Bucket | None:
        """Return a VM's bucket; None if it has none yet."""
        return self._buckets.get(vm)

    def vms(self) -> list[str]:
        """Return the VMs that have a bucket; O(entries)."""
        return list(self._buckets)

    def times(self, now_s: float) -> tuple[float, float]:
        """Return the arguments of `Bucket.take` at monotonic time `now_s`."""
        now = math.floor(now_s * self._rate_per_s * _PARTS) / _PARTS
        return now, now + self._spare

    def retry_after_s(self) -> int:
        """Return how many whole seconds until a refused VM has a token again."""
        assert self._rate_per_s > 0
        return max(1, int(-(-1.0 // self._rate_per_s)))

    def forget(self, vms: Iterable[str]) -> None:
        """Remove the buckets of removed VMs."""
        for vm in vms:
            self._buckets.pop(vm, None)

    def keep(self, vms: Iterable[str]) -> None:
        """Remove the buckets of all VMs but these."""
        kept = frozenset(vms)
        self.forget([vm for vm in self._buckets if vm not in kept])
