"""Process that requests the outcome of an event, then runs the recovery hook. Source: X-1.

The separate process avoids a wait in the agent. The hook runs even if the outcome is unknown.
"""

from __future__ import annotations

import json
import os
import sys

from forewarn.agent.sdk.client import Client
from forewarn_base.errors import ForewarnError

#: Longest wait for the service, in seconds.
TIMEOUT_S = 2.0


def main(endpoint: str, event_id: str, *command: str) -> int:
    """Run a hook with `FOREWARN_OUTCOME`, the outcome as JSON, and `FOREWARN_EVENT_RESULT`."""
    try:
        client = Client(endpoint, timeout_s=TIMEOUT_S, patience_s=0, wait_s=0)
        outcome = client.outcome(event_id)
    except ForewarnError as error:
        sys.stderr.write(f"The outcome of event {event_id} is unknown: {error}\n")
        outcome = {"result": "unknown"}
    os.environ["FOREWARN_OUTCOME"] = json.dumps(outcome)
    os.environ["FOREWARN_EVENT_RESULT"] = str(outcome["result"])
    if sys.platform == "win32":
        import subprocess  # noqa: PLC0415 - only there: no process can become another

        return subprocess.run(command, check=False).returncode
    return os.execvp(command[0], command)  # noqa: S606 - as configured
