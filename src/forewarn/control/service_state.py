"""What state the service is in, as one table: whether it decides, settles, or has ended; and why.

Why it moves is decided in `engine.py`; nothing is done here but the moves and the log.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from forewarn.values import Word

if TYPE_CHECKING:
    from forewarn.errors import ForewarnError

log = logging.getLogger("forewarn.control")


class ServiceState(Word):
    """Whether the control plane can decide, and if not, why."""

    #: What was left by a crash or by trouble with the store is being taken up.
    SETTLING = "settling"
    #: It decides, shows and begins.
    READY = "ready"
    #: What the store has is unknown, or it takes nothing: it is asked until it answers.
    UNCERTAIN = "uncertain"
    #: Another process has become the writer.
    SUPERSEDED = "superseded"
    #: It ends, because it was stopped or by a bug.
    STOPPING = "stopping"


#: What a process says of itself that waits to become the writer: it has no service yet.
STANDBY = "standby"

_ENDED = frozenset({ServiceState.SUPERSEDED, ServiceState.STOPPING})

MOVES: dict[ServiceState, frozenset[ServiceState]] = {
    ServiceState.SETTLING: frozenset({ServiceState.READY, ServiceState.UNCERTAIN, *_ENDED}),
    ServiceState.READY: frozenset({ServiceState.UNCERTAIN, *_ENDED}),
    ServiceState.UNCERTAIN: frozenset({ServiceState.SETTLING, *_ENDED}),
    ServiceState.SUPERSEDED: frozenset(),
    ServiceState.STOPPING: frozenset(),
}
"""Where each state may lead. A state that has ended takes every further move silently: what
another thread has stopped may learn of it in the middle of a turn."""


class ServiceStatus:
    """The state of one service; may be read and moved on any thread."""

    def __init__(self) -> None:
        """Begin with what was left to be taken up."""
        self.state = ServiceState.SETTLING
        self._lock = threading.Lock()
        self._last_trouble = ""

    @property
    def ended(self) -> bool:
        """Whether the service has ended, or is about to."""
        return self.state in _ENDED

    @property
    def ready(self) -> bool:
        """Whether the service decides."""
        return self.state is ServiceState.READY

    @property
    def trouble(self) -> str:
        """Why nothing can be decided now; empty while it can."""
        if self.ready:
            return ""
        return self._last_trouble or f"The service is {self.state.value}."

    def trouble_with(self, error: ForewarnError) -> None:
        """Log a trouble once, not each time it comes back."""
        if str(error) != self._last_trouble:
            self._last_trouble = str(error)
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})

    def trouble_is_over(self) -> None:
        """Log the next trouble, even if it is the same."""
        self._last_trouble = ""

    def become(self, state: ServiceState) -> bool:
        """Move to a state; return whether that is a change."""
        with self._lock:
            before = self.state
            if before is state or before in _ENDED:
                return False
            assert state in MOVES[before], (before, state)
            self.state = state
        log.info("the service is %s", state.value, extra={"action": f"service.{state.value}"})
        return True
