"""Wait: repeats a check or a request until success or the hook's deadline.

A service that does not answer has neither refused nor failed: its state is unknown, and it is asked
again until the deadline.
"""

from __future__ import annotations

import os
import threading

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

PAUSE_S = 0.5
SPARE_S = 2.0  # time reserved before the deadline, in which a hook can report its failure
ALONE_S = 60.0  # time limit outside the agent, which sets a deadline


class TookTooLong(PeerError):
    """A condition of a preparation did not become true in time."""

    code = "took-too-long"
    message = "After {seconds:.0f} s, this condition is still false: {what}{last}."
    advice = "Increase the step's timeout_s, or find the cause of the delay."


class Unanswered(PeerError):
    """A service that a preparation needs did not answer, or does not know the answer yet."""

    code = "unanswered"
    message = "{service} does not answer: {reason}."
    advice = "Check the service; the preparation has asked it until its deadline."


def until(
    true: Callable[[], bool], what: str, *, seconds: float = 0.0, every_s: float = PAUSE_S
) -> None:
    """Wait until a condition is true, for at most `seconds` and until the hook's deadline.

    `true` raises `Unanswered` while the answer is unknown; `every_s` is the pause between calls.

    Raises:
        TookTooLong: the condition did not become true.
    """
    clock = SystemClock()
    begun_ms, until_ms, last = clock.now_ms(), _deadline_ms(clock, seconds), ""
    while True:
        try:
            if true():
                return
            last = ""
        except Unanswered as error:
            last = f" ({error.clause})"
        if clock.now_ms() >= until_ms:
            raise TookTooLong(seconds=(clock.now_ms() - begun_ms) / 1000, what=what, last=last)
        pause(every_s)


def persist(ask: Callable[[], T]) -> T:
    """Return the answer of a service; repeat the request while the answer is unknown.

    Raises:
        Unanswered: the answer is still unknown at the hook's deadline.
    """
    clock = SystemClock()
    until_ms = _deadline_ms(clock, 0.0)
    while True:
        try:
            return ask()
        except Unanswered:
            if clock.now_ms() >= until_ms:
                raise
        pause(PAUSE_S)


def seconds_left() -> float:
    """Return the seconds in which a preparation may still wait; 0 or less: none."""
    clock = SystemClock()
    return (_deadline_ms(clock, 0.0) - clock.now_ms()) / 1000


def _deadline_ms(clock: SystemClock, seconds: float) -> int:
    """Return when to give up, ms since the epoch."""
    deadline = os.environ.get("FOREWARN_DEADLINE", "")
    limits = [clock.now_ms() + int(seconds * 1000)] if seconds else []
    if deadline:
        limits.append(int(deadline) * 1000 - int(SPARE_S * 1000))
    return min(limits, default=clock.now_ms() + int(ALONE_S * 1000))


def pause(seconds: float) -> None:
    """Sleep for some seconds."""
    threading.Event().wait(seconds)
