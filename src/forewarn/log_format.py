"""How the service's own log lines look: sentences for people, objects for machines.

What is logged is each room's business; nothing else may configure logging.
"""

from __future__ import annotations

import json
import logging
import sys

from forewarn.protocol import timestamps
from forewarn.settings import SettingInvalid

#: Facts a log record may carry beside its sentence; stable names for machines.
FACTS = ("action", "actor")
#: Whose lines are written: ours, and what uvicorn and asyncio say of a connection.
LOGGERS = ("forewarn", "uvicorn", "asyncio")
LEVELS = ("debug", "info", "warning", "error")


class TextFormatter(logging.Formatter):
    """`2026-04-20T22:26:58.123Z info op-1 is announced`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback of an error below it."""
        line = f"{_time_of(record)} {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the stable `action` where there is one."""

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
    """Log to standard error from now on.

    Raises:
        SettingInvalid: there is no such level or format.
    """
    formats = {"text": TextFormatter, "json": JsonFormatter}
    for name, given, known in (("format", format_name, formats), ("level", level, LEVELS)):
        if given not in known:
            problem = f"is {given!r}, which is none of {', '.join(known)}"
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
