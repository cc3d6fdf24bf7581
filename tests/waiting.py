"""Waiting for something that another process or thread does, with a limit and without a pause."""

import threading
import time
from collections.abc import Callable

#: Longest wait for another thread or process; only a broken test waits that long.
#:
#: Beside a load of 30 on two processors, a browser or a service needs a minute to start.
LIMIT_S = 180.0

LOOK_EVERY_S = 0.01


def wait_until(
    true: Callable[[], object],
    *,
    what: str | Callable[[], str] = "it",
    limit_s: float = LIMIT_S,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Return as soon as `true()` is; fail the test after `limit_s` seconds.

    `what` says what is waited for, as a function if it changes meanwhile; `every_s` is for what
    is costly to look at, and far from ready.
    """
    ends_s = time.monotonic() + limit_s
    idle = threading.Event()
    while not true():
        late = time.monotonic() >= ends_s
        assert not late, f"waited {limit_s:g} s for {what if isinstance(what, str) else what()}"
        idle.wait(every_s)
