"""Two libvirt hosts and a control node on this machine, each in namespaces of its own.

A host is the first process of a PID namespace: where that is killed, everything on the host is
gone at once, as where the power fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from libvirt_tests import guest_image, host_settings
from libvirt_tests.guest_image import GuestImage
from tests.e2e.cloud import environment
from tests.waiting import wait_until

#: What the laboratory needs besides Python and the guests' files.
PROGRAMS = (
    *("libvirtd", "qemu-system-x86_64", "virsh", "unshare", "nsenter", "ip", "ebtables"),
    "openssl",
)
#: Longest a host or guest may take to start on a busy machine, in seconds.
WAIT_S = 300
#: A guest's disk, which both hosts reach.
DISK_BYTES = 4 * 1024 * 1024
BRIDGE_MAC = "52:54:00:fe:a9:fe"
METADATA = "169.254.169.254"
#: Element and place of what Forewarn reads of a domain; see the driver's reference.
NAMESPACE = "https://forewarn.dev/libvirt/1"

_SETTLE = """
set -e
mount --make-rprivate /
mount -t sysfs none /sys
[ -d "$1/etc" ] || cp -a /etc/libvirt "$1/etc"
for each in run var/lib/libvirt var/cache/libvirt var/log/libvirt; do
    mount -t tmpfs none /$each
