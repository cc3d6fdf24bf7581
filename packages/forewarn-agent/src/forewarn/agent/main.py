"""Main: selects the part of the agent for a command line; `run` and `do` import few modules.

The other commands are in `cli.py`, whose imports need more memory.
"""

from __future__ import annotations

import sys

from forewarn.agent.startup import DEFAULT_CONFIG, cannot_go_on, run, sentence_of
from forewarn_base.errors import ForewarnError
from forewarn_base.untrusted_text import EscapedOutput

USAGE_STATUS = 2  # the exit status of argparse for usage errors


def main(words: list[str]) -> int:
    """Run a command of the agent and return its exit status."""
    if words[:1] == ["do"]:
        from forewarn.agent.subcommands import do  # noqa: PLC0415  only a hook's process needs it

        return do(words[1:])
    with EscapedOutput():
        return _run(words)


def script() -> int:
    """Run the command line of the program `forewarn-agent`."""
    return main(sys.argv[1:])


def _run(words: list[str]) -> int:
    config = _config_of(words)
    if config is None:
        from forewarn.agent.cli import main as run_typed  # noqa: PLC0415  not for `run`

        return run_typed(words)
    try:
        run(*config)
    except ForewarnError as error:
        sys.stderr.write(f"{sentence_of(error)}\n")
        return USAGE_STATUS
    except OSError as error:
        return cannot_go_on(error)
    return 0


def _config_of(words: list[str]) -> tuple[str] | None:
    """Return the file of `run [--config FILE]`, or None for other command lines."""
    rest = words[1:] if words[:1] == ["run"] else words
    if not rest and words[:1] == ["run"]:
        return (DEFAULT_CONFIG,)
    if len(rest) == 2 and rest[0] == "--config":
        return (rest[1],)
    if len(rest) == 1 and rest[0].startswith("--config="):
        return (rest[0].partition("=")[2],)
    return None
