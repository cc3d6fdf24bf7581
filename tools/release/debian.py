"""Builds the Debian packages with debhelper from other files of `make release`.

`dist/debian` defines the installation; this module defines the places of files.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Version of Python in bookworm, the Debian release of the packages.
PYTHON = "3.11"
#: Debian's name of an architecture -> name in wheels.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
PROGRAMS = ("dpkg-buildpackage", "dh")
LIBRARY = f"usr/lib/forewarn/lib/python{PYTHON}/site-packages"
LAUNCHER = """#!/usr/lib/forewarn/bin/python3
import sys
from forewarn_server.cli.main import main
sys.exit(main())
"""
VENV = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"


def missing() -> str:
    """Return the reason for which this machine cannot build packages; empty if it can."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        return f"{absent[0]} is not installed (apt-get install dpkg-dev debhelper)"
    if architecture() not in ARCHITECTURES:
        return f"wheels for {architecture()} are not known"
    return ""


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    said = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    )
    return said.stdout.strip()


def packages(built: Path, wheels: Path, output: Path) -> None:
    """Build both packages.

    Args:
        built: files of the release: the wheel, the agent, man pages, completion.
        wheels: directory of downloaded wheels.
        output: directory for the packages.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-debian-") as work:
        source = Path(work, "forewarn")
        shutil.copytree(ROOT / "dist" / "debian", source / "debian")
        service, agent = source / "tree" / "forewarn", source / "tree" / "forewarn-agent"
        lay_out_service(service, built, download(wheels))
        lay_out_agent(agent, built)
        lay_out_units(source / "debian")
        write_changelog(source / "debian" / "changelog")
        for path in sorted(source.rglob("*")):
            if not path.is_symlink():
                executable = path.is_dir() or os.access(path, os.X_OK)
                path.chmod(0o755 if executable else 0o644)
        command = ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps"]
        done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"release: dpkg-buildpackage failed:\n{done.stdout}{done.stderr}")
        output.mkdir(parents=True, exist_ok=True)
        for package in Path(work).glob("*.deb"):
            shutil.copy(package, output)


def download(wheels: Path) -> list[Path]:
    """Return the wheels of the server side's pinned packages, from the directory or from PyPI."""
    wheels.mkdir(parents=True, exist_ok=True)
    pinned = wheels / "pinned.txt"
    text = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
    # pip would evaluate markers for its own Python instead of Debian's Python.
    pinned.write_text(re.sub(r" ; .*(?= \\$)", "", text, flags=re.MULTILINE), "utf-8")
    tags = [f"--platform={each}_{ARCHITECTURES[architecture()]}" for each in PLATFORMS]
    with tempfile.TemporaryDirectory(dir=wheels) as fresh:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *tags]
        words += ["--require-hashes", "--only-binary=:all:", f"--python-version={PYTHON}"]
        words += ["--requirement", str(pinned), "--dest", fresh, "--find-links", str(wheels)]
        if subprocess.run([*words, "--no-index"], check=False, capture_output=True).returncode:
            subprocess.run(words, check=True)
        names = sorted(path.name for path in Path(fresh).glob("*.whl"))
        for name in names:
            shutil.copy(Path(fresh, name), wheels / name)
    return [wheels / name for name in names]


def lay_out_service(tree: Path, built: Path, wheels: list[Path]) -> None:
    """Create a separate environment below /usr/lib/forewarn, and its other files."""
    library = tree / LIBRARY
    for wheel in [*wheels, *sorted(built.glob("*.whl"))]:
        unpack(wheel, library)
    home = tree / "usr/lib/forewarn"
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text(VENV)
    (home / "bin/python3").symlink_to("/usr/bin/python3")
    (home / "bin/forewarn").write_text(LAUNCHER)
    (home / "bin/forewarn").chmod(0o755)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/forewarn").symlink_to("../lib/forewarn/bin/forewarn")
    put(ROOT / "dist/forewarn.toml", tree / "etc/forewarn/forewarn.toml")
    for name in ("README.md", "LICENSE"):
        put(ROOT / name, tree / "usr/share/doc/forewarn" / name)
    for page in (built / "man").iterdir():
        if page.name != "forewarn-agent.1":
            compress(page, tree / "usr/share/man/man1" / f"{page.name}.gz")
    completion = built / "completion"
    share = tree / "usr/share"
    put(completion / "bash/forewarn", share / "bash-completion/completions/forewarn")
    put(completion / "zsh/_forewarn", share / "zsh/vendor-completions/_forewarn")
    put(completion / "fish/forewarn.fish", share / "fish/vendor_completions.d/forewarn.fish")


def lay_out_agent(tree: Path, built: Path) -> None:
    """Create the agent's file, man page and systemd drop-in."""
    archive = tree / "usr/lib/forewarn/forewarn-agent.pyz"
    put(built / "forewarn-agent.pyz", archive)
    archive.chmod(0o755)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/forewarn-agent").symlink_to("../lib/forewarn/forewarn-agent.pyz")
    (tree / "etc/forewarn-agent").mkdir(parents=True)
    compress(built / "man/forewarn-agent.1", tree / "usr/share/man/man1/forewarn-agent.1.gz")
    example = tree / "usr/share/doc/forewarn-agent/examples/unprivileged.conf"
    put(ROOT / "dist/agent/unprivileged.conf", example)


def lay_out_units(debian: Path) -> None:
    """Write units, users and directories to the file names that debhelper requires."""
    dist = ROOT / "dist"
    put(dist / "forewarn.service", debian / "forewarn.service")
    put(dist / "forewarn-metadata.service", debian / "forewarn.forewarn-metadata.service")
    put(dist / "forewarn.sysusers.conf", debian / "forewarn.sysusers")
    put(dist / "forewarn.tmpfiles.conf", debian / "forewarn.tmpfiles")
    put(dist / "agent/forewarn-agent.service", debian / "forewarn-agent.service")
    put(dist / "agent/forewarn-agent.sysusers.conf", debian / "forewarn-agent.sysusers")


def write_changelog(path: Path) -> None:
    """Write the changelog entry from which Debian's tools read version and date."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    path.write_text(
        f"forewarn ({debian_version(project['version'])}) bookworm; urgency=medium\n\n"
        "  * See CHANGELOG.md.\n\n"
        f" -- The Forewarn authors <forewarn@localhost>  {format_datetime(time)}\n",
        "utf-8",
    )


def debian_version(version: str) -> str:
    """Return a version in Debian's form, in which a tilde marks a pre-release."""
    return re.sub(r"\.?(dev|a|b|rc)(\d+)$", r"~\1\2", version)


def unpack(wheel: Path, library: Path) -> None:
    """Unpack a wheel, except its files outside the library."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".data/" not in name:
                archive.extract(name, library)


def put(source: Path, target: Path) -> None:
    """Copy a file and create its parent directories."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def compress(source: Path, target: Path) -> None:
    """Compress a page without a timestamp, as Debian requires."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(source.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the Debian packages.")
    parser.add_argument("built", type=Path, help="directory with files of the release")
    parser.add_argument("wheels", type=Path, help="directory of downloaded wheels")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    packages(given.built, given.wheels, given.output)
