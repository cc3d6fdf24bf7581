"""The driver's files on disk: domain definitions, and begun tasks and commands.

The process of a machine that works on an operation holds the operation's lock.

This module only reads and writes files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from forewarn_libvirt.config import LibvirtConfig

#: States of an attempt or a command, and of an operation.
BEGUN, ENDED, CALLED_OFF = "begun", "ended", "called off"
#: Age above which the record of a task is removed, in milliseconds.
KEPT_MS = 90 * 24 * 3600 * 1000


class DomainRecords:
    """Files of one directory, each written atomically."""

    def __init__(self, config: LibvirtConfig) -> None:
        self._directory = Path(config.directory)

    def prune(self, now_ms: int) -> None:
        """Remove records of tasks that ended long ago."""
        for kind in ("tasks", "locks"):
            for path in (self._directory / kind).glob("*"):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns // 1_000_000 < now_ms - KEPT_MS:
                        path.unlink()

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Acquire the lock of an operation; yield whether the lock was free."""
        path = self._directory / "locks" / _safe(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def keep_definition(self, vm: str, xml: str) -> None:
        """Store a domain's definition if the definition has changed."""
        path = self._definition(vm)
        if not path.exists() or path.read_text("utf-8") != xml:
            _write(path, xml)

    def definition(self, vm: str) -> str | None:
        """Return the last known definition of a domain."""
        path = self._definition(vm)
        return path.read_text("utf-8") if path.exists() else None

    def note_task(self, key: str, state: str) -> None:
        """Record the state of an attempt or a command, or that an operation was aborted."""
        if self.task(key) != state:
            _write(self._task(key), state)

    def task(self, key: str) -> str:
        """Return the state of an attempt, a command or an operation; empty without a record."""
        path = self._task(key)
        return path.read_text("utf-8") if path.exists() else ""

    def _definition(self, vm: str) -> Path:
        return self._directory / "definitions" / f"{_safe(vm)}.xml"

    def _task(self, key: str) -> Path:
        return self._directory / "tasks" / _safe(key)


def _safe(name: str) -> str:
    """Convert the name of a domain to a file name."""
    plain = "".join(each if each.isalnum() or each in "-_" else "_" for each in name)[:80]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    with fresh.open("w", encoding="utf-8") as file:
        fresh.chmod(0o600)  # a definition may contain a console's password
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
