"""Waiting: asking again and again until something is true or the hook's time is up."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S = 0.5
SPARE_S = 2.0  # kept of the deadline, so that a hook can still say what it waited for


class TookTooLong(PeerError):
    """What a preparation waits for did not happen in its time."""

    code = "took-too-long"
    message = "Within {seconds:.0f} s it did not happen that {what}."
    advice = "Give the step more time, or see what holds it up."


def until(true: Callable[[], bool], what: str, *, seconds: float = 0.0) -> None:
    """Wait until something is true, at most this many seconds and not beyond the deadline.

    Args:
        true: Asks.
        what: A sentence that completes "it did not happen that".
        seconds: The most to wait; 0: until the deadline of the hook.

    Raises:
        TookTooLong: it did not become true.
    """
    clock = SystemClock()
    begun_ms = clock.now_ms()
    deadline = os.environ.get("FOREWARN_DEADLINE", "")
    until_ms = int(deadline) * 1000 - int(SPARE_S * 1000) if deadline else begun_ms + 60_000
    if seconds:
        until_ms = (
            min(until_ms, begun_ms + int(seconds * 1000))
            if deadline
            else (begun_ms + int(seconds * 1000))
        )
    while not true():
        if clock.now_ms() >= until_ms:
            raise TookTooLong(seconds=(clock.now_ms() - begun_ms) / 1000, what=what)
        pause(PAUSE_S)


def pause(seconds: float) -> None:
    """Do nothing for some seconds."""
    threading.Event().wait(seconds)
