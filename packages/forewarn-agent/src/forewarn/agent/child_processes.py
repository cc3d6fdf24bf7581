"""Child processes: start, watch and stop hooks and background jobs, without blocking."""

from __future__ import annotations

import os

from forewarn.agent.commands import hook_command, hook_settings, own_command
from forewarn.agent.core.values import HookEnded
from forewarn.agent.hooks import (
    NEVER_STARTED,
    HookRoom,
    hook_environment,
    hook_input,
)
from forewarn_base.errors import reason_of

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.agent.child import Child
    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.values import HookIntent
    from forewarn.agent.settings import AgentSettings

LOOK_MS = 50  # interval of polling a child without a descriptor for its end
TRIM_MS = 250  # interval of output checks, which protect the journal's disk
FLOOD_MS = 20  # interval of output checks while a hook prints too much


class Running:
    """A child process and its state."""

    __slots__ = ("child", "killed_ms", "reason", "run")

    def __init__(self, child: Child, run: str) -> None:
        self.child = child
        self.run = run
        self.reason = ""
        #: Time to kill the child, ms since the epoch; None before a request to stop.
        self.killed_ms: int | None = None


class ChildProcesses:
    """The running hooks, by key."""

    def __init__(self, room: HookRoom, identity: Identity, settings: AgentSettings) -> None:
        self._room = room
        self._identity = identity
        self._settings = settings
        self._grace_ms = int(settings.stop_grace_s * 1000)
        self._running: dict[str, Running] = {}
        self._trim_ms = 0
        self._failed: list[HookEnded] = []
        self._over: list[str] = []

    def start(self, intent: HookIntent, *, ahead_ms: int = 0) -> None:
        """Start a hook; record a failure to start as the hook's end.

        `ahead_ms` is how far the system's clock, which the hook reads, is ahead of the agent's.
        """
        name = self._identity.name
        state = f"{self._room.directory}/../steps/{intent.step.name}"
        state = os.path.normpath(state)
        try:
            os.makedirs(state, mode=0o700, exist_ok=True)  # noqa: PTH103  `pathlib` is too heavy
            command = hook_command(intent.step.spec, intent.phase)
            if self._settings.outcomes and intent.phase in ("recover", "cancel") and command:
                words = (self._settings.endpoint, intent.event.event_id, *command)
                command = own_command("do", "outcome", *words)
            until_ms = intent.deadline_ms + ahead_ms
            own = hook_environment(intent, name=name, state=state, until_ms=until_ms)
            env = {**self._settings.environment, **own}
            env["FOREWARN_SETTINGS"] = hook_settings(intent.step.spec)
            others = self._identity.others_in(intent.event.resources)
            text = hook_input(intent, name=name, others=others, until_ms=until_ms)
            child = self._room.start(command, str(intent.run), stdin=text, env=env)
        except OSError as error:
            self._failed.append(HookEnded(intent.key, NEVER_STARTED, reason=reason_of(error)))
        else:
            self._running[intent.key] = Running(child, str(intent.run))

    def adopt(self, running: Mapping[str, int]) -> dict[str, str]:
        """Return the states of an earlier agent's hooks; watch the hooks that still run."""
        processes = {}
        for key, run in running.items():
            processes[key], child = self._room.fate(str(run))
            if child is not None:
                self._running[key] = Running(child, str(run))
        self._room.sweep(tuple(str(run) for run in running.values()))
        return processes

    def stop(self, key: str, reason: str, *, now_ms: int) -> None:
        """Send SIGTERM to a hook; `ended` kills the hook after `stop_grace_s`."""
        running = self._running.get(key)
        if running is None:
            return
        running.reason = reason
        running.killed_ms = now_ms + self._grace_ms
        running.child.terminate()

    def ended(self, now_ms: int) -> tuple[tuple[HookEnded, str], ...]:
        """Return the hooks that ended since the last call, with the output of each."""
        results = [(ended, "") for ended in self._failed]
        self._failed.clear()
        for key, running in tuple(self._running.items()):
            status = running.child.poll()
            if status is None:
                self._kill_if_due(running, now_ms)
                continue
            results.append((HookEnded(key, status, reason=running.reason), running.child.output()))
            running.child.close()
            self._over.append(running.run)
            del self._running[key]
        if now_ms >= self._trim_ms:
            floods = [running.child.trim() for running in self._running.values()]
            self._trim_ms = now_ms + (FLOOD_MS if any(floods) else TRIM_MS)
        return tuple(results)

    def tidy(self) -> None:
        """Delete the files of ended hooks; call this once their results are in the journal."""
        for run in self._over:
            self._room.forget(run)
        self._over.clear()

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when a hook ends."""
        fds = (running.child.pidfd for running in self._running.values())
        return tuple(fd for fd in fds if fd >= 0)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to check hooks even if no descriptor is ready; None: never."""
        if self._failed:
            return now_ms
        times = [one.killed_ms for one in self._running.values() if one.killed_ms is not None]
        if any(one.child.pidfd < 0 for one in self._running.values()):
            times.append(now_ms + LOOK_MS)
        if self._running:
            times.append(max(self._trim_ms, now_ms))
        return min(times, default=None)

    def _kill_if_due(self, running: Running, now_ms: int) -> None:
        if running.killed_ms is not None and now_ms >= running.killed_ms:
            running.child.escalate()
            running.killed_ms = now_ms + self._grace_ms
