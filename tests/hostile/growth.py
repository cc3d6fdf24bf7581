"""Whether the processor time of a call grows in proportion to its input."""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from forewarn.garbage import uncollected

GROWTH_MAX = 3.0
"""Limit of the growth of the time between an input and one of twice its length."""
SMALL_S = 0.002
"""Shorter times are not compared: the clock and the caches would decide."""
RUNS = 3


def thread_time_s(call: Callable[[Any], object], text: object) -> float:
    """Return the thread's processor time of a call; what the call raises is its answer."""
    begun_s = time.thread_time()
    with contextlib.suppress(Exception):
        call(text)
    return time.thread_time() - begun_s


def growth(call: Callable[[Any], object], text_of: Callable[[int], object], size: int) -> float:
    """Return how often the time of `text_of(size)` fits into that of `text_of(2 * size)`.

    The longer time is the best of three; the shorter one the median, because a busy machine may
    end one call early. 1 if the longer input takes less than `SMALL_S`.
    """
    longer_s = min(thread_time_s(call, text_of(2 * size)) for _ in range(RUNS))
    if longer_s < SMALL_S:
        return 1.0
    return longer_s / statistics.median(thread_time_s(call, text_of(size)) for _ in range(RUNS))


def longest_step_s(work: Callable[[], object]) -> float:
    """Return the most processor time of work between two calls or returns, the best of three.

    Between them, Python lets other threads run. The time is that of this thread alone.
    """
    with uncollected():  # a service exempts what survives a collection
        return min(_longest_step_s(work) for _ in range(RUNS))


def _longest_step_s(work: Callable[[], object]) -> float:
    longest_s, last_s = 0.0, time.thread_time()

    def look(*_: object) -> None:
        nonlocal longest_s, last_s
        longest_s = max(longest_s, time.thread_time() - last_s)
        last_s = time.thread_time()

    sys.setprofile(look)
    try:
        kept = work()  # not released while measured
    finally:
        sys.setprofile(None)
    longest_s = max(longest_s, time.thread_time() - last_s)
    del kept
    return longest_s
