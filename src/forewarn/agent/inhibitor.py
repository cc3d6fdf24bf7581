"""The inhibitor: asks logind to delay a shutdown while hooks run; nothing else.

`systemd-inhibit` holds the lock, as a child that lives as long as a pipe of ours is open. However
the agent ends, the kernel closes the pipe, and the lock is gone.
"""

from __future__ import annotations

import os
import sys

from forewarn.agent.child import Child
from forewarn.errors import reason_of

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from forewarn.agent.log import Log

COMMAND = (
    "systemd-inhibit",
    "--what=shutdown",
    "--mode=delay",
    "--who=Forewarn agent",
    "--why=A preparation for a scheduled event, or its recovery, is under way",
    "cat",
)


class Inhibitor:
    """A delay lock that is held while it is wanted. Nothing runs while it is not."""

    __slots__ = ("_child", "_ending", "_log", "_pipe", "_wanted")

    def __init__(self, log: Log) -> None:
        """Hold nothing yet."""
        self._log = log
        self._wanted = False
        self._pipe = -1
        """Our end of the pipe; the lock is held as long as it is open."""
        self._child: Child | None = None
        self._ending: list[Child] = []

    def hold(self, *, wanted: bool) -> None:
        """Take the lock, or release it; without effect where that is done already.

        A lock that cannot be had is logged once and not tried again until it is wanted again.
        """
        if self._child is not None and self._child.poll() is not None:
            self._drop()
            self._ending.pop().close()
            self._complain("systemd-inhibit has ended")
        for child in tuple(self._ending):
            if child.poll() is not None:
                child.close()
                self._ending.remove(child)
        if wanted and not self._wanted:
            self._take()
        elif self._wanted and not wanted:
            self._drop()
            self._log.clear("inhibit-failed")
        self._wanted = wanted

    def descriptors(self) -> tuple[int, ...]:
        """Return what becomes readable when a child of it ends."""
        children = self._ending if self._child is None else [*self._ending, self._child]
        return tuple(child.pidfd for child in children if child.pidfd >= 0)

    def close(self) -> None:
        """Release the lock for good."""
        self._drop()

    def _take(self) -> None:
        assert self._child is None
        source, self._pipe = os.pipe()
        try:
            self._child = Child(_spawn(source), "")
        except OSError as error:
            self._drop()
            self._complain(reason_of(error))
        finally:
            os.close(source)

    def _drop(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._child is not None:
            self._ending.append(self._child)
            self._child = None

    def _complain(self, reason: str) -> None:
        text = f"A shutdown is not delayed while hooks run: {reason}."
        self._log.once("inhibit-failed", text, level="warning")


def _spawn(stdin: int) -> int:
    """Start the child and return its process id.

    Raises:
        OSError: it cannot be started.
    """
    if sys.platform == "win32":
        raise FileNotFoundError("there is no logind")
    return os.posix_spawnp(
        COMMAND[0], COMMAND, os.environ, file_actions=((os.POSIX_SPAWN_DUP2, stdin, 0),)
    )
