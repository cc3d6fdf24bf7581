"""Kernel and initramfs of the laboratory's guests: a poller of busybox, or the real agent.

Nothing is started here. Files come from Debian's packages; see `tools/system`.
`python -m libvirt_tests.guest_image DIRECTORY`, with these tests on PYTHONPATH, makes the poller
there, for the tutorial.
"""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
#: Where `tools/system` unpacks Debian's cloud kernel.
KERNEL = REPOSITORY / ".build" / "guest-kernel"
#: In the order of their needs.
MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_blk",
    "evdev",
    "button",
)
#: What the agent's interpreter needs of its standard library is all but these.
LEFT_OUT = ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data", "__pycache__")
#: The power button, pressed, ends the guest: what a polite shutdown is.
_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /etc/acpi/PWRF /var/lib/forewarn-agent /run
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
mount -t tmpfs none /run
exec >/dev/ttyS0 2>&1
for each in $(cat /modules/order); do insmod /modules/$each.ko; done
set -a
for word in $(cat /proc/cmdline); do case $word in guest.*) eval "${word#guest.}" ;; esac; done
printf '#!/bin/sh\\nsync; poweroff -f\\n' >/etc/acpi/PWRF/00000080; chmod +x /etc/acpi/PWRF/00000080
acpid -d >/dev/null 2>&1 &
hostname $name
mount -t ext4 /dev/vda /var/lib/forewarn-agent
ip link set lo up; ip address add $address/24 dev eth0; ip link set eth0 up
ip route add 169.254.169.254 dev eth0
read uuid </proc/sys/kernel/random/boot_id
echo "GUEST $name up boot=$uuid"
exec sh /guest-$role
"""
#: Polls once a second; approves what it is shown where it is told to; takes another's address.
_POLLER = """
url='http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'
while :; do
    said=$(timeout 5 wget -q -O - --header 'Metadata: true' "$url" 2>&1)
    echo "GUEST $name poll $(cut -d' ' -f1 /proc/uptime) $said"
    if [ -n "$approves" ]; then
        for id in $(echo "$said" | sed 's/{"EventId/\\n&/g' | grep '"Scheduled"' |
            sed -n 's/.*"EventId":"\\([^"]*\\)".*/\\1/p'); do
            timeout 5 wget -q -O /dev/null --header 'Metadata: true' \\
                --post-data "{\\"StartRequests\\":[{\\"EventId\\":\\"$id\\"}]}" "$url" &&
                echo "GUEST $name approved $id"
        done
    fi
    if [ -n "$spoofs" ]; then
        ip address add $spoofs/24 dev eth0
        ip route replace 169.254.169.254 dev eth0 src $spoofs
        echo "GUEST $name spoofed $(timeout 2 wget -q -O - --header 'Metadata: true' "$url" 2>&1)"
        ip route replace 169.254.169.254 dev eth0 src $address
        ip address del $spoofs/24 dev eth0
    fi
    sleep 1
