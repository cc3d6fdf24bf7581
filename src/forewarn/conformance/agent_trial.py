"""Forewarn's agent in a process of its own, at a server that is checked; nothing else runs here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.conformance.checks import demand
from forewarn.conformance.marks import PREPARED, ConformanceMarks

if TYPE_CHECKING:
    from forewarn.conformance.exchange import ServiceUnderTest

#: How a client of ours is started, as the client suite starts any.
AGENT = (sys.executable, "-m", "forewarn.conformance.agent_client")
STOP_TIMEOUT_S = 30.0


def with_agent(target: ServiceUnderTest, act: Callable[[], str]) -> None:
    """Do something while the agent follows the server; then it must have prepared for an event.

    Args:
        target: the server; the agent is given host and port alone.
        act: returns the id of the event that it made.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-conformance-") as directory:
        marks = ConformanceMarks(Path(directory))
        environment = marks.environment(f"http://{target.host}:{target.port}", "")
        log = Path(directory, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(AGENT, env=environment, stdout=output, stderr=output)  # noqa: S603 - our own
        try:
            event_id = act()
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
        lines = log.read_text("utf-8", "replace").strip().splitlines() or ["nothing"]
        demand(marks.count(PREPARED, event_id), f"it has not prepared; it said last: {lines[-1]}")
