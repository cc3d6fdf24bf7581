"""A control plane and metadata nodes as the processes a user would start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forewarn_core.access.roles import Role
from forewarn_core.access.tokens import written_token
from tests import asking
from tests.access import seed_token
from tests.agent.programs import free_port
from tests.e2e.certificates import make_certificates
from tests.waiting import LIMIT_S

VERSION = "2020-07-01"
EVENTS = f"/metadata/scheduledevents?api-version={VERSION}"

TOKEN = written_token("h2", "seeded")
SETTINGS = """
[metadata]
vm_by_query = true
rate_per_s = 0
[listen]
metadata = ["127.0.0.1:0"]
operator = "127.0.0.1:{operator}"
[operator]
open_on_loopback = true
[store]
url = "sqlite:///{directory}/forewarn.db"
[drivers]
default = "simulated"
[lifecycle]
show_timeout_s = 1.0
[feed]
listen = "127.0.0.1:{feed}"
certificate = "{directory}/control.pem"
key = "{directory}/control.key"
client_ca = "{directory}/ca.pem"
"""
VMS = {
    "web_0": {"host": "h1", "group": "web"},
    "web_1": {"host": "h2", "group": "web"},
    "db_0": {"host": "h1", "group": "db"},
}
FLEET = {
    "hosts": {"h1": {"fault_domain": 0}, "h2": {"fault_domain": 1}},
    "groups": {"web": {}, "db": {}},
    "vms": VMS,
}


@dataclass
class Process:
    """A process that logs what it does."""

    words: Sequence[str]
    cwd: Path
    lines: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        """Start it, and read its log."""
        self._arrived = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forewarn_server.cli.main", *self.words],
            cwd=self.cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "FOREWARN_NODE_TOKEN": TOKEN},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._arrived:
                self.lines.append(line)
                self._arrived.notify_all()

    def logged(self, pattern: str) -> str:
        """Wait until a line of its log matches; return the match's first group."""
        with self._arrived:
            found = self._arrived.wait_for(
                lambda: re.search(pattern, "".join(self.lines)), timeout=LIMIT_S
            )
        assert found, "".join(self.lines)
        return str(found[1] if found.groups() else found[0])

    def serving(self) -> Process:
        """Wait until it serves VMs."""
        self.port = int(self.logged(r"serving VMs at 127.0.0.1:(\d+)"))
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def ask(
        self, vm: str, method: str = "GET", body: object = None
    ) -> tuple[int, dict[str, object]]:
        """Be a VM; return status and body."""
        return ask(self.port, method, f"{EVENTS}&vm={vm}", body)


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    """Send one request; return status and body, empty if it is not JSON."""
    reply = asking.ask(f"127.0.0.1:{port}", method, path, body)
    return reply.status, reply.json


class Cloud:
    """A control plane and its nodes."""

    def __init__(self, directory: Path) -> None:
        """Make certificates and settings."""
        self.directory = directory
        self.operator, self.feed = free_port(), free_port()
        self.follow: tuple[str, ...] = ("--follow", f"127.0.0.1:{self.feed}")
        make_certificates(directory, control="DNS:localhost,IP:127.0.0.1", h1="DNS:h1", h2="DNS:h2")
        (directory / "serve.toml").write_text(
            SETTINGS.format(directory=directory, operator=self.operator, feed=self.feed)
        )
        seed_token(directory / "forewarn.db", "h2", Role.NODE)
        (directory / "node.toml").write_text("[metadata]\nvm_by_query = true\nrate_per_s = 0\n")
        self.processes: list[Process] = []

    def control(self) -> Process:
        """Start the control plane, and wait for it."""
        control = self._started("serve", "--config", "serve.toml").serving()
        control.logged("serving operators")
        return control

    def node(self, name: str, *more: str, token: bool = False) -> Process:
        """Start a node, which proves its name by a certificate or by its token."""
        proof = () if token else ("--certificate", f"{name}.pem", "--key", f"{name}.key")
        return self._started(
            *("node", "run", "--config", "node.toml", *self.follow),
            *("--store", f"store-{name}", "--name", name, "--ca", "ca.pem", *proof),
            *("--listen", "127.0.0.1:0", *more),
        )

    def order(self, path: str, body: object, method: str = "POST") -> dict[str, object]:
        """Be an operator."""
        status, answer = ask(self.operator, method, path, body)
        assert status < 300, answer
        return answer

    def health(self) -> dict[str, object]:
        """Return what the control plane says of itself."""
        return ask(self.operator, "GET", "/v1/health")[1]

    def stop(self) -> None:
        """Kill what is left."""
        for process in self.processes:
            if process.process.returncode is None:
                process.kill()

    def _started(self, *words: str) -> Process:
        process = Process(words, self.directory)
        self.processes.append(process)
        return process
