"""The files of a release: two builds are equal, and each file does its work without the clone."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.agent.programs import free_port
from tests.waiting import wait_until
from tools.release import debian
from tools.release.__main__ import WHEELS, WrongTag, check_tag, copy_tracked

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
pytestmark = pytest.mark.slow


def build(target: Path, *options: str) -> Path:
    """Make a release into a directory."""
    command = [sys.executable, "-m", "tools.release", str(target), *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return target


def install(home: Path, *words: str | Path) -> Path:
    """Install packages into a new environment, without an index; return its programs' folder."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, home], check=True)
    options = ("--quiet", "--no-cache", "--no-index", "--python", home)
    subprocess.run([UV, "pip", "install", *options, *words], check=True)
    return home / "bin"


def names_in(folder: Path) -> list[str]:
    """Return the paths of all files under a folder."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one release for all tests but the nightly ones, which need Debian's packages."""
    return build(tmp_path_factory.mktemp("release") / "out", "--without-debian")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one whole release."""
    return build(tmp_path_factory.mktemp("whole") / "out")


@pytest.mark.nightly
def test_release_twice_gives_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    """Anybody can check that a release was made from its commit."""
    again = build(tmp_path / "again")
    assert names_in(whole) == names_in(again)
    different = [n for n in names_in(whole) if (whole / n).read_bytes() != (again / n).read_bytes()]
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
    (archive,) = out.glob("forewarn-*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"dist/forewarn.service", "tools/release/man.py"} <= names
    assert not any(name.startswith(("dist/out", ".venv", "bench/", "tests/")) for name in names)


def test_wheel_is_enough_in_a_clean_environment(out: Path, tmp_path: Path) -> None:
    """The client side needs no other package."""
    (wheel,) = out.glob("forewarn-*.whl")
    program = install(tmp_path / "clean", "--find-links", out, wheel) / "forewarn"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    assert said.stdout.split()[1] in wheel.name
    config = tmp_path / "agent.toml"
    for action in ("init", "check"):
        words: list[str | Path] = [program, "agent", action, "--config", config]
        subprocess.run(words, check=True, capture_output=True, cwd=tmp_path)


def test_wheel_runs_emulator_agent_and_service(out: Path, tmp_path: Path) -> None:
    """A fresh environment with the wheels is enough for each of the three."""
    debian.download(WHEELS)
    (wheel,), *others = (out.glob(f"forewarn{name}-*.whl") for name in ("", "_cli", "_emulator"))
    beside = [str(each) for (each,) in others]
    programs = install(
        tmp_path / "fresh", "--find-links", WHEELS, "--find-links", out, f"{wheel}[server]", *beside
    )
    program = str(programs / "forewarn")
    vms, operators, health, local = (free_port() for _ in range(4))
    (tmp_path / "forewarn.toml").write_text(
        f'store.url = "{tmp_path}/store.db"\noperator.open_on_loopback = true\n'
        f'listen = {{metadata = ["127.0.0.1:{local}"], operator = "127.0.0.1:{health}"}}\n'
    )
    (tmp_path / "agent.toml").write_text(
        f'[agent]\nendpoint = "http://127.0.0.1:{vms}"\nstate_dir = "{tmp_path}"\n'
        f'check_permissions = false\n[step.mark]\nprepare = ["touch", "{tmp_path}/prepared"]\n'
    )
    emulator = ("emulate", "--listen", f"127.0.0.1:{vms}")
    commands = (
        (*emulator, "--operator-listen", f"127.0.0.1:{operators}"),
        ("serve", "--config", tmp_path / "forewarn.toml"),
        ("agent", "run", "--config", tmp_path / "agent.toml"),
    )
    with ExitStack() as running:
        for command in commands:
            process = running.enter_context(subprocess.Popen([program, *command], cwd=tmp_path))
            running.callback(process.terminate)
        for port in (operators, health):
            asked = [program, "status", "--server", f"http://127.0.0.1:{port}"]
            wait_until(partial(ended_well, asked), what=f"port {port}")
        scenario = ("emulator", "scenario", "run", "host-reboot")
        server = ("--server", f"http://127.0.0.1:{operators}")
        subprocess.run([program, *scenario, *server], check=True)
        wait_until((tmp_path / "prepared").exists, what="the agent")


@pytest.mark.parametrize(
    ("wanted", "packages"),
    [
        ("packages/forewarn-agent", {"agent", "base"}),
        (".", {"", "agent", "base"}),
        (
            ".[azure]",
            {"", *("agent", "azure", "base", "cli", "core", "drivers", "metadata", "store")},
        ),
    ],
)
def test_clone_installs_the_packages_that_are_needed(
    tmp_path: Path, wanted: str, packages: set[str]
) -> None:
    """One command without a network finds Forewarn's other packages in the same clone."""
    debian.download(WHEELS)
    copy_tracked(tmp_path / "forewarn")
    words = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-build-isolation"]
    words += ["--find-links", str(WHEELS), "--target", str(tmp_path / "installed"), wanted]
    command = [sys.executable, "-m", "pip", "install", *words]
    subprocess.run(command, cwd=tmp_path / "forewarn", check=True)
    found = (tmp_path / "installed").glob("forewarn*.dist-info")
    names = {each.name.partition("-")[0].removeprefix("forewarn").strip("_") for each in found}
    assert names == packages


