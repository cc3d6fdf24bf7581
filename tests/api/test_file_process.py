"""Large files, which a process of their own reads."""

import json
import threading
from pathlib import Path

import pytest

from forewarn_base.errors import CallerError
from forewarn_base.validation.complexity import Abandoned, abandonable
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_server.api import file_process
from forewarn_server.api.file_process import (
    HERE_BYTES_MAX,
    NAMES_BODIES,
    PART,
    POLICY_FILE,
    TOPOLOGY_FILE,
    FileKind,
    FileProcessFailed,
    read_file,
)
from forewarn_server.api.topology_file import JSON, TOML, YAML, exported

FLEET = Topology(
    hosts={
        f"h{n}": Host(f"h{n}", zone="Zürich", labels=(("rack", "r1"),)) for n in range(PART + 100)
    },
    groups={"web": Group("web", owner="shop")},
    vms={f"v{n}": Vm(f"v{n}", f"h{n}", "web", tags=(("a", "b,{["),)) for n in range(100)},
)
LONG = " " * HERE_BYTES_MAX


def here(monkeypatch: pytest.MonkeyPatch, kind: FileKind, body: bytes, media: str) -> object:
    """Return what the service itself reads, or the refusal."""
    monkeypatch.setattr(file_process, "HERE_BYTES_MAX", len(body))
    try:
        return read_file(kind, body, media)
    except CallerError as refusal:
        return str(refusal)
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("media", [JSON, TOML, YAML])
def test_file_is_the_same_wherever_it_is_read(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members pass between the processes unchanged, with their order and text."""
    body = b"".join(exported(FLEET, media))
    body += b" " * HERE_BYTES_MAX
    read = read_file(TOPOLOGY_FILE, body, media)
    assert read == here(monkeypatch, TOPOLOGY_FILE, body, media)
    assert list(read["hosts"]) == list(FLEET.hosts)


@pytest.mark.parametrize(
    ("kind", "media", "text"),
    [
        (TOPOLOGY_FILE, JSON, "{" + LONG),
        (TOPOLOGY_FILE, JSON, f'{{"hosts": {{"h1": {{"zone": 5}}}}}}{LONG}'),
        (TOPOLOGY_FILE, YAML, f"hosts: [[[[[[[[[[1]]]]]]]]]]\n#{LONG}"),
        (TOPOLOGY_FILE, TOML, f"a.b.c.d.e.f.g.h.i = 1\n#{LONG}"),
        (POLICY_FILE, TOML, f"pause = 0x{'f' * HERE_BYTES_MAX}"),
        (POLICY_FILE, TOML, f'pause = "é\\u0000"\n#{LONG}'),
        (POLICY_FILE, JSON, f"[{LONG}]"),
    ],
)
def test_refusal_is_the_same_wherever_the_file_is_read(
    kind: FileKind, media: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process passes on each refusal with its sentence."""
    with pytest.raises(CallerError) as refused:
        read_file(kind, text.encode(), media)
    assert str(refused.value) == here(monkeypatch, kind, text.encode(), media)


def test_long_policy_is_read() -> None:
    """Members other than tables pass between the processes, too."""
    groups = [f"{n:0>100}" for n in range(1000)]
    body = json.dumps({"pause": "5m", "windows": {"night": {"groups": groups}}, "freezes": []})
    read = read_file(POLICY_FILE, body.encode(), JSON)
    assert read["windows"]["night"]["groups"] == tuple(groups)
    assert (read["pause"], read["freezes"]) == (300, ())


NAMES = [f"{n:0>128}" for n in range(2 * PART + 1)]


@pytest.mark.parametrize(
    "changed", [{}, {"cause": 5}, {"hosts": [*NAMES, ""]}, {"more": 1}, {"duration": None}]
)
def test_list_of_names_is_the_same_wherever_it_is_read(
    changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that lists hosts keeps their order, and is refused with the same sentence."""
    form = {"cause": "host-update", "duration": "PT9M", "hosts": NAMES, **changed}
    body = json.dumps({name: each for name, each in form.items() if each is not None}).encode()
    kind = NAMES_BODIES["MaintenanceForm"]
    try:
        read: object = read_file(kind, body, JSON)
    except CallerError as refusal:
        read = str(refusal)
    assert read == here(monkeypatch, kind, body, JSON)
    assert isinstance(read, str) is bool(changed)


def test_process_ends_when_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who leaves ends the process, whatever it does."""
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 1000\n")
    endless.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(endless))
    gone = threading.Event()
    gone.set()
    with pytest.raises(Abandoned):
        abandonable(gone, lambda: read_file(TOPOLOGY_FILE, LONG.encode() * 2, TOML))


def test_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot start or dies says so; nothing is changed."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(FileProcessFailed, match="ended with status 1"):
        read_file(TOPOLOGY_FILE, LONG.encode() * 2, JSON)
