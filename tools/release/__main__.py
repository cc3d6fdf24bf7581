"""`python -m tools.release [DIRECTORY]` builds all files of a release, by default in `dist/out`.

The same commit always gives the same bytes, because the build uses a copy of the tracked files and
the time of the last commit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.release import debian

ROOT = Path(__file__).resolve().parents[2]
SHELLS = {"bash": "forewarn", "zsh": "_forewarn", "fish": "forewarn.fish"}
#: Paths of shell completion below `share`.
SHARED = {
    "bash": "bash-completion/completions",
    "zsh": "zsh/site-functions",
    "fish": "fish/vendor_completions.d",
}
CHECKSUMS = "SHA256SUMS"
WHEELS = ROOT / ".build" / "wheels"


class WrongTag(Exception):
    """The commit's tag contradicts the sources."""


def check_tag(root: Path) -> str:
    """Return a note if the build is a dry run because the commit has no version's tag.

    Raises:
        WrongTag: the tag has another version, the changelog lacks the date, or the tree differs
        from the tag.
    """
    project = tomllib.loads(root.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    tags = _git("tag", "--list", "v*", "--points-at", "HEAD", root=root).split()
    if not tags:
        return f"a dry run: the commit has no tag; the release is made from the tag v{version}"
    if f"v{version}" not in tags:
        raise WrongTag(f"the tag is {tags[0]}, and pyproject.toml has version {version}")
    changes = root.joinpath("CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        raise WrongTag(f"CHANGELOG.md has no entry for {version} with a date")
    if _git("status", "--porcelain", "--untracked-files=no", root=root):
        raise WrongTag(f"the working tree differs from the tag v{version}")
    return ""


def release(output: Path, *, for_debian: bool = True) -> None:
    """Build all files of a release into a directory, which is emptied first.

    Two thirds of the time are for Debian's packages.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-release-") as work:
        source, built = Path(work, "source"), Path(work, "out")
        copy_tracked(source)
        require_versions(source)
        build(source, built, for_debian=for_debian)
        write_checksums(built)
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(built, output)


def copy_tracked(target: Path) -> None:
    """Copy the tracked files of the working tree."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        print("release: the working tree has changes that are not committed", file=sys.stderr)
    for name in filter(None, _git("ls-files", "-z").split("\0")):
        copied = target / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copied)
        executable = os.access(copied, os.X_OK)
        copied.chmod(
            0o755 if executable else 0o644
        )  # the mode must not depend on the umask of the clone


def require_versions(source: Path) -> None:
    """Replace the folders of our packages, in what projects require, by the version."""
    text = source.joinpath("pyproject.toml").read_text("utf-8")
    version = tomllib.loads(text)["project"]["version"]
    for path in (source / "pyproject.toml", *source.glob("packages/*/pyproject.toml")):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r' @ \{root[^"]*', f"=={version}", text), "utf-8")


def build(source: Path, output: Path, *, for_debian: bool) -> None:
    """Run each step of the build in the copy of the sources."""
    sources = (source / "src", *sorted(source.glob("packages/*/src")))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(map(str, (*sources, source))),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct").strip(),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "80",
    }

    def run(*words: str, place: Path = source) -> bytes:
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=place, env=environment, check=True, stdout=subprocess.PIPE
        )
        return done.stdout

    run("-m", "tools.release.man", str(output / "man"))
    for shell, name in SHELLS.items():
        script = output / "completion" / shell / name
        script.parent.mkdir(parents=True)
        script.write_bytes(run("-m", "forewarn_server.cli.main", "completion", shell))
    share = (
        source / "build" / "share"
    )  # tools/hatch_build.py reads the wheel's data from this directory
    shutil.copytree(output / "man", share / "man" / "man1")
    for shell, place in SHARED.items():
        shutil.copytree(output / "completion" / shell, share / place)
    run("-m", "hatchling", "build", "-d", str(output))
    for package in sorted((source / "packages").iterdir()):
        run("-m", "hatchling", "build", "-d", str(output), place=package)
    run("dist/agent/build.py", str(output / "forewarn-agent.pyz"))
    run("-m", "tools.release.sbom", str(output / "forewarn.cdx.json"))
    if reason := debian.missing() if for_debian else "--without-debian":
        print(f"release: no Debian packages: {reason}", file=sys.stderr)
    else:
        run("-m", "tools.release.debian", str(output), str(WHEELS), str(output / "debian"))


def write_checksums(output: Path) -> None:
    """Write the checksums in the format of `sha256sum --check`."""
    files = sorted(path for path in output.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(output).as_posix()}\n"
        for path in files
    ]
    output.joinpath(CHECKSUMS).write_text("".join(lines), "utf-8")


def _git(*words: str, root: Path = ROOT) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build every file of a release.")
    parser.add_argument("output", nargs="?", type=Path, default=ROOT / "dist" / "out")
    parser.add_argument("--without-debian", action="store_true", help="no Debian packages")
    given = parser.parse_args()
    directory = given.output
    try:
        note = check_tag(ROOT)
    except WrongTag as error:
        sys.exit(f"release: {error}")
    release(directory, for_debian=not given.without_debian)
    sys.stdout.write(directory.joinpath(CHECKSUMS).read_text("utf-8"))
    if note:
        print(f"release: {note}", file=sys.stderr)
