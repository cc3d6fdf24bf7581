"""Builds, starts and observes the compared servers."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.agent.programs import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / ".build" / "bench"
TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
SERVER_CORE = 0
LOAD_CORE = 1
START_S_MAX = 20.0
FILES = 20_000
#: Debian's packages of the programs.
PACKAGES = {"wrk": "wrk", "nginx": "nginx-light", "go": "golang-go"}

BODY = (
    b'{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123",'
    b'"EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine",'
    b'"Resources":["WestNO_0","WestNO_1"],"NotBefore":"Mon, 11 Apr 2022 22:26:58 GMT",'
    b'"Description":"Virtual machine is being paused because of a memory-preserving Live '
    b'Migration operation.","EventSource":"Platform","DurationInSeconds":5}]}'
)
REQUEST = f"GET {TARGET} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode()

NGINX = """
daemon off; master_process off; worker_processes 1; pid {built}/nginx.pid;
error_log /dev/null crit; worker_rlimit_nofile 20000;
events {{ worker_connections 12000; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600; tcp_nodelay on;
  server {{
    listen {address} backlog=4096;
    location = /metadata/scheduledevents {{
      default_type "application/json; charset=utf-8"; return 200 '{body}';
    }}
  }}
}}
"""


@dataclass
class Rival:
    """One server, running or stopped."""

    name: str
    port: int
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Listening address of the server."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start the server; return the seconds from its start to its first answer."""
        begun_at = time.perf_counter()
        self.process = subprocess.Popen(
            self.command,
            env=os.environ | {"GOMAXPROCS": "1"},
            preexec_fn=on_core(SERVER_CORE),  # noqa: PLW1509  this program has one thread
            stderr=subprocess.DEVNULL,
        )
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as sock:
                    sock.sendall(REQUEST)
                    if sock.recv(64).startswith(b"HTTP/1.1 200"):
                        return time.perf_counter() - begun_at
            except OSError:
                if time.perf_counter() - begun_at > START_S_MAX:
                    raise
                time.sleep(0.001)

    def stop(self) -> None:
        """Stop the server."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
            self.process = None

    def resident_kib(self) -> int:
        """Return the server's resident memory."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * (os.sysconf("SC_PAGE_SIZE") // 1024)

    def cpu_s(self) -> float:
        """Return the server's user and system processor time."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def on_core(core: int) -> Callable[[], None]:
    """Return a function that binds a child process to a core, and raises its limit of files."""

    def prepare() -> None:
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, FILES), hard))

    return prepare


def install(*programs: str) -> None:
    """Install missing programs from Debian, and print a message."""
    missing = [PACKAGES[name] for name in programs if shutil.which(name) is None]
    if missing:
        print("Installing", *missing, "with apt-get.", flush=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=True)


def build() -> list[Rival]:
    """Build the programs and return the rivals."""
    BUILT.mkdir(parents=True, exist_ok=True)
    body = BUILT / "body.json"
    body.write_bytes(BODY)
    for name in ("server", "load"):
        subprocess.run(
            ["go", "build", "-o", str(BUILT / name), str(HERE / "go" / name / "main.go")],
            env=os.environ | {"GO111MODULE": "off", "GOTOOLCHAIN": "local"},
            check=True,
        )
    limited, unlimited, go, nginx = (free_port() for _ in range(4))
    (BUILT / "nginx.conf").write_text(
        NGINX.format(built=BUILT, address=f"127.0.0.1:{nginx}", body=BODY.decode())
    )
    serve = [sys.executable, str(HERE / "serve.py")]
    return [
        # The limit is high, because all load comes from one VM.
        Rival("forewarn", limited, [*serve, f"127.0.0.1:{limited}", str(body), "1000000"]),
        Rival("forewarn, no limit", unlimited, [*serve, f"127.0.0.1:{unlimited}", str(body), "0"]),
        Rival("go", go, [str(BUILT / "server"), f"127.0.0.1:{go}", str(body)]),
        Rival("nginx", nginx, ["nginx", "-c", str(BUILT / "nginx.conf")]),
    ]
