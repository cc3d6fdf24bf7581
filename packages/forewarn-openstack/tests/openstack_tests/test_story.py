"""A host is drained from the operator's word to the last server, with Nova and the real service."""

import hmac
import http.client
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from forewarn_server.cli.main import main
from openstack_tests.cloud import Cloud
from openstack_tests.tasks import TASK_S, UNWARNED
from tests.agent.programs import free_port
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, UNWARNED]

SECRET = "a-shared-secret"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
SETTINGS = """
[store]
url = "sqlite:{directory}/store"
[listen]
metadata = ["127.0.0.1:{port}"]
operator = "127.0.0.1:{operator}"
[operator]
open_on_loopback = true
[metadata]
rate_per_s = 0.0
proxy_addresses = ["127.0.0.1"]
proxy_without_header = true
[drivers]
default = "nova"
[drivers.nova]
cloud = "test"
clouds_file = "{clouds_file}"
"""


class Service:
    """The service as a process, and a VM's way to it."""

    def __init__(self, cloud: Cloud, directory: Path) -> None:
        """Write its settings; start nothing."""
        self.port, self.operator = free_port(), free_port()
        self.settings = directory / "forewarn.toml"
        facts = {"port": self.port, "operator": self.operator, "directory": directory}
        self.settings.write_text(SETTINGS.format(clouds_file=cloud.clouds_file, **facts))
        self.log = directory / "log"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "forewarn_server.cli.main",
                    "serve",
                    "--config",
                    self.settings,
                ],
                env={**os.environ, "FOREWARN_METADATA_PROXY_SECRET": SECRET},
                stderr=log,
                stdout=log,
            )
        wait_until(self.answers, what=f"the service, see {self.log}", limit_s=TASK_S)
        return process

    def answers(self) -> bool:
        """Whether it does."""
        with suppress(OSError):
            return self.ask("GET", "nobody")[0] == 404
        return False

    def ask(self, method: str, server: str, body: object = None) -> tuple[int, Any]:
        """Ask as Neutron's agent does in the name of a server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        headers = {
            "X-Forwarded-For": "10.0.0.7",
            "X-Instance-ID": server,
            "X-Tenant-ID": "a-project",
            "X-Instance-ID-Signature": hmac.digest(
                SECRET.encode(), server.encode(), "sha256"
            ).hex(),
        }
        try:
            connection.request(method, EVENTS, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            said = answer.read()
            return answer.status, json.loads(said) if said else None
        finally:
            connection.close()

    def command(self, *words: str) -> int:
        """Run a command as an operator."""
        return main([*words, "--server", f"http://127.0.0.1:{self.operator}"])


def test_drain_survives_a_kill_of_the_service(cloud: Cloud, tmp_path: Path) -> None:
    """Announced, approved by the VM through Neutron's headers, migrated once. Source: R-2, R-6."""
    server = cloud.server("story", "h1")
    service = Service(cloud, tmp_path)
    process = service.start()
    cloud.test("hold", on=True)
    try:
        assert service.command("topology", "import", "nova", "--config", str(service.settings)) == 0
        assert service.ask("GET", server)[1]["Events"] == []
        assert service.command("host", "migrate", "h1") == 0
        (event,) = service.ask("GET", server)[1]["Events"]
        assert (event["EventType"], event["Resources"]) == ("Freeze", [server])
        approval = {"StartRequests": [{"EventId": event["EventId"]}]}
        assert service.ask("POST", server, approval)[0] == 200
        running = f"/servers/{server}/migrations"
        wait_until(lambda: cloud.get(running)["migrations"], what="it", limit_s=TASK_S, every_s=0.2)
        process.kill()
        process.wait()
        assert cloud.service("h1")["status"] == "disabled"
        process = service.start()
        assert service.ask("GET", server)[1]["Events"][0]["EventStatus"] == "Started"
        cloud.test("hold", on=False)
        wait_until(
            lambda: service.ask("GET", server)[1]["Events"] == [],
            what=f"its end, see {service.log}",
            limit_s=TASK_S,
            every_s=0.2,
        )
    finally:
        cloud.test("hold", on=False)
        process.kill()
        process.wait()
    assert cloud.seen(server)[0] != "h1"
    assert cloud.service("h1")["status"] == "enabled"
    actions = cloud.get(f"/servers/{server}/os-instance-actions")["instanceActions"]
    assert [each["action"] for each in actions] == ["live-migration", "create"]
