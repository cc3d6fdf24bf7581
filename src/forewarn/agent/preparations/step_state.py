"""Notes: a preparation's record of its changes, stored in the step's directory until undone.

A note is on disk before the change that it describes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

NAME = "notes.json"


def _path() -> Path:
    return Path(os.environ.get("FOREWARN_STATE", "."), NAME)


def read() -> dict[str, object]:
    """Return the notes; empty if there are none."""
    try:
        form = json.loads(_path().read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return form if isinstance(form, dict) else {}


def write(form: dict[str, object]) -> None:
    """Record the next action durably, so that it survives a power cut."""
    path = _path()
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(form, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def clear() -> None:
    """Delete the notes, because the changes are undone."""
    _path().unlink(missing_ok=True)
