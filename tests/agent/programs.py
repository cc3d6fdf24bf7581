"""Real programs for the tests of the preparations: where they are, and how one is started."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from forewarn.agent.preparations.wait_until import until
from tests.waiting import LIMIT_S

#: Where programs are besides the path. FOREWARN_TEST_BIN is scrubbed; TEST_PROGRAMS names more.
PLACES = ("/usr/sbin", "/usr/local/bin", "/usr/lib/postgresql/15/bin")

EVENT = {"event_id": "E1", "event_type": "Reboot", "resources": ["vm_0"]}
PORTS = range(20_000, 32_000)
RESERVED_MAX = 64
#: UDP sockets at the ports given last: while they are open, no other worker is given these.
RESERVED: list[socket.socket] = []


def program(name: str) -> str:
    """Return the path of a program, or skip the test where it is not installed."""
    path = os.pathsep.join([os.environ.get("TEST_PROGRAMS", ""), os.environ["PATH"], *PLACES])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"{name} is not installed; put it on the path or into TEST_PROGRAMS")
    return found


def free_port() -> int:
    """Return a port of the loopback that nobody uses.

    It is none that the system gives to outgoing connections: such a connection could take it
    while the program it is for is being restarted.
    """
    for port in random.sample(PORTS, 100):
        reserved = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reserved.bind(("127.0.0.1", port))
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("127.0.0.1", port))
        except OSError:
            reserved.close()
            continue
        RESERVED.append(reserved)
        if len(RESERVED) > RESERVED_MAX:
            RESERVED.pop(0).close()
        return port
    raise AssertionError("a hundred ports are in use")


def answers(port: int) -> bool:
    """Tell whether somebody listens on a port of the loopback."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(
    *command: str, log: Path, user: int | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, its output in a file, and end it and all it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=log.parent,  # another user may not enter the one the tests are run in
            user=user,
            env={**os.environ, **(env or {})},
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)


def do(
    name: str, phase: str, settings: Mapping[str, object], state: Path, *, seconds: int = 60
) -> subprocess.CompletedProcess[str]:
    """Run a phase of a ready-made preparation as the agent does."""
    from forewarn_base.clock import SystemClock

    state.mkdir(exist_ok=True)
    hook = {"phase": phase, "name": "vm_0", "event": EVENT}
    env = {
        **os.environ,
        "FOREWARN_SETTINGS": json.dumps(settings),
        "FOREWARN_STATE": str(state),
        "FOREWARN_DEADLINE": str(SystemClock().now_ms() // 1000 + seconds),
    }
    command = [sys.executable, "-m", "forewarn.agent", "do", name, phase]
    return subprocess.run(
        command, input=json.dumps(hook), env=env, capture_output=True, text=True, check=False
    )


def done(name: str, phase: str, settings: Mapping[str, object], state: Path) -> str:
    """Run a phase that must succeed, and return what it says."""
    result = do(name, phase, settings, state)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


__all__ = ["answers", "do", "done", "free_port", "program", "running", "until"]
