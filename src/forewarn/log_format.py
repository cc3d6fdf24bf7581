"""The format of the service's log lines: sentences for people, JSON objects for machines.

No other module may configure logging.
"""

from __future__ import annotations

import json
import logging
import sys

from forewarn.protocol import timestamps
from forewarn.settings import SettingInvalid

#: Names of a log record's facts, in addition to the sentence; stable for machines.
FACTS = ("action", "actor")
#: Loggers with written lines: ours, and the connection logs of uvicorn and asyncio.
LOGGERS = ("forewarn", "uvicorn", "asyncio")
LEVELS = ("debug", "info", "warning", "error")


class TextFormatter(logging.Formatter):
    """`2026-04-20T22:26:58.123Z info op-1 is announced`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback of an error below it."""
        line = f"{_time_of(record)} {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
        return json.dumps(facts, ensure_ascii=False)


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
    channel = logging.StreamHandler(sys.stderr)
    channel.setFormatter(formats[format_name]())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [channel]
        logger.setLevel(level.upper() if name == "forewarn" else logging.WARNING)
        logger.propagate = False


def _time_of(record: logging.LogRecord) -> str:
    return timestamps.iso8601(int(record.created * 1000))
