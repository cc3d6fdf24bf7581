"""The inhibitor, which makes logind delay a shutdown while hooks run.

The child process `systemd-inhibit` holds the lock while a pipe to the agent is open. At the end of
the agent, the kernel closes the pipe, which releases the lock.
"""

from __future__ import annotations

import os
import sys

from forewarn.agent.child import Child
from forewarn_base.errors import reason_of

TYPE_CHECKING = False  # `typing` needs too much memory
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
    """A delay lock of logind; the child process runs only while the lock is held."""

    __slots__ = ("_child", "_ending", "_log", "_pipe", "_wanted")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._wanted = False
        #: The agent's end of the pipe; closing this end releases the lock.
        self._pipe = -1
        self._child: Child | None = None
        self._ending: list[Child] = []

    def hold(self, *, wanted: bool) -> None:
        """Acquire or release the lock as needed.

        A failure is logged once; the next attempt follows when hooks run again.
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
        """Return the descriptors that become readable at the end of the child process."""
        children = self._ending if self._child is None else [*self._ending, self._child]
        return tuple(child.pidfd for child in children if child.pidfd >= 0)

    def close(self) -> None:
        """Release the lock permanently."""
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
        text = f"The agent cannot delay a shutdown while hooks run: {reason}."
        self._log.once("inhibit-failed", text, level="warning")


def _spawn(stdin: int) -> int:
    """Start the child process and return its id.

    Raises:
        OSError: the process cannot be started.
    """
    if sys.platform == "win32":
        raise FileNotFoundError("logind is not running")
    return os.posix_spawnp(
        COMMAND[0], COMMAND, os.environ, file_actions=((os.POSIX_SPAWN_DUP2, stdin, 0),)
    )
