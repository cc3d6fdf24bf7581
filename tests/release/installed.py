"""`make test-packages`: the Debian packages in a Debian of their own, with systemd as its init.

mmdebstrap makes the Debian once, systemd-nspawn boots it; both need root, the first the network.
What is done inside is in `inside.sh`. It is not part of `make test`: it takes some minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build" / "packages"
SYSTEM = BUILD / "bookworm.tar"
INCLUDED = "systemd,dbus,python3"
PROGRAMS = ("mmdebstrap", "systemd-nspawn", "dpkg-buildpackage", "dh")
LIMIT_S = 900
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/mnt/test/inside.sh
StandardOutput=append:/mnt/test/log
StandardError=append:/mnt/test/log
ExecStopPost=systemctl poweroff --no-block
"""


def packages(output: Path) -> Path:
    """Make a release; return where its packages are. PACKAGES names a directory that has them."""
    if given := os.environ.get("PACKAGES"):
        return Path(given)
    subprocess.run([sys.executable, "-m", "tools.release", output], check=True, cwd=ROOT)
    return output / "debian"


def newer(package: Path, output: Path) -> None:
    """Make a package of the same content with a higher version."""
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        control = Path(tree, "DEBIAN", "control")
        lines = control.read_text("utf-8").splitlines()
        lines = [f"{line}+1" if line.startswith("Version:") else line for line in lines]
        control.write_text("\n".join([*lines, ""]), "utf-8")
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, str(output)]
        subprocess.run(command, check=True)


def boot(system: Path, shared: Path) -> None:
    """Boot a Debian that runs the test and switches itself off."""
    units = system / "etc/systemd/system"
    units.joinpath("package-test.service").write_text(UNIT)
    wanted = units / "graphical.target.wants"
    wanted.mkdir(exist_ok=True)
    wanted.joinpath("package-test.service").symlink_to("../package-test.service")
    command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network"]
    command += [f"--bind={shared}:/mnt/test", "--boot", f"--directory={system}"]
    with (shared / "console").open("wb") as console:
        subprocess.run(
            command, check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL, stdout=console
        )


def main() -> int:
    """Build, boot and report."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent or os.geteuid():
        reason = f"{', '.join(absent)} not installed" if absent else "not root"
        print(f"test-packages: {reason} (apt-get install mmdebstrap systemd-container debhelper)")
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    if not SYSTEM.exists():
        words = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={INCLUDED}", "bookworm"]
        subprocess.run([*words, str(SYSTEM)], check=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as work:
        system, shared = Path(work, "system"), Path(work, "shared")
        shared.joinpath("new").mkdir(parents=True)
        shutil.copytree(packages(Path(work, "out")), shared / "old")
        for package in sorted(shared.glob("old/*.deb")):
            newer(package, shared / "new")
        shutil.copy(Path(__file__).with_name("inside.sh"), shared)
        system.mkdir()
        subprocess.run(
            ["tar", "--extract", f"--file={SYSTEM}", f"--directory={system}"], check=True
        )
        boot(system, shared)
        log = shared / "log"
        print(log.read_text("utf-8") if log.exists() else (shared / "console").read_text("utf-8"))
        passed = (shared / "result").exists()
    print("test-packages:", "passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
