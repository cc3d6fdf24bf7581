"""Entry point of the agent's helper processes.

Preparations, notifications and coordination have separate modules, so that a process imports only
its own module.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from forewarn.agent.core.rules import HOLD_STATUS
from forewarn.agent.preparation_catalog import PREPARATIONS
from forewarn_base.errors import AskedToHold, ForewarnError, reason_of

OWN = {
    "notify": "forewarn.agent.notify",
    "peers": "forewarn.agent.peers",
    "node": "forewarn.agent.node_job",
    "choose": "forewarn.agent.choice_job",
}
FAILED_STATUS = 1
USAGE_STATUS = 2


def do(words: list[str]) -> int:
    """Run the named part with JSON on standard input; return the exit status.

    The words are a name of `OWN`, PREPARATION PHASE, or `outcome` ENDPOINT EVENT COMMAND.
    """
    name, phase = (*words, "", "")[:2]
    try:
        if name in OWN:
            return int(importlib.import_module(OWN[name]).main(json.load(sys.stdin)))
        if name == "outcome":
            return int(importlib.import_module("forewarn.agent.outcome").main(*words[1:]))
        if name not in PREPARATIONS or phase not in _phases(name):
            sys.stderr.write(f"There is no preparation {name!r} with phase {phase!r}.\n")
            return USAGE_STATUS
        settings = json.loads(os.environ.get("FOREWARN_SETTINGS", "{}"))
        module = importlib.import_module(f"forewarn.agent.preparations.{name}")
        verb = getattr(module, "recover" if phase == "cancel" else phase)
        sys.stdout.write(f"{verb(settings, json.load(sys.stdin))}\n")
    except (ForewarnError, OSError, ValueError) as error:
        sys.stderr.write(f"{' '.join(words[:2])}: {reason_of(error)}\n")
        return HOLD_STATUS if isinstance(error, AskedToHold) else FAILED_STATUS
    return 0


def _phases(name: str) -> tuple[str, ...]:
    """Return the phases of a preparation."""
    checks = ("approve",) if PREPARATIONS[name].checks else ()
    return ("prepare", "recover", "cancel", *checks)
