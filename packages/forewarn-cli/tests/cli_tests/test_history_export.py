"""`forewarn history export`: the whole history as lines of JSON."""

import gzip
import json
from pathlib import Path

import pytest

from forewarn_base.exit_codes import OK
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", ["-", "history.jsonl", "history.jsonl.gz"])
def test_history_is_exported_whole(run: Run, tmp_path: Path, name: str) -> None:
    """Every entry on a line, oldest first, with what became of the records. Source: A-6."""
    path = "-" if name == "-" else str(tmp_path / name)
    done = run("history", "export", "--output", path)
    assert done.status == OK
    text = done.out
    if name != "-":
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [each["sequence"] for each in lines] == list(range(1, len(lines) + 1))
    assert all(each["images"] for each in lines)


def test_export_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    """Where an export cannot go is a sentence."""
    done = run("history", "export", "--output", str(tmp_path / "no-such" / "file"))
    assert done.status != OK
    assert "cannot be written" in done.err
