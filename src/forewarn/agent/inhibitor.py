"""The inhibitor: makes logind delay a shutdown while hooks run.

`systemd-inhibit`, a child process, holds the lock as long as a pipe of the agent is open. When the
agent ends for any reason, the kernel closes the pipe and the lock is released.
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
    "--why=A preparation for a scheduled event, or its recovery, is running",
    "cat",
)


class Inhibitor:
    """A delay lock of logind; without the lock, no child process runs."""

    __slots__ = ("_child", "_ending", "_log", "_pipe", "_wanted")

    def __init__(self, log: Log) -> None:
        """Prepare without taking the lock."""
        self._log = log
        self._wanted = False
        self._pipe = -1
        """The agent's end of the pipe; the lock is held as long as it is open."""
        self._child: Child | None = None
        self._ending: list[Child] = []

    def hold(self, *, wanted: bool) -> None:
        """Take or release the lock; do nothing if that is already done.

        A failure to take the lock is logged once, and not retried until hooks run again.
        """
        if self._child is not None and self._child.poll() is not None:
            self._release()
            self._ending.pop().close()
            self._complain("systemd-inhibit has ended")
        for child in tuple(self._ending):
            if child.poll() is not None:
                child.close()
                self._ending.remove(child)
        if wanted and not self._wanted:
            self._take()
        elif self._wanted and not wanted:
            self._release()
            self._log.clear("inhibit-failed")
        self._wanted = wanted

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when the child process ends."""
        children = self._ending if self._child is None else [*self._ending, self._child]
        return tuple(child.pidfd for child in children if child.pidfd >= 0)

    def close(self) -> None:
        """Release the lock for good."""
        self._release()

    def _take(self) -> None:
        assert self._child is None
        source, self._pipe = os.pipe()
        try:
            self._child = Child(_spawn(source), "")
        except OSError as error:
            self._release()
            self._complain(reason_of(error))
        finally:
            os.close(source)

    def _release(self) -> None:
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
    """Start the child process and return its id.

    Raises:
        OSError: the process cannot be started.
    """
    if sys.platform == "win32":
        raise FileNotFoundError("there is no logind")
    return os.posix_spawnp(
        COMMAND[0], COMMAND, os.environ, file_actions=((os.POSIX_SPAWN_DUP2, stdin, 0),)
    )
