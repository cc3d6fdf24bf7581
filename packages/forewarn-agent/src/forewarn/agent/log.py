"""The agent's log, with a sentence, a stable action and ids in each line.

The standard `logging` would cost the agent 0.8 MiB of memory.
"""

from __future__ import annotations

import json
import os
import select
import sys

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.untrusted_text import escaped_text

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn_base.clock import Clock

#: Level -> priority in the journal of systemd.
LEVELS = {"error": 3, "warning": 4, "info": 6, "debug": 7}

LINE_BYTES_MAX = 4096  # bytes that a pipe accepts atomically (PIPE_BUF of POSIX)
CUTS = (LINE_BYTES_MAX, 512, 64)  # characters per part in successive attempts to shorten a line


class Log:
    """Writes lines to standard error without blocking."""

    def __init__(self, form: str = "text", *, clock: Clock | None = None) -> None:
        """Set the form, `text` or `json`; lines have a time only with a clock."""
        self._json = form == "json"
        self._clock = clock
        self._journal = "JOURNAL_STREAM" in os.environ
        self._said: dict[str, str] = {}
        self._lost = 0

    def say(self, action: str, sentence: str, *, level: str = "info", **ids: object) -> None:
        """Write a line with the stable name of a change; later, report the lines that were lost."""
        lost = f"Lines lost because standard error was blocked: {self._lost}."
        if self._lost and self._write("log-lost", lost, level="warning"):
            self._lost = 0
        if not self._write(action, sentence, level=level, **ids):
            self._lost += 1

    def once(self, action: str, sentence: str, *, level: str = "info", **ids: object) -> None:
        """Write a line unless the last line of this action had the same sentence."""
        if self._said.get(action) != sentence:
            self._said[action] = sentence
            self.say(action, sentence, level=level, **ids)

    def clear(self, action: str) -> bool:
        """Allow `once` to log an action again; return whether the action was logged before."""
        return self._said.pop(action, None) is not None

    def _write(self, action: str, sentence: str, *, level: str, **ids: object) -> bool:
        """Write a line without blocking; return whether the line was written."""
        prefix = f"<{LEVELS[level]}>" if self._journal else ""
        time = {} if self._clock is None else {"time": iso8601(self._clock.now_ms())}
        if time and not self._json and not self._journal:
            prefix = f"{time['time']} "
        line = b""
        for cut in CUTS:
            short = {name: _cut(value, cut) for name, value in ids.items()}
            form = {"level": level, "action": action, "message": sentence[:cut], **short}
            text = (
                json.dumps({**time, **form})
                if self._json
                else _plain(action, sentence[:cut], short)
            )
            line = f"{prefix}{text}\n".encode("utf-8", "replace")
            if len(line) <= LINE_BYTES_MAX:
                break
        try:
            file = sys.stderr.fileno()
            return _is_writable(file) and os.write(file, line) == len(line)
        except (OSError, ValueError, AttributeError):  # standard error is closed
            return False


def _cut(value: object, most: int) -> object:
    """Return a number unchanged; return other values as text, shortened to the end of the text."""
    return value if isinstance(value, int) else str(value)[-most:]


def _plain(action: str, sentence: str, ids: Mapping[str, object]) -> str:
    """Return a line as text, with escaped control characters."""
    tail = "".join(f" {name}={_quote(str(value))}" for name, value in ids.items())
    return escaped_text(f"{sentence} action={action}{tail}")


def _quote(text: str) -> str:
    return json.dumps(text) if not text or " " in text or '"' in text else text


def _is_writable(file: int) -> bool:
    """Return whether the file accepts a line now without blocking."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
