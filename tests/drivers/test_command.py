"""The command driver: programs that do the work, found again after a crash, bounded and ended."""

import json
import os
import signal
from pathlib import Path

import pytest

from forewarn_base.errors import PeerError
from forewarn_base.programs import ProgramFailed
from forewarn_drivers import PlatformUnanswered
from forewarn_drivers.command.driver import CommandDriver
from forewarn_drivers.command.runner import ProgramRuns
from forewarn_drivers.messages import AnswerUnusable
from forewarn_drivers.registry import DriverUnusable, make_driver
from forewarn_drivers.task_records import (
    TaskAborted,
    TaskForgotten,
    TaskRecords,
    TaskSuperseded,
)
from forewarn_store import open_store
from forewarn_store.errors import StoreUnavailable
from tests.drivers.tasks import ended, now_ms, task
from tests.waiting import wait_until


class Rig:
    """A driver whose programs are shell scripts, and the directory they write to."""

    def __init__(self, home: Path) -> None:
        """Have no scripts yet."""
        self.home = home
        self.store = str(home / "store.db")
        open_store(self.store).close()

    def notes(self, attempt: int = 1) -> dict[str, str]:
        """Return the records of an attempt."""
        return TaskRecords(self.store, "mine").notes(12).get(attempt, {})

    def driver(self, *, call_timeout_s: float = 5, **scripts: str) -> CommandDriver:
        """Return a driver again, as after a restart of the service."""
        options = {verb: ["sh", "-c", text] for verb, text in scripts.items()}
        settings = {"kind": "command", "call_timeout_s": call_timeout_s}
        driver = make_driver("mine", {**settings, **options}, self.store)
        assert isinstance(driver, CommandDriver)
        return driver

    def log(self, word: str) -> str:
        """Return a command that notes a word."""
        return f"echo {word} >> {self.home}/log"

    @property
    def noted(self) -> list[str]:
        """What the scripts have noted."""
        path = self.home / "log"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A driver's home."""
    return Rig(tmp_path)


def test_runner_that_does_not_reach_the_store_is_started_again() -> None:
    """It has begun nothing, so the operation is not stuck: the driver is called again. R-2."""
    runs = ProgramRuns(TaskRecords("postgresql://forewarn@127.0.0.1:1/none", "mine"))
    with pytest.raises(StoreUnavailable):
        runs.start(task().key, ["true"], b"{}", limits_s=(5, 30))


def test_command_is_given_the_task_and_ends_it(rig: Rig) -> None:
    """`begin` reads the task as JSON; its good end is the end of the task. Source: R-4."""
    driver = rig.driver(begin=f"cat > {rig.home}/task; echo for people; echo '{{\"share\": 0.5}}'")
    driver.begin(task())
    assert ended(driver, task()).done
    said = json.loads((rig.home / "task").read_text())
    assert said["task"] == "op-12/1"
    assert (said["verb"], said["generation"]) == ("begin", 1)
    assert said["followed_by"] == "nothing"
    assert (said["target"], said["vms"], said["impact"]) == ("h1", ["web_0", "web_1"], "Reboot")


def test_command_tells_its_progress(rig: Rig) -> None:
    """What the program printed last is its progress while it runs. Source: R-4."""
    gate = rig.home / "gate"
    os.mkfifo(gate)
    placed = '"placements": {"web_0": "h2"}'
    line = f'{{"task": "op-12/1", "text": "draining", "share": 0.25, {placed}}}'
    driver = rig.driver(begin=f"echo '{line}'; read x < {gate}")
    driver.begin(task())
    wait_until(lambda: driver.progress(task(), now_ms()).text == "draining")
    said = driver.progress(task(), now_ms())
    assert (said.share, said.done) == (0.25, False)
    assert said.placements == {"web_0": "h2"}
    assert said.again_ms > now_ms()
    gate.write_text("go\n")
    assert ended(driver, task()).done


@pytest.mark.parametrize(
    ("progress", "unknown"),
    [("exit 75", True), ("sleep 60", True), ("exit 1", False), ("echo", False)],
    ids=["not now", "too slow", "failed", "nothing said"],
)
def test_progress_without_an_answer_is_no_failure(rig: Rig, progress: str, unknown: bool) -> None:
    """The work goes on; Forewarn asks again. Source: R-1, R-4."""
    driver = rig.driver(begin="true")
    driver.begin(task())
    wait_until(lambda: not driver._runs.look(12, 1).running)
    impatient = rig.driver(begin="true", progress=progress, call_timeout_s=1.0)
    with pytest.raises(PeerError) as caught:
        impatient.progress(task(), now_ms())
    assert isinstance(caught.value, PlatformUnanswered) == unknown


def test_command_begins_once_and_is_found_after_a_restart(rig: Rig) -> None:
    """However often it is told, also by a service that started again. Source: R-2, R-4."""
    gate = rig.home / "gate"
    os.mkfifo(gate)
    begin = f"{rig.log('begun')}; read x < {gate}"
    rig.driver(begin=begin).begin(task())
    again = rig.driver(begin=begin)
    again.begin(task())
    again.begin(task(generation=2))
    assert not again.progress(task(), now_ms()).done
    gate.write_text("go\n")
    assert ended(again, task()).done
    again.begin(task(generation=2))
    assert rig.noted == ["begun"]


