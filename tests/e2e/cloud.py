"""A host and its VMs as network namespaces, with a service at 169.254.169.254:80 on the host.

Each VM has a cable of its own to the host and reaches nothing else.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import LIMIT_S, wait_until

ADDRESS = "169.254.169.254"
URL = f"http://{ADDRESS}/metadata/scheduledevents?api-version=2020-07-01"
FOREWARN = (sys.executable, "-m", "forewarn_server.cli.main")


@dataclass(frozen=True, slots=True)
class Vm:
    """A namespace with one cable to the host."""

    name: str
    number: int
    host: str

    @property
    def namespace(self) -> str:
        """The name the system knows it by."""
        return f"{self.host}-{self.name}"

    @property
    def address(self) -> str:
        """Its own end of the cable."""
        return f"10.78.{self.number}.2"

    @property
    def tap(self) -> str:
        """The host's end of the cable."""
        return f"tap{self.number}"

    def run(self, *command: str) -> str:
        """Run a program in it to its end, and return what it printed."""
        return inside(self.namespace, *command)


class Cloud:
    """The namespaces; programs run in the host's or in a VM's."""

    def __init__(self, names: Sequence[str]) -> None:
        """Make nothing yet."""
        self.host = f"forewarn-{os.getpid()}"
        self.vms = {name: Vm(name, n, self.host) for n, name in enumerate(names, 1)}

    def run(self, *command: str) -> str:
        """Run a program on the host to its end, and return what it printed."""
        return inside(self.host, *command)

    def operator(self, *words: str) -> str:
        """Run a command as the operator does, on the host."""
        return self.run(*FOREWARN, *words)

    def make(self) -> None:
        """Lay the cables."""
        assert shutil.which("ip"), "iproute2 is missing: apt-get install iproute2"
        run("ip", "netns", "add", self.host)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        for vm in self.vms.values():
            run("ip", "netns", "add", vm.namespace)
            cable = ("type", "veth", "peer", "eth0", "netns", vm.namespace)
            self.run("ip", "link", "add", vm.tap, *cable)
            self.run("ip", "address", "add", f"10.78.{vm.number}.1/24", "dev", vm.tap)
            self.run("ip", "link", "set", vm.tap, "up")
            vm.run("ip", "address", "add", f"{vm.address}/24", "dev", "eth0")
            vm.run("ip", "link", "set", "eth0", "up")
            vm.run("ip", "route", "add", ADDRESS, "dev", "eth0")

    def remove(self) -> None:
        """Take everything away, also where only half of it was made."""
        for namespace in (*(vm.namespace for vm in self.vms.values()), self.host):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)

    @contextlib.contextmanager
    def start(
        self, log: Path, *command: str, namespace: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program on the host, or elsewhere; what it prints is in the log.

        It is asked to end with the block, and must end well, then or by itself before.
        """
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", namespace or self.host, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
            )
        try:
            yield process
        finally:
            process.terminate()
            status = process.wait(LIMIT_S)
        assert status == 0, f"{command} ended with {status}: {log.read_text()}"


def inside(namespace: str, *command: str) -> str:
    """Run a program in a namespace to its end, and return what it printed."""
    return run("ip", "netns", "exec", namespace, *command)


def run(*command: str) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment()
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def environment() -> dict[str, str]:
    """What programs are given: the tests' own, and where our package is."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def wait_for_line(log: Path, word: str) -> None:
    """Wait until a program has said a word."""

    def said() -> bool:
        return any(word in line for line in log.read_text().splitlines(keepends=True))

    wait_until(said, what=f"{word!r} in {log.name}")


@contextlib.contextmanager
def cloud_of(names: Sequence[str]) -> Iterator[Cloud]:
    """Make a host and these VMs."""
    cloud = Cloud(names)
    try:
        cloud.make()
        yield cloud
    finally:
        cloud.remove()
