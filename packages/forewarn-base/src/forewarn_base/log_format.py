"""The service's log: sentences for people, JSON objects for machines, written by a thread.

Standard error is often a pipe. If nobody reads it, a write blocks, so no other thread may write.
No other module may configure logging.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from typing import TextIO

from forewarn_base.protocol import timestamps
from forewarn_base.settings import SettingInvalid
from forewarn_base.untrusted_text import escaped_lines, escaped_text

#: Names of a log record's facts, in addition to the sentence; stable for machines.
FACTS = ("action", "actor")
#: Loggers with written lines: ours, and the connection logs of uvicorn and asyncio.
LOGGERS = ("forewarn", "uvicorn", "asyncio")
LEVELS = ("debug", "info", "warning", "error")
#: Maximum lines and characters that wait to be written; further lines are dropped.
WAITING_LINES_MAX, WAITING_CHARACTERS_MAX = 10_000, 4 * 1024 * 1024
#: Time limit for the lines that wait at the end of the process, in seconds.
LAST_LINES_S_MAX = 1.0


class TextFormatter(logging.Formatter):
    """`2026-04-20T22:26:58.123Z info op-1 is announced`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback of an error below it."""
        line = f"{_time_of(record)} {record.levelname.lower()} {escaped_text(record.getMessage())}"
        if not record.exc_info:
            return line
        return f"{line}\n{escaped_lines(self.formatException(record.exc_info))}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the stable `action` if the record has one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        facts = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        facts.update((name, str(getattr(record, name))) for name in FACTS if hasattr(record, name))
        if record.exc_info:
            facts["error"] = self.formatException(record.exc_info)
        return escaped_text(json.dumps(facts, ensure_ascii=False))


class QueuedHandler(logging.Handler):
    """Writes lines to a stream on a thread; drops and counts lines while the stream blocks."""

    def __init__(self, stream: TextIO) -> None:
        """Start the thread, which ends with the process or with `close`."""
        super().__init__()
        #: Lines that were dropped since the start.
        self.dropped = 0
        #: Where the lines are written.
        self.stream = stream
        #: Lines to write, and in their place in the order how many were dropped.
        self._waiting: deque[str | int] = deque()
        self._characters = 0
        #: Whether the thread writes now, and whether it is to end.
        self._writing = self._ending = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record; never wait for the stream."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a faulty line must not stop what it is about
            line = f"a log line could not be formatted: {record.msg!r}"
        with self._changed:
            full = len(self._waiting) >= WAITING_LINES_MAX
            if not full and self._characters + len(line) <= WAITING_CHARACTERS_MAX:
                self._waiting.append(line)
                self._characters += len(line)
                self._changed.notify_all()
                return
            self.dropped += 1
            waiting = self._waiting
            last = waiting.pop() if waiting and isinstance(waiting[-1], int) else 0
            waiting.append(1 + int(last))

    def flush(self) -> None:
        """Wait until the queued lines are written, for at most `LAST_LINES_S_MAX`."""
        with self._changed:
            self._changed.wait_for(self._is_idle, LAST_LINES_S_MAX)

    def close(self) -> None:
        """End the thread once it has written the queued lines."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        super().close()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._writing

    def _run(self) -> None:
        unsaid = 0
        while (item := self._take()) is not None:
            unsaid += item if isinstance(item, int) else 0
            if unsaid and self._write(self._about_dropped(unsaid)):
                unsaid = 0
            if isinstance(item, str) and not self._write(item):
                unsaid += 1
                self.dropped += 1

    def _take(self) -> str | int | None:
        """Wait for the next item; None: end."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._ending)
            if not self._waiting:
                return None
            self._writing = True
            item = self._waiting.popleft()
            self._characters -= len(item) if isinstance(item, str) else 0
            return item

    def _write(self, line: str) -> bool:
        try:
            self.stream.write(f"{line}\n")
            self.stream.flush()
        except (OSError, ValueError):  # the disk is full, or the stream is closed
            return False
        return True

    def _about_dropped(self, count: int) -> str:
        text = "log lines dropped because they could not be written in time: %d"
        record = logging.LogRecord("forewarn", logging.WARNING, "", 0, text, (count,), None)
        record.action = "log.dropped"
        return self.format(record)


def flush_logs() -> None:
    """Write the last lines before the process ends, for at most `LAST_LINES_S_MAX`."""
    for each in logging.getLogger("forewarn").handlers:
        each.flush()


def dropped_lines() -> int:
    """Return the number of lines that this process could not write."""
    handlers = logging.getLogger("forewarn").handlers
    return sum(each.dropped for each in handlers if isinstance(each, QueuedHandler))


def configure_logs(level: str, format_name: str) -> None:
    """Start logging to standard error.

    Raises:
        SettingInvalid: the level or format is unknown.
    """
    formats = {"text": TextFormatter, "json": JsonFormatter}
    for name, given, known in (("format", format_name, formats), ("level", level, LEVELS)):
        if given not in known:
            problem = f"is {given!r}, not one of {', '.join(known)}"
            raise SettingInvalid(name=f"log.{name}", place="the settings", problem=problem)
    channel = _channel_to(sys.stderr)
    channel.setFormatter(formats[format_name]())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        others = [each for each in logger.handlers if not isinstance(each, QueuedHandler)]
        logger.handlers[:] = [channel, *others]
        logger.setLevel(level.upper() if name == "forewarn" else logging.WARNING)
        logger.propagate = False


def _channel_to(stream: TextIO) -> QueuedHandler:
    """Return the handler in use, or a new one for another stream."""
    for known in logging.getLogger(LOGGERS[0]).handlers:
        if isinstance(known, QueuedHandler):
            if known.stream is stream:
                return known
            known.close()
    return QueuedHandler(stream)


def _time_of(record: logging.LogRecord) -> str:
    return timestamps.iso8601(int(record.created * 1000))
