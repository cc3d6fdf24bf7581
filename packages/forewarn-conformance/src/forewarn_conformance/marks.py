"""Records of a client's actions: preparations and recoveries of events.

A record is a line in a file. The client runs a small program that writes the line.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

#: Names of the client's environment variables.
ENDPOINT = "FOREWARN_ENDPOINT"
VM = "CONFORMANCE_VM"
STATE = "CONFORMANCE_STATE"
MARK = "CONFORMANCE_MARK"
#: Actions recorded by a client.
PREPARED = "prepared"
RECOVERED = "recovered"

PROGRAM = """#!/bin/sh
# mark prepared|recovered [EVENT-ID]
printf '%s %s\\n' "$1" "${{2:-$FOREWARN_EVENT_ID}}" >> {file}
"""


class ConformanceMarks:
    """The records of one client."""

    def __init__(self, directory: Path) -> None:
        """Write the program that the client runs to record an action."""
        self.directory = directory
        self._file = directory / "marks"
        self.program = directory / "mark"
        self._file.touch()
        self.program.write_text(PROGRAM.format(file=shlex.quote(str(self._file))), "utf-8")
        self.program.chmod(0o755)

    def count(self, mark: str, event_id: str) -> int:
        """Return the number of records of an action for an event; ignore case in ids."""
        wanted = f"{mark} {event_id}".lower()
        return self._file.read_text("utf-8", "replace").lower().splitlines().count(wanted)

    def environment(self, endpoint: str, vm: str) -> dict[str, str]:
        """Return the environment variables of a client."""
        own = {ENDPOINT: endpoint, STATE: str(self.directory), MARK: str(self.program)}
        proxies = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
        kept = {name: text for name, text in os.environ.items() if name.lower() not in proxies}
        return {**kept, **own, VM: vm}
