"""Notes: a preparation's record of its changes, stored in the directory of the step.

A preparation writes a note before the change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

NAME = "notes.json"


def _path() -> Path:
    return Path(os.environ.get("FOREWARN_STATE", "."), NAME)


def read() -> dict[str, object]:
    """Return the notes; empty without notes."""
    try:
        form = json.loads(_path().read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return form if isinstance(form, dict) else {}


def write(form: dict[str, object]) -> None:
    """Write the notes, so that they survive a power cut."""
    path = _path()
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(form, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def clear() -> None:
    """Delete the notes after the changes are undone."""
    _path().unlink(missing_ok=True)
