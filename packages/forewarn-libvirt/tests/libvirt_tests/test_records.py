"""What the libvirt driver keeps on disk: who is at work, and for how long it is kept."""

import os
from pathlib import Path

from forewarn_libvirt.config import LibvirtConfig
from forewarn_libvirt.records import KEPT_MS, DomainRecords

NOW_MS = 1_790_000_000_000


def records(directory: Path) -> DomainRecords:
    """Records of a driver with this directory."""
    return DomainRecords(LibvirtConfig(hosts={}, directory=str(directory)))


def test_operation_is_worked_on_once_at_a_time(tmp_path: Path) -> None:
    """A driver that was started meanwhile waits; other operations do not. Source: R-2."""
    one, other = records(tmp_path), records(tmp_path)
    with one.lock("op-1@5") as held:
        assert held
        with other.lock("op-1@5") as too, other.lock("op-2@5") as another:
            assert (too, another) == (False, True)
    with other.lock("op-1@5") as held:
        assert held


def test_records_of_old_tasks_are_removed(tmp_path: Path) -> None:
    """What the last attempts came to stays, and so do definitions of guests. Source: R-2."""
    kept = records(tmp_path)
    kept.note_task("old", "ended")
    kept.keep_definition("web_0", "<domain/>")
    for path in (each for each in tmp_path.rglob("*") if each.is_file()):
        os.utime(path, ns=((NOW_MS - KEPT_MS - 1) * 1_000_000,) * 2)
    kept.note_task("new", "begun")
    kept.prune(NOW_MS)
    assert (kept.task("old"), kept.task("new")) == ("", "begun")
    assert kept.definition("web_0") == "<domain/>"
