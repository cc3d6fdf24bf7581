"""Whether the processor time of a call grows in proportion to its input."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

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

    Each time is the best of three; 1 if the longer input takes less than `SMALL_S`.
    """
    longer_s = min(thread_time_s(call, text_of(2 * size)) for _ in range(RUNS))
    if longer_s < SMALL_S:
        return 1.0
    return longer_s / min(thread_time_s(call, text_of(size)) for _ in range(RUNS))
