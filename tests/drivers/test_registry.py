"""Which drivers there are: one for each table of the settings, of kinds built in or installed."""

from pathlib import Path
from typing import Any

import pytest

from forewarn_drivers import TaskKey
from forewarn_drivers.manual import ManualDriver
from forewarn_drivers.registry import (
    DRIVERS,
    DriverKindUnknown,
    DriverUnusable,
    make_driver,
    make_drivers,
)
from forewarn_server.settings_loader import load_settings
from forewarn_store import open_store
from tests.drivers.tasks import task
from tests.packages import install


def test_registry_makes_one_driver_for_each_table(tmp_path: Path) -> None:
    """Tables of the settings become drivers under their own names, fragments add to them."""
    file = tmp_path / "f.toml"
    file.write_text('[drivers]\ndefault = "people"\n[drivers.people]\nkind = "magic"\n')
    (tmp_path / "f.toml.d").mkdir()
    (tmp_path / "f.toml.d" / "a.toml").write_text('[drivers.people]\nkind = "manual"\n')
    settings = load_settings([file], {}).drivers
    assert settings.default == "people"
    made = make_drivers({each.name: each.values for each in settings.tables}, "")
    assert {name: each.name for name, each in made.items()} == {
        "manual": "manual",
        "simulated": "simulated",
        "people": "people",
    }


CODE = """
from forewarn_drivers.manual import ManualDriver

class Boat(ManualDriver):
    def __init__(self, name, options, records=None):
        super().__init__(name)
        self.options, self.records = options, records

def old(name, options):
    return Boat(name, options)

def strict(name, options, records):
    if options:
        raise ValueError("a boat has no options")
    return Boat(name, options, records)

def odd(name):
    return Boat(name, {})

def broken(name, options, records):
    return 1 / 0

def empty(name, options, records):
    return object()
"""


@pytest.fixture
def boats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a package with kinds of drivers."""
    names = ("Boat", "old", "strict", "odd", "broken", "empty")
    lines = [f"{name.lower()} = some_boats:{name}" for name in names]
    entry_points = {DRIVERS.entry_points: "\n".join([*lines, "manual = some_boats:Boat"])}
    install(monkeypatch, tmp_path, "some_boats", code=CODE, entry_points=entry_points)


@pytest.mark.usefixtures("boats")
def test_driver_of_another_package_gets_task_records(tmp_path: Path) -> None:
    """It has the same parameters as a built-in kind, which it cannot replace."""
    store = str(tmp_path / "store.db")
    open_store(store).close()
    ferry: Any = make_driver("ferry", {"kind": "boat", "port": 4}, store)
    assert (ferry.name, ferry.options) == ("ferry", {"port": 4})
    assert ferry.records.begin(TaskKey(1, 1, 1))
    assert not ferry.records.begin(TaskKey(1, 1, 1))
    assert type(make_driver("manual", {})) is ManualDriver


@pytest.mark.usefixtures("boats")
def test_driver_with_two_parameters_is_still_created() -> None:
    """Packages for earlier versions keep working, without task records."""
    ferry: Any = make_driver("ferry", {"kind": "old", "port": 4})
    assert (ferry.name, ferry.options, ferry.records) == ("ferry", {"port": 4}, None)


@pytest.mark.usefixtures("boats")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("odd", "the driver odd of the package some_boats 1.0 .*too many positional arguments"),
        ("broken", "the package some_boats 1.0 cannot be used: ZeroDivisionError"),
        ("empty", "its driver has no begin and no progress and no abort"),
    ],
)
def test_driver_with_a_bug_is_absent_alone(kind: str, reason: str) -> None:
    """Its calls fail and name its package; drivers beside it work. Source: L-12."""
    tables = {"ferry": {"kind": kind}, "board": {"kind": "manual"}}
    drivers = make_drivers(tables, "")
    assert isinstance(drivers["board"], ManualDriver)
    with pytest.raises(DriverUnusable, match=f"(?i){reason}"):
        drivers["ferry"].begin(task())


@pytest.mark.usefixtures("boats")
def test_driver_that_refuses_its_options_is_a_mistake_in_the_settings() -> None:
    """The service then refuses the settings, as for a built-in kind."""
    with pytest.raises(DriverUnusable, match="cannot be used: ValueError: a boat has no options"):
        make_drivers({"ferry": {"kind": "strict", "port": 4}}, "")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"kind": "magic"}, DriverKindUnknown, "has the kind magic"),
        ({"kind": 3}, DriverKindUnknown, "has the kind 3"),
        ({"kind": "manual", "speed": 3}, DriverUnusable, "unknown option speed"),
    ],
    ids=["unknown", "no-text", "option"],
)
def test_registry_refuses_what_cannot_be_made(
    options: dict[str, object], error: type[Exception], text: str
) -> None:
    """A table that cannot become a driver is refused before anything opens."""
    with pytest.raises(error, match=text):
        make_driver("mine", options)
