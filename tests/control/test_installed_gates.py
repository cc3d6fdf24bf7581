"""Kinds of gates that other packages bring: what passes, hangs, and cannot be used."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import GateSettings, NamedTable
from forewarn_server.control import gate_checks
from forewarn_server.control.gate_checks import GATES, GateInvalid, make_gates, run_gate
from tests.api.live import FLEET, SETTINGS, Live
from tests.packages import install

CODE = """
import threading
from forewarn_server.control.gate_checks import GateUnanswered

HANGING = []

def load(name, options):
    below = options.get("below", 0)
    if not isinstance(below, int):
        raise ValueError("must have below as a whole number")
    def check(call):
        return "" if below > 3 else f"{call.gate} of {call.maintenance} is 3"
    return check

def hung(name, options):
    def check(call):
        HANGING.append(threading.current_thread())
        threading.Event().wait()
    return check

def silent(name, options):
    answers = ["", None]
    def check(call):
        if answers.pop() is None:
            raise GateUnanswered(name=call.gate, reason="the probe starts")
        return ""
    return check

def odd(name, options):
    return lambda call: 7

def nothing(name, options):
    return None
"""


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a package with kinds of gates."""
    kinds = ("load", "hung", "silent", "odd", "nothing")
    lines = "\n".join(f"{kind} = some_gates:{kind}" for kind in kinds)
    entry_points = {GATES.entry_points: lines}
    install(monkeypatch, tmp_path / "packages", "some_gates", code=CODE, entry_points=entry_points)
    monkeypatch.setattr(gate_checks, "UNANSWERED_EVERY_S", 0.01)


def finding(kind: str, **options: object) -> str:
    """Return what a gate of the package finds."""
    return run_gate(make_gates({"g": {"kind": kind, **options}})["g"], "m-7")


def test_gate_of_another_package_decides() -> None:
    """It gets its own options, the rest of its table has the options of every gate. F-5."""
    assert finding("load", below=4) == ""
    assert finding("load", tries=2, every_s=0) == "gate g: g of m-7 is 3 (tried 2 times)"
    assert finding("silent") == ""
    assert finding("odd") == "gate g: its check returned 7"
    with pytest.raises(GateInvalid, match=r"\[gates.g\] must have below as a whole number"):
        finding("load", below="x")


def test_gate_that_hangs_fails_in_time_and_keeps_one_thread() -> None:
    """A check that never ends has no answer, and is not begun again beside itself. F-5."""
    told = finding("hung", timeout_s=0.1, unanswered_timeout_s=0.3)
    assert told == "gate g: it takes more than 0.1 s"
    assert [each.name for each in threading.enumerate()].count("gate g") == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("no-such", "[gates.g] has the kind no-such, which is neither built in nor installed"),
        ("nothing", "the package some_gates 1.0 cannot be used: its check is not a function"),
    ],
)
def test_gate_that_cannot_be_used_is_named(kind: str, reason: str) -> None:
    """The service runs without it, and refuses maintenances that name it. Source: L-12."""
    gates = GateSettings((NamedTable("g", {"kind": kind}),))
    with Live(replace(SETTINGS, gates=gates)) as live:
        live.fleet(**FLEET)
        live.settle()
        [named] = live.daemon.configured.degraded.sentences
        assert named.startswith("Gate g fails each maintenance: ")
        assert reason in named
        form = {"cause": "host-reboot", "hosts": ["h1"], "duration": "10m", "gate": "g"}
        refused = live.call("POST", "/v1/maintenances", form)
        assert refused.code in {"gate-kind-unknown", "extension-unusable"}
