"""The conformance suite for drivers: every shipped driver passes, each wrong one is named."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_conformance.driver_checks import run_driver_checks
from forewarn_conformance.driver_command import separate_driver
from forewarn_conformance.driver_trial import Subject
from forewarn_conformance.run import Result, Verdict
from forewarn_drivers import Progress, Task
from forewarn_drivers.registry import make_driver
from forewarn_server.cli.main import main


class Far:
    """What drivers work on; it outlives them."""

    def __init__(self) -> None:
        """Have done nothing."""
        self.effects: Counter[str] = Counter()
        self.begun: dict[str, int] = {}
        self.aborted: set[str] = set()
        self.newest = 0


class Sound:
    """A driver that keeps every promise; the wrong ones differ from it in one thing."""

    name = "sound"

    def __init__(self, far: Far) -> None:
        """Work on the far side."""
        self.far = far

    def begin(self, task: Task) -> None:
        """Begin once, in the name of the newest writer."""
        self._check_writer(task)
        if task.operation.id in self.far.aborted:
            raise LookupError("it was aborted")
        if task.id not in self.far.begun:
            self.far.begun[task.id] = 0
            self.far.effects[task.id] += 1

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Be done when asked for the second time, unless it takes an hour."""
        asked = self.far.begun[task.id]
        if task.operation.duration_s or asked == 0:
            self.far.begun[task.id] += 1
            return Progress(again_ms=now_ms + 1, text="working", share=0.5)
        return Progress(done=True)

    def abort(self, task: Task) -> None:
        """Begin no more of it."""
        self._check_writer(task)
        self.far.aborted.add(task.operation.id)

    def _check_writer(self, task: Task) -> None:
        if task.generation < self.far.newest:
            raise LookupError("another is the writer")
        self.far.newest = task.generation


class BeginsTwice(Sound):
    """Begins whenever it is told to."""

    def begin(self, task: Task) -> None:
        """Count each."""
        super().begin(task)
        self.far.effects[task.id] += 1


class ForgetsAfterCrash(Sound):
    """Keeps its tasks in memory."""

    def __init__(self, far: Far) -> None:
        """Forget them."""
        super().__init__(far)
        far.begun = {}


class Hangs(Sound):
    """Does not return from begin."""

    def begin(self, task: Task) -> None:  # noqa: ARG002
        """Wait for ever, or until the test run ends."""
        threading.Event().wait(60)


class HangsInAbort(Sound):
    """Does not return from abort."""

    def abort(self, task: Task) -> None:  # noqa: ARG002
        """Wait for ever, or until the test run ends."""
        threading.Event().wait(60)


class Lies(Sound):
    """Says that everything is done."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Say it of whatever it is asked after."""
        return Progress(done=True)


class Floods(Sound):
    """Says a megabyte."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say it with every answer."""
        said = super().progress(task, now_ms)
        return Progress(done=said.done, again_ms=said.again_ms, text="x" * 1_000_000)


class SendsControls(Sound):
    """Sends what a terminal acts on."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Clear the screen."""
        said = super().progress(task, now_ms)
        return Progress(done=said.done, again_ms=said.again_ms, text="\x1b[2J")


class SaysNothing(Sound):
    """Answers with no progress at all."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Return a dictionary, as the JSON was."""
        return {"done": True}  # type: ignore[return-value]


class Overshoots(Sound):
    """Counts in percent."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say that fifty times all of it is done."""
        super().progress(task, now_ms)
        return Progress(again_ms=now_ms + 1, share=50)


class MixesUpTasks(Sound):
    """Says of one task what is true of another."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Answer by the first task that there is."""
        del task
        first = next(iter(self.far.begun))
        self.far.begun[first] += 1
        return Progress(done=self.far.begun[first] > 1, again_ms=now_ms + 1)


class IgnoresAbort(Sound):
    """Hears of an abort, and begins all the same."""

    def abort(self, task: Task) -> None:
        """Do nothing."""


class AbortsOnlyOnce(Sound):
    """Fails where there is nothing left to abort."""

    def abort(self, task: Task) -> None:
        """Fail the second time."""
        if task.operation.id in self.far.aborted:
            raise LookupError("no such job")
        super().abort(task)


class GoesOnAfterEnd(Sound):
    """Begins again what has ended."""

    def begin(self, task: Task) -> None:
        """Forget that it was begun once it is over."""
        if self.far.begun.get(task.id, 0) >= 1:
            del self.far.begun[task.id]
        super().begin(task)


class NeverEnds(Sound):
    """Works and works."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Never be done."""
        del task
        return Progress(again_ms=now_ms + 1)


class SleepsForever(Sound):
    """Goes on, but never wants to be asked again."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say nothing at all."""
        del task, now_ms
        return Progress()


