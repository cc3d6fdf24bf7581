"""Kinds of destinations that other packages bring: delivery, and what is wrong with them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import NamedTable, OutboxSettings
from forewarn_server.outbox.destinations import SINKS, DestinationInvalid, make_destinations
from forewarn_server.outbox.sink import AbsentSink
from tests.api.live import FLEET, SETTINGS, Live
from tests.packages import install
from tests.waiting import wait_until

CODE = """
import json
from dataclasses import dataclass
from typing import Annotated
from forewarn_server.outbox.sink import DestinationOptions, SinkKind
from forewarn_base.validation.fields import Text

@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions(DestinationOptions):
    path: Annotated[str, Text(4096), "File that receives a line for each event."]

class FileSink:
    batch_max = 10

    def __init__(self, path):
        self.path = path

    async def open(self):
        pass

    async def send(self, events):
        with open(self.path, "a") as file:
            file.writelines(json.dumps(event) + "\\n" for event in events)

    async def close(self):
        pass

def create(name, options):
    if not options.path.startswith("/"):
        raise ValueError("must have an absolute path")
    return FileSink(options.path)

FILE = SinkKind(options=FileOptions, create=create)
EMPTY = SinkKind(options=DestinationOptions, create=lambda name, options: object())
"""


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a package with a kind of destination."""
    lines = "file = some_sinks:FILE\nempty = some_sinks:EMPTY\ncreate = some_sinks:create"
    folder = tmp_path / "packages"
    entry_points = {SINKS.entry_points: f"{lines}\ngone = no_such_sinks:KIND"}
    install(monkeypatch, folder, "some_sinks", code=CODE, entry_points=entry_points)


def test_destination_of_another_package_receives_transitions(tmp_path: Path) -> None:
    """It gets CloudEvents in the order of history, like a built-in kind. Source: D-6."""
    file = tmp_path / "events.jsonl"
    table = NamedTable("log", {"kind": "file", "path": str(file), "include": ["host.*"]})
    with Live(replace(SETTINGS, outbox=OutboxSettings((table,)))) as live:
        live.fleet(**FLEET)
        live.call("PUT", "/v1/hosts/h1", {"zone": "2"})
        [shown] = live.get("/v1/outbox")["destinations"]
        assert (shown["name"], shown["kind"]) == ("log", "file")
        wait_until(lambda: file.is_file() and "h1" in file.read_text())
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert {each["type"].partition(".")[0] for each in events} == {"forewarn"}
    assert [each["sequence"] for each in events] == sorted(each["sequence"] for each in events)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "here"}, r"\[outbox.one\] must have an absolute path"),
        ({"path": "/x", "colour": "red"}, "has the unknown member 'colour'"),
        ({}, "lacks the member 'path'"),
    ],
)
def test_options_of_an_installed_kind_are_checked(options: dict[str, object], problem: str) -> None:
    """The package declares its options; a mistake is refused as for a built-in kind."""
    with pytest.raises(DestinationInvalid, match=problem):
        make_destinations({"one": {"kind": "file", **options}})


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("no-such", "has the kind 'no-such', which is neither built in nor installed (known: app"),
        ("gone", "sink gone of the package some_sinks 1.0 cannot be used: ModuleNotFoundError"),
        ("empty", "its sink has no open and no send and no close and no batch_max"),
        ("create", "function is not a SinkKind"),
    ],
)
def test_kind_that_is_missing_or_unusable_makes_an_absent_destination(
    kind: str, problem: str
) -> None:
    """It keeps its place in history; others are delivered to. Source: L-12."""
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
    one, other = make_destinations({"one": {"kind": kind}, "other": hook})
    assert isinstance(one.sink, AbsentSink)
    assert not isinstance(other.sink, AbsentSink)
    assert problem in one.sink.absent
