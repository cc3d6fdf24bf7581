"""Wait: repeats a check until success or the hook's deadline."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S = 0.5
SPARE_S = 2.0  # time reserved before the deadline, in which a hook can report its failure


class TookTooLong(PeerError):
    """A condition of a preparation did not become true in time."""

    code = "took-too-long"
    message = "After {seconds:.0f} s, this condition is still false: {what}."
    advice = "Increase the step's timeout_s, or find the cause of the delay."


def until(true: Callable[[], bool], what: str, *, seconds: float = 0.0) -> None:
    """Wait until a condition is true, for at most `seconds` and until the hook's deadline.

    Raises:
        TookTooLong: the condition did not become true.
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
    """Sleep for some seconds."""
    threading.Event().wait(seconds)
