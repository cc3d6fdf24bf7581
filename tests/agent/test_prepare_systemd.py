"""The systemd preparation, and the agent's own unit, under a real systemd as PID 1."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.programs import program
from tests.waiting import wait_until

SCRIPT = Path(__file__).parent / "systemd.sh"
UNIT = Path(__file__).parents[2] / "dist" / "agent" / "forewarn-agent.service"
APART = ("unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--cgroup", "--fork")
BARE = "[Unit]\nDefaultDependencies=no\n"

STORY = """
export FOREWARN_STATE=$PWD/notes
mkdir -p $FOREWARN_STATE
phase() { echo '{}' | {python} -m forewarn.agent do systemd $1; systemctl is-active web other; }
export FOREWARN_SETTINGS='{"units": ["web.service", "other.service"]}'
phase prepare
phase recover
systemctl show -p ActiveState -p StatusText forewarn-agent
systemctl kill --signal=KILL forewarn-agent
while [ "$(systemctl show -p NRestarts --value forewarn-agent)" = 0 ]; do :; done
while [ "$(systemctl is-active forewarn-agent)" != active ]; do :; done
echo it is up again
echo end
"""


@pytest.mark.slow
@pytest.mark.netns
def test_units_are_stopped_and_only_the_active_started_again(tmp_path: Path) -> None:
    """Under systemd: stop, start, readiness, status, restart after a crash. Source: C-3."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    program("unshare")
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("systemd is not installed")
    here = "/run/fw-scratch"
    for name in ("web", "other"):
        (tmp_path / f"{name}.service").write_text(f"{BARE}[Service]\nExecStart=/bin/sleep 1000\n")
    (tmp_path / "story").write_text(STORY.replace("{python}", sys.executable))
    (tmp_path / "story.service").write_text(
        f"{BARE}After=web.service forewarn-agent.service\n[Service]\nType=oneshot\n"
        f"WorkingDirectory={here}\nExecStart=/bin/bash {here}/story\n"
        f"StandardOutput=file:{here}/said\nStandardError=file:{here}/said\n"
    )
    run = f"ExecStart=\nExecStart={sys.executable} -m forewarn.agent run --config {here}/a.toml\n"
    unit = UNIT.read_text().replace("[Unit]\n", BARE).replace("StateDirectory=forewarn-agent\n", "")
    (tmp_path / "forewarn-agent.service").write_text(
        unit.replace("[Install]", f"{run}\n[Install]").replace("After=network-online.target\n", "")
    )
    endpoint = 'endpoint = "http://127.0.0.1:1"'
    (tmp_path / "a.toml").write_text(f'[agent]\nname = "vm"\n{endpoint}\nstate_dir = "{here}/st"\n')
    (tmp_path / "fw-test.target").write_text(
        f"{BARE}Requires=web.service forewarn-agent.service story.service\n"
    )
    said = tmp_path / "said"
    with (tmp_path / "log").open("wb") as log:
        command = (*APART, "--mount-proc", "--kill-child", "bash", str(SCRIPT), str(tmp_path))
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(
            lambda: (
                process.poll() is not None or (said.exists() and said.read_text().endswith("end\n"))
            ),
            what="the story's end",
            limit_s=30,
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        print((tmp_path / "log").read_text()[-3000:], said.exists() and said.read_text())
    if not said.exists() and "not permitted" in (tmp_path / "log").read_text():
        pytest.skip("this machine lets nobody make namespaces")
    text = said.read_text()
    assert "stopped: web.service\ninactive\ninactive\n" in text
    assert "start: web.service\nactive\ninactive\n" in text
    assert "ActiveState=active" in text
    assert "StatusText=The metadata service does not answer" in text
    assert "it is up again" in text
