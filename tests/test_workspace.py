"""The packages beside Forewarn: names, versions, entry points, and Forewarn without them."""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forewarn_base import log_format
from forewarn_base.extensions import ExtensionGroup, ExtensionMissing
from forewarn_drivers.manual import ManualDriver
from forewarn_drivers.registry import DRIVERS, AbsentDriver, make_drivers
from forewarn_drivers.sources import SOURCES
from forewarn_server.api.further_apis import APIS
from forewarn_server.cli.actions import ACTIONS
from forewarn_server.cli.installed_commands import COMMANDS
from forewarn_server.outbox.destinations import SINKS, make_destinations
from forewarn_server.outbox.sink import AbsentSink

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
by_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
by_extension = pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(group, name, id=f"{group.kind}-{name}")
        for group in (ACTIONS, APIS, COMMANDS, DRIVERS, SINKS, SOURCES)
        for name in group.packages
    ],
)


def project(folder: Path) -> dict[str, object]:
    """Return the table `project` of a package."""
    table: dict[str, object] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def import_name(package: Path) -> str:
    """Return the name under which a package is imported."""
    [found] = [path.parent.name for path in package.glob("src/*/__init__.py")]
    return found


@by_package
def test_package_has_its_names_and_the_version_of_forewarn(package: Path) -> None:
    """Folder, distribution and import name belong together; versions move together."""
    own, version = project(package), project(ROOT)["version"]
    assert own["name"] == package.name
    assert own["version"] == version
    for each in requirements(package):
        if each.name.startswith("forewarn"):
            folder = "{root:parent:uri}/" + each.name
            assert each.url == ("{root:parent:parent:uri}" if each.name == "forewarn" else folder)
    expected = "forewarn" if package.name == "forewarn-agent" else package.name.replace("-", "_")
    assert import_name(package) == expected
    assert (package / "README.md").is_file()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheels of Forewarn and of all packages, without a network."""
    folder = tmp_path_factory.mktemp("wheels")
    words = ("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    places = [str(each) for each in (ROOT, *PACKAGES)]
    subprocess.run([sys.executable, *words, *options, *places], check=True)
    return folder


#: Imports the modules of a package, and prints the packages whose modules were imported.
LOADS = """
import importlib, importlib.metadata, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    if not each.name.endswith("__main__") and each.name not in sys.argv[2:]:
        importlib.import_module(each.name)
