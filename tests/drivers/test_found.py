"""What a driver discovers of hosts and VMs, as records of the topology."""

import pytest

from forewarn_base.names import TEXT_LENGTH_MAX
from forewarn_drivers.found import Found, difference
from forewarn_drivers.sources import DiscoveryInvalid, DriverSource

HOST = {"fault_domain": 0, "update_domain": 0}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Standard_D2", "Standard_D2"),
        ("a\x1b[2J\u202eb\nc", None),
        ("x" * (TEXT_LENGTH_MAX + 1), None),
    ],
    ids=["plain", "control characters", "long"],
)
def test_discovered_text_is_printable_and_short(text: str, kept: str | None) -> None:
    """A platform's text is nobody's that Forewarn trusts: sizes and tags are cleaned. R-1."""
    fleet = Found({"h1": dict(HOST)})
    vm = {"host": "h1", "size": text, "tags": {text: text}}
    fleet.place("v1", vm, (True, True))
    shown = difference(fleet, {})["vms"]["v1"]
    [(name, value)] = shown["tags"].items()
    for each in (shown["size"], name, value):
        assert each.isprintable(), f"{text!r} is passed on as {each!r}"
        assert len(each) <= TEXT_LENGTH_MAX, f"{len(each)} characters are passed on"
        assert kept is None or each == kept


@pytest.mark.parametrize("listed", [[], {"hosts": ["h1"]}, {"vms": {"v1": "h1"}}, {"silent": "h1"}])
def test_driver_that_lists_another_form_is_named(listed: object) -> None:
    """A driver of another package may return anything. Source: R-4."""

    class Odd:
        def discover(self) -> object:
            return listed

    with pytest.raises(DiscoveryInvalid, match="The driver site lists its machines in an unknown"):
        DriverSource("site", Odd()).discover()
