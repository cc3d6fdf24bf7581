"""Real clients, unmodified, in a network namespace with the service at 169.254.169.254:80.

No client may know anything of Forewarn. The service process enters the namespace first; the
clients are started in it as they would be in a VM.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = Path(__file__).parent / "clients"
ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "169.254.169.254"
URL = f"http://{ADDRESS}/metadata/scheduledevents?api-version=2020-07-01"
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
WAIT_S = 60
NAMESPACE = f"forewarn-{os.getpid()}"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    pytest.mark.skipif(
        hasattr(os, "geteuid") and os.geteuid() != 0, reason="a namespace needs root"
    ),
]


def run(*command: str, inside: bool = True) -> str:
    """Run a program to its end, in the namespace, and return what it printed."""
    prefix = ("ip", "netns", "exec", NAMESPACE) if inside else ()
    done = subprocess.run(
        [*prefix, *command], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def namespace() -> Iterator[None]:
    """A network namespace with the address of the public service on its loopback."""
    assert shutil.which("ip"), "iproute2 is missing: apt-get install iproute2"
    run("ip", "netns", "add", NAMESPACE, inside=False)
    try:
        run("ip", "link", "set", "lo", "up")
        run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        run("ip", "address", "add", "10.77.0.4/32", "dev", "lo")
        yield
    finally:
        run("ip", "netns", "delete", NAMESPACE, inside=False)


@pytest.fixture
def service(namespace: None) -> Iterator[None]:
    """The service, showing one Freeze that goes once it is approved."""
    with serving(f"{ADDRESS}:80", ADDRESS):
        yield


@contextlib.contextmanager
def serving(listen: str, *places: str) -> Iterator[None]:
    """Run the service in the namespace."""
    command = [sys.executable, str(CLIENTS / "service.py"), listen, *places]
    service = subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACE, *command],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert service.stdout is not None
    try:
        assert service.stdout.readline().decode().split() == listen.split(",")
        yield
    finally:
        service.send_signal(signal.SIGTERM)
        assert service.wait(WAIT_S) == 0
        service.stdout.close()


def program(name: str, package: str) -> str:
    """Return a program's path; its absence fails, loudly."""
    found = shutil.which(name)
    assert found, f"{name} is missing: apt-get install {package}"
    return found


def check_story(printed: str) -> None:
    """Check that a client saw nothing, the event, it started, and it gone."""
    documents = [json.loads(line) for line in printed.splitlines() if line.strip()]
    statuses = [[event["EventStatus"] for event in each["Events"]] for each in documents]
    assert statuses[-1] == []
    assert ["Scheduled"] in statuses
    incarnations = [each["DocumentIncarnation"] for each in documents]
    assert incarnations == sorted(set(incarnations))


def test_curl_reads_and_approves(service: None) -> None:
    """curl, as the documentation calls it. Source: E-1, A-1."""
    curl = program("curl", "curl")
    assert json.loads(run(curl, "-sS", "-H", "Metadata:true", URL))["DocumentIncarnation"] == 1
    body = f'{{"StartRequests":[{{"EventId":"{EVENT.lower()}"}}]}}'
    answer = run(curl, "-sSi", "-H", "Metadata:true", "-X", "POST", "-d", body, URL)
    assert answer.startswith("HTTP/1.1 200 OK")
    assert "400 Bad Request" in run(curl, "-sSi", URL)
    both = run(curl, "-sS", "-H", "Metadata:true", URL, URL)  # one connection
    assert len(both.split("}{")) == 2
    assert "200 OK" in run(curl, "-sSI", "-H", "Metadata:true", URL)
    with_tenure = run(curl, "-sS", "--http1.0", "-H", "Metadata:true", URL)
    assert "DocumentIncarnation" in with_tenure
    upgraded = run(curl, "-sS", "--http2", "-H", "Metadata:true", URL)
    assert "DocumentIncarnation" in upgraded
    compressed = run(curl, "-sS", "--compressed", "-H", "Metadata: True", URL)
    assert "DocumentIncarnation" in compressed


