"""Holdings: what the agent has of the system and keeps when its configuration changes.

A change of configuration takes all that is new before anything is given up: where something
cannot be had, everything stays as it was.
"""

from __future__ import annotations

import os

from forewarn.agent.child_processes import ChildProcesses
from forewarn.agent.hooks import HookRoom
from forewarn.agent.journal import Journal
from forewarn.agent.sd_notify import SdNotify
from forewarn.agent.signals import Signals, StopRequest

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.settings import AgentSettings
    from forewarn.agent.status_server import StatusServer


class Holdings:
    """The journal, the hooks' directory, the status endpoint, signals and the service manager."""

    def __init__(self, settings: AgentSettings, *, embedded: bool = False) -> None:
        """Take what the settings ask for.

        Args:
            settings: What is configured.
            embedded: Whether signals and the service manager are the application's own.

        Raises:
            CallerError: the state directory is used by another agent, or open to others.
            JournalLost: the state directory cannot be used.
            OSError: the status endpoint cannot be had.
        """
        self.readiness = SdNotify({} if embedded else os.environ)
        self.signals: StopRequest = StopRequest() if embedded else Signals()
        self.journal = Journal(settings.state_dir)
        self.room = _room(settings)
        self.status: StatusServer | None = None
        self.status = self._status(settings)

    def calls(self, identity: Identity, settings: AgentSettings) -> ChildProcesses:
        """Return what runs the steps of this VM."""
        return ChildProcesses(self.room, identity, settings)

    def change(self, settings: AgentSettings) -> None:
        """Take what other settings ask for in place of what there is.

        Raises:
            CallerError, JournalLost, OSError: something cannot be had; nothing has changed.
        """
        before = self.journal
        other = settings.state_dir != before.directory
        journal = Journal(settings.state_dir) if other else before
        try:
            room = _room(settings)
            status = self._status(settings)
        except BaseException:
            if other:
                journal.close()
            raise
        if other:
            before.close()
        if self.status is not None:
            self.status.close()
        self.journal, self.room, self.status = journal, room, status

    def close(self) -> None:
        """Release everything."""
        if self.status is not None:
            self.status.close()
        self.signals.close()
        self.journal.close()

    def _status(self, settings: AgentSettings) -> StatusServer | None:
        if not settings.status_listen:
            return None
        from forewarn.agent.status_server import StatusServer  # noqa: PLC0415  only where it is wanted

        return StatusServer(settings, before=self.status)


def _room(settings: AgentSettings) -> HookRoom:
    return HookRoom(os.path.join(settings.state_dir, "hooks"))  # noqa: PTH118
