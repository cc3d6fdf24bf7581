"""The real `az`, which `make test-azure` installs; without it these tests are skipped."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.programs import free_port
from tests.api.live import Json
from tests.waiting import LIMIT_S

#: Where `make test-azure` has installed azure-cli.
PLACE = os.environ.get("AZURE_CLI_DIRECTORY", "")
SPEED = 600
MAIN = "import sys; from forewarn_server.cli.main import main; sys.exit(main())"


class Az:
    """An emulator as a program of its own, and `az` pointed at it."""

    def __init__(self, directory: Path) -> None:
        """Start the emulator."""
        where = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        listen = ("--listen", where[0], "--operator-listen", where[1], "--azure", where[2])
        words = (*listen, "--speed", str(SPEED), "--json")
        self._log = (directory / "emulator.err").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "emulate", *words],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.url = told["metadata"][0]
        self._environment = os.environ | {
            "REQUESTS_CA_BUNDLE": told["azure_certificate"],
            "AZURE_CONFIG_DIR": str(directory / "az"),
            "AZURE_CORE_COLLECT_TELEMETRY": "0",
        }
        self._arm = told["azure"]

    def log_in(self) -> None:
        """Point `az` at the emulator, by the lines that prints."""
        self("cloud", "register", "-n", "Forewarn", "--endpoint-resource-manager", self._arm)
        self("cloud", "set", "-n", "Forewarn")
        login = ("--service-principal", "-u", "me", "-p", "any", "--tenant", "adfs")
        self("login", *login)

    def __call__(self, *words: str) -> Json:
        """Run `az`; return what it says, as JSON."""
        ended = subprocess.run(
            [f"{PLACE}/bin/az", *words, "-o", "json"],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout) if ended.stdout.strip() else None

    def stop(self) -> None:
        """Stop the emulator."""
        self.process.terminate()
        self.process.communicate(timeout=LIMIT_S)
        self._log.close()


@pytest.fixture(scope="module")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Az]:
    """An emulator and `az`, logged in."""
    if not PLACE:
        pytest.skip("needs azure-cli, 730 MB: `make test-azure` installs it")
    started = Az(tmp_path_factory.mktemp("az"))
    try:
        started.log_in()
        yield started
    finally:
        started.stop()
