"""What the emulator says, to whoever reads it or does not."""

import os
from pathlib import Path

import pytest

from forewarn_emulator import line_writer
from forewarn_emulator.line_writer import LineWriter
from tests.waiting import wait_until


def test_nobody_who_speaks_waits_for_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that is full costs lines, and that is told; their order stays. Source: E-10."""
    monkeypatch.setattr(line_writer, "LINES_MAX", 50)
    front, back = os.pipe()
    with os.fdopen(back, "w", encoding="utf-8") as file:
        writer = LineWriter(file)
        for number in range(2000):  # 200 KB, three times what a pipe holds
            writer.write(f"{number:08} {'x' * 90}\n")
        with os.fdopen(front, "rb") as reader:
            os.set_blocking(front, False)
            found = b""

            def told() -> bool:
                nonlocal found
                found += reader.read() or b""
                return b"were dropped" in found

            wait_until(told)
            writer.close()
    numbers = [int(line[:8]) for line in found.decode().splitlines() if line[:8].isdigit()]
    assert numbers == sorted(set(numbers))
    assert 50 <= len(numbers) < 2000


def test_last_lines_are_written(tmp_path: Path) -> None:
    """Whoever ends the emulator has all that it said."""
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        writer = LineWriter(file)
        for number in range(1000):
            writer.write(f"{number}\n")
        writer.close()
    assert (tmp_path / "out").read_text("utf-8").split() == [str(n) for n in range(1000)]
