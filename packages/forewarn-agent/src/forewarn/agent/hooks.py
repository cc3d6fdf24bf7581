"""Hooks: start hooks, and detect their ends, also after a restart of the agent.

A hook writes mark files at its start and end, from which a restarted agent learns the hook's state
(see `fate`). A hook writes its output to a file, because a pipe could block the hook, and would
close with the agent.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from forewarn.agent.child import Child, is_running, read_status_file
from forewarn.agent.core.records import event_form
from forewarn_base.protocol.documents import format_not_before

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.agent.core.values import HookIntent

VARIABLE_CHARACTERS_MAX = 32 * 1024 - 64  # Linux allows 128 KiB; a character has up to 4 bytes
NEVER_STARTED = -127  # exit status of a hook after a failed start

#: Shell script around each hook, which records the hook's start and exit status.
#:
#: The script ignores SIGTERM and continues to wait for its hook. SIGKILL ends both.
#:
#: A mark file is one short line, and is valid only if the line is complete. An atomic rename would
#: cost another process, and delay the approval.
WRAPPER = (
    'trap : TERM; mark=$1; shift; echo $$ >"$mark.begun" || exit 71; "$@"; code=$?; '
    'echo $code >"$mark.ended"; exit $code'
)


class HookRoom:
    """The directory with the mark files, inputs and outputs of hooks, named by run."""

    def __init__(self, directory: str) -> None:
        """Use a directory; create it if it is missing."""
        self.directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103  the same

    def start(self, command: tuple[str, ...], run: str, *, stdin: bytes, env: Env) -> Child:
        """Start a hook in its own process group.

        Raises:
            OSError: the command cannot be started.
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
        """Return the state of a hook of an earlier agent, for `Resumed.states`."""
        mark = f"{self.directory}/{run}"
        ended = read_status_file(f"{mark}.ended")
        if ended.isdigit():
            return ended, None
        begun = read_status_file(f"{mark}.begun")
        if not begun:
            return "never", None
        if begun.isdigit() and is_running(int(begun), mark):
            return "running", Child(int(begun), mark, own=False)
        return "interrupted", None

    def forget(self, run: str) -> None:
        """Delete the files of a run."""
        for ending in ("begun", "ended", "out", "json"):
            try:
                os.unlink(f"{self.directory}/{run}.{ending}")  # noqa: PTH108  the same
            except OSError:
                continue

    def sweep(self, keep: tuple[str, ...]) -> None:
        """Delete the files of all runs except the runs in `keep`."""
        for name in os.listdir(self.directory):  # noqa: PTH208  the same
            run = name.partition(".")[0]
            if run not in keep:
                self.forget(run)


def hook_input(intent: HookIntent, *, name: str, others: tuple[str, ...], until_ms: int) -> bytes:
    """Return the standard input of a hook: a JSON object with the event, phase and names.

    `until_ms` is the hook's deadline by the system's clock, ms since the epoch.
    """
    form = {
        "phase": intent.phase,
        "step": intent.step.name,
        "attempt": intent.attempt,
        "deadline_ms": until_ms,
        "name": name,
        "others": list(others),
        "event": event_form(intent.event),
    }
    return json.dumps(form).encode() + b"\n"


def hook_environment(intent: HookIntent, *, name: str, state: str, until_ms: int) -> dict[str, str]:
    """Return the additional environment variables of a hook; see `hook_input`."""
    event = intent.event
    fields = {
        "FOREWARN_PHASE": intent.phase,
        "FOREWARN_STEP": intent.step.name,
        "FOREWARN_ATTEMPT": str(intent.attempt),
        "FOREWARN_DEADLINE": str(until_ms // 1000),
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
    """Shorten and encode a text for an environment variable.

    JSON can contain characters outside the system's encoding, and Linux limits the length of
    variables.
    """
    encoding = sys.getfilesystemencoding()
    known = text.replace("\0", "")[:VARIABLE_CHARACTERS_MAX]
    return known.encode(encoding, "replace").decode(encoding)


if TYPE_CHECKING:
    Env = Mapping[str, str]
