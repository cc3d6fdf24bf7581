"""Program that runs Forewarn's agent as the client of the client checks.

`python -m forewarn_conformance.agent_client` writes a configuration with one step, whose commands
record the agent's actions, and then runs the agent.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from forewarn_conformance.marks import ENDPOINT, MARK, PREPARED, RECOVERED, STATE, VM

#: Seconds between two polls, within the rate limit of E-6.
INTERVAL_S = 0.3


def configuration(environment: dict[str, str]) -> str:
    """Return the agent's configuration."""
    state = Path(environment[STATE])
    mark = environment[MARK]
    settings = {
        "endpoint": environment[ENDPOINT],
        "name": environment.get(VM, ""),
        "interval_s": INTERVAL_S,
        "state_dir": str(state / "agent"),
        "hooks_dir": str(state / "hooks"),
        "check_permissions": False,
    }
    lines = [f"{name} = {json.dumps(setting)}" for name, setting in settings.items()]
    step = [f"{each} = {json.dumps([mark, word])}" for each, word in STEP.items()]
    return "\n".join(["[agent]", *lines, "[step.mark]", *step, "repeatable = true", ""])


#: Word recorded by the step in each phase.
STEP = {"prepare": PREPARED, "recover": RECOVERED}


def main() -> None:
    """Write the configuration, and run the agent in this process."""
    path = Path(os.environ[STATE], "agent.toml")
    path.write_text(configuration(dict(os.environ)), "utf-8")
    words = [sys.executable, "-m", "forewarn.agent", "run", "--config", str(path)]
    os.execv(sys.executable, words)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
