"""What drivers keep on disk stays bounded, and what is still needed stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forewarn.drivers import task_files
from forewarn.drivers.registry import make_driver
from forewarn.drivers.task_files import TaskFiles
from tests.drivers.tasks import ended, task

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep two operations that have ended."""
    monkeypatch.setattr(task_files, "KEPT_MAX", 2)


def kept(directory: Path) -> list[str]:
    """Return the operations that have files."""
    return sorted(each.name for each in directory.glob("op-*"))


def test_files_of_ended_operations_go_the_oldest_first(tmp_path: Path) -> None:
    """However long an operation takes, its files stay until it has ended. Source: R-1, R-2."""
    files = TaskFiles(tmp_path)
    for number in range(10, 17):
        files.attempt(task(number)).mkdir(parents=True)
    for number in (11, 13, 14, 15):
        files.mark_done(task(number))
    files.mark_aborted(task(16))
    files.attempt(task(15, attempt=2)).mkdir()  # a retry is under way
    files.attempt(task(17)).mkdir(parents=True)
    files.mark_done(task(17))
    files.mark_done(task(17))
    assert kept(tmp_path) == [f"op-{number}" for number in (10, 12, 14, 15, 16, 17)]


def test_command_driver_forgets_what_ended_long_ago(tmp_path: Path) -> None:
    """Its directory does not grow with the work it has done. Source: R-1."""
    settings = {"kind": "command", "state": str(tmp_path), "begin": ["true"]}
    driver = make_driver("mine", settings)
    for number in range(1, 6):
        driver.begin(task(number))
        assert ended(driver, task(number)).done
    assert kept(tmp_path) == ["op-3", "op-4", "op-5"]
