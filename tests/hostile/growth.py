"""Whether the processor time of a call grows in proportion to its input."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from forewarn.garbage import uncollected
from forewarn.service.process import SWITCH_S

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


def longest_hold_s(work: Callable[[], object]) -> float:
    """Return the most processor time for which work on a thread keeps other threads waiting.

    The time is that of the whole process between two turns of this thread, the best of three.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with uncollected():  # a service exempts what survives a collection
            return min(_longest_hold_s(work) for _ in range(RUNS))
    finally:
        sys.setswitchinterval(usual_s)


def _longest_hold_s(work: Callable[[], object]) -> float:
    kept: list[object] = []  # not released while measured
    worker = threading.Thread(target=lambda: kept.append(work()))
    longest_s, last_s = 0.0, time.process_time()
    worker.start()
    while worker.is_alive():
        os.sched_yield()  # lets the worker run
        now_s = time.process_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    return longest_s
