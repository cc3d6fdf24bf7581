"""A cloud of Nova's own parts in a process of its own: started, asked, and ended with its test."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openstack_tests.keystone import clouds_yaml

ROOT = Path(__file__).parents[4]
#: How long one request may take, in seconds: Nova creates a server meanwhile.
REQUEST_S = 120


def nova_python() -> Path:
    """Return the Python of the environment that has Nova, which may not be there."""
    place = os.environ.get("NOVA_DIRECTORY") or str(ROOT / ".build" / "nova")
    return Path(place) / "bin" / "python"


def missing() -> str:
    """Say what is missing for a cloud; empty if nothing is."""
    if not nova_python().exists():
        return "Nova is not installed: make test-nova installs it once (410 MB)"
    return ""


class Cloud:
    """One cloud with the hosts h1, h2 and h3."""

    def __init__(self, port: int, directory: Path) -> None:
        """Write its `clouds.yaml`."""
        self.port = port
        self.clouds_file = directory / "clouds.yaml"
        self.clouds_file.write_text(clouds_yaml(port))

    def test(self, verb: str, **said: object) -> Any:  # noqa: ANN401 - JSON
        """Do what no API can."""
        return self._ask(f"/test/{verb}", said)

    def server(self, name: str, host: str) -> str:
        """Create a server on a host; return its id."""
        return str(self.test("server", name=name, host=host))

    def get(self, path: str) -> dict[str, Any]:
        """Ask Nova, as an administrator."""
        return dict(self._ask(f"/v2.1{path}"))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Have Nova do something."""
        return dict(self._ask(f"/v2.1{path}", body) or {})

    def delete(self, path: str) -> None:
        """Have Nova delete something."""
        self._ask(f"/v2.1{path}", method="DELETE")

    def seen(self, server: str) -> tuple[str, str]:
        """Return a server's host and status."""
        found = self.get(f"/servers/{server}")["server"]
        return found["OS-EXT-SRV-ATTR:host"], found["status"]

    def service(self, host: str) -> dict[str, Any]:
        """Return a host's compute service."""
        found = self.get(f"/os-services?binary=nova-compute&host={host}")["services"]
        return dict(found[0])

    def _ask(self, path: str, body: object = None, method: str | None = None) -> Any:  # noqa: ANN401 - JSON
        data = None if body is None else json.dumps(body).encode()
        headers = {"OpenStack-API-Version": "compute 2.79", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.code} {error.read()!r}") from error
        return json.loads(said) if said else None


@contextmanager
def cloud_in(directory: Path) -> Iterator[Cloud]:
    """Start a cloud; end it with the block."""
    with (directory / "nova.log").open("wb") as log:
        process = subprocess.Popen(
            [nova_python(), "-m", "openstack_tests.cloud_server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                line = process.stdout.readline()
                assert line, (directory / "nova.log").read_text()
                yield Cloud(json.loads(line)["port"], directory)
            finally:
                process.kill()
