"""`forewarn agent`: the agent's commands.

`agent/cli.py` implements the commands, which also work where only the agent is installed.
"""

from __future__ import annotations

from forewarn.agent.cli import ACTIONS, add_arguments
from forewarn.cli.parsing import CommandGroup


def add_commands(commands: CommandGroup) -> None:
    """Add `agent` and its actions."""
    agent = commands.group("agent", default="")
    for name, (text, action) in ACTIONS.items():
        add_arguments(name, agent.command(name, text, run=action, remote=False))
