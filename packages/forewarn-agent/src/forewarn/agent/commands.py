"""Commands for hooks, ready-made preparations and other parts of the agent."""

from __future__ import annotations

import json
import os
import sys


def own_command(*words: str) -> tuple[str, ...]:
    """Return the command that starts this program with the arguments `words`."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    archive = os.path.dirname(main)  # noqa: PTH120  `pathlib` is too heavy
    flags = tuple(_interpreter_flags())
    # An archive with bytecode for this Python names the bytecode's file.
    bundled = main.removesuffix("c").endswith("__main__.py") and archive in sys.path
    if bundled and not archive.endswith(os.path.join("forewarn", "agent")):  # noqa: PTH118
        return (sys.executable, *flags, archive, *words)
    return (sys.executable, *flags, "-m", "forewarn.agent", *words)


def hook_command(spec: str, phase: str) -> tuple[str, ...]:
    """Return the command for a phase from a step's spec; empty if the spec has none.

    The command for recovery is the default for cancellation.
    """
    form = json.loads(spec)
    if form.get("use"):
        return own_command("do", form["use"], phase)
    command = form.get(phase)
    if command is None and phase == "cancel":
        command = form.get("recover")
    return tuple(command or ())


def hook_settings(spec: str) -> str:
    """Return the settings of a ready-made preparation as JSON, for an environment variable."""
    form = json.loads(spec)
    return json.dumps(form.get("settings", {}))


def _interpreter_flags() -> list[str]:
    flags = ["-P"]  # import nothing from the current directory, because the process may run as root
    if sys.flags.no_site:
        flags.append("-S")
    if sys.flags.isolated:
        flags.append("-I")
    return flags
