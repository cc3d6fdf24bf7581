"""The process of one plan: `python -m forewarn_server.control.planner_worker`.

The process reads one pickled `PlannerTask` from standard input, writes the answer of
`planner_host.py` to standard output, and ends. When its standard input closes, the process ends at
once, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from pathlib import Path

#: Added niceness, so that polls, approvals and the writer run first.
NICE = 10
#: Makes the kernel end this process rather than the service when memory runs out.
OOM_SCORE = 1000


def main() -> None:
    """Answer one task."""
    for number in (signal.SIGINT, signal.SIGTERM):  # only for the service, which ends this process
        signal.signal(number, signal.SIG_IGN)
    out_fd = os.dup(1)
    os.dup2(2, 1)  # only the answer may be on standard output
    give_way()
    from forewarn_base.garbage import uncollected  # noqa: PLC0415
    from forewarn_server.control.planner_host import answer_text  # noqa: PLC0415 - signals come first

    with uncollected():  # the process lives only seconds
        try:
            task = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
        except EOFError:
            return
        threading.Thread(target=_follow_parent, daemon=True).start()
        with os.fdopen(out_fd, "wb") as out:
            out.write(answer_text(task))


def give_way() -> None:
    """Run after the service, and be the first process that the kernel ends."""
    with contextlib.suppress(OSError, AttributeError):  # not on Windows
        os.nice(NICE)
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")


def _follow_parent() -> None:
    """End when the parent closes standard input; other input is ignored."""
    os.read(0, 1)  # reads the raw file, so that no buffer lock is held to the end
    os._exit(1)


if __name__ == "__main__":
    main()
