"""Hooks: starting them, knowing when and how they ended, stopping them; also after a restart.

A hook leaves marks of its own begin and end, so that a restarted agent can distinguish a hook
that never began from one that was cut off (see `fate`). Its output goes to a file: no pipe can
block it, and it outlives the agent.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from forewarn.agent.child import Child, is_running, read_mark
from forewarn.agent.core.records import event_form
from forewarn.protocol.documents import format_not_before

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.agent.core.values import HookIntent

VARIABLE_CHARACTERS_MAX = 32 * 1024 - 64  # of four bytes each: Linux allows 128 KiB with the name
NEVER_STARTED = -127  # the exit status of a hook that could not be started

WRAPPER = (
    'trap : TERM; mark=$1; shift; echo $$ >"$mark.begun" || exit 71; "$@"; code=$?; '
    'echo $code >"$mark.ended"; exit $code'
)
"""Run around each hook by /bin/sh: the hook itself writes down that it began and how it ended.

It stays while a hook that was asked to end does so, or does not: the agent then ends both.

Each mark is one short line, believed only with its end: to write it under another name and rename
it would cost a process, and the approval waits for the end of this one.
"""


class HookRoom:
    """A directory for the hooks' marks, inputs and outputs, by run."""

    def __init__(self, directory: str) -> None:
        """Use a directory, made if it is missing."""
        self.directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103  the same

    def start(self, command: tuple[str, ...], run: str, *, stdin: bytes, env: Env) -> Child:
        """Start a command with an input, in a process group of its own.

        Raises:
            OSError: it cannot be started.
        """
        mark = f"{self.directory}/{run}"
        self.forget(run)
        with open(f"{mark}.json", "wb") as file:  # noqa: PTH123  the same
            file.write(stdin)
        if sys.platform == "win32":
            from forewarn.agent.windows_processes import start  # noqa: PLC0415  only there

            return start(command, mark, env=env)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            "/bin/sh",
            ("/bin/sh", "-c", WRAPPER, "forewarn-hook", mark, *command),
            env,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, f"{mark}.json", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, f"{mark}.out", append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ),
            setpgroup=0,
            setsigdef=(signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
            setsigmask=(),
        )
        return Child(pid, mark)

    def fate(self, run: str) -> tuple[str, Child | None]:
        """Return what became of a hook an earlier agent started, as `Resumed` wants it."""
        mark = f"{self.directory}/{run}"
        ended = read_mark(f"{mark}.ended")
        if ended.isdigit():
            return ended, None
        begun = read_mark(f"{mark}.begun")
        if not begun:
            return "never", None
        if begun.isdigit() and is_running(int(begun), mark):
            return "running", Child(int(begun), mark, own=False)
        return "interrupted", None

    def forget(self, run: str) -> None:
        """Remove what a run left."""
        for ending in ("begun", "ended", "out", "json"):
            try:
                os.unlink(f"{self.directory}/{run}.{ending}")  # noqa: PTH108  the same
            except OSError:
                continue

    def sweep(self, keep: tuple[str, ...]) -> None:
        """Remove what all runs but some left."""
        for name in os.listdir(self.directory):  # noqa: PTH208  the same
            run = name.partition(".")[0]
            if run not in keep:
                self.forget(run)


def hook_input(intent: HookIntent, *, name: str, others: tuple[str, ...]) -> bytes:
    """Return what a hook reads on standard input: the event and the purpose, one JSON object."""
    form = {
        "phase": intent.phase,
        "step": intent.step.name,
        "attempt": intent.attempt,
        "deadline_ms": intent.deadline_ms,
        "name": name,
        "others": list(others),
        "event": event_form(intent.event),
    }
    return json.dumps(form).encode() + b"\n"


def hook_environment(intent: HookIntent, *, name: str, state: str) -> dict[str, str]:
    """Return what a hook finds in its environment besides the agent's own."""
    event = intent.event
    fields = {
        "FOREWARN_PHASE": intent.phase,
        "FOREWARN_STEP": intent.step.name,
        "FOREWARN_ATTEMPT": str(intent.attempt),
        "FOREWARN_DEADLINE": str(intent.deadline_ms // 1000),
        "FOREWARN_NAME": name,
        "FOREWARN_STATE": state,
        "FOREWARN_EVENT_ID": event.event_id,
        "FOREWARN_EVENT_TYPE": event.event_type,
        "FOREWARN_EVENT_STATUS": event.status,
        "FOREWARN_EVENT_SOURCE": event.source,
        "FOREWARN_EVENT_RESOURCES": " ".join(event.resources),
        "FOREWARN_EVENT_NOT_BEFORE": format_not_before(event.not_before_ms),
        "FOREWARN_EVENT_DURATION": str(event.duration_s),
        "FOREWARN_EVENT_DESCRIPTION": event.description,
    }
    return {key: _as_variable(text) for key, text in fields.items()}


def _as_variable(text: str) -> str:
    """Return a text as an environment can hold it; the whole is on standard input.

    JSON can say what the system's encoding cannot, and a process that is given a longer variable
    cannot be started.
    """
    encoding = sys.getfilesystemencoding()
    known = text.replace("\0", "")[:VARIABLE_CHARACTERS_MAX]
    return known.encode(encoding, "replace").decode(encoding)


if TYPE_CHECKING:
    Env = Mapping[str, str]
