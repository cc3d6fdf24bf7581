"""Emulators for these tests: in a thread with the clock standing, or as a process of their own."""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.testing import EmulatorThread
from forewarn_emulator.options import Options
from forewarn_server.cli.api_client import ApiClient
from tests.agent.programs import free_port
from tests.waiting import LIMIT_S

#: What every emulator of these tests listens on.
ANYWHERE = "127.0.0.1:0"


class Stage:
    """An emulator in a thread, its operator API, and what its VMs read."""

    def __init__(self, **given: object) -> None:
        """Start with these options on free ports."""
        options = Options(listen=(ANYWHERE,), operator=ANYWHERE, **given)  # type: ignore[arg-type]
        self.emulator = EmulatorThread(options).start()
        self.api = ApiClient(self.emulator.operator_url)

    def run(self, scenario: str, **form: object) -> dict[str, object]:
        """Begin a scenario through the operator API; return when its first steps are done."""
        answer: dict[str, object] = self.api.post(f"/v1/scenarios/{scenario}/run", form)
        self.advance("0s")
        return answer

    def advance(self, by: str) -> None:
        """Let time pass through the operator API."""
        self.api.post("/v1/clock/advance", {"by": by})

    def state(self, scenario: str) -> str:
        """Return how far a scenario is."""
        run = self.api.get(f"/v1/scenarios/{scenario}")["run"]
        return "" if run is None else str(run["state"])

    def sees(self, vm: str = "") -> list[str]:
        """Return what a VM sees, one line an event."""
        return [
            f"{event.event_type} {event.status} {'+'.join(event.resources)}"
            f" {event.source} {event.duration_s}"
            for event in self.emulator.document(vm).events
        ]

    def approve(self, vm: str = "") -> None:
        """Approve everything a VM sees, as the VM."""
        document = self.emulator.document(vm)
        self.emulator.approve(*(event.event_id for event in document.events), vm=vm)

    def fleet(self) -> object:
        """Return hosts, groups and VMs."""
        return json.loads(self.api.send("GET", "/v1/topology"))


@pytest.fixture
def staged() -> Iterator[Callable[..., Stage]]:
    """Start emulators in threads; they are stopped with the test."""
    stages: list[Stage] = []

    def start(**given: object) -> Stage:
        stages.append(Stage(**given))
        return stages[-1]

    yield start
    for stage in stages:
        stage.emulator.stop()


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    """One emulator with the usual VM."""
    return staged()


class Process:
    """`forewarn emulate` as its own process, and what it says."""

    def __init__(self, *arguments: str) -> None:
        """Start it."""
        command = [sys.executable, "-m", "forewarn_server.cli.main", "emulate", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def read_until(self, word: str) -> str:
        """Return what it says up to a line with a word in it."""
        said = ""
        while True:
            line = self.lines.get(timeout=LIMIT_S)
            said += line
            if word in line:
                return said
            assert line, f"it ended without {word!r}: {said}"

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send a signal; return its exit status and what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it said on standard error."""
        assert self.process.stderr is not None
        status = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        errors = self.process.stderr.read()
        self.process.stderr.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status, errors


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    """Start emulators as processes; they are killed with the test."""
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            each.wait()


@pytest.fixture
def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens on."""
    return free_port(), free_port()


@pytest.fixture
def story(tmp_path: Path) -> Callable[[str], Path]:
    """Write a scenario file."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