done
"""
_AGENT = """
mkdir -p /etc/forewarn-agent
cat >/etc/forewarn-agent/agent.toml <<END
[agent]
name = "$name"
[step.work]
prepare = ["/bin/guest-step", "prepared"]
recover = ["/bin/guest-step", "recovered"]
[[rule]]
action = "prepare"
END
printf '#!/bin/sh\\necho "GUEST %s $1" >/dev/ttyS0\\n' $name >/bin/guest-step
chmod +x /bin/guest-step
sh /guest-poller &
/usr/bin/python3.11 -S -I /forewarn-agent.pyz run --config /etc/forewarn-agent/agent.toml
echo "GUEST $name agent ended $?"
poweroff -f
"""


@dataclass(frozen=True, slots=True)
class GuestImage:
    """What a guest is started from."""

    kernel: Path
    initramfs: Path
    memory_mib: int


def missing() -> str:
    """Say what guests cannot be made for, as a clause; empty if nothing is missing."""
    if not _kernel_file():
        return f"there is no guest kernel in {KERNEL.relative_to(REPOSITORY)}: run tools/system"
    busybox = shutil.which("busybox")
    if busybox is None or not _is_static(Path(busybox)):
        return "busybox-static is not installed: apt-get install busybox-static"
    return ""


def poller_image(directory: Path) -> GuestImage:
    """A guest of 96 MiB that polls with busybox."""
    return _made(directory / "poller.cpio.gz", dict(_base()), 96)


def agent_image(directory: Path) -> GuestImage | None:
    """A guest of 256 MiB that runs the real agent; None without Debian's Python."""
    python = Path("/usr/bin/python3.11")
    library = Path("/usr/lib/python3.11")
    if not (python.exists() and library.is_dir()):
        return None
    bundle = directory / "forewarn-agent.pyz"
    build = REPOSITORY / "dist" / "agent" / "build.py"
    subprocess.run([sys.executable, str(build), str(bundle)], check=True, capture_output=True)
    files = dict(_base())
    files["forewarn-agent.pyz"] = (bundle.read_bytes(), 0o644)
    for path in (python, *_shared(python), *_library(library)):
        files[str(path).lstrip("/")] = (path.read_bytes(), path.stat().st_mode & 0o777)
    return _made(directory / "agent.cpio.gz", files, 256)


def _library(library: Path) -> Iterator[Path]:
    for path in sorted(library.rglob("*")):
        parts = path.relative_to(library).parts
        if path.is_file() and not any(each in LEFT_OUT for each in parts):
            yield path
            if path.suffix == ".so":
                yield from _shared(path)


def _shared(program: Path) -> Iterator[Path]:
    """Yield the shared libraries that a program is loaded with."""
    done = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True)
    for word in done.stdout.split():
        if word.startswith("/"):
            yield Path(word)


def _kernel_file() -> Path | None:
    return next(iter(sorted(KERNEL.glob("boot/vmlinuz-*"))), None)


def _is_static(program: Path) -> bool:
    done = subprocess.run(["ldd", str(program)], check=False, capture_output=True, text=True)
    return "not a dynamic executable" in done.stdout + done.stderr


def _base() -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield what every guest has: busybox, modules and what it runs."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    yield "bin/busybox", (Path(busybox).read_bytes(), 0o755)
    yield "init", (_INIT.encode(), 0o755)
    yield "guest-poller", (_POLLER.encode(), 0o644)
    yield "guest-agent", (_AGENT.encode(), 0o644)
    found = {path.stem: path for path in KERNEL.glob("lib/modules/*/kernel/**/*.ko")}
    present = [name for name in MODULES if name in found]
    yield "modules/order", ("\n".join(present).encode(), 0o644)
    for name in present:
        yield f"modules/{name}.ko", (found[name].read_bytes(), 0o644)


def _made(path: Path, files: dict[str, tuple[bytes, int]], memory_mib: int) -> GuestImage:
    kernel = _kernel_file()
    assert kernel is not None, "ask missing() first"
    path.write_bytes(gzip.compress(_archive(files), 1))
    return GuestImage(kernel, path, memory_mib)


def _archive(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Return files as a cpio archive of the form `newc`, which the kernel unpacks."""
    entries: dict[str, tuple[bytes, int]] = {}
    for name, (content, mode) in files.items():
        for parent in reversed(Path(name).parents[:-1]):
            entries.setdefault(str(parent), (b"", 0o040755))
        entries[name] = (content, 0o100000 | mode)
    parts: list[bytes] = []
    for number, (name, (content, mode)) in enumerate(
        [*entries.items(), ("TRAILER!!!", (b"", 0))], 1
    ):
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % each for each in fields) + encoded
        parts += [header, b"\0" * (-len(header) % 4), content, b"\0" * (-len(content) % 4)]
    return b"".join(parts)


def main() -> None:
    """Make the guest of the tutorial, with its kernel beside it, in the directory that is named."""
    directory = Path(sys.argv[1])
    if said := missing():
        sys.exit(f"guest_image: {said}")
    shutil.copy(poller_image(directory).kernel, directory / "kernel")


if __name__ == "__main__":
    main()
