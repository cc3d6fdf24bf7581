"""`--watch`: run a command again after each change of the fleet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

from forewarn_base.exit_codes import OK
from forewarn_base.untrusted_text import EscapedStream, unescaped_output
from forewarn_server.cli.api_client import client_of
from forewarn_server.cli.output import note
from forewarn_server.cli.parameters import WatchOptions

#: Move to the top left corner, and clear the screen.
_CLEAR = "\x1b[H\x1b[2J"


def watch(act: Callable[[], object], common: WatchOptions) -> int:
    """Run a command that prints, again after each entry of history; return the exit status.

    On a terminal each run replaces the one before. Elsewhere only the lines that are new are
    printed.
    """
    client = client_of(common)
    after = client.history_end()
    shown = _show("", _output_of(act))
    for entry in client.lines("/v1/watch", after=after):
        if entry is not None and "end" in entry:
            note(f"the server ended the stream: {entry['end']}")
            break
        shown = _show(shown, _output_of(act))
    return OK


class _Captured(StringIO):
    """Output that is kept, drawn as for standard output."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _output_of(act: Callable[[], object]) -> str:
    """Return what a command prints, escaped except for our own colours."""
    captured = _Captured()
    with redirect_stdout(EscapedStream(captured)):
        act()
    return captured.getvalue()


def _show(before: str, text: str) -> str:
    """Print what a command has printed, or its new lines; return the text."""
    if sys.stdout.isatty():
        print(f"{_CLEAR}{text}", end="", file=unescaped_output(), flush=True)
    elif text != before:
        known = set(before.splitlines())
        lines = [line for line in text.splitlines() if line not in known]
        print("\n".join(lines), flush=True)
    return text
