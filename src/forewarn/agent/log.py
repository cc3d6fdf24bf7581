"""The agent's log: one line per change, with a sentence, a stable action and ids.

`logging` would cost the agent 0.8 MiB.
"""

from __future__ import annotations

import json
import os
import select
import sys

from forewarn.errors import escaped_text
from forewarn.protocol.timestamps import iso8601

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.clock import Clock

LEVELS = {"error": 3, "warning": 4, "info": 6, "debug": 7}
"""Level -> priority in the journal of systemd."""

LINE_BYTES_MAX = 4096  # POSIX lets a pipe accept this much in one write (PIPE_BUF)
CUTS = (LINE_BYTES_MAX, 512, 64)  # characters kept of each part, until the line is short enough


class Log:
    """Writes lines to standard error, where every supervisor collects them; never blocks."""

    def __init__(self, form: str = "text", *, clock: Clock | None = None) -> None:
        """Write `text` or `json` lines, with the priority first under systemd's journal.

        Args:
            form: `text` or `json`.
            clock: Source of the time of each line, UTC; None for lines without a time. systemd's
                journal adds its own.
        """
        self._json = form == "json"
        self._clock = clock
        self._journal = "JOURNAL_STREAM" in os.environ
        self._said: dict[str, str] = {}
        self._lost = 0

    def say(self, action: str, sentence: str, *, level: str = "info", **ids: object) -> None:
        """Write a line; a line that cannot be written is counted and reported later.

        Args:
            action: Stable name of the change, for searching.
            sentence: Text for people.
            level: One of `LEVELS`.
            ids: Objects that the line is about.
        """
        lost = f"Lines that could not be written and are lost: {self._lost}."
        if self._lost and self._put("log-lost", lost, level="warning"):
            self._lost = 0
        if not self._put(action, sentence, level=level, **ids):
            self._lost += 1

    def once(self, action: str, sentence: str, *, level: str = "info") -> None:
        """Write a line unless the last line with this action had the same sentence."""
        if self._said.get(action) != sentence:
            self._said[action] = sentence
            self.say(action, sentence, level=level)

    def clear(self, action: str) -> bool:
        """Allow an action to be logged again; return whether it had been logged."""
        return self._said.pop(action, None) is not None

    def _put(self, action: str, sentence: str, *, level: str, **ids: object) -> bool:
        """Write a line if that does not block; return whether it was written."""
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
            return _is_free(file) and os.write(file, line) == len(line)
        except (OSError, ValueError, AttributeError):  # standard error is closed
            return False


def _cut(value: object, most: int) -> object:
    """Return a number unchanged, and the end of anything else as text; the end says most."""
    return value if isinstance(value, int) else str(value)[-most:]


def _plain(action: str, sentence: str, ids: Mapping[str, object]) -> str:
    """Return a line for people; control characters in foreign text are escaped."""
    tail = "".join(f" {name}={_quoted(str(value))}" for name, value in ids.items())
    return escaped_text(f"{sentence} action={action}{tail}")


def _quoted(text: str) -> str:
    return json.dumps(text) if not text or " " in text or '"' in text else text


def _is_free(file: int) -> bool:
    """Return whether a line can be written now without blocking."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
