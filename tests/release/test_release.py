"""The files of a release: two builds are equal, and each file does its work without the clone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def build(target: Path) -> Path:
    """Make a release into a directory."""
    command = [sys.executable, "-m", "tools.release", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return target


def names_in(folder: Path) -> list[str]:
    """Return the paths of all files under a folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one release for all tests."""
    return build(tmp_path_factory.mktemp("release") / "out")


def test_release_twice_gives_the_same_bytes(out: Path, tmp_path: Path) -> None:
    """Anybody can check that a release was made from its commit."""
    again = build(tmp_path / "again")
    assert names_in(out) == names_in(again)
    different = [n for n in names_in(out) if (out / n).read_bytes() != (again / n).read_bytes()]
    assert not different


def test_release_has_all_its_files_and_their_checksums(out: Path) -> None:
    """The checksums name every file, and are right."""
    names = names_in(out)
    for end in (".whl", ".tar.gz", "-agent.pyz", "forewarn.1", "forewarn-host.1", ".cdx.json"):
        assert any(name.endswith(end) for name in names), end
    assert {"completion/bash/forewarn", "completion/zsh/_forewarn"} < set(names)
    assert "completion/fish/forewarn.fish" in names
    lines = (out / "SHA256SUMS").read_text().splitlines()
    assert sorted([*(line.split("  ")[1] for line in lines), "SHA256SUMS"]) == names
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=True)


def test_source_archive_has_the_files_for_packagers(out: Path) -> None:
    """A distribution builds from the archive, units and man pages included."""
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"dist/forewarn.service", "tools/release/man.py", "tests/conftest.py"} <= names
    assert not any(name.startswith(("dist/out", ".venv")) for name in names)


def test_wheel_is_enough_in_a_clean_environment(out: Path, tmp_path: Path) -> None:
    """The client side needs no other package."""
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    (wheel,) = out.glob("*.whl")
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-index", wheel]
    subprocess.run(install, check=True, cwd=tmp_path)
    program = tmp_path / "clean" / "bin" / "forewarn"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    assert said.stdout.split()[1] in wheel.name
    config = tmp_path / "agent.toml"
    for action in ("init", "check"):
        words: list[str | Path] = [program, "agent", action, "--config", config]
        subprocess.run(words, check=True, capture_output=True, cwd=tmp_path)


def test_completion_scripts_are_read_by_their_shells(out: Path) -> None:
    """A script that its shell cannot read completes nothing."""
    scripts = {"bash": "forewarn", "zsh": "_forewarn", "fish": "forewarn.fish"}
    for shell, name in scripts.items():
        script = out / "completion" / shell / name
        assert "maintenance" in script.read_text()
        if found := shutil.which(shell):
            subprocess.run([found, "-n", script], check=True)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_man_pages_are_clean_for_groff(out: Path) -> None:
    """A page gives no warning."""
    pages = sorted((out / "man").iterdir())
    words = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, pages)]
    said = subprocess.run(words, check=True, capture_output=True, text=True)
    assert not said.stderr


def test_man_page_names_each_command(out: Path) -> None:
    """`man forewarn-host` has what `forewarn host --help` has."""
    text = (out / "man" / "forewarn-host.1").read_text()
    assert "forewarn host reboot" in text
    assert text.startswith('.TH "FOREWARN\\-HOST" 1 ')


def test_bill_of_materials_names_what_the_server_installs(out: Path) -> None:
    """Each package has its version and the hashes that are pinned."""
    bill = json.loads((out / "forewarn.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {each["name"]: each for each in bill["components"]}
    assert {"uvicorn", "starlette", "msgspec", "anyio"} <= set(parts)
    assert not {"pytest", "ruff", "hatchling"} & set(parts)
    assert all(each["externalReferences"] for each in parts.values())
    references = {each["bom-ref"] for each in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) <= references
