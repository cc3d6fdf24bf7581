"""`forewarn agent`: the agent's commands, for help and completion.

`agent/cli.py` implements the commands, which also work where only the agent is installed; `main.py`
passes them on.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from forewarn.agent.cli import ACTIONS, execute
from forewarn_server.cli.application import noun_app

agent = noun_app("agent")


def _add(name: str, text: str) -> None:
    def run(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
        return execute([name, *words])

    agent.command(run, name=name, help=f"{text[:1].upper()}{text[1:]}.")


for _name, (_text, _) in ACTIONS.items():
    _add(_name, _text)
