"""Runs Forewarn's agent with a server under test, in a separate process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from forewarn_conformance.checks import demand
from forewarn_conformance.exchange import ServiceUnderTest
from forewarn_conformance.marks import PREPARED, ConformanceMarks

#: Command that starts the agent.
AGENT = (sys.executable, "-m", "forewarn_conformance.agent_client")
STOP_TIMEOUT_S = 30.0


def with_agent(target: ServiceUnderTest, act: Callable[[], str]) -> None:
    """Run an action, which returns the id of an event, and check that the agent has prepared."""
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
        demand(
            marks.count(PREPARED, event_id),
            f"the agent has not prepared; its last line: {lines[-1]}",
        )
