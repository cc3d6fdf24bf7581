"""The process of one plan: `python -m forewarn.control.planner_worker`.

It reads one pickled `PlannerTask` on standard input, writes the answer of `planner_host.py` to
standard output, and ends. It never outlives the process that started it: when its standard input
closes, it ends at once, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from pathlib import Path

#: What it adds to its niceness: polls, approvals and the writer come first.
NICE = 10
#: A word to the kernel: where memory runs out, end this process rather than the service.
OOM_SCORE = 1000


def main() -> None:
    """Answer one task."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, whose end is its end
        signal.signal(number, signal.SIG_IGN)
    answer = os.dup(1)
    os.dup2(2, 1)  # nothing else may stand in the answer
    with contextlib.suppress(OSError, AttributeError):  # not on Windows
        os.nice(NICE)
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    from forewarn.control.planner_host import answer_text  # noqa: PLC0415 - signals come first
    from forewarn.garbage import uncollected  # noqa: PLC0415

    with uncollected():  # it lives for seconds
        try:
            task = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
        except EOFError:
            return
        threading.Thread(target=_follow_parent, daemon=True).start()
        with os.fdopen(answer, "wb") as out:
            out.write(answer_text(task))


def _follow_parent() -> None:
    """End with the process at the other end of standard input; nothing more is said there."""
    os.read(0, 1)  # of the file itself: a lock of its buffer would be held to the end
    os._exit(1)


if __name__ == "__main__":
    main()