done
mount --bind "$1/etc" /etc/libvirt
cp "$1"/*.conf /etc/libvirt/
mkdir -p /run/lock /run/libvirt /etc/libvirt/qemu/networks
hostname "$2"
ip link set lo up
touch "$1/settled"
while :; do sleep 1000 & wait $!; done
"""


def missing() -> str:
    """Say why there can be no laboratory here, as a sentence; empty if there can."""
    if os.geteuid() != 0:
        return "Two libvirt hosts need root, for namespaces of their own."
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"Two libvirt hosts need {', '.join(absent)}: run tools/system."
    try:
        import libvirt  # noqa: F401
    except ImportError:
        return "The libvirt driver needs libvirt-python: pip install './forewarn[libvirt]'."
    said = guest_image.missing()
    return f"Guests cannot be made: {said}." if said else ""


@dataclass(slots=True)
class Node:
    """A machine of the laboratory: the control node, or a libvirt host."""

    name: str
    address: str
    directory: Path
    #: The process that holds its namespaces; what it started ends with it.
    holder: subprocess.Popen[bytes] | None = None
    #: Programs of this node, by name.
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """Where its libvirtd is reached from the other nodes."""
        return f"qemu+tcp://{self.address}/system"

    @property
    def pki(self) -> Path:
        """Where its certificates are, by the names that libvirt and QEMU look for."""
        return self.directory / "pki"

    def tls_uri(self, pki: Path) -> str:
        """Where its libvirtd is reached from the other nodes by TLS, with these certificates."""
        return f"qemu+tls://{self.address}/system?pkipath={pki}"

    @property
    def local_uri(self) -> str:
        """Where this machine's own programs reach its libvirtd."""
        top = Path("/proc", str(self.init), "root")  # of its own mounts
        return f"qemu+unix:///system?socket={top}/run/libvirt/libvirt-sock"

    @property
    def init(self) -> int:
        """The first process of its PID namespace, as this machine numbers it."""
        assert self.holder is not None, self
        path = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        return int(path.read_text().split()[0])

    def inside(self, *command: str) -> tuple[str, ...]:
        """Return a command as it is run on this node."""
        return (
            "nice",
            "-n",
            "5",
            "nsenter",
            "-t",
            str(self.init),
            "-n",
            "-m",
            "-u",
            "-p",
            *command,
        )

    def run(self, *command: str, check: bool = True) -> str:
        """Run a program on this node to its end, and return what it printed."""
        done = subprocess.run(
            self.inside(*command),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=environment(),
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, *command: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a program on this node; what it prints is in `log(name)`."""
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                self.inside(*command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment() | more,
            )
        self.programs[name] = process
        return process

    def log(self, name: str) -> Path:
        """Where a program's output goes."""
        return self.directory / f"{name}.log"

    def boot(self) -> None:
        """Take the node into being, with nothing on it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "settled").unlink(missing_ok=True)
        kinds = ("--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        with_us = ("setpriv", "--pdeathsig", "KILL")  # also where this process is killed
        words = (str(self.directory), self.name)
        with self.log("node").open("ab") as output:
            self.holder = subprocess.Popen(
                [*with_us, "unshare", *kinds, "sh", "-c", _SETTLE, "sh", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(
            (self.directory / "settled").exists, what=f"node {self.name} to settle", limit_s=WAIT_S
        )

    def kill(self) -> None:
        """End everything on the node at once."""
        if self.holder is None:
            return
        self.holder.kill()  # and with it, by `--kill-child`, the namespace's first process
        self.holder.wait(WAIT_S)
        for process in self.programs.values():
            process.kill()
            process.wait(WAIT_S)
        self.programs.clear()
        self.holder = None


class Laboratory:
    """A control node and libvirt hosts, `h1` and `h2` by default."""

    def __init__(self, directory: Path, hosts: tuple[str, ...] = ("h1", "h2")) -> None:
        """Make nothing yet."""
        self.directory = directory
        self.control = Node("control", "10.78.0.254", directory / "control")
        self.hosts = {
            name: Node(name, f"10.78.0.{number}", directory / name)
            for number, name in enumerate(hosts, 1)
        }
        #: The authority that all nodes trust, and what it has signed.
        self.authority = directory / "authority"
        #: Guests' consoles: what they print there.
        self.consoles = directory / "consoles"
        self._uuids = {name: str(uuid.uuid4()) for name in ("control", *self.hosts)}

    def make(self) -> None:
        """Start the nodes and their libvirtd."""
        self.consoles.mkdir(parents=True)
        for node in (self.control, *self.hosts.values()):
            node.directory.mkdir(parents=True)
        for node in (self.control, *self.hosts.values()):
            self.configure(node)
        self.control.boot()
        self.control.run("ip", "link", "add", "lab0", "type", "bridge")
        self.control.run("ip", "address", "add", f"{self.control.address}/24", "dev", "lab0")
        self.control.run("ip", "link", "set", "lab0", "up")
        for name in self.hosts:
            self.power_on(name)

    def remove(self) -> None:
        """End everything that was started here."""
        for node in (*self.hosts.values(), self.control):
            node.kill()

    def power_on(self, name: str) -> None:
        """Start a host: its network, and its libvirtd."""
        node = self.hosts[name]
        node.boot()
        # The same each time, as a real card's: neighbours go on asking for the one they know.
        mac = f"52:54:00:78:00:{node.address.rpartition('.')[2]:>02}"
        peer = ("type", "veth", "peer", "name", "lan0", "address", mac, "netns", str(node.init))
        self.control.run("ip", "link", "delete", f"to-{name}", check=False)
        # The other end is named by a process as this machine numbers it, so not from inside.
        control_net = ("nsenter", "-t", str(self.control.init), "-n")
        subprocess.run([*control_net, "ip", "link", "add", f"to-{name}", *peer], check=True)
        self.control.run("ip", "link", "set", f"to-{name}", "master", "lab0", "up")
        node.run("ip", "address", "add", f"{node.address}/24", "dev", "lan0")
        node.run("ip", "link", "set", "lan0", "up")
        # The same on every host: what a guest has learned of it stays true where it is moved to.
        node.run("ip", "link", "add", "br0", "address", BRIDGE_MAC, "type", "bridge")
        node.run("ip", "address", "add", f"{METADATA}/32", "dev", "br0")
        node.run("ip", "address", "add", "10.77.0.1/24", "dev", "br0")
        node.run("ip", "link", "set", "br0", "up")
        self.start_libvirtd(name)

    def power_off(self, name: str) -> None:
        """Take a host's power away."""
        self.hosts[name].kill()

    def start_libvirtd(self, name: str) -> None:
        """Start a host's libvirtd, and wait until it answers."""
        node = self.hosts[name]
        node.start("libvirtd", "libvirtd", "--listen")
        wait_until(
            lambda: "against daemon" in node.run("virsh", "version", "--daemon", check=False),
            what=f"libvirtd of {name}",
            limit_s=WAIT_S,
        )

    def kill_libvirtd(self, name: str) -> None:
        """SIGKILL a host's libvirtd; its guests go on."""
        node = self.hosts[name]
        node.run("sh", "-c", 'kill -9 "$(cat /run/libvirtd.pid)"')
        node.programs.pop("libvirtd").wait(WAIT_S)

    def define(self, host: str, guest: Guest, *, start: bool = True) -> None:
        """Define a guest on a host, and start it."""
        node = self.hosts[host]
        path = node.directory / f"{guest.name}.xml"
        disk = self.consoles.parent / f"{guest.name}.disk"
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
            make = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin")
            assert make is not None
            subprocess.run([make, "-q", str(disk)], check=True)
        path.write_text(guest.xml(self.consoles))
        node.run("virsh", "define", str(path))
        if start:
            node.run("virsh", "start", guest.name)

    def console(self, guest: str) -> list[str]:
        """Return the lines that a guest's own programs have said, on whatever host."""
        return [line for line in self.text(guest).splitlines() if line.startswith("GUEST ")]

    def text(self, guest: str) -> str:
        """Return all that a guest's console has."""
        path = self.consoles / guest
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def configure(self, node: Node) -> None:
        """Write the settings of a node's libvirtd, and its certificates."""
        addresses = {each.name: each.address for each in (self.control, *self.hosts.values())}
        host_settings.give_certificate(self.authority, node.name, node.pki, addresses=addresses)
        host_settings.write_settings(
            node.directory, pki=node.pki, address=node.address, host_uuid=self._uuids[node.name]
        )


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest of the laboratory."""

    name: str
    number: int
    image: GuestImage
    #: Its group; empty: it stands alone.
    group: str = ""
    role: str = "poller"
    #: Whether a poller approves what it is shown.
    approves: bool = False
    #: An address that is another's, which it tries to ask from.
    spoofs: str = ""
    spot: bool = False

    @property
    def address(self) -> str:
        """What it asks from."""
        return f"10.77.0.{self.number}"

    @property
    def uuid(self) -> str:
        """What libvirt and a metadata proxy call it."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}.laboratory.test"))

    def xml(self, consoles: Path) -> str:
        """Return its definition."""
        words = [f"guest.name={self.name}", f"guest.address={self.address}"]
        words += [f"guest.role={self.role}", f"guest.spoofs={self.spoofs}"]
        words += [f"guest.approves={'yes' if self.approves else ''}"]
        group = f' group="{self.group}"' if self.group else ""
        spot = ' spot="true"' if self.spot else ""
        return f"""<domain type='qemu'>
  <name>{self.name}</name>
  <uuid>{self.uuid}</uuid>
  <metadata><forewarn:vm xmlns:forewarn="{NAMESPACE}"{group}{spot}/></metadata>
  <memory unit='MiB'>{self.image.memory_mib}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{self.image.kernel}</kernel>
    <initrd>{self.image.initramfs}</initrd>
    <cmdline>console=ttyS0 quiet panic=-1 {" ".join(words)}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='custom' match='exact'><model>qemu64</model></cpu>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:{self.number:02x}'/>
      <source bridge='br0'/>
      <model type='virtio'/>
      <filterref filter='clean-traffic'>
        <parameter name='IP' value='{self.address}'/>
      </filterref>
    </interface>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='{consoles.parent / self.name}.disk'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <serial type='file'><source path='{consoles / self.name}' append='on'/></serial>
    <memballoon model='none'/>
    <controller type='usb' model='none'/>
  </devices>
</domain>
"""


@contextlib.contextmanager
def laboratory_in(directory: Path, hosts: tuple[str, ...] = ("h1", "h2")) -> Iterator[Laboratory]:
    """Make a laboratory, and take it away again, also where only half of it was made."""
    laboratory = Laboratory(directory, hosts)
    before = signal.getsignal(signal.SIGTERM)
    try:
        laboratory.make()
        yield laboratory
    finally:
        signal.signal(signal.SIGTERM, before)
        laboratory.remove()
