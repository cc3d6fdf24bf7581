"""Real clients, unmodified, each in a VM of its own, with the service at 169.254.169.254:80.

The service is started, and its fleet and work described, as an operator does it. No client may
know anything of Forewarn.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cloud import ADDRESS, FOREWARN, URL, Cloud, cloud_of, wait_for_line
from tests.waiting import LIMIT_S

CLIENTS = Path(__file__).parent / "clients"
ROOT = Path(__file__).resolve().parents[2]
#: Each polls from a VM of its own name.
LOOPS = ("urllib", "requests", "node", "shell", "go")
#: Each client that runs in `make test`: the first build of Go's takes half a minute.
QUICK_LOOPS = LOOPS[:-1]
#: VMs in which single calls are made; where others ask by a wrong interface.
CALLERS = ("curl", "hand", "elsewhere")
SERVICES = (
    "serve",
    *(pytest.param(each, marks=pytest.mark.nightly) for each in ("workers", "emulate")),
)
#: Long enough that each client sees it started, at four polls a second on a busy machine.
DURATION = "2s"
SETTINGS = """
[listen]
metadata = ["169.254.169.254:80", "10.78.{curl}.1%tap{curl}:81"]
workers = {workers}
operator = "127.0.0.1:8470"
[operator]
open_on_loopback = true
[store]
url = "sqlite:///{folder}/forewarn.db"
[drivers]
default = "simulated"
"""

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
    pytest.mark.skipif(
        hasattr(os, "geteuid") and os.geteuid() != 0, reason="a namespace needs root"
    ),
]


def program(name: str, package: str) -> str:
    """Return a program's path; its absence fails, loudly."""
    found = shutil.which(name)
    assert found, f"{name} is missing: apt-get install {package}"
    return found


