"""The form of log lines from every logger; no thread waits for their reader."""

import io
import json
import logging
import os

import pytest

from forewarn_base import log_format
from forewarn_base.log_format import QueuedHandler, TextFormatter, configure_logs, flush_logs

LINE = "x" * 1000


class Unread:
    """A log to a pipe that nobody reads yet."""

    def __init__(self) -> None:
        """Open the pipe."""
        self._read, write = os.pipe()
        self.handler = QueuedHandler(os.fdopen(write, "w"))
        self.handler.setFormatter(TextFormatter())
        self.log = logging.Logger("unread")  # noqa: LOG001 - one that no other test has
        self.log.addHandler(self.handler)

    def lines(self) -> list[str]:
        """End the log, and read everything."""
        self.handler.close()
        text = b""
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            while not text.endswith(b"the end\n"):
                text += pipe.read(65536)
        self.handler.stream.close()
        return text.decode().splitlines()


@pytest.mark.parametrize("name", ["forewarn.operator", "uvicorn.error", "asyncio"])
def test_log_line_follows_the_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that reads our log meets no line of another form."""
    configure_logs("info", "json")
    logging.getLogger(name).warning("a word")
    flush_logs()
    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["text"], line["level"]) == (name, "a word", "warning")


def test_nobody_waits_for_the_reader_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much is dropped, and counted in its place once somebody reads."""
    monkeypatch.setattr(log_format, "WAITING_LINES_MAX", 10)
    unread = Unread()
    for _ in range(200):  # a pipe takes 64 KiB
        unread.log.warning("%s", LINE)
    dropped = unread.handler.dropped
    assert 100 < dropped < 200
    monkeypatch.setattr(log_format, "WAITING_LINES_MAX", 1000)
    unread.log.warning("the end")
    lines = unread.lines()
    assert len([each for each in lines if LINE in each]) == 200 - dropped
    counts = [each.rpartition("written in time: ")[2] for each in lines if "dropped" in each]
    assert sum(map(int, counts)) == dropped


def test_waiting_lines_are_limited_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is larger than the limit is dropped, whatever waits."""
    monkeypatch.setattr(log_format, "WAITING_CHARACTERS_MAX", 2000)
    unread = Unread()
    unread.log.warning("%s", LINE * 3)
    assert unread.handler.dropped == 1
    unread.log.warning("the end")
    assert unread.lines()[0].endswith("could not be written in time: 1")


def test_log_line_that_cannot_be_formatted_stops_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what it was to be."""
    configure_logs("info", "text")
    logging.getLogger("forewarn").warning("%d hosts", "many")
    flush_logs()
    assert capsys.readouterr().err == "a log line could not be formatted: '%d hosts'\n"


def test_lines_that_cannot_be_written_are_counted() -> None:
    """As on a full disk: the next line that can be written follows their number."""

    class Full(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    disk = Full()
    handler = QueuedHandler(disk)
    log = logging.Logger("full")  # noqa: LOG001 - one that no other test has
    log.addHandler(handler)
    for _ in range(3):
        log.warning("lost")
    handler.flush()
    disk.is_full = False
    log.warning("written")
    handler.flush()
    first, last = disk.getvalue().splitlines()
    assert (first[-7:], last) == ("time: 3", "written")
