"""The Consul preparation, and coordination through its KV store, against a real Consul."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.programs import answers, done, free_port, program, running, until
from tests.agent.test_peers import ask_peers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a real Consul in development mode."""
    path, directory = program("consul"), tmp_path_factory.mktemp("consul")
    http, server, lan, wan = (free_port() for _ in range(4))
    ports = {
        "http": http,
        "dns": -1,
        "grpc": -1,
        "server": server,
        "serf_lan": lan,
        "serf_wan": wan,
    }
    options = subprocess.run([path, "agent", "--help"], capture_output=True, check=False).stdout
    if b"-grpc-tls-port" in options:  # since 1.14; what Debian and Ubuntu have had is older
        ports["grpc_tls"] = -1
    services = [{"name": "web", "id": "web", "port": 8080}]
    config = directory / "consul.json"
    config.write_text(json.dumps({"ports": ports, "services": services}))
    command = (path, "agent", "-dev", "-bind", "127.0.0.1", f"-config-file={config}")
    with running(*command, log=directory / "log"):
        address = f"http://127.0.0.1:{http}"

        def leads() -> bool:
            if not answers(http):
                return False
            with urllib.request.urlopen(f"{address}/v1/status/leader") as answer:
                return b":" in answer.read()

        until(leads, "consul leads", seconds=60)
        yield address


def checks(address: str) -> dict[str, object]:
    """Return the checks of the local agent."""
    with urllib.request.urlopen(f"{address}/v1/agent/checks") as answer:
        found: dict[str, object] = json.load(answer)
    return found


@pytest.mark.parametrize(
    ("settings", "check"),
    [({}, "_node_maintenance"), ({"service": "web"}, "_service_maintenance:web")],
    ids=["node", "service"],
)
def test_maintenance_begins_and_ends(
    consul: str, tmp_path: Path, settings: dict[str, object], check: str
) -> None:
    """The node, or one service, leaves the catalogue for the event. Source: C-3."""
    settings = {**settings, "address": consul}
    done("consul", "prepare", settings, tmp_path / "state")
    assert check in checks(consul)
    done("consul", "prepare", settings, tmp_path / "state")
    done("consul", "recover", settings, tmp_path / "state")
    assert check not in checks(consul)


def test_maintenance_of_an_operator_stays(consul: str, tmp_path: Path) -> None:
    """Only what was done is undone."""
    url = f"{consul}/v1/agent/maintenance?enable=true&reason=operator"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
        pass
    settings: dict[str, object] = {"address": consul}
    done("consul", "prepare", settings, tmp_path / "state")
    done("consul", "recover", settings, tmp_path / "state")
    assert "_node_maintenance" in checks(consul)
    with urllib.request.urlopen(
        urllib.request.Request(url.replace("true", "false", 1), method="PUT")
    ):
        pass


def test_peers_meet_in_consul(consul: str) -> None:
    """VMs of one event tell one another through keys. Source: C-5."""
    ask_peers({"via": "consul", "address": consul})
