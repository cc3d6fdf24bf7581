"""Holdings: the system resources of the agent, some of which survive a change of configuration.

A change of configuration opens all new resources before closing old resources. If a resource cannot
be opened, all resources remain unchanged.
"""

from __future__ import annotations

import os

from forewarn.agent.child_processes import ChildProcesses
from forewarn.agent.hooks import HookRoom
from forewarn.agent.journal import Journal
from forewarn.agent.sd_notify import SdNotify
from forewarn.agent.signals import Signals, StopRequest

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.jobs.server import JobServer
    from forewarn.agent.settings import AgentSettings
    from forewarn.agent.status_server import StatusServer


class Holdings:
    """The journal, the hooks' files, the sockets, signals and the service manager."""

    def __init__(self, settings: AgentSettings, *, embedded: bool = False) -> None:
        """Open the resources; an embedding application handles signals and the service manager.

        Raises:
            CallerError: another agent uses the state directory, or other users can write to it.
            JournalLost: the state directory is unusable.
            OSError: the status endpoint cannot be opened.
        """
        self.readiness = SdNotify({} if embedded else os.environ)
        self.signals: StopRequest = StopRequest() if embedded else Signals()
        self.journal = Journal(settings.state_dir)
        self.room = _room(settings)
        self.status: StatusServer | None = None
        self.jobs: JobServer | None = None
        self.status = self._status(settings)
        self.jobs = self._jobs(settings)

    def calls(self, identity: Identity, settings: AgentSettings) -> ChildProcesses:
        """Return the child processes that run this VM's steps."""
        return ChildProcesses(self.room, identity, settings)

    def change(self, settings: AgentSettings) -> None:
        """Replace the resources by the resources of other settings.

        Raises:
            CallerError, JournalLost, OSError: a resource cannot be opened; the holdings are
            unchanged.
        """
        before = self.journal
        other = settings.state_dir != before.directory
        journal = Journal(settings.state_dir) if other else before
        try:
            room = _room(settings)
            status = self._status(settings)
            jobs = self._jobs(settings)
        except BaseException:
            if other:
                journal.close()
            raise
        if other:
            before.close()
        if self.status is not None:
            self.status.close()
        if self.jobs is not None and self.jobs is not jobs:
            self.jobs.close(leave_path=jobs is not None and jobs.address == self.jobs.address)
        self.journal, self.room, self.status, self.jobs = journal, room, status, jobs

    def close(self) -> None:
        """Release all resources."""
        if self.status is not None:
            self.status.close()
        if self.jobs is not None:
            self.jobs.close()
        self.signals.close()
        self.journal.close()

    def _status(self, settings: AgentSettings) -> StatusServer | None:
        if not settings.status_listen:
            return None
        from forewarn.agent.status_server import StatusServer  # noqa: PLC0415  only where it is wanted

        return StatusServer(settings, before=self.status)

    def _jobs(self, settings: AgentSettings) -> JobServer | None:
        if not settings.jobs_listen:
            return None
        from forewarn.agent.jobs.server import JobServer  # noqa: PLC0415  only where it is wanted

        if self.jobs is not None and self.jobs.serves(settings):
            return self.jobs
        return JobServer(settings)


def _room(settings: AgentSettings) -> HookRoom:
    return HookRoom(os.path.join(settings.state_dir, "hooks"))  # noqa: PTH118
