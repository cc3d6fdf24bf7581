"""Extensions of other packages: found by their names, loaded with a limit, named if they fail."""

import tomllib
from pathlib import Path

import pytest

from forewarn_base import extensions
from forewarn_base.extensions import ExtensionGroup, ExtensionUnusable
from forewarn_drivers.registry import DRIVERS
from forewarn_drivers.sources import SOURCES
from forewarn_server.cli.installed_commands import COMMANDS
from forewarn_server.control.gate_checks import GATES
from forewarn_server.outbox.destinations import SINKS
from tests.packages import install

ROOT = Path(__file__).resolve().parents[1]
#: The project of each group that is not one of the server.
HOMES = {"forewarn.drivers": "packages/forewarn-drivers"}
GROUPS = [COMMANDS, DRIVERS, GATES, SINKS, SOURCES]
BOATS = ExtensionGroup("boat", {"raft": "json:dumps"})


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.kind)
def test_own_extensions_are_registered_as_those_of_other_packages(group: ExtensionGroup) -> None:
    """Forewarn's table and its entry points are the same, and each can be loaded."""
    file = ROOT / HOMES.get(group.entry_points, ".") / "pyproject.toml"
    project = tomllib.loads(file.read_text("utf-8"))["project"]
    own = {name: at for name, at in group.built_in.items() if name not in group.packages}
    assert project["entry-points"].get(group.entry_points, {}) == own
    for name in own:
        extension = group.find(name)
        assert extension is not None
        assert extension.load() is not None


def test_extension_of_another_package_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It takes no name of Forewarn's own, and nothing is imported before it is used."""
    code = "raise SystemError('imported')"
    lines = "ferry = boats:ferry\nraft = boats:raft"
    install(monkeypatch, tmp_path, "boats", code=code, entry_points={"forewarn.boats": lines})
    assert BOATS.names() == ["ferry", "raft"]
    ferry, raft = BOATS.find("ferry"), BOATS.find("raft")
    assert ferry is not None
    assert ferry.package == "boats 1.0"
    assert raft is not None
    assert raft.load()([1]) == "[1]"
    assert BOATS.find("yacht") is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError('a\\x1b[2J')", "ValueError: a"),
        ("", "AttributeError"),
        ("import threading; threading.Event().wait()", "it takes more than 0.2 s"),
    ],
    ids=["package", "exit", "text", "attribute", "hangs"],
)
def test_extension_that_cannot_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, reason: str
) -> None:
    """Whatever its code does, the caller gets one error with its package and the reason."""
    if "wait" in code:
        monkeypatch.setattr(extensions, "LOAD_TIMEOUT_S", 0.2)
    name = f"boats_{tmp_path.name}".replace("-", "_")
    entry_points = {"forewarn.boats": f"ferry = {name}:create"}
    install(monkeypatch, tmp_path, name, code=code, entry_points=entry_points)
    ferry = BOATS.find("ferry")
    assert ferry is not None
    with pytest.raises(ExtensionUnusable) as failed:
        ferry.load()
    assert str(failed.value).startswith(f"The boat ferry of the package {name} 1.0 cannot be used")
    assert reason in str(failed.value)
    assert str(failed.value).isprintable()


def test_two_packages_with_one_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which of them would run depends on the order of directories, so neither does."""
    for name in ("boats_a", "boats_b"):
        entry_points = {"forewarn.boats": f"ferry = {name}:create"}
        install(monkeypatch, tmp_path, name, code="create = 1", entry_points=entry_points)
    ferry = BOATS.find("ferry")
    assert ferry is not None
    with pytest.raises(ExtensionUnusable, match=r"boats_a 1\.0 and boats_b 1\.0 have a boat"):
        ferry.load()
