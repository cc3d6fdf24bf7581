"""A service whose standard error is a pipe that nobody reads. Source: H-3."""

import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_core.access.roles import Role
from tests.access import seed_token
from tests.e2e.planes import FLEET, Plane
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX"),
]


class Unread(Plane):
    """A service with its log in a pipe."""

    def start(self, program: str = "forewarn_server.cli.main") -> None:
        """Start it, and read nothing."""
        words = [sys.executable, "-m", program, *self._serve]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE)

    def wait_started(self, path: str) -> None:
        """Wait until it answers 200."""
        wait_until(lambda: self.says(200, path))


@pytest.mark.parametrize("workers", ["0", "1"])
def test_service_goes_on_while_nobody_reads_its_log(
    workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VMs and operators are answered after more than a pipe takes, and the log is whole."""
    monkeypatch.setenv("FOREWARN_LISTEN_WORKERS", workers)
    address = f"sqlite:///{tmp_path}/forewarn.db"
    seed_token(address, "tester", Role.ADMIN)
    plane = Unread(tmp_path, address, "unread")
    try:
        plane.wait_started("/ready")
        hosts: dict[str, object] = {
            f"a-host-with-a-long-name-{number:05}": {} for number in range(2000)
        }
        assert plane.ask("PUT", "/v1/topology", {**FLEET, "hosts": {**FLEET["hosts"], **hosts}})[0]
        for number in range(3):  # each is a commit, and a line
            assert plane.ask("PUT", f"/v1/hosts/late-{number}", {"fault_domain": 0})[0] < 300
            wait_until(lambda: plane.poll() == 200)
        plane.process.terminate()
        _, log = plane.process.communicate()
        assert len(log) > 2 * 65536
        assert b"host late-2" in log
        assert b"dropped" not in log
    finally:
        if plane.process.poll() is None:
            plane.process.kill()
            plane.process.communicate()
