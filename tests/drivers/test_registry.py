"""Which drivers there are: one for each table of the settings, of kinds built in or installed."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from forewarn.drivers import registry
from forewarn.drivers.manual import ManualDriver
from forewarn.drivers.registry import DriverKindUnknown, DriverUnusable, make_driver, make_drivers
from forewarn.settings_loader import load_settings


class Boat(ManualDriver):
    """A driver of another package."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        """Take what the settings say."""
        super().__init__(name)
        self.options = options


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


def test_registry_finds_kinds_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package offers a kind by an entry point; it is not loaded before it is used."""
    offered = EntryPoints(
        [
            EntryPoint("boat", f"{__name__}:Boat", registry.GROUP),
            EntryPoint("gone", "no_such_package:Driver", registry.GROUP),
            EntryPoint("manual", f"{__name__}:Boat", registry.GROUP),
        ]
    )
    monkeypatch.setattr("importlib.metadata.entry_points", offered.select)
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").ModuleType("m"))
    __import__("sys").modules[__name__].Boat = Boat
    ferry = make_driver("ferry", {"kind": "boat", "port": 4})
    assert isinstance(ferry, Boat)
    assert (ferry.name, ferry.options) == ("ferry", {"port": 4})
    assert not isinstance(make_driver("manual", {}), Boat), "nobody replaces a built-in kind"
    with pytest.raises(DriverUnusable, match="no_such_package"):
        make_driver("gone", {})


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
