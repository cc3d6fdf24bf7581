"""The destination: each transition is a line of a file, written before the call returns."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from forewarn_base.validation.fields import Text
from forewarn_server.outbox.cloudevents import CloudEvent
from forewarn_server.outbox.sink import DestinationOptions, SinkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions(DestinationOptions):
    """Options of a table `[outbox.NAME]`."""

    path: Annotated[str, Text(4096), "File that receives a line for each event."]


class Journal:
    """Appends events to a file."""

    batch_max = 100

    def __init__(self, path: Path) -> None:
        """Write to a file; nothing is opened yet."""
        self._path = path

    async def open(self) -> None:
        """Do nothing, because each delivery opens the file."""

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Write the events durably; the outbox repeats a delivery that raises."""
        await asyncio.to_thread(self._write, "".join(f"{json.dumps(each)}\n" for each in events))

    async def close(self) -> None:
        """Do nothing."""

    def _write(self, lines: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def create(_: str, options: JournalOptions) -> Journal:
    """Create the destination.

    Raises:
        ValueError: the path is relative.
    """
    if not Path(options.path).is_absolute():
        raise ValueError("must have an absolute path")
    return Journal(Path(options.path))


JOURNAL = SinkKind(options=JournalOptions, create=create)
