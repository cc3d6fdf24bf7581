"""Startup: runs the agent with a configuration file, and imports few modules.

A short-lived process reads the configuration, so that the agent saves the memory for the checks.
`main.py` parses the command line.
"""

from __future__ import annotations

import json
import os
import sys

from forewarn_base.errors import CallerError, ForewarnError, reason_of

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.settings import AgentSettings

DEFAULT_CONFIG = "/etc/forewarn-agent/agent.toml"
FAILED_STATUS = 1
FORM_BYTES_MAX = 4 * 1024 * 1024


def own_name() -> str:
    """Return the part of the command line before the agent's command."""
    program = sys.argv[0]
    if program.endswith(".pyz"):
        return f"python3 {program}"
    return "python3 -m forewarn.agent" if program.endswith("__main__.py") else "forewarn agent"


def sentence_of(error: ForewarnError) -> str:
    """Return an error and its remedy, with commands as typed on this machine."""
    return f"{error} {error.advice_text()}".rstrip().replace("`forewarn agent ", f"`{own_name()} ")


def cannot_go_on(error: OSError) -> int:
    """Print the operating system's error, and return the exit status."""
    sys.stderr.write(f"The agent cannot continue: {reason_of(error)}.\n")
    return FAILED_STATUS


def run(path: str, *, must_exist: bool = True) -> None:
    """Run the agent with a configuration file until it is stopped.

    On SIGHUP, the agent starts again with the current configuration, or continues unchanged if the
    configuration is invalid. The agent also starts again after a change of the system's clock,
    unless an event is scheduled.
    """
    settings = load(path, must_exist=must_exist)
    from forewarn.agent.holdings import Holdings  # noqa: PLC0415  after what checks has ended
    from forewarn.agent.log import Log  # noqa: PLC0415  the same
    from forewarn.agent.runner import Runner  # noqa: PLC0415  the same
    from forewarn_base.clock import SystemClock  # noqa: PLC0415  the same
    from forewarn_base.ids import Ids  # noqa: PLC0415  the same

    holdings = Holdings(settings)
    while True:  # ends when the agent is stopped
        clock = SystemClock()
        log = Log(settings.log, clock=clock)
        runner = Runner(settings, clock=clock, ids=Ids(), log=log, holdings=holdings)
        if not runner.run():
            return
        holdings.signals.reloading = False
        try:
            wanted = load(path, must_exist=must_exist)
            holdings.change(wanted)
            settings = wanted
        except (ForewarnError, OSError) as error:
            reason = reason_of(error).rstrip(".")
            log.say(
                "config-refused",
                f"{reason}. The agent continues with its earlier configuration.",
                level="error",
            )


def load(path: str, *, must_exist: bool = True) -> AgentSettings:
    """Return the settings of a configuration file; read the file in a short-lived process.

    Raises:
        ForewarnError: the configuration is invalid.
    """
    from forewarn.agent.settings import AgentSettings  # noqa: PLC0415  light, but after the fork

    if not hasattr(os, "fork"):
        from forewarn.agent.config import read_config  # noqa: PLC0415  where nothing can be saved

        return AgentSettings(read_config(path, must_exist=must_exist))
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(source)
        try:
            os._exit(_read_into(sink, path, must_exist=must_exist))
        finally:  # the child must always end, so that only one agent runs
            os._exit(1)
    os.close(sink)
    with os.fdopen(source, "rb") as pipe:
        text = pipe.read(FORM_BYTES_MAX)
    _, status = os.waitpid(pid, 0)
    if status:
        raise NotUsable(reason=text.decode("utf-8", "replace") or "the file cannot be read")
    return AgentSettings(json.loads(text))


class NotUsable(CallerError):
    """The process that checked the configuration refused it; the message is complete."""

    code = "agent-config-unusable"
    status = 400
    message = "{reason}"


def _read_into(sink: int, path: str, *, must_exist: bool) -> int:
    """Write the checked form, or the reason for a failure, to `sink`; return the exit status."""
    from forewarn.agent.config import read_config  # noqa: PLC0415  this process ends at once
    from forewarn.agent.permissions import refuse_open_state  # noqa: PLC0415  the same

    try:
        form = read_config(path, must_exist=must_exist)
        if form["check_permissions"]:
            refuse_open_state(str(form["state_dir"]))
        text, status = json.dumps(form), 0
    except ForewarnError as error:
        text, status = sentence_of(error), 1
    with os.fdopen(sink, "wb") as pipe:
        pipe.write(text.encode())
    return status
