"""What the agent shows: status endpoint, probes, metrics, readiness, over plain and TLS."""

import json
import re
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.agent.cli import main
from forewarn.agent.metrics import HELP
from forewarn.agent.preparations.http_call import call
from forewarn_base import exit_codes
from forewarn_server.cli.main import main as forewarn
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.programs import free_port, program
from tests.agent.service import Service
from tests.agent.test_peers import peers
from tests.waiting import LIMIT_S, wait_until

AHEAD = event(not_before_ms=4_000_000_000_000)
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[a-z-]+"(,[a-z]+="[a-z-]+")*\})? -?[0-9.]+')


def watched(
    directory: Path, service: Service, tls: str = "", **changes: object
) -> tuple[Agent, str]:
    """Return an agent with a status endpoint, and the endpoint."""
    address = f"127.0.0.1:{free_port()}"
    agent = Agent(directory, service.endpoint, **changes)
    with agent.config.open("a") as config:
        config.write(f'\n[status]\nlisten = "{address}"\n{tls}\n')
    return agent, address


def test_status_tells_the_story(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Probes, status and metrics before, during and after an event."""
    slow = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    agent, address = watched(tmp_path, service, recover=slow)
    url = f"http://{address}"
    with agent:
        agent.until_said("named")
        wait_until(lambda: call("GET", f"{url}/readyz").status == 200, what="ready")
        assert call("GET", f"{url}/healthz").status == 200
        assert call("GET", f"{url}/drainz").status == 200
        assert call("GET", f"{url}/nothing").status == 404
        assert call("POST", f"{url}/status", form={}).status == 405
        service.show(AHEAD)
        agent.until_said("approved")
        assert call("GET", f"{url}/drainz").status == 503
        assert call("GET", f"{url}/prepared").form()["prepared"] == ["E1"]
        known = {"vm_0": url, "vm_2": f"http://127.0.0.1:{free_port()}"}
        assert peers("ask", "vm_1", {"via": "status", "peers": known}) == ["vm_0"]
        assert main(["status", "--address", address]) == 0
        assert "E1  approved" in capsys.readouterr().out
        service.show()
        agent.until_acts("prepare", "recover")
        assert call("GET", f"{url}/drainz").status == 503
        (tmp_path / "go").touch()
        agent.until_said("finished")
        assert call("GET", f"{url}/drainz").status == 200
        assert main(["status", "--address", address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["events"] == []
        text = call("GET", f"{url}/metrics").body.decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    names = {line.partition("{")[0].partition(" ")[0] for line in samples}
    assert names <= set(HELP)
    assert "forewarn_agent_approvals_total 1" in samples
    assert 'forewarn_agent_hooks_total{phase="recover",result="ok"} 1' in samples


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (("127.0.0.1:8471",), 200),
        (("vm_0:8471",), 200),
        (("VM-0.Example",), 200),
        ((), 200),
        (("evil.example",), 400),
        (("vm-0.example.evil.example",), 400),
        (("localhost", "evil.example"), 400),
    ],
)
def test_page_of_another_site_is_refused(
    service: Service, tmp_path: Path, hosts: tuple[str, ...], status: int
) -> None:
    """A domain that was made to resolve to this VM is not one of its names. Source: E-4."""
    agent, address = watched(tmp_path, service, tls='allowed_hosts = ["vm-0.example"]')
    with agent:
        agent.until_said("named")
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as line:
            fields = "".join(f"Host: {each}\r\n" for each in hosts)
            line.sendall(f"GET /status HTTP/1.1\r\n{fields}\r\n".encode())
            assert line.makefile("rb").readline().split()[1] == b"%d" % status


def test_slow_and_broken_clients_do_no_harm(service: Service, tmp_path: Path) -> None:
    """Whoever connects and says nothing, or nonsense, does not keep the agent from its work."""
    agent, address = watched(tmp_path, service)
    host, _, port = address.partition(":")
    with agent:
        agent.until_said("named")
        idle = [socket.create_connection((host, int(port))) for _ in range(50)]
        with socket.create_connection((host, int(port))) as rude:
            rude.sendall(b"\x00" * 20000)
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        assert call("GET", f"http://{address}/healthz").status == 200
        for one in idle:
            one.close()


def test_status_before_the_first_answer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent that has not reached the service knows neither its name nor a version."""
    with Service() as service:
        agent, address = watched(tmp_path, service)
    with agent:
        agent.until_said("agent-started")
        assert main(["status", "--address", address]) == exit_codes.OK
    said = capsys.readouterr().out
    assert said.startswith(f"The service at {service.endpoint} has not answered yet.\n")
    assert "None" not in said


@pytest.mark.parametrize("command", [main, lambda words: forewarn(["agent", *words])])
def test_status_without_an_agent_is_told_calmly(
    service: Service, command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody there, somebody else there and no address: a sentence, and a status for each."""
    assert command(["status", "--address", f"127.0.0.1:{free_port()}"]) == exit_codes.UNREACHABLE
    assert "Connection refused" in capsys.readouterr().err
    place = service.endpoint.removeprefix("http://")
    assert command(["status", "--address", place]) == exit_codes.UNREACHABLE
    assert "another program answers" in capsys.readouterr().err
    assert command(["status", "--address", "nonsense:port"]) in {
        exit_codes.USAGE,
        exit_codes.REFUSED,
    }
    assert "a port from 1 to 65535" in capsys.readouterr().err


def test_status_over_tls(service: Service, tmp_path: Path) -> None:
    """With a certificate the endpoint speaks TLS, in the same loop."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    agent, address = watched(tmp_path, service, f'cert = "{cert}"\nkey = "{key}"')
    with agent:
        agent.until_said("named")
        found = call("GET", f"https://{address}/status", ca_file=str(cert))
        assert found.form()["name"] == "vm_0"
        context = ssl.create_default_context(cafile=str(cert))
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_service_manager_is_told(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Type=notify`: ready when it asks, a status in words, signs of life, the end."""
    path = tmp_path / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        told: list[str] = []

        def until_told(word: str) -> None:
            while not any(word in one for one in told):
                told.append(manager.recv(4096).decode())

        with Agent(tmp_path, service.endpoint) as agent:
            until_told("READY=1")
            until_told("WATCHDOG=1")
            service.show(AHEAD)
            until_told("STATUS=Reboot approved")
            assert agent.stop() == 0
            until_told("STOPPING=1")


def test_service_manager_does_not_wait_for_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer may be held for longer than a start may take. Source: B-1."""
    path = tmp_path / "notify.sock"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        manager.bind(str(path))
        manager.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with Agent(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}") as agent:
            assert manager.recv(4096) == b"STATUS=waiting for the service's first answer"
            assert manager.recv(4096) == b"READY=1"
            assert agent.stop() == 0