def ended_well(command: list[str]) -> bool:
    """Return whether a command succeeds."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_release_is_made_from_a_tag_of_its_version(tmp_path: Path) -> None:
    """Without a tag it is a dry run; the tag of another version is refused."""

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    assert "a dry run" in check_tag(tmp_path)
    git("tag", "v1.2.2")
    with pytest.raises(WrongTag, match=r"the tag is v1.2.2"):
        check_tag(tmp_path)
    git("tag", "v1.2.3")
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3, YYYY-MM-DD\n")
    with pytest.raises(WrongTag, match="with a date"):
        check_tag(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3, 2027-01-15\n")
    assert check_tag(tmp_path) == ""


def test_completion_scripts_are_read_by_their_shells(out: Path) -> None:
    """A script that its shell cannot read completes nothing."""
    scripts = {"bash": "forewarn", "zsh": "_forewarn", "fish": "forewarn.fish"}
    for shell, name in scripts.items():
        script = out / "completion" / shell / name
        assert "__complete" in script.read_text()
        if found := shutil.which(shell):
            subprocess.run([found, "-n", script], check=True)


def test_wheel_has_man_pages_and_completion(out: Path) -> None:
    """What pip installs into `share` is what the release has."""
    (wheel,) = out.glob("forewarn-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".data/data/")[2] for name in archive.namelist()}
    shared = {"bash-completion/completions/forewarn", "zsh/site-functions/_forewarn"}
    shared |= {"fish/vendor_completions.d/forewarn.fish"}
    shared |= {f"man/man1/{page.name}" for page in (out / "man").iterdir()}
    assert {f"share/{name}" for name in shared} <= names


@pytest.mark.nightly
@pytest.mark.skipif(bool(debian.missing()), reason=debian.missing())
def test_debian_packages_have_units_users_and_pages(whole: Path) -> None:
    """What the packages do once they are installed is tested by `make test-packages`."""
    service, agent = (
        subprocess.run(
            ["dpkg-deb", "--contents", next(whole.glob(f"debian/{name}_*.deb"))],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in ("forewarn", "forewarn-agent")
    )
    for path in (
        *("etc/forewarn/forewarn.toml", "lib/systemd/system/forewarn-metadata.service"),
        *("usr/lib/sysusers.d/forewarn.conf", "usr/lib/tmpfiles.d/forewarn.conf"),
        *("usr/share/man/man1/forewarn-host.1.gz", "usr/share/zsh/vendor-completions/_forewarn"),
        *("usr/share/bash-completion/completions/forewarn", "forewarn.fish"),
        *("site-packages/uvicorn/", "site-packages/msgspec/", "site-packages/uvloop/"),
    ):
        assert path in service, path
    for path in ("forewarn-agent.pyz", "forewarn-agent.service", "man1/forewarn-agent.1.gz"):
        assert path in agent, path


def test_debian_versions_sort_before_their_release() -> None:
    """Debian takes what comes after a tilde for earlier than nothing."""
    assert debian.debian_version("0.1.0.dev0") == "0.1.0~dev0"
    assert debian.debian_version("1.2.0rc1") == "1.2.0~rc1"
    assert debian.debian_version("1.2.0") == "1.2.0"


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
    assert {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")} <= set(parts)
    pinned = [each for name, each in parts.items() if not name.startswith("forewarn-")]
    assert all(each["externalReferences"] for each in pinned)
    references = {each["bom-ref"] for each in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) <= references
