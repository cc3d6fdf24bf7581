"""The systemd preparation, the agent's unit and its delay lock, under a real systemd as PID 1."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.programs import program
from tests.waiting import LIMIT_S, wait_until

SCRIPT = Path(__file__).parent / "systemd.sh"
UNIT = Path(__file__).parents[2] / "dist" / "agent" / "forewarn-agent.service"
APART = ("unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--cgroup", "--fork")
BARE = "[Unit]\nDefaultDependencies=no\n"
HERE = "/run/fw-scratch"
MAIN = "import sys; from forewarn_server.cli.main import main; sys.exit(main())"

UNITS_STORY = """
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

SHUTDOWN_STORY = """
login1="org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
until systemd-inhibit --list | grep Forewarn; do :; done
systemctl reboot --no-wall
until busctl get-property $login1 PreparingForShutdown | grep true; do :; done
echo a reboot is asked for
touch go
"""

#: A bus, logind with nothing else, an emulator, and a reboot that is only told of.
LOGIND = {
    "sysinit.target": BARE,
    "systemd-reboot.service": f"{BARE}[Service]\nExecStart=/bin/true\n",
    "dbus.socket": f"{BARE}[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": f"{BARE}Requires=dbus.socket\n[Service]\nType=notify\nNotifyAccess=main\n"
    "ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile "
    "--systemd-activation\n",
    "systemd-logind.service": f"{BARE}Requires=dbus.service\nAfter=dbus.service\n"
    "[Service]\nType=dbus\nBusName=org.freedesktop.login1\n"
    f"ExecStartPre=/bin/mkdir -p /run/systemd/logind.conf.d /run/systemd/inhibit\n"
    f"ExecStartPre=/bin/cp {HERE}/logind.conf /run/systemd/logind.conf.d/\n"
    "ExecStart=/lib/systemd/systemd-logind\n",
    "reboot.target": f"{BARE}Requires=rebooted.service\nAfter=rebooted.service\n",
    "rebooted.service": f"{BARE}[Service]\nType=oneshot\n"
    f"ExecStart=/bin/sh -c 'echo it reboots; echo end'\nStandardOutput=append:{HERE}/said\n",
    "emulate.service": f"{BARE}[Service]\nExecStart={sys.executable} -c '{MAIN}' emulate "
    "--listen 127.0.0.1:8080 --operator-listen none --scenario host-reboot --speed 1\n",
    "logind.conf": "[Login]\nInhibitDelayMaxSec=10min\n",
}


def boot(scratch: Path, story: str, settings: str, *, needs: str) -> str:
    """Let systemd run a story beside an agent with some settings; return what the story said.

    Args:
        scratch: The test's own directory, `HERE` for those inside; further units may be in it.
        story: What bash runs; its end is the word `end`, by whomever it is said.
        settings: The agent's, as TOML.
        needs: The units that are started besides.
    """
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    program("unshare")
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("systemd is not installed")
    if sys.executable.startswith(("/tmp/", "/var/tmp/")):
        pytest.skip("the checkout is in /tmp, and systemd here has a /tmp of its own")
    (scratch / "story").write_text(story.replace("{python}", sys.executable))
    (scratch / "story.service").write_text(
        f"{BARE}After={needs}\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\n"
        f"WorkingDirectory={HERE}\nExecStart=/bin/bash {HERE}/story\n"
        f"StandardOutput=append:{HERE}/said\nStandardError=append:{HERE}/said\n"
    )
    run = f"ExecStart=\nExecStart={sys.executable} -m forewarn.agent run --config {HERE}/a.toml\n"
    unit = UNIT.read_text().replace("[Unit]\n", BARE).replace("StateDirectory=forewarn-agent\n", "")
    (scratch / "forewarn-agent.service").write_text(
        unit.replace("[Install]", f"{run}\n[Install]").replace("After=network-online.target\n", "")
    )
    (scratch / "a.toml").write_text(f'[agent]\nstate_dir = "{HERE}/st"\n{settings}')
    (scratch / "fw-test.target").write_text(f"{BARE}Requires={needs} story.service\n")
    said, log = scratch / "said", scratch / "log"
    with log.open("wb") as output:
        command = (*APART, "--mount-proc", "--kill-child", "bash", str(SCRIPT), str(scratch))
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(
            lambda: (
                process.poll() is not None or (said.exists() and said.read_text().endswith("end\n"))
            ),
            what="the story's end",
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)
        print(log.read_text()[-5000:], said.exists() and said.read_text())
    if not said.exists() and "not permitted" in log.read_text():
        pytest.skip("this machine lets nobody make namespaces")
    return said.read_text()


@pytest.mark.slow
@pytest.mark.netns
def test_units_are_stopped_and_only_the_active_started_again(tmp_path: Path) -> None:
    """Under systemd: stop, start, readiness, status, restart after a crash. Source: C-3."""
    for name in ("web", "other"):
        (tmp_path / f"{name}.service").write_text(f"{BARE}[Service]\nExecStart=/bin/sleep 1000\n")
    settings = 'name = "vm"\nendpoint = "http://127.0.0.1:1"\n'
    text = boot(tmp_path, UNITS_STORY, settings, needs="web.service forewarn-agent.service")
    assert "stopped: web.service\ninactive\ninactive\n" in text
    assert "start: web.service\nactive\ninactive\n" in text
    assert "ActiveState=active" in text
    assert "StatusText=The metadata service failed temporarily" in text
    assert "it is up again" in text


@pytest.mark.slow
@pytest.mark.netns
def test_reboot_waits_for_the_preparation(tmp_path: Path) -> None:
    """The reboot is held back until the hook has ended, and no longer. Source: C-3."""
    for tool in ("dbus-daemon", "systemd-inhibit", "busctl", "ip"):
        program(tool)
    if not Path("/lib/systemd/systemd-logind").exists():
        pytest.skip("logind is not installed")
    for name, text in LOGIND.items():
        (tmp_path / name).write_text(text)
    hook = f"until [ -e {HERE}/go ]; do :; done; echo prepared >>{HERE}/said"
    settings = (
        'endpoint = "http://127.0.0.1:8080"\ninhibit_shutdown = true\ninterval_s = 0.1\n'
        f'[step.work]\nprepare = ["sh", "-c", "{hook}"]\n'
    )
    needs = "emulate.service systemd-logind.service forewarn-agent.service"
    text = boot(tmp_path, SHUTDOWN_STORY, settings, needs=needs)
    held, _, rest = text.partition("a reboot is asked for\n")
    assert "Forewarn agent" in held
    assert rest.split("\n")[:2] == ["prepared", "it reboots"]
