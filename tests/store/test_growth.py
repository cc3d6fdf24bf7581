"""A store whose past is limited stops growing, and a start costs no more with age."""

from pathlib import Path

import pytest

from bench.growth.__main__ import HOUR_MS, Load, measured

#: Ten days, so that the week passes in which ended work must stay.
LOAD = Load(hours=240, hosts=20, operations=60, max_bytes=2_600_000, look_ms=6 * HOUR_MS)


@pytest.mark.slow
def test_file_memory_and_start_are_bounded(tmp_path: Path) -> None:
    """The past reaches its limit and stays there; memory and start stay as they are. H-2, X-1."""
    begin, *_, before, last = measured(tmp_path, LOAD, every_h=60)
    assert last.operations > 500
    assert last.past_bytes <= LOAD.max_bytes
    assert before.past_bytes > LOAD.max_bytes / 2
    assert last.exported_bytes > before.exported_bytes
    grown = last.file_bytes - begin.file_bytes
    assert grown < 4 * LOAD.max_bytes
    assert last.resident_bytes < 1.3 * begin.resident_bytes
    assert last.start_bytes < 1.2 * begin.start_bytes
    assert last.start_s < 2 * begin.start_s + 0.2
