"""Progress of long work, on a terminal and elsewhere."""

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_server.cli.progress import part_bar, progress_bar
from forewarn_store import open_store
from tests.cli.conftest import Run
from tests.store.story import begin

Draw = Callable[[Callable[[], object]], str]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Do something with a terminal as standard error, and return what it shows."""
    monkeypatch.setenv("TERM", "xterm")

    def drawn(act: Callable[[], object]) -> str:
        screen, end = pty.openpty()
        with os.fdopen(end, "w") as stream, os.fdopen(screen, "rb", 0) as shown:
            monkeypatch.setattr(sys, "stderr", stream)
            act()
            stream.write("end")
            stream.flush()
            text = b""
            while not text.endswith(b"end"):
                text += shown.read(4096)
            return text.decode()

    return drawn


def test_bar_shows_the_parts_that_are_done(draw: Draw) -> None:
    """A terminal shows how far work is; text from others moves no cursor."""

    def act() -> None:
        with progress_bar("planning \x1b[2J") as report:
            report("copied h1", 1, 2)

    drawn = draw(act)
    assert "copied h1" in drawn
    assert "\x1b[2J" not in drawn


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_environment_takes_colours_and_bars_away(
    draw: Draw, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR draws without colours, and a dumb terminal gets lines."""
    monkeypatch.setenv(name, "dumb")

    def act() -> None:
        with part_bar("planning", 2) as end_part:
            end_part()

    drawn = draw(act)
    assert "\x1b[3" not in drawn
    assert ("part 1 of 2; planning" in drawn) is (name == "TERM")


def test_wait_shows_the_state_on_a_terminal(run: Run, draw: Draw) -> None:
    """A person who waits sees what the work does."""
    run("host", "update", "h1")
    command = ("wait", "op-1", "--for", "running", "--timeout", "0.2")
    assert "op-1 is announced" in draw(lambda: run(*command))


def test_backup_shows_its_copied_records(run: Run, draw: Draw, tmp_path: Path) -> None:
    """A backup of a large store says how far it is."""
    address = f"sqlite://{tmp_path}/forewarn.db"
    store = open_store(address)
    begin(store)
    command = ("store", "backup", str(tmp_path / "backup"), "--store", address)
    drawn = draw(lambda: run(*command))
    store.close()
    assert "records copied" in drawn
    assert "u001b" not in drawn
