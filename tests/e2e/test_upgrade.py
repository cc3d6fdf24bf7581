"""Three control planes go from version N to N+1 and back, while VMs poll. Source: H-8."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_base import exit_codes
from forewarn_base.version import version
from tests.e2e.next_version import STEP, VERSION
from tests.e2e.planes import FLEET, SLACK_S, TERM_S, TOKEN, Plane, running_planes
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

NOW, NEXT = "forewarn_server.cli.main", "tests.e2e.next_version"


class Polls:
    """A VM that knows every control plane, asks the next one where one fails, and notes gaps."""

    def __init__(self, planes: list[Plane]) -> None:
        """Begin to poll."""
        self.gaps_s: list[float] = []
        self.count = 0
        self._planes = planes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Poll no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        last_s, failed = time.monotonic(), False
        while not self._stopping.wait(0.25):  # below the rate limit of a VM
            if not any(self._asked(plane) for plane in self._planes):
                failed = True
                continue
            now_s = time.monotonic()
            if failed:
                self.gaps_s.append(now_s - last_s)
            last_s, failed, self.count = now_s, False, self.count + 1

    def _asked(self, plane: Plane) -> bool:
        try:
            return plane.poll() == 200
        except (OSError, http.client.HTTPException):
            return False


@pytest.fixture
def planes(tmp_path: Path, postgres_address: str) -> Iterator[list[Plane]]:
    """Three control planes of this version; the first is active."""
    with running_planes(tmp_path, postgres_address, 3) as planes:
        yield planes


def forewarn(program: str, plane: Plane, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of a version against a control plane."""
    command = [sys.executable, "-m", program, "--json", *words]
    environment = {"FOREWARN_SERVER": f"http://127.0.0.1:{plane.port}", "FOREWARN_TOKEN": TOKEN}
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def checked(program: str, plane: Plane) -> dict[str, Any]:
    """Return what `upgrade check` of a version says."""
    done = forewarn(program, plane, "upgrade", "check", "--store", plane.address)
    assert done.returncode == exit_codes.OK, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def versions(program: str, plane: Plane) -> set[str]:
    """Return the versions of the control planes that run."""
    return {each["version"] for each in checked(program, plane)["processes"]}


def roll(planes: list[Plane], program: str) -> int:
    """Restart the followers as a version, then the active process; return the takeovers."""
    [active] = [plane for plane in planes if plane.says(200)]
    for plane in planes:
        if plane is not active:
            restart(plane, program)
    assert forewarn(program, planes[0], "leader", "step-down").returncode == 0
    assert active.process.wait(LIMIT_S) == 0
    wait_until(lambda: any(plane.says(200) for plane in planes))
    active.start(program)
    wait_until(lambda: active.says(503))
    return 1


def restart(plane: Plane, program: str) -> None:
    """Stop a follower in order, and start it as a version."""
    plane.end(signal.SIGTERM)
    plane.start(program)
    wait_until(lambda: plane.says(503))


def test_versions_change_under_load(planes: list[Plane]) -> None:
    """No poll fails but during a takeover, no change is lost, whichever version leads."""
    assert planes[0].ask("PUT", "/v1/topology", FLEET)[0] == 200
    assert planes[0].poll() == 200
    # A follower of the next version migrates nothing: it does not start before the command.
    planes[2].end(signal.SIGTERM)
    planes[2].start(NEXT)
    assert planes[2].process.wait(LIMIT_S) != 0
    planes[2].start()
    wait_until(lambda: planes[2].says(503))
    before = checked(NEXT, planes[0])
    assert (before["beside"], before["steps"]) == (True, [STEP.name])
    polls, takeovers, hosts = Polls(planes), 0, 0
    try:
        done = forewarn(NEXT, planes[0], "store", "upgrade", "--store", planes[0].address)
        assert done.returncode == 0, done.stderr
        for program, running in ((NEXT, VERSION), (NOW, version())):
            takeovers += roll(planes, program)
            wait_until(lambda: versions(program, planes[0]) == {running}, every_s=0.5)  # noqa: B023
            assert checked(program, planes[0])["next"].startswith("Every control plane")
            status, _ = planes[1].ask(
                "PUT", f"/v1/hosts/x{hosts}", {"fault_domain": 0}, f"k{hosts}"
            )
            assert status < 300
            hosts += 1
    finally:
        polls.stop()
    assert polls.count > 10
    assert len(polls.gaps_s) <= takeovers
    assert max(polls.gaps_s, default=0) <= TERM_S + SLACK_S
    # The process that is asked may follow, a moment behind the one that answered the change.
    wait_until(lambda: len(planes[0].ask("GET", "/v1/hosts")[1]["hosts"]) == 2 + hosts)
