"""The agent's log: whole lines, whatever comes from outside, and never a wait for a reader."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from forewarn.agent.log import LINE_BYTES_MAX, Log
from tests.clock import VirtualClock

PIPE_BYTES_MAX = 4 * 1024 * 1024  # no pipe takes as much without being told to


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """Give the end of a pipe that is read, and the one that is to be standard error."""
    source, sink = os.pipe()
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    with os.fdopen(sink, "w") as file:
        yield source, file
    os.close(source)


def fill(sink: int) -> int:
    """Write into a pipe until it is full, and return how much that was."""
    os.set_blocking(sink, False)
    size = 0
    with contextlib.suppress(BlockingIOError):
        for _ in range(PIPE_BYTES_MAX // LINE_BYTES_MAX):
            size += os.write(sink, b"x" * LINE_BYTES_MAX)
    os.set_blocking(sink, True)
    return size


def test_log_nobody_reads_is_not_waited_for(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that hangs must not keep a VM from being prepared; it is told what it missed."""
    reader, file = pipe
    monkeypatch.setattr(sys, "stderr", file)
    log = Log()
    size = fill(file.fileno())
    log.say("one", "Nobody sees this.")
    log.say("two", "Nor this.")
    while size:
        size -= len(os.read(reader, size))
    log.say("three", "But this.")
    lines = os.read(reader, LINE_BYTES_MAX).decode().splitlines()
    assert lines == [
        "Lines lost because standard error was blocked: 2. action=log-lost",
        "But this. action=three",
    ]


def test_log_without_standard_error_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that was started with it closed works all the same."""
    monkeypatch.setattr(sys, "stderr", None)
    Log().say("one", "Nobody sees this.")


@pytest.mark.parametrize("form", ["text", "json"])
def test_line_is_one_line_whatever_it_says(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Neither a hook's output nor an event's text can forge a line, or move a cursor."""
    reader, file = pipe
    monkeypatch.setattr(sys, "stderr", file)
    Log(form).say("one", "It says\n<3>forged", output="\x1b[2Jred\r\ntwo")
    said = os.read(reader, LINE_BYTES_MAX).decode()
    assert said.count("\n") == 1
    assert said.strip().isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("letter", ["x", "\x00", "\U0001f525"])
def test_long_line_is_cut_to_what_a_pipe_takes_whole(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch, form: str, letter: str
) -> None:
    """The end of an output tells most, and a JSON line stays one."""
    reader, file = pipe
    monkeypatch.setattr(sys, "stderr", file)
    Log(form).say("one", "It failed.", output=letter * 9000 + "the end", run=1)
    said = os.read(reader, 2 * LINE_BYTES_MAX)
    assert len(said) <= LINE_BYTES_MAX
    assert b"the end" in said
    assert form == "text" or json.loads(said)["run"] == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_line_carries_the_time(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A log that no journal dates says when; in UTC."""
    reader, file = pipe
    monkeypatch.setattr(sys, "stderr", file)
    Log(form, clock=VirtualClock(1_474_309_787_250)).say("one", "It begins.")
    assert b"2016-09-19T18:29:47.250Z" in os.read(reader, LINE_BYTES_MAX)
