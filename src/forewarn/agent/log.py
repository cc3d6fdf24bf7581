"""The agent's log: one line per change, a sentence and a stable action with ids.

No decision on what is worth saying may go in here. `logging` would cost the agent 0.8 MiB.
"""

from __future__ import annotations

import json
import os
import sys

LEVELS = {"error": 3, "warning": 4, "info": 6, "debug": 7}
"""Level -> priority as the journal of systemd knows it."""


class Log:
    """Writes to standard error, where every supervisor collects it."""

    def __init__(self, form: str = "text") -> None:
        """Write `text` or `json` lines; under systemd's journal with the priority in front."""
        self._json = form == "json"
        self._journal = "JOURNAL_STREAM" in os.environ
        self._said: dict[str, str] = {}

    def say(self, action: str, sentence: str, *, level: str = "info", **ids: object) -> None:
        """Write a line.

        Args:
            action: Stable name of what happened, for searching.
            sentence: For people.
            level: One of `LEVELS`.
            ids: What it is about.
        """
        if self._json:
            form = {"level": level, "action": action, "message": sentence, **ids}
            line = json.dumps(form, default=str)
        else:
            tail = "".join(f" {name}={_quoted(str(value))}" for name, value in ids.items())
            line = f"{sentence} action={action}{tail}".replace("\n", "\\n")
        prefix = f"<{LEVELS[level]}>" if self._journal else ""
        try:
            os.write(sys.stderr.fileno(), f"{prefix}{line}\n".encode("utf-8", "replace"))
        except OSError:
            return  # nobody reads; the agent's work matters more

    def once(self, action: str, sentence: str, *, level: str = "info") -> None:
        """Write a line unless the last one of this action said the same."""
        if self._said.get(action) != sentence:
            self._said[action] = sentence
            self.say(action, sentence, level=level)

    def clear(self, action: str) -> bool:
        """Let an action be said again; tell whether it had been said."""
        return self._said.pop(action, None) is not None


def _quoted(text: str) -> str:
    return json.dumps(text) if not text or " " in text or '"' in text else text
