"""The language of transcripts, and the command that plays it."""

from pathlib import Path

import pytest

from forewarn_metadata.replication.messages import DocumentChange
from tests.simulator.__main__ import main
from tests.simulator.checkers.invariants import InvariantChecker
from tests.simulator.transcripts.grammar import USAGES
from tests.simulator.transcripts.transcript import parse, play, rewritten
from tests.simulator.world.crash_points import Violation

PAGE = Path(__file__).resolve().parents[1] / "transcripts" / "README.md"
STORY = """# A story.
host h1
vm web_0 on=h1 group=web

operator reboot h1
----
op-1 announced; not before 00:15:00
web 1: ev-1 Reboot Scheduled [web_0]
"""


def test_story_is_read_and_written_alike() -> None:
    """What is told in place of what was expected is the same text. Source: L-1."""
    transcript = parse(STORY)
    assert transcript.title == "A story."
    assert [block.line for block in transcript.blocks] == [2, 5]
    told = list(play(transcript))
    assert all(each.agrees for each in told)
    assert rewritten(transcript, told) == STORY


def test_other_lines_do_not_agree() -> None:
    """A line that is not told as expected is a difference. Source: L-1."""
    told = list(play(parse(STORY.replace("00:15:00", "00:14:00"))))
    assert [each.agrees for each in told] == [True, False]


def test_simulate_runs_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    """The report counts them. Source: L-7."""
    size = ["--hosts", "3", "--vms", "9", "--days", "0.1"]
    assert main(["--runs", "2", *size]) == 0
    assert "2 worlds, " in capsys.readouterr().err


def test_simulate_tells_of_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed, step, last history and the command that repeats it; the status is 1. Source: L-8."""
    monkeypatch.setattr(InvariantChecker, "publishes", always_violated)
    size = ["--hosts", "3", "--vms", "9", "--days", "0.5"]
    assert main(["--seed", "3", *size]) == 1
    told = capsys.readouterr().err
    assert "seed 3, step" in told
    assert "repeat it with: python -m tests.simulator --seed 3 --hosts 3" in told


def test_simulate_tells_of_a_promise_broken_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a checker finds in a transcript is told, and the status is 1. Source: L-8."""
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    monkeypatch.setattr(InvariantChecker, "publishes", always_violated)
    assert main([str(path)]) == 1
    shown = capsys.readouterr()
    assert "> vm web_0 on=h1 group=web\n\n> operator reboot h1\n" in shown.out
    told = "broken promise after `operator reboot h1`: invariant 8: for a test"
    assert shown.err == f"{path}:5: {told}\n"


def always_violated(
    checker: InvariantChecker, change: DocumentChange, *, own_ms: int | None
) -> None:
    """A checker that finds every operation wrong."""
    if checker.state.operations:
        raise Violation("8", "for a test")


@pytest.mark.parametrize("usage", USAGES, ids=lambda usage: usage.partition(" [")[0])
def test_page_has_every_command(usage: str) -> None:
    """The page on transcripts has each command as it is written, its options too."""
    text = PAGE.read_text(encoding="utf-8").replace("\\|", "|")
    command, asks, options = usage.partition(" [not-before=")
    assert f"`{command}`" in text
    assert not asks or f"`[not-before={options}`" in text
