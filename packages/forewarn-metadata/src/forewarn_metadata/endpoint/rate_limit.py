"""Rate limit and last poll of each VM. Source: E-6, B-5."""

from __future__ import annotations

import math
from collections.abc import Iterable

from forewarn_metadata.endpoint.http.addresses import processes_of

_PARTS = 1024


class Bucket:
    """The token bucket of one VM, stored as the time at which the bucket will be full.

    The unit of time is the time until one token returns, so that taking a token adds 1. Times are
    rounded to fractions that a float represents exactly, so that a burst is exact.
    """

    __slots__ = ("_cost", "_full_at", "polled_tick", "user_agent")

    def __init__(self, cost: int = 1) -> None:
        """`cost` is more than 1 for a VM whose requests reach several processes."""
        self._full_at = 0.0
        self._cost = float(cost)
        #: Second of the VM's last poll, in seconds since the start of the service.
        self.polled_tick = 0
        #: User-Agent of the VM's last poll; None: the VM has not polled.
        self.user_agent: str | None = None

    def take(self, now: float, full_at_max: float) -> bool:
        """Take one token; return False if the bucket is empty.

        A bucket that is full only after `full_at_max`, in tokens, has no token.
        """
        full_at = self._full_at
        if full_at > full_at_max:
            return False
        self._full_at = (full_at if full_at > now else now) + self._cost
        return True


class RateLimit:
    """Buckets of all known VMs, by name."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        """Allow `rate_per_s` requests a second and `burst` at once; a rate of 0: unlimited."""
        assert rate_per_s >= 0
        assert burst >= 1
        self._rate_per_s = rate_per_s
        self._spare = burst - 1.0 if rate_per_s else math.inf
        self._buckets: dict[str, Bucket] = {}
        #: Number of processes that count separately, by client address; 0: only this process.
        self.shared = 0

    def bucket(self, vm: str, addresses: Iterable[str] = ()) -> Bucket:
        """Return the bucket of a VM; create the bucket if necessary."""
        bucket = self._buckets.get(vm)
        if bucket is None:
            met = processes_of(addresses, self.shared) if self.shared > 1 else ()
            bucket = self._buckets[vm] = Bucket(max(len(met), 1))
        return bucket

    def known(self, vm: str) -> Bucket | None:
        """Return a VM's bucket; None if the VM has no bucket yet."""
        return self._buckets.get(vm)

    def vms(self) -> list[str]:
        """Return the VMs that have a bucket; O(entries)."""
        return list(self._buckets)

    def times(self, now_s: float) -> tuple[float, float]:
        """Return the arguments of `Bucket.take` at monotonic time `now_s`."""
        now = math.floor(now_s * self._rate_per_s * _PARTS) / _PARTS
        return now, now + self._spare

    def retry_after_s(self) -> int:
        """Return the number of whole seconds until a refused VM has a token again."""
        assert self._rate_per_s > 0
        return max(1, int(-(-1.0 // self._rate_per_s)))

    def forget(self, vms: Iterable[str]) -> None:
        """Remove the buckets of removed VMs."""
        for vm in vms:
            self._buckets.pop(vm, None)

    def keep(self, vms: Iterable[str]) -> None:
        """Remove the buckets of all VMs except these."""
        kept = frozenset(vms)
        self.forget([vm for vm in self._buckets if vm not in kept])
