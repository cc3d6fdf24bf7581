"""The Pacemaker preparation against real Corosync and Pacemaker, in namespaces of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.programs import program

SCRIPT = Path(__file__).parent / "pacemaker.sh"


@pytest.mark.slow
@pytest.mark.netns
def test_resources_leave_the_node_and_come_back(tmp_path: Path) -> None:
    """Standby before the event, online after it. Source: C-3."""
    if os.geteuid() != 0:
        pytest.skip("namespaces and Corosync need root")
    for name in (
        "unshare",
        "corosync",
        "pacemakerd",
        "crm_standby",
        "crm_mon",
    ):
        program(name)
    apart = ("unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--mount-proc")
    done = subprocess.run(
        [*apart, "bash", str(SCRIPT), str(tmp_path), sys.executable],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout
    assert "node-1 is in standby, and no resource runs on it" in said, said + done.stderr
    before, _, after = said.partition("no resource runs on it")
    assert "Started node-1" in before
    assert "Node node-1: standby" in after
    assert "Started node-1" in after.partition("node-1 is online again")[2]
