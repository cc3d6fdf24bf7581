"""The states of the service and their moves, as one table, and whether its parts respond.

`run_loop.py` decides on moves; this module performs and logs them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from forewarn_base.errors import ForewarnError
from forewarn_base.values import Word

log = logging.getLogger("forewarn.control")


class ServiceState(Word):
    """Whether the control plane can decide, or the reason why not."""

    #: Work interrupted by a crash or by store trouble is being resumed.
    SETTLING = "settling"
    #: The service decides, publishes and begins work.
    READY = "ready"
    #: The store's state is unknown, or the store accepts no writes; the service keeps asking it.
    UNCERTAIN = "uncertain"
    #: Another process has become the writer.
    SUPERSEDED = "superseded"
    #: The service ends because of a stop or a bug.
    STOPPING = "stopping"


#: Time limit for a part's answer, in milliseconds: longer than a commit of 10,000 VMs.
SILENT_MS_MAX = 5000
#: State reported by a standby.
STANDBY = "standby"

_ENDED = frozenset({ServiceState.SUPERSEDED, ServiceState.STOPPING})

#: Legal moves.
#:
#: An ended state ignores every further move, because another thread may stop the service during a
#: turn.
MOVES: dict[ServiceState, frozenset[ServiceState]] = {
    ServiceState.SETTLING: frozenset({ServiceState.READY, ServiceState.UNCERTAIN, *_ENDED}),
    ServiceState.READY: frozenset({ServiceState.UNCERTAIN, *_ENDED}),
    ServiceState.UNCERTAIN: frozenset({ServiceState.SETTLING, *_ENDED}),
    ServiceState.SUPERSEDED: frozenset(),
    ServiceState.STOPPING: frozenset(),
}


class ServiceStatus:
    """The state of one service; any thread may read or change it."""

    def __init__(self, name: str = "service") -> None:
        """Start with recovery, with this name in log lines."""
        self._name = name
        self.state = ServiceState.SETTLING
        self._lock = threading.Lock()
        self._last_trouble = ""

    @property
    def ended(self) -> bool:
        """Whether the service has ended, or is about to."""
        return self.state in _ENDED

    @property
    def ready(self) -> bool:
        """Whether the service can decide."""
        return self.state is ServiceState.READY

    @property
    def trouble(self) -> str:
        """Why the service cannot decide now; empty while it can."""
        if self.ready:
            return ""
        return self._last_trouble or f"The service is {self.state.value}."

    def trouble_with(self, error: ForewarnError) -> None:
        """Log a problem once, without its repeats."""
        if str(error) != self._last_trouble:
            self._last_trouble = str(error)
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})

    def trouble_is_over(self) -> None:
        """Log the next problem, even if the same problem was logged before."""
        self._last_trouble = ""

    def become(self, state: ServiceState) -> bool:
        """Move to a state; return whether the state has changed."""
        with self._lock:
            before = self.state
            if before is state or before in _ENDED:
                return False
            assert state in MOVES[before], (before, state)
            self.state = state
        action = f"{self._name}.{state.value}"
        log.info("the %s is %s", self._name, state.value, extra={"action": action})
        return True


class Liveness:
    """Asks the event loop and the deciding thread whether they respond; callable on any thread.

    It asks each part at intervals, without waiting for the answer. A hanging part does not answer
    its last question.
    """

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        """Start without parts; `elapsed_ms` is a monotonic clock."""
        self._elapsed_ms = elapsed_ms
        self._parts: dict[str, Callable[[Callable[[], object]], object]] = {}
        #: Part -> start of its unanswered question.
        self._asked_ms: dict[str, int] = {}

    def watch(self, part: str, ask: Callable[[Callable[[], object]], object]) -> None:
        """Start watching a part: `ask` makes the part call the given function."""
        self._parts[part] = ask

    def silent(self) -> tuple[str, ...]:
        """Ask all parts without an open question; return the parts with an overdue answer."""
        now_ms = self._elapsed_ms()
        for part, ask in tuple(self._parts.items()):
            if part not in self._asked_ms:
                self._asked_ms[part] = now_ms
                ask(partial(self._asked_ms.pop, part, None))
        unanswered = tuple(self._asked_ms.items())
        return tuple(part for part, since_ms in unanswered if now_ms - since_ms > SILENT_MS_MAX)
