"""Control planes in processes of their own, on one PostgreSQL."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn_core.access.roles import Role
from forewarn_core.access.tokens import written_token
from tests.access import seed_token
from tests.agent.programs import free_port
from tests.asking import ask
from tests.waiting import wait_until

TERM_S, SLACK_S = 5, 2
#: The token of an admin of all control planes: a follower lends its own identity to nobody.
TOKEN = written_token("tester", "seeded")
BEARER = {"Authorization": f"Bearer {TOKEN}"}
POLL = "/metadata/scheduledevents?api-version=2020-07-01&vm=web_0"
FLEET: dict[str, dict[str, Any]] = {
    "hosts": {"h1": {}, "h2": {"fault_domain": 1}},
    "groups": {"web": {}},
    "vms": {"web_0": {"host": "h1", "group": "web"}, "web_1": {"host": "h2", "group": "web"}},
}


class Plane:
    """One `forewarn serve`."""

    def __init__(self, folder: Path, address: str, name: str, more: str = "") -> None:
        """Start it, with `more` settings."""
        self.address = address
        self.port, self.metadata_port = free_port(), free_port()
        config = folder / f"{name}.toml"
        config.write_text(
            f'[store]\nurl = "{address}"\n[metadata]\nvm_by_query = true\n'
            f'[listen]\nmetadata = ["127.0.0.1:{self.metadata_port}"]\n'
            f'operator = "127.0.0.1:{self.port}"\n[operator]\nopen_on_loopback = true\n'
            f'[drivers]\ndefault = "simulated"\n{more}'
        )
        self._serve = ("serve", "--config", str(config))
        self.log = folder / f"{name}.log"
        self.start()

    def start(self, program: str = "forewarn_server.cli.main") -> None:
        """Start it, or start it again on the same addresses, as the module of some version."""
        words = [sys.executable, "-m", program, *self._serve]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stderr=log)

    def ask(
        self, method: str, path: str, body: object = None, key: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Send one request; return status and answer."""
        headers = {**BEARER, "Idempotency-Key": key} if key else BEARER
        reply = ask(f"127.0.0.1:{self.port}", method, path, body, headers=headers)
        return reply.status, reply.json

    def poll(self) -> int:
        """Return the status that a VM gets."""
        return ask(f"127.0.0.1:{self.metadata_port}", "GET", POLL).status

    def document(self) -> dict[str, Any]:
        """Return the document that a VM reads."""
        reply = ask(f"127.0.0.1:{self.metadata_port}", "GET", POLL)
        assert reply.status == 200, reply
        document: dict[str, Any] = reply.json
        return document

    def says(self, status: int, path: str = "/leader") -> bool:
        """Whether it answers with a status."""
        try:
            return self.ask("GET", path)[0] == status
        except (OSError, http.client.HTTPException):
            return False

    def wait_started(self, path: str) -> None:
        """Wait until it answers 200."""

        def started() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.says(200, path)

        wait_until(started, what=f"{path} of {self.log}")

    def end(self, sign: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal."""
        os.kill(self.process.pid, sign)
        self.process.wait()


@contextmanager
def running_planes(folder: Path, address: str, count: int = 2) -> Iterator[list[Plane]]:
    """Start an active process, then its followers, whose sessions are named `follower`."""
    assert seed_token(address, "tester", Role.ADMIN) == TOKEN
    planes = [Plane(folder, address, "plane0")]
    try:
        planes[0].wait_started("/leader")
        for number in range(1, count):
            plane = Plane(folder, f"{address}&application_name=follower", f"plane{number}")
            planes.append(plane)
        for plane in planes[1:]:
            plane.wait_started("/ready")
        yield planes
    finally:
        for plane in planes:
            if plane.process.poll() is None:
                plane.end()
