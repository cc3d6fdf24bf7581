"""Commands of the configuration that do something to a host: what they see, cost and leave."""

from pathlib import Path

import pytest

from forewarn_drivers.host_command import CommandFailed, HostCommand
from tests.waiting import wait_until


def run(script: str, *, timeout_s: int = 60) -> None:
    """Run a shell script as a command of host h1."""
    HostCommand("reboot_command", ("sh", "-c", script), timeout_s).run("h1", {"uri": "u"})


def test_host_command_is_given_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators' tokens stay with the service."""
    monkeypatch.setenv("FOREWARN_AZURE_TOKEN_KEY", "anna:secret")
    run('test {host} = h1 && test -n "$PATH" && test -z "$FOREWARN_AZURE_TOKEN_KEY"')


def test_host_command_that_prints_for_ever_is_ended() -> None:
    """Its output is not kept."""
    with pytest.raises(CommandFailed, match="printed more than"):
        run("yes")


def test_host_command_leaves_nothing_behind_when_it_takes_too_long(tmp_path: Path) -> None:
    """What it has started ends with it."""
    with pytest.raises(CommandFailed, match="not ended within 2 s"):
        run(f"sleep 600 & echo $! > {tmp_path}/child; wait", timeout_s=2)
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    wait_until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")
