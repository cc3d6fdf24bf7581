"""Whether the processor time of a call grows in proportion to its input."""

import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from forewarn_base.garbage import uncollected

#: Limit of the growth of the time with each doubling of the input.
GROWTH_MAX = 3.0
#: Shorter times are not compared: the clock and the caches would decide.
SMALL_S = 0.002
#: The clock tells no shorter times apart.
CLOCK_S = 1e-6
RUNS = 3
#: A growth that a busy machine feigns is not there in each of these.
ROUNDS = 6
#: Time for a quarter of a text above which `is_slow` looks further.
SUSPECT_S = 0.0005
#: Ratio of the times for a text and its quarter above which the growth is measured.
RATIO_MAX = 5.0


def thread_time_s(call: Callable[[Any], object], text: object) -> float:
    """Return the thread's processor time of a call; what the call raises is its answer."""
    with uncollected(), contextlib.suppress(Exception):  # a collection would examine every test
        begun_s = time.thread_time()
        try:
            call(text)
        finally:
            spent_s = time.thread_time() - begun_s
    return spent_s


def growth(call: Callable[[Any], object], text_of: Callable[[int], object], size: int) -> float:
    """Return the factor by which the time of a call grows for each doubling of its input.

    Measured from half the size to twice the size, so that chance counts half as much as between
    an input and its double: time in proportion to the length gives 2, its square 4. What a busy
    machine added to one measurement is not there in the next: the least of some is the answer.
    1 if the longest input takes less than `SMALL_S`.
    """
    least = math.inf
    for _ in range(ROUNDS):
        longer_s = min(thread_time_s(call, text_of(2 * size)) for _ in range(RUNS))
        if longer_s < SMALL_S:
            return 1.0
        shorter_s = statistics.median(thread_time_s(call, text_of(size // 2)) for _ in range(RUNS))
        least = min(least, math.sqrt(longer_s / max(shorter_s, CLOCK_S)))
        if least <= GROWTH_MAX:
            break
    return least


def is_slow(call: Callable[[Any], object], text_of: Callable[[int], object], size: int) -> bool:
    """Tell whether a call needs more than linear time for a text of a size.

    Most calls need little time for a quarter of the text, or about four times that for a sixteenth;
    only the growth of the others is measured. A part of the time that is quadratic enough for
    `growth` shows in `RATIO_MAX` at the shorter texts.
    """
    quarter_s = thread_time_s(call, text_of(size // 4))
    if quarter_s < SUSPECT_S:
        return False
    short = text_of(size // 16)
    if quarter_s < RATIO_MAX / 2 * thread_time_s(call, short):
        return False
    # What a busy machine adds to a short time hides a growth: the least of some is compared.
    if quarter_s < RATIO_MAX * min(thread_time_s(call, short) for _ in range(RUNS)):
        return False
    return growth(call, text_of, size // 2) > GROWTH_MAX


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
