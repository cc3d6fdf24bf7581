"""Measure the cost of access checks: `make bench-access` or `python -m bench.access`.

A permission check is the proof of a token and the owners for whom it permits something, of twenty
bindings; beside it stands the one SHA-256 that no check can do without. Then a chain of a million
audit records is verified, beside the digests alone. Ends with 1 where a limit is not kept.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from hashlib import sha256

from bench.sizes import Parser
from forewarn_base.audit_chain import CallRecord, digest_after, first_fault
from forewarn_core.access.roles import Permission, Principal, Role
from forewarn_core.access.tokens import AccessToken, digest_of, proved, written_token

CHECK_US_MAX, VERIFY_S_MAX = 20, 30
RUNS = 15
SECRET = "0" * 64


def check() -> None:
    """Check a permission like every call of the API."""
    proved(GIVEN, TOKENS.get, 1)
    BOUND.owners_for(Permission.APPROVE)


BOUND = Principal("kim", tuple((Role.OWNER.value, f"owner-{n}") for n in range(20)))
TOKENS = {"id": AccessToken("id", "kim", Role.OWNER, "shop", digest_of(SECRET), 0, None)}
GIVEN = written_token("id", SECRET)


def median_us(work: Callable[[], object], calls: int) -> float:
    """Return the median time of a call, in microseconds."""
    return statistics.median(timeit.repeat(work, number=calls, repeat=RUNS)) / calls * 1e6


def chain(count: int) -> Iterator[tuple[int, CallRecord, str]]:
    """Yield the records of a chain."""
    digest = ""
    for number in range(1, count + 1):
        record = CallRecord(number, "anna", "10.0.0.1", "POST /v1/hosts/h1/reboot", "h1")
        digest = digest_after(digest, number, record)
        yield number, record, digest


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = Parser("bench.access", __doc__)
    parser.add_size("--records", 1_000_000, 100_000, 100, "number of records of the audit")
    parser.add_size("--calls", 2000, 2000, 20, "number of permission checks in each run")
    asked = parser.sized()
    print(f"{platform.platform()}, Python {platform.python_version()}")
    check_us = median_us(check, asked.calls)
    hash_us = median_us(lambda: sha256(SECRET.encode()).hexdigest(), asked.calls)
    print(f"permission check: {check_us:.1f} us, {check_us / hash_us:.1f} times one SHA-256")
    began_s = time.process_time()
    records = list(chain(asked.records))
    digests_s = time.process_time() - began_s
    began_s = time.process_time()
    assert first_fault(records, {}) == (0, "")
    verify_s = time.process_time() - began_s
    ratio = verify_s / digests_s
    print(f"audit of {asked.records:,} records: {verify_s:.1f} s, {ratio:.1f} times making it")
    if asked.smoke:
        return 0
    return int(check_us > CHECK_US_MAX or verify_s > VERIFY_S_MAX)


if __name__ == "__main__":
    sys.exit(main())
