"""The packages beside Forewarn: names, versions, entry points, and Forewarn without them."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from forewarn.outbox.destinations import GUESTS, SINKS, make_destinations
from forewarn.outbox.sink import AbsentSink

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
by_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)


def project(folder: Path) -> dict[str, object]:
    """Return the table `project` of a package."""
    table: dict[str, object] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


@by_package
def test_package_has_its_names_and_the_version_of_forewarn(package: Path) -> None:
    """Folder, distribution and import name belong together; versions move together."""
    own, version = project(package), project(ROOT)["version"]
    assert own["name"] == package.name
    assert own["version"] == version
    assert f"forewarn=={version}" in str(own["dependencies"])
    assert (package / "src" / package.name.replace("-", "_") / "__init__.py").is_file()
    assert (package / "README.md").is_file()
    assert list(package.glob("tests/*/test_*.py"))


@by_package
def test_container_and_setup_install_the_package(package: Path) -> None:
    """A package that only a clone had would surprise whoever uses the image."""
    text = (ROOT / "dist/Containerfile").read_text()
    assert text.count(package.name) == 2
    assert f"packages/{package.name}/src" in (ROOT / "pyproject.toml").read_text()


def test_sinks_are_entry_points_of_their_package() -> None:
    """Forewarn finds them as it finds those of other people."""
    for kind, package in GUESTS.items():
        extension = SINKS.find(kind)
        assert extension is not None
        assert extension.package == f"{package} {project(ROOT)['version']}"
        assert extension.load() is not None


@pytest.mark.parametrize("kind", GUESTS)
def test_missing_package_degrades_its_destination_and_is_named(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other destinations go on; the sentence says what to install."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    tables = {"bus": {"kind": kind}, "hook": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}
    bus, hook = make_destinations(tables)
    assert isinstance(bus.sink, AbsentSink)
    assert "needs the package forewarn-sinks: pip install" in bus.sink.absent
    assert not isinstance(hook.sink, AbsentSink)


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
