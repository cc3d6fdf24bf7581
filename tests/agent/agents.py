"""A running agent for the tests: a process of its own, with steps that write down what they do."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from forewarn.agent.journal import newest
from tests.waiting import LIMIT_S, wait_until

#: Timeout of a hook that is to miss it: a loaded machine begins its shell within that.
HOOK_S = 2.0

CONFIG = """
[agent]
endpoint = "{endpoint}"
interval_s = 0.1
stop_grace_s = 0.5
state_dir = "{directory}/state"
hooks_dir = "{directory}/hooks"
{agent}

[step.work]
prepare = ["sh", "-c", '''echo prepare $FOREWARN_EVENT_ID >> {directory}/acts; {prepare}''']
recover = ["sh", "-c", '''echo recover $FOREWARN_EVENT_ID >> {directory}/acts; {recover}''']
cancel = ["sh", "-c", '''echo cancel $FOREWARN_EVENT_ID >> {directory}/acts''']
timeout_s = {timeout_s}

[[rule]]
action = "prepare"
then = "{then}"
"""


class Agent:
    """An agent that is started, killed and started again on the same directory."""

    def __init__(self, directory: Path, endpoint: str, **changes: object) -> None:
        """Write the configuration; `prepare` and `recover` are shell commands of the step."""
        known = {
            "agent": "",
            "prepare": "true",
            "recover": "true",
            "timeout_s": 60,
            "then": "approve",
        }
        self.directory = directory
        self.config = directory / "agent.toml"
        text = CONFIG.format(directory=directory, endpoint=endpoint, **{**known, **changes})
        self.config.write_text(text)
        self.command = [sys.executable, "-m", "forewarn.agent", "run", "--config", str(self.config)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it without warning, as a crash would; its hooks go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT_S)

    def stop(self) -> int:
        """Ask it to end and return its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(LIMIT_S)

    def exit_status(self) -> int:
        """Wait for its end and return its exit status."""
        assert self.process is not None
        return self.process.wait(LIMIT_S)

    def log(self) -> str:
        """Return what it has said."""
        return (self.directory / "log").read_text()

    def acts(self) -> list[str]:
        """Return what the step's hooks did, in order."""
        path = self.directory / "acts"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def until_acts(self, *acts: str) -> None:
        """Wait until exactly that was done."""
        wait_until(lambda: len(self.acts()) >= len(acts), what=f"{acts}")
        assert self.acts() == list(acts)

    def until_said(self, action: str, times: int = 1) -> None:
        """Wait until it has logged an action so often."""
        mark = f" action={action}"
        wait_until(lambda: self.log().count(mark) >= times, what=action)

    def stages(self) -> list[str]:
        """Return the stages of the events in its journal."""
        _, form = newest(str(self.directory / "state"))
        events = form["events"] if form else []
        assert isinstance(events, list)
        return [event["stage"] for event in events]

    def hook_pid(self) -> int:
        """Return the process of the hook that runs."""
        (path,) = (self.directory / "state" / "hooks").glob("*.begun")
        return int(path.read_text())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, and what it left running."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for path in (self.directory / "state" / "hooks").glob("*.begun"):
            with contextlib.suppress(OSError, ValueError):
                os.killpg(int(path.read_text()), signal.SIGKILL)
        if kind is not None:
            print(self.log())
