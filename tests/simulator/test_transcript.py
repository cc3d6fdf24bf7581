"""The language of transcripts, and the command that plays it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.clock import VirtualClock
from forewarn.core import handlers
from forewarn.core.draft import Draft
from forewarn.core.stimulus import DriverBegun
from forewarn.exit_codes import INTERRUPTED
from forewarn.replication.messages import DocumentChange
from tests.simulator.__main__ import main
from tests.simulator.checkers.invariants import InvariantChecker
from tests.simulator.runs import WorldResult
from tests.simulator.simulation_report import Summary
from tests.simulator.transcripts.time_spans import clock_time, moment, seconds
from tests.simulator.transcripts.transcript import TranscriptInvalid, parse, play, rewritten
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import START_MS
from tests.simulator.world.world import WorldPlan

WAIT_S = 60
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "transcript:1: .*title"),
        ("no title", "transcript:1: .*title"),
        ("# T\n\n# A remark.\nhost h1\ndance", "transcript:5: .*dance"),
        ("# T\n" + "wait 1s\n\n" * 1001, "more than 1000"),
    ],
    ids=range(4),
)
def test_wrong_script_says_where(text: str, problem: str) -> None:
    """A line that cannot be done is named by its number."""
    with pytest.raises(TranscriptInvalid, match=problem):
        list(play(parse(text)))


def test_times_are_told_since_the_beginning() -> None:
    """Times are told since the beginning, in days where it is long."""
    assert moment(START_MS + 900_000) == "00:15:00"
    assert moment(START_MS + 7 * 86_400_000 + 5) == "7d 00:00:00.005"
    assert (seconds("-2h"), clock_time("26:00:01")) == (-7200, 93_601)


def test_simulate_plays_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A transcript is played; a difference is shown and makes the status 1. Source: L-1."""
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    assert main([str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("A story.\n\n> host h1\n> vm web_0")
    assert "> operator reboot h1\n  op-1 announced" in shown.out
    assert shown.err == "2 blocks as expected\n"
    path.write_text(STORY.replace("00:15:00", "00:14:00"))
    assert main([str(path)]) == 1
    shown = capsys.readouterr()
    assert "expected instead:\n  op-1 announced; not before 00:14:00" in shown.out
    assert shown.err == "1 of 2 blocks differs\n"
    assert main([str(tmp_path / "nothing")]) == 2


def test_simulate_shows_every_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A block that expects nothing and says something differs, if anything is expected at all."""
    path = tmp_path / "story.txt"
    path.write_text(f"{STORY}\noperator cancel op-1\n\nwait 1h\n----\nop-1 running\n")
    assert main([str(path)]) == 1
    shown = capsys.readouterr()
    assert "  web 2: nothing\n\nexpected instead:\n  nothing\n" in shown.out
    assert "> wait 1h\n\nexpected instead:\n  op-1 running\n" in shown.out
    assert shown.err == "2 of 4 blocks differ\n"
    path.write_text("# A question.\nhost h1\nvm web_0 on=h1\noperator reboot h1\n")
    assert main([str(path)]) == 0
    assert capsys.readouterr().err == "1 block played, nothing was expected\n"


def test_simulate_sums_a_story_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the end stands what became of the operations, for people and for programs."""
    path = tmp_path / "story.txt"
    path.write_text(STORY + "\nvm web_0 approves ev-1\nuser reboot web_0\noperator cancel op-2\n")
    assert main([str(path)]) == 1
    told = capsys.readouterr().out.splitlines()[-3:]
    assert [" ".join(line.split()) for line in told] == [
        "CAUSE ASKED SUCCEEDED FAILED CANCELLED UNDER WAY EVENTS APPROVALS",
        "host-reboot 1 0 0 0 1 1 1",
        "reboot 1 0 0 1 0 1 0",
    ]
    assert main([str(path), "--json"]) == 1
    form = json.loads(capsys.readouterr().out)
    assert (form["title"], form["agrees"], form["violation"]) == ("A story.", False, "")
    assert [each["agrees"] for each in form["blocks"]] == [True, True, False]
    assert form["blocks"][1]["expected"][0] == "op-1 announced; not before 00:15:00"
    assert form["operations"][1] == {
        "cause": "reboot",
        "asked": 1,
        "succeeded": 0,
        "failed": 0,
        "cancelled": 1,
        "under_way": 0,
        "events": 1,
        "approvals": 0,
    }


def test_simulate_names_the_wrong_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that is not a command is named by its file and number; the status is 2."""
    path = tmp_path / "story.txt"
    path.write_text(f"{STORY}\nwait 15\n")
    assert main([str(path)]) == 2
    assert f"{path}:10: 15 is not a duration; write 90s" in capsys.readouterr().err


def test_simulate_runs_worlds(capsys: pytest.CaptureFixture[str]) -> None:
    """Random worlds come to a table, or to JSON with a digest each. Source: L-7."""
    size = ["--hosts", "3", "--vms", "9", "--days", "0.5"]
    assert main(["--runs", "2", *size]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("CAUSE")
    assert "2 worlds, 1 day," in shown.err
    assert main(["--without", "faults", "--json", *size]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["worlds"], form["violations"]) == (1, [])
    assert not any(count for effects in form["faults"].values() for count in effects.values())


def test_progress_is_told_now_and_then_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a log there is a line each 5 % of the worlds, or each minute where that is rarer."""
    clock = VirtualClock()
    summary = Summary(40, progress=True, clock=clock)
    result = WorldResult(WorldPlan(1), lasted_ms=3_600_000, steps=1, digest="")
    for wait_s in (40, 40, 10, 10, 200, 1):
        clock.advance(wait_s * 1000)
        summary.add(result)
    told = capsys.readouterr().err.splitlines()
    assert told == ["2 of 40 worlds, 90 times real time", "5 of 40 worlds, 60 times real time"]


def test_speed_says_how_many_processes_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    """It is of the time that the run lasted; what one process came to stands beside it."""
    clock = VirtualClock()
    summary = Summary(2, 2, progress=False, clock=clock)
    for _ in range(2):
        clock.advance(30_000)
        summary.add(WorldResult(WorldPlan(1), lasted_ms=3_600_000, steps=1, digest=""))
    summary.print(json=False)
    assert "120 times real time by 2 processes, 60 by each" in capsys.readouterr().err


def test_interrupted_simulation_tells_what_it_came_to() -> None:
    """Ctrl-C ends all processes; the worlds that were finished are summed up."""
    command = [sys.executable, "-m", "tests.simulator", "--runs", "5000"]
    command += ["--jobs", "2", "--hosts", "3", "--vms", "9", "--days", "0.5"]
    ours, theirs = os.openpty()  # progress is told at once where a person looks
    simulating = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    told = b""
    while b" of 5000 worlds" not in told:
        told += os.read(ours, 4096)
    os.killpg(simulating.pid, signal.SIGINT)  # as a terminal does
    table, _ = simulating.communicate(timeout=WAIT_S)
    told = os.read(ours, 65536)
    os.close(ours)
    assert table.startswith(b"CAUSE")
    assert simulating.returncode == INTERRUPTED
    assert b"0 broken promises" in told
    assert b"Traceback" not in told


@pytest.mark.parametrize("wrong", [["--runs", "0"], ["--without", "rain"], ["--hosts", "9999"]])
def test_simulate_refuses_nonsense(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A number out of range and an unknown kind are said to be so."""
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
    assert wrong[0] in capsys.readouterr().err


def forget(draft: Draft, report: DriverBegun) -> tuple[int, ...]:
    """A product with a bug: it falls over whenever a driver has begun."""
    raise RuntimeError("a bug for the command")


@pytest.mark.parametrize(
    "form",
    [pytest.param([], marks=pytest.mark.nightly), ["--json", "--no-shrink"]],
    ids=["people", "json"],
)
def test_simulate_tells_of_a_broken_promise(
    form: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seed, step, last history and the command that repeats it; the status is 1. Source: L-8."""
    monkeypatch.setattr(handlers, "begun", forget)
    size = ["--hosts", "3", "--vms", "9", "--days", "0.5"]
    assert main(["--seed", "3", *size, *form]) == 1
    shown = capsys.readouterr()
    assert "seed 3, step" in shown.err
    assert "repeat it with: python -m tests.simulator --seed 3 --hosts 3" in shown.err
    if form:
        violation = json.loads(shown.out)["violations"][0]
        assert violation["invariant"] == "bug"
        assert violation["command"].startswith("python -m tests.simulator --seed 3")


def test_interrupted_search_leaves_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while a shorter run is looked for: the found one and the shortest are told."""
    worlds = [0]

    def interrupted(draft: Draft, report: DriverBegun) -> tuple[int, ...]:
        worlds[0] += 1
        raise KeyboardInterrupt if worlds[0] > 2 else RuntimeError("a bug for the command")

    monkeypatch.setattr(handlers, "begun", interrupted)
    size = ["--hosts", "8", "--vms", "60", "--days", "1"]
    assert main(["--seed", "3", *size]) == 1
    told = capsys.readouterr().err
    found, _, shorter = told.partition("a shorter run that breaks the same promise:")
    again = "repeat it with: python -m tests.simulator --seed 3"
    assert f"{again} --hosts 8 --vms 60 --days 1\n" in found
    assert again in shorter
    assert "1 broken promise\n" in shorter


def test_simulate_tells_of_a_promise_broken_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a checker finds in a transcript is told, and the status is 1. Source: L-8."""
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    monkeypatch.setattr(InvariantChecker, "publishes", always_violated)
    assert main([str(path)]) == 1
    shown = capsys.readouterr()
    assert "> vm web_0 on=h1 group=web\n\n> operator reboot h1\n\nCAUSE" in shown.out
    told = "broken promise after `operator reboot h1`: invariant 8: for a test"
    assert shown.err == f"{path}:5: {told}\n"
    assert main([str(path), "--json"]) == 1
    form = json.loads(capsys.readouterr().out)
    assert form["violation"] == "invariant 8: for a test"
    assert (form["violation_line"], form["agrees"]) == (5, False)


def always_violated(
    checker: InvariantChecker, change: DocumentChange, *, own_ms: int | None
) -> None:
    """A checker that finds every operation wrong."""
    if checker.state.operations:
        raise Violation("8", "for a test")