class IgnoresRetry(Sound):
    """Takes a retry for what it has begun already."""

    def begin(self, task: Task) -> None:
        """Begin the first attempt alone."""
        if task.attempt == 1:
            super().begin(task)
        else:
            self.far.begun[task.id] = 1


class ObeysAnyWriter(Sound):
    """Begins what a superseded writer asks for."""

    def _check_writer(self, task: Task) -> None:
        """Check nothing."""


class EndsTheService(Sound):
    """Ends the process it runs in."""

    def begin(self, task: Task) -> None:
        """Exit."""
        raise SystemExit(task.id)


def tried(make: Callable[[], Sound], far: Far) -> list[Result]:
    """Return what the suite finds."""
    call_s = 0.1 if isinstance(make(), Hangs | HangsInAbort) else 10.0
    task_s = 0.1 if isinstance(make(), NeverEnds) else 10.0
    subject = Subject(
        make, "h1", effects=lambda task: far.effects[task], call_s=call_s, task_s=task_s, first=1
    )
    return list(run_driver_checks(subject))


def test_sound_driver_passes_every_check() -> None:
    """The suite finds nothing where there is nothing. Source: R-6."""
    far = Far()
    results = tried(lambda: Sound(far), far)
    assert [(r.check.title, r.reason) for r in results if r.verdict is Verdict.FAILED] == []
    skipped = [r.check.title for r in results if r.verdict is Verdict.SKIPPED]
    assert skipped == ["discovery returns parts of a topology"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (BeginsTwice, "took effect 3 times after two begins"),
        (ForgetsAfterCrash, "took effect 2 times after a restart"),
        (Hangs, "begin of op-2/1 has not returned within 0.1 s"),
        (HangsInAbort, "has not returned within 0.1 s"),
        (Lies, "never began, but is reported as done"),
        (Floods, "text has 1000000 characters"),
        (SendsControls, "text has control characters"),
        (SaysNothing, "is a dict, not a Progress"),
        (Overshoots, "share is 50, not between 0 and 1"),
        (MixesUpTasks, "/1 is reported as done after the end of op-"),
        (IgnoresAbort, "took effect 1 times after its abort"),
        (AbortsOnlyOnce, "failed: no such job"),
        (GoesOnAfterEnd, "had ended, but is reported as running"),
        (NeverEnds, "has not ended within 0.1 s"),
        (SleepsForever, "gives neither"),
        (IgnoresRetry, "took effect 0 times after two begins of a retry"),
        (ObeysAnyWriter, "of an older writer took effect"),
        (EndsTheService, "raises SystemExit"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_wrong_driver_is_named(wrong: type[Sound], named: str) -> None:
    """Each fault is found, and its words say what it is. Source: R-6."""
    far = Far()
    results = tried(lambda: wrong(far), far)
    found = [r.reason for r in results if r.verdict is Verdict.FAILED]
    assert any(named in reason for reason in found), found


@pytest.mark.slow
def test_command_driver_passes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command driver keeps every promise, Source: R-6."""
    log = tmp_path / "log"
    log.touch()
    begin = tmp_path / "begin"
    begin.write_text(
        f"#!{sys.executable}\nimport json, sys, time\ntask = json.load(sys.stdin)\n"
        f"open({str(log)!r}, 'a').write(task['task'] + '\\n')\n"
        "print('{\"share\": 0.5}', flush=True)\ntime.sleep(task['duration_s'] and 60)\n"
    )
    count = tmp_path / "count"
    count.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"print(open({str(log)!r}).read().split().count(sys.argv[1]))\n"
    )
    for program in (begin, count):
        program.chmod(0o755)
    config = tmp_path / "forewarn.toml"
    config.write_text(f'[drivers.mine]\nkind = "command"\nbegin = ["{begin}"]\npoll_s = 0.1\n')
    words = ("driver", "check", "mine", "--config", str(config), "--host", "h1")
    status = main(("--json", *words, "--effects", str(count)))
    said = json.loads(capfd.readouterr().out)
    assert [each for each in said["checks"] if each["verdict"] == "failed"] == []
    assert (status, said["skipped"]) == (0, 1)


def test_check_has_a_name_of_its_own() -> None:
    """What a driver keeps under its name is not the service's. Source: R-6."""
    found = separate_driver("kubernetes", {"url": "u"})
    assert found == ("kubernetes-check", {"kind": "kubernetes", "url": "u"})


@pytest.mark.parametrize("kind", ["manual", "simulated"])
def test_built_in_driver_passes(kind: str) -> None:
    """Drivers that touch nothing keep what promises they can break. Source: R-6."""
    subject = Subject(lambda: make_driver(kind, {}), "h1", call_s=5, task_s=1, first=1)
    results = list(run_driver_checks(subject))
    assert [r.reason for r in results if r.verdict is Verdict.FAILED] == []