def test_command_whose_program_was_killed_says_so(rig: Rig) -> None:
    """A machine that lost power in the middle leaves a failure, never a success. Source: R-2."""
    driver = rig.driver(begin="exec sleep 60")
    driver.begin(task())
    wait_until(lambda: "program" in rig.notes())
    program = int(rig.notes()["program"].split()[1])
    os.kill(int(rig.notes()["runner"].split()[1]), signal.SIGKILL)
    wait_until(lambda: driver.progress(task(), now_ms()).failed)
    assert "was killed" in driver.progress(task(), now_ms()).failed
    driver.begin(task())
    assert "was killed" in driver.progress(task(), now_ms()).failed, "it is not begun again"
    assert _runs(program)
    driver.begin(task(attempt=2))
    wait_until(lambda: not _runs(program))
    driver.abort(task(attempt=2))


@pytest.mark.parametrize(
    ("begin", "reason"),
    [
        ("echo no disk >&2; exit 3", "ended with status 3: no disk"),
        ('echo \'{"failed": "no such host"}\'', "no such host"),
        ("kill -9 $$", "was ended by signal 9"),
        ("yes x | tr -d '\\n'", "printed a line of more than 65536 bytes"),
        ("yes $(printf %060000d 1)", "printed more than 16777216 bytes"),
    ],
    ids=["status", "answer", "signal", "line", "flood"],
)
def test_command_that_fails_says_why(rig: Rig, begin: str, reason: str) -> None:
    """The end of its standard error, its answer, or the limit it broke. Source: R-1."""
    driver = rig.driver(begin=begin)
    driver.begin(task())
    assert reason in ended(driver, task()).failed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "JSON"),
        ('{"task": "op-9/1", "done": true}', "is about op-9/1"),
        ('{"done": true, "failed": "x"}', "both success and failure"),
        ('{"share": 3}', "share"),
        ('{"state": "ok"}', "state"),
    ],
    ids=["json", "other", "both", "share", "unknown"],
)
def test_command_answer_that_is_none_is_a_failure(rig: Rig, line: str, reason: str) -> None:
    """An answer of another task or form ends nothing well. Source: R-1, R-2."""
    driver = rig.driver(begin=f"echo '{line}'")
    driver.begin(task())
    with pytest.raises(AnswerUnusable, match=reason):
        ended(driver, task())


def test_command_abort_ends_the_whole_process_group(rig: Rig) -> None:
    """Children go with their program, then `abort` cleans up; nothing begins again. R-2, L-7."""
    begin = f"sleep 60 & echo $! > {rig.home}/child; wait"
    driver = rig.driver(begin=begin, abort=rig.log("aborted"))
    driver.begin(task())
    wait_until(lambda: (rig.home / "child").exists() and (rig.home / "child").read_text())
    child = int((rig.home / "child").read_text())
    driver.abort(task())
    driver.abort(task())
    wait_until(lambda: not _runs(child))
    assert rig.noted == ["aborted", "aborted"]
    with pytest.raises(TaskAborted):
        driver.begin(task(attempt=2))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().split()[2] != "Z"
    except OSError:
        return False


def test_command_retry_takes_the_place_of_the_attempt_before(rig: Rig) -> None:
    """The first attempt's program has ended when the second one's begins. Source: L-8."""
    driver = rig.driver(begin=f"{rig.log('begun')}; sleep 60")
    driver.begin(task())
    wait_until(lambda: rig.noted == ["begun"])
    driver.begin(task(attempt=2))
    assert "end" in rig.notes(attempt=1)
    wait_until(lambda: rig.noted == ["begun", "begun"])
    driver.abort(task(attempt=2))


def test_command_refuses_a_superseded_writer(rig: Rig) -> None:
    """A generation lower than the highest seen begins and aborts nothing. Source: R-2."""
    driver = rig.driver(begin=rig.log("begun"))
    driver.begin(task(generation=5))
    assert ended(driver, task()).done
    late = task(number=13, generation=4)
    with pytest.raises(TaskSuperseded):
        driver.begin(late)
    with pytest.raises(TaskSuperseded):
        driver.abort(late)
    assert rig.noted == ["begun"]
    with pytest.raises(TaskForgotten):
        driver.progress(late, now_ms())


def test_command_asks_a_program_after_work_set_off(rig: Rig) -> None:
    """Where `progress` is given, a good end of `begin` means begun, not done. Source: R-4."""
    driver = rig.driver(
        begin="exit 0",
        progress=f"test -e {rig.home}/up && echo '{{\"done\": true}}' || echo '{{}}'",
    )
    driver.begin(task())
    wait_until(lambda: "end" in rig.notes())
    assert not driver.progress(task(), now_ms()).done
    (rig.home / "up").touch()
    assert driver.progress(task(), now_ms()).done


def test_command_keeps_the_services_secrets_from_programs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program does not find tokens or passwords in its environment. Source: R-1."""
    monkeypatch.setenv("FOREWARN_AZURE_TOKEN_KEY", "ops:0123456789abcdef")
    driver = rig.driver(begin=f"env > {rig.home}/env")
    driver.begin(task())
    assert ended(driver, task()).done
    assert "0123456789abcdef" not in (rig.home / "env").read_text()


def test_command_discovers_a_topology(rig: Rig) -> None:
    """Its lines are parts of one topology. Source: R-4."""
    driver = rig.driver(
        begin="true", discover='echo \'{"hosts": {"h1": {}}}\'; echo \'{"hosts": {"h2": {}}}\''
    )
    assert driver.discover() == {"hosts": {"h1": {}, "h2": {}}}
    with pytest.raises(ProgramFailed, match="not part of a topology"):
        rig.driver(begin="true", discover="echo '{\"hosts\": 3}'").discover()


def test_command_without_its_options_is_refused() -> None:
    """A driver that could do nothing is refused at the start. Source: R-4."""
    with pytest.raises(DriverUnusable, match=r"cannot be used: lacks the member 'begin'"):
        make_driver("mine", {"kind": "command"})
