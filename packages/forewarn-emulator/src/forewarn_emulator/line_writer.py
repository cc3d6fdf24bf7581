"""Writes lines to standard output on a thread, because a full pipe could block the emulator.

`console.py` creates the lines.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TextIO

#: Most queued lines; further lines are dropped.
LINES_MAX = 10_000
#: Longest wait for the last lines at the end, in seconds.
CLOSE_S_MAX = 1.0


class LineWriter:
    """Writes texts to a file in order, on its own thread."""

    def __init__(self, file: TextIO) -> None:
        """Start the thread, which must be the file's only writer."""
        self._file = file
        self._texts: deque[str] = deque()
        self._left_out = 0
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Queue a text for writing; return immediately."""
        with self._news:
            if len(self._texts) >= LINES_MAX:
                self._left_out += 1
            else:
                self._texts.append(text)
            self._news.notify()

    def close(self) -> None:
        """Write the queued lines, up to a time limit."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        while True:
            with self._news:
                while not (self._texts or self._closed):
                    self._news.wait()
                if not self._texts:
                    return
                text = "".join(self._texts)
                self._texts.clear()
                left_out, self._left_out = self._left_out, 0
            if left_out:
                text += f"({left_out} lines were dropped because the reader was too slow)\n"
            try:
                self._file.write(text)
                self._file.flush()
            except BrokenPipeError:  # the reader has closed the pipe
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())
