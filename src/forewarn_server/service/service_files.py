"""Places of the service's own files, by the settings or by systemd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn_store import Retention
from forewarn_store.addresses import location_of
from forewarn_store.retention import DAY_MS

if TYPE_CHECKING:
    from forewarn_base.settings import Settings, StoreSettings

#: Name of the directory for exports of history.
EXPORTS = "history"


def commit_file_of(settings: StoreSettings) -> str:
    """Return the path of the file for this process's last commit.

    Empty: beside a SQLite store, and none for another store.
    """
    directory = _state_directory()
    if settings.last_commit_file or directory is None or not settings.shared:
        return settings.last_commit_file
    return str(directory / "last-commit")


def retention_of(settings: Settings) -> Retention:
    """Return the limits of the past, with the directory for exports."""
    history, directory, creates = settings.history, None, False
    if history.export and history.export_directory:
        directory = Path(history.export_directory)
    elif history.export:
        store = location_of(settings.store.url).path
        parent = _state_directory() or (store.absolute().parent if store else None)
        directory, creates = parent / EXPORTS if parent else None, True
    return Retention(
        directory,
        creates=creates,
        max_age_ms=history.max_age_days * DAY_MS,
        max_bytes=history.max_bytes,
    )


def _state_directory() -> Path | None:
    """Return the directory that systemd gives the service."""
    directory = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(directory) if directory else None
