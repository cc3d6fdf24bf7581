"""Commands that start a hook, a ready-made preparation or another part of the agent."""

from __future__ import annotations

import json
import os
import sys


def own_command(*words: str) -> tuple[str, ...]:
    """Return the command that starts this program with some arguments."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    archive = os.path.dirname(main)  # noqa: PTH120  `pathlib` is too heavy
    flags = tuple(_flags())
    bundled = main.endswith("__main__.py") and archive in sys.path
    if bundled and not archive.endswith(os.path.join("forewarn", "agent")):  # noqa: PTH118
        return (sys.executable, *flags, archive, *words)
    return (sys.executable, *flags, "-m", "forewarn.agent", *words)


def hook_command(spec: str, phase: str) -> tuple[str, ...]:
    """Return the command that a step's spec sets for a phase; empty if there is none.

    Without a command for cancellation, the command for recovery is used.
    """
    form = json.loads(spec)
    if form.get("use"):
        return own_command("do", form["use"], phase)
    command = form.get(phase)
    if command is None and phase == "cancel":
        command = form.get("recover")
    return tuple(command or ())


def hook_settings(spec: str) -> str:
    """Return the settings of a ready-made preparation, as JSON for its environment."""
    form = json.loads(spec)
    return json.dumps(form.get("settings", {}))


def _flags() -> list[str]:
    flags = ["-P"]  # the process may run as root: import nothing from the current directory
    if sys.flags.no_site:
        flags.append("-S")
    if sys.flags.isolated:
        flags.append("-I")
    return flags
