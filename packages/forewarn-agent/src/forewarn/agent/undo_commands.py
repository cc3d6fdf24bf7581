"""`forewarn agent undo` and `forget`: send requests about steps that the agent could not undo.

The commands write a request file into the state directory, which the running agent processes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.agent.config import read_config
from forewarn.agent.core.records import read_step_record
from forewarn.agent.core.values import PersonAsked
from forewarn.agent.journal import newest
from forewarn.agent.json_fields import several
from forewarn.agent.operator_requests import OperatorRequests
from forewarn.agent.preparations.wait_until import pause
from forewarn.agent.settings import AgentSettings
from forewarn_base import exit_codes
from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids

if TYPE_CHECKING:
    import argparse

TAKEN_S = 5.0  # longest wait for the agent, which reads requests once a second
LOOK_S = 0.1


class NothingToUndo(CallerError):
    """The name matches no step that must be undone."""

    code = "nothing-to-undo"
    message = "No step to undo has the name {name!r}; known names: {known}."
    advice = "Use a step or an event from the output of `forewarn agent status`."


class StateUnusable(CallerError):
    """The caller cannot read or write the state directory."""

    code = "agent-state-unusable"
    message = "The agent's state in {directory} cannot be used: {reason}."
    advice = "Run the command as root or the agent's user; name its configuration with --config."


def ask(verb: str, options: argparse.Namespace) -> int:
    """Send a request to the agent, and print whether the agent received the request.

    Raises:
        NothingToUndo: the name matches no step that must be undone.
        StateUnusable: the state directory cannot be read or written.
    """
    directory = AgentSettings(read_config(options.config, must_exist=False)).state_dir
    try:
        _become_owner(directory)
        steps = _undone(directory)
        name = str(options.name)
        if not any(name == key or name.upper() in holders for key, holders in steps.items()):
            raise NothingToUndo(name=name, known=", ".join(sorted(steps)) or "nothing")
        request = PersonAsked(verb, name)
        path = Path(OperatorRequests(directory).post(request, Ids().token("request")))
    except OSError as error:
        raise StateUnusable(directory=directory, reason=error.strerror or error) from error
    for _ in range(int(TAKEN_S / LOOK_S)):
        if not path.exists():
            print(f"The agent was asked to {verb} {name}.")
            return exit_codes.OK
        pause(LOOK_S)
    print(f"The agent is not running. At its next start, the agent will {verb} {name}.")
    return exit_codes.OK


def _become_owner(directory: str) -> None:
    """Switch from root to the directory's owner, who may have placed links in the directory."""
    owner = Path(directory).stat()
    if sys.platform != "win32" and os.geteuid() == 0 != owner.st_uid:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


def _undone(directory: str) -> dict[str, list[str]]:
    """Return the steps in the agent's journal that must be undone, each with its events."""
    _, form = newest(directory)
    steps = [read_step_record(step) for step in several(form or {}, "steps")]
    return {held.key: held.holders for held in steps if held.is_being_undone}