@pytest.fixture(scope="module")
def loops(serving: Path) -> dict[str, tuple[str, ...]]:
    """How each polling loop is started; in nightly runs Go's is built first."""
    program("curl", "curl")  # the shell's loop calls it
    quick: dict[str, tuple[str, ...]] = {
        "urllib": (sys.executable, str(CLIENTS / "poll.py")),
        "requests": (sys.executable, str(CLIENTS / "with_requests.py")),
        "node": (program("node", "nodejs"), str(CLIENTS / "poll.js")),
        "shell": (program("bash", "bash"), str(CLIENTS / "poll.sh")),
    }
    if serving.name.startswith("serve"):
        return quick
    binary = str(serving / "go-client")
    build = os.environ | {
        "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GO111MODULE": "off",
        "GOCACHE": str(ROOT / ".build" / "go-cache"),  # the first build takes half a minute
    }  # fmt: skip
    built = subprocess.run(
        [program("go", "golang-go"), "build", "-o", binary, str(CLIENTS / "go" / "main.go")],
        env=build, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return {**quick, "go": (binary,)}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A host, and a VM for each client."""
    with cloud_of((*LOOPS, *CALLERS)) as made:
        yield made


@pytest.fixture(scope="module", params=SERVICES)
def serving(
    request: pytest.FixtureRequest, cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The service as an operator starts it, with its fleet; gives the folder of its files."""
    folder = tmp_path_factory.mktemp(request.param)
    fleet = folder / "fleet.toml"
    fleet.write_text(describe(cloud), encoding="utf-8")
    if request.param == "emulate":
        command = ["emulate", "--listen", f"{ADDRESS}:80", "--topology", str(fleet)]
    else:
        settings, workers = folder / "forewarn.toml", 2 if request.param == "workers" else 0
        curl = cloud.vms["curl"].number
        settings.write_text(SETTINGS.format(folder=folder, workers=workers, curl=curl))
        command = ["serve", "--config", str(settings)]
    with cloud.start(folder / "service.log", *FOREWARN, *command):
        said = "operator API" if request.param == "emulate" else "serving operators"
        wait_for_line(folder / "service.log", said)
        if request.param != "emulate":
            assert "elsewhere" in cloud.operator("topology", "apply", str(fleet))
        yield folder


def describe(cloud: Cloud) -> str:
    """Write a fleet down: each VM alone on a host, known by its address and cable."""
    lines = []
    for vm in cloud.vms.values():
        tap = cloud.vms["curl"].tap if vm.name == "elsewhere" else vm.tap
        lines += [
            f"[hosts.h-{vm.name}]",
            f"[vms.{vm.name}]",
            f'host = "h-{vm.name}"',
            f'addresses = ["{vm.address}"]',
            f'interface = "{tap}"',
        ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def told(serving: Path, cloud: Cloud, loops: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """What each loop printed from its first poll until the event was gone again."""
    prints = {name: serving / f"{name}.printed" for name in loops}
    with contextlib.ExitStack() as clients:
        running = [
            clients.enter_context(
                cloud.start(prints[name], *loop, URL, name, namespace=cloud.vms[name].namespace)
            )
            for name, loop in loops.items()
        ]
        for printed in prints.values():
            wait_for_line(printed, "\n")  # its group is enabled now: it will be asked
        hosts = [f"h-{name}" for name in loops]
        cloud.operator("host", "update", *hosts, "--duration", DURATION)
        for client in running:
            client.wait(LIMIT_S)  # each ends once it has seen the event and its end
    return {name: printed.read_text() for name, printed in prints.items()}


def test_clients_live_through_an_event(told: dict[str, str]) -> None:
    """A loop after the published samples sees nothing, an event, it started, nothing.

    Source: E-1, A-1, A-5, C-1, D-1, L-1, L-5.
    """
    assert set(told) >= set(QUICK_LOOPS)
    for name, printed in told.items():
        documents = [json.loads(line) for line in printed.splitlines()]
        assert [each["DocumentIncarnation"] for each in documents] == [0, 1, 2, 3]
        assert [[event["EventStatus"] for event in each["Events"]] for each in documents] == [
            [], ["Scheduled"], ["Started"], [],
        ]  # fmt: skip
        scheduled, started = documents[1]["Events"][0], documents[2]["Events"][0]
        assert scheduled["EventType"] == "Freeze"
        assert scheduled["Resources"] == [name]
        assert scheduled["NotBefore"].endswith(" GMT")
        assert started == scheduled | {"EventStatus": "Started", "NotBefore": ""}


def test_curl_calls_in_every_way(serving: Path, cloud: Cloud) -> None:
    """curl, as the documentation calls it and with odd options. Source: E-1, E-2, E-8, I-2."""
    curl, vm = (program("curl", "curl"), "-sS", "-H", "Metadata:true"), cloud.vms["curl"]
    assert json.loads(vm.run(*curl, URL))["DocumentIncarnation"] == 0
    assert "400 Bad Request" in vm.run(*curl[:2], "-i", URL)
    both = vm.run(*curl, URL, URL)  # one connection
    assert len(both.split("}{")) == 2
    assert "200 OK" in vm.run(*curl, "-I", URL)
    for option in ("--http1.0", "--http2", "--compressed"):
        assert "DocumentIncarnation" in vm.run(*curl, option, URL)
    name = f"http://{ADDRESS}/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    assert vm.run(*curl, name) == "curl"


def test_curl_approves_by_hand(serving: Path, cloud: Cloud) -> None:
    """What the tutorial does: read the id, post it, read that it has started. Source: A-1, L-1."""
    curl, vm = (program("curl", "curl"), "-sS", "-H", "Metadata:true"), cloud.vms["hand"]
    before = json.loads(vm.run(*curl, URL))["DocumentIncarnation"]
    cloud.operator("vm", "reboot", "hand", "--duration", "1h")
    [event] = json.loads(vm.run(*curl, URL))["Events"]
    assert (event["EventStatus"], event["EventSource"]) == ("Scheduled", "User")
    body = f'{{"StartRequests":[{{"EventId":"{event["EventId"].lower()}"}}]}}'
    assert vm.run(*curl, "-i", "-d", body, URL).startswith("HTTP/1.1 200 OK")
    known = json.loads(vm.run(*curl, f"{URL}&wait=30&incarnation={before + 1}"))
    assert known["Events"][0]["EventStatus"] == "Started"
    history = cloud.operator("history")
    assert re.search(rf"vm hand at {re.escape(vm.address)}", history), history


def test_address_counts_on_its_cable_only(serving: Path, cloud: Cloud) -> None:
    """An address that comes in by another cable than its VM's is nobody. Source: S-6.

    For the emulator nobody is its first VM.
    """
    emulated = serving.name.startswith("emulate")
    curl = (program("curl", "curl"), "-sSi", "-H", "Metadata:true")
    status = "200" if emulated else "404"
    assert cloud.vms["elsewhere"].run(*curl, URL).startswith(f"HTTP/1.1 {status}")
    if not emulated:
        known = cloud.vms["curl"]
        at_its_cable = URL.replace(ADDRESS, f"10.78.{known.number}.1:81")
        assert known.run(*curl, at_its_cable).startswith("HTTP/1.1 200")