owners = importlib.metadata.packages_distributions()
modules = {name.partition(".")[0] for name in sys.modules}
print(json.dumps(sorted({owner for name in modules for owner in owners.get(name, ())})))
"""
#: Modules of one package that need another one, which a user may leave out.
OPTIONAL = {
    "forewarn.testing": "forewarn-emulator",
    "forewarn.emulator": "forewarn-emulator",
    "forewarn.emulator.options": "forewarn-emulator",
    "forewarn_emulator.testing": "pytest",
}


def requirements(package: Path) -> list[Requirement]:
    """Return what a package requires, in its extras, too."""
    table = project(package)
    extras = table.get("optional-dependencies", {})
    assert isinstance(extras, dict)
    assert isinstance(table["dependencies"], list)
    lines = [*table["dependencies"], *(each for extra in extras.values() for each in extra)]
    return [Requirement(each) for each in lines]


def brought_by(package: Path) -> set[str]:
    """Return the names of packages that a package of ours requires, with theirs and its own."""
    folders = {each.name: each for each in PACKAGES} | {"forewarn": ROOT}
    found = set[str]()
    left = [package.name if package != ROOT else "forewarn"]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        if name in folders:
            left += [canonicalize_name(each.name) for each in requirements(folders[name])]
            continue
        try:
            left += [
                canonicalize_name(Requirement(each).name)
                for each in importlib.metadata.requires(name) or []
            ]
        except importlib.metadata.PackageNotFoundError:  # another system needs it
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("package", [ROOT, *PACKAGES], ids=lambda package: package.name)
def test_package_needs_only_what_it_declares(package: Path, wheels: Path, tmp_path: Path) -> None:
    """All its modules are imported where only its requirements are installed."""
    declared = brought_by(package)
    for name in declared:
        for wheel in wheels.glob(f"{name.replace('-', '_')}-*.whl"):
            zipfile.ZipFile(wheel).extractall(tmp_path)
    libraries = str(Path(pytest.__file__).parents[1])  # without those installed from this tree
    output = subprocess.run(
        [sys.executable, "-S", "-c", LOADS, import_name(package), *OPTIONAL],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{libraries}"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    imported = {re.sub("[-_.]+", "-", name).lower() for name in json.loads(output)}
    assert imported
    assert imported - {"typing-extensions"} <= declared  # msgspec takes it if it is there


@by_package
def test_tools_know_the_package(package: Path) -> None:
    """mypy, pytest, coverage and ruff read its folders, and import-linter has contracts for it."""
    text, name = (ROOT / "pyproject.toml").read_text(), import_name(package)
    assert text.count(f'"packages/{package.name}/src"') == 1
    assert text.count(f'"packages/{package.name}/src/{name}"') == 1
    for tests in package.glob("tests/*_tests"):
        assert text.count(f'"packages/{package.name}/tests"') == 2
        assert f'"{name}", "{tests.name}"' in text
    _, *contracts = (ROOT / ".importlinter").read_text().split("[importlinter:contract:")
    layers = next(each for each in contracts if each.startswith("package-layers"))
    assert re.search(rf"(?<!\w){name}(?!\w)", layers)


@by_package
def test_package_has_tests(package: Path) -> None:
    """`make test PACKAGE=NAME` runs some that exist."""
    words = ("make", "--no-print-directory", "-n", "test-fast", "PYTEST=pytest")
    word = package.name.removeprefix("forewarn-")
    command = [*words, f"PACKAGE={word}", "DEV="]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    [line] = [each for each in said.splitlines() if each.startswith("pytest ")]
    places = re.findall(r"(?:tests|packages)/\S+", line)
    assert places
    assert all(
        list(ROOT.glob(f"{each}/**/test_*.py")) or (ROOT / each).is_file() for each in places
    )


@by_extension
def test_extension_is_an_entry_point_of_its_package(group: ExtensionGroup, name: str) -> None:
    """Forewarn finds it as it finds those of other people, and the right package has it."""
    extension = group.find(name)
    assert extension is not None
    assert extension.load() is not None
    if name not in group.built_in:
        assert extension.package == f"{group.packages[name]} {project(ROOT)['version']}"
        return
    points = importlib.metadata.distribution(group.packages[name]).entry_points
    [point] = points.select(group=group.entry_points, name=name)
    assert point.value == group.built_in[name]


@by_extension
def test_missing_package_is_named(
    group: ExtensionGroup, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to install."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    package = group.packages[name]
    with pytest.raises(ExtensionMissing, match=f"needs the package {package}: pip install"):
        group.find(name)
    assert name in group.names()


@pytest.mark.parametrize("kind", SINKS.packages)
def test_missing_package_degrades_its_destination(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other destinations go on. Source: L-12."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    tables = {"bus": {"kind": kind}, "hook": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}
    bus, hook = make_destinations(tables)
    assert isinstance(bus.sink, AbsentSink)
    assert "needs the package forewarn-sinks: pip install" in bus.sink.absent
    assert not isinstance(hook.sink, AbsentSink)


@pytest.mark.parametrize("kind", DRIVERS.packages)
def test_missing_package_degrades_its_driver(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other drivers go on. Source: L-12."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    drivers = make_drivers({"site": {"kind": kind}, "board": {"kind": "manual"}}, "")
    assert isinstance(drivers["board"], ManualDriver)
    assert isinstance(drivers["site"], AbsentDriver)
    assert f"needs the package {DRIVERS.packages[kind]}: pip install" in drivers["site"].reason


def test_entry_points_of_an_older_forewarn_are_ignored() -> None:
    """An environment may still have the metadata of the version that had these sinks itself."""

    class Older:
        name, version = "forewarn", "0.0.9"

    old = importlib.metadata.EntryPoint("nats", "forewarn.gone:KIND", SINKS.entry_points)
    object.__setattr__(old, "dist", Older())
    current = list(importlib.metadata.entry_points(group=SINKS.entry_points))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importlib.metadata, "entry_points", lambda **_: [old, *current])
        nats = SINKS.find("nats")
    assert nats is not None
    assert nats.package.startswith("forewarn-sinks ")


@pytest.mark.parametrize("module", ["forewarn.testing", "forewarn.emulator.options"])
def test_promised_names_of_the_emulator_say_what_to_install(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's tests import them, and end with the command to type."""
    for name in [each for each in sys.modules if each.startswith("forewarn.emulator")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "forewarn_emulator", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \S+/packages/forewarn-emulator"):
        importlib.import_module(module)


@pytest.mark.parametrize("folder", [ROOT, *PACKAGES], ids=lambda each: each.name)
def test_loggers_are_below_one_that_is_written(folder: Path) -> None:
    """A line of any other logger is lost without a word."""
    written = (*log_format.LOGGERS, "aiokafka")  # a library's own, which is silenced
    for file in (folder / "src").rglob("*.py"):
        for name in re.findall(r'getLogger\("?([\w.]+)"?\)', file.read_text("utf-8")):
            assert name == "name" or name.partition(".")[0] in written, (file, name)