def test_requests_reads_and_approves(service: None) -> None:
    """Python's requests, plain and with a session. Source: E-1, A-1, A-5."""
    text = run(sys.executable, str(CLIENTS / "with_requests.py"), URL, EVENT)
    assert "DocumentIncarnation" in text


def test_urllib_polls_an_event_to_its_end(service: None) -> None:
    """A loop after the published Python sample, on urllib. Source: E-1, A-1, L-1, C-1."""
    check_story(run(sys.executable, str(CLIENTS / "poll.py"), URL, "vm-a"))


def test_node_polls_an_event_to_its_end(service: None) -> None:
    """A loop after the published Node sample: fetch and http, both agents. Source: E-7, A-1."""
    check_story(run(program("node", "nodejs"), str(CLIENTS / "poll.js"), URL, "vm-a"))


def test_shell_polls_an_event_to_its_end(service: None) -> None:
    """A loop after the published shell samples. Source: E-1, A-1."""
    program("curl", "curl")
    check_story(run(program("bash", "bash"), str(CLIENTS / "poll.sh"), URL, "vm-a"))


def test_go_polls_an_event_to_its_end(service: None, tmp_path: Path) -> None:
    """Go's net/http, which approves with whole events. Source: E-1, A-1, A-5."""
    go = program("go", "golang-go")
    binary = str(tmp_path / "client")
    build = os.environ | {
        "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GO111MODULE": "off",
        "GOCACHE": str(ROOT / ".build" / "go-cache"),  # the first build takes half a minute
    }  # fmt: skip
    built = subprocess.run(
        [go, "build", "-o", binary, str(CLIENTS / "go" / "main.go")],
        env=build, capture_output=True, text=True, timeout=4 * WAIT_S, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    check_story(run(binary, URL, "vm-a"))


def test_another_address_of_the_machine_is_another_vm(service: None) -> None:
    """The same client from an address nobody has learns nothing. Source: S-6."""
    curl = program("curl", "curl")
    command = (curl, "-sSi", "-H", "Metadata:true", "--interface", "10.77.0.4", URL)
    assert run(*command).startswith("HTTP/1.1 404")


@pytest.fixture
def guests(namespace: None) -> Iterator[str]:
    """A second namespace with the VMs' ends of two virtual cables, one to each interface."""
    other = f"{NAMESPACE}-guests"
    run("ip", "netns", "add", other, inside=False)
    try:
        for n in (1, 2):
            run("ip", "link", "add", f"tap{n}", "type", "veth", "peer", f"eth{n}", "netns", other)
            run("ip", "address", "add", f"10.78.{n}.1/24", "dev", f"tap{n}")
            run("ip", "link", "set", f"tap{n}", "up")
            guest = ("ip", "-n", other)
            run(*guest, "address", "add", f"10.78.{n}.2/24", "dev", f"eth{n}", inside=False)
            run(*guest, "link", "set", f"eth{n}", "up", inside=False)
        yield other
    finally:
        run("ip", "netns", "delete", other, inside=False)


def test_address_counts_on_its_interface_only(guests: str) -> None:
    """An address that comes in by another interface than its VM's is nobody. Source: S-6."""
    curl = ("ip", "netns", "exec", guests, program("curl", "curl"), "-sSi", "-H", "Metadata:true")
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    listen = "10.78.1.1:80,10.78.2.1:80,10.78.1.1%tap1:81"
    with serving(listen, "10.78.1.2%tap1", "10.78.2.2%tap1"):
        for address, status in (
            ("10.78.1.1:80", 200),
            ("10.78.2.1:80", 404),
            ("10.78.1.1:81", 200),
        ):
            printed = run(*curl, f"http://{address}{path}", inside=False)
            assert printed.startswith(f"HTTP/1.1 {status}"), address
