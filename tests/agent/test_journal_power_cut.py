"""The journal on a disk whose power is cut at any call, with torn and lost writes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from forewarn.agent import journal as module
from forewarn.agent.journal import Journal
from tests.agent.power_cuts import CutDisk, PowerCutError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LIVES = 100
CALLS_MAX = 12
SIZE_MAX = 5000
"""Characters of a state: some are shorter than a sector, most take several."""


def lost(monkeypatch: pytest.MonkeyPatch, root: Path, *, honest: bool) -> int:
    """Live and lose power again and again; return how often a written state was not read."""
    chance, count = random.Random(20261123), 0
    acknowledged = begun = 0
    for life in range(LIVES):
        directory, after = root / f"{life}", root / f"{life + 1}"
        directory.mkdir(mode=0o700, exist_ok=True)
        after.mkdir(mode=0o700)
        disk = CutDisk(chance, calls=chance.randint(0, CALLS_MAX), honest=honest)
        disk.holds(directory)
        monkeypatch.setattr(module, "os", disk)
        journal = Journal(str(directory))
        read = journal.read()
        number = int(str(read["number"])) if read and "number" in read else 0
        count += number not in (acknowledged, begun)
        acknowledged = begun = number
        try:
            journal.make_room()
            while True:
                begun = acknowledged + 1
                journal.write({"number": begun, "text": "x" * chance.randint(0, SIZE_MAX)})
                acknowledged = begun
        except PowerCutError:
            journal.close()
            disk.after_the_cut(after)
    return count


def test_state_that_was_written_survives_every_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is the last state that was written, or the one being written. Source: C-9."""
    assert lost(monkeypatch, tmp_path, honest=True) == 0


def test_disk_that_lies_about_synchronising_loses_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cuts lose states where nothing is synchronised: the test above can fail."""
    assert lost(monkeypatch, tmp_path, honest=False) > LIVES / 10
