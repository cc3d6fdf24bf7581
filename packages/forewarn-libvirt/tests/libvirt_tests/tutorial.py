"""The libvirt tutorial, its own commands run one after another: `make tutorial-libvirt`.

They are run on a host of the laboratory, whose network, libvirtd and `/srv` are its own.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from libvirt_tests import laboratory
from libvirt_tests.guest_image import REPOSITORY
from libvirt_tests.laboratory import Laboratory, Node
from tests.waiting import wait_until

PAGE = REPOSITORY / "docs" / "tutorial" / "libvirt.md"
CONSOLE = "srv/tutorial/console"
#: Longest a step may take under emulation on a busy machine, in seconds.
STEP_S = 180
#: What is done once in a clone, and what only shows what a guest says, are not run.
LEFT_OUT = ("make setup", "GUEST ")
SERVES = "forewarn serve"


def steps() -> list[str]:
    """Return the tutorial's blocks of commands, in their order."""
    found = re.findall(r"^```\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [each for each in found if not each.startswith(LEFT_OUT)]


def bare_host(lab: Laboratory) -> Node:
    """Start a host that has libvirt and nothing else."""
    lab.control.boot()
    lab.control.run("ip", "link", "add", "lab0", "type", "bridge")
    lab.power_on("h1")
    node = lab.hosts["h1"]
    node.run("ip", "link", "delete", "br0")
    node.run("mount", "-t", "tmpfs", "none", "/srv")
    return node


def follow(node: Node, say: Callable[[str], None]) -> None:
    """Do what the tutorial says."""
    console = Path("/proc", str(node.init), "root", CONSOLE)

    def said(pattern: str, times: int = 1) -> None:
        """Wait as a reader does, until the guest has said something so often."""

        def seen() -> bool:
            text = console.read_text("utf-8", "replace") if console.exists() else ""
            return len(re.findall(pattern, text)) >= times

        wait_until(seen, what=f"{pattern} on the console", limit_s=STEP_S)

    for commands in steps():
        shell = ("bash", "-ec", f"cd {REPOSITORY}; . .venv/bin/activate\n{commands}")
        say(commands.rstrip())
        if SERVES in commands:
            node.start("service", *shell)
            wait_until(lambda: "serving operators" in node.log("service").read_text())
            continue
        done = subprocess.run(
            node.inside(*shell), capture_output=True, text=True, timeout=STEP_S, check=False
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        say(done.stdout.rstrip())
        if "virsh" in commands and "start" in commands:
            said("Connection refused")
        elif "topology import" in commands:
            said(r'"DocumentIncarnation":0,"Events":\[\]')
        elif "vm reboot" in commands:
            said("GUEST web_0 up", 2)
    assert not console.exists(), "the tutorial leaves something behind"


def main() -> None:
    """Run it, and print what a reader sees."""
    if reason := laboratory.missing():
        sys.exit(f"tutorial: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        lab = Laboratory(Path(folder))
        try:
            for node in (lab.control, lab.hosts["h1"]):
                node.directory.mkdir(parents=True)
                lab.configure(node)
            follow(bare_host(lab), lambda text: print(text, flush=True))
        finally:
            lab.remove()


if __name__ == "__main__":
    main()
