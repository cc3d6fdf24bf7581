"""Which tests execute which line, and how long each takes: recorded once and kept in `.build`.

What is executed while modules are loaded is known apart: it cannot be changed afterwards.
"""

import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

from tests.simulator.mutation.generated import ROOT, Breakage
from tests.simulator.mutation.rooms import arguments
from tools.product import SOURCES

KEPT = ROOT / ".build" / "mutants"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded for a room."""

    #: Test -> how long it took, in seconds.
    seconds: dict[str, float]
    #: Path -> line -> the tests that execute it; the empty name is the loading of modules.
    lines: dict[str, dict[str, list[str]]]
    #: Tests that fail although nothing is broken.
    failed: list[str]

    def tests(self, breakage: Breakage) -> list[str]:
        """Return the tests that execute a breakage, fastest first."""
        if not self.is_replaceable(breakage):
            return sorted(self.seconds, key=self.seconds.__getitem__)
        return sorted(self._executing(breakage), key=self.seconds.__getitem__)

    def is_replaceable(self, breakage: Breakage) -> bool:
        """Whether a breakage can be made after its module was loaded; some never are in here."""
        loaded = breakage.path in self.lines
        return loaded and breakage.is_in_function and "" not in self._executing(breakage)

    def _executing(self, breakage: Breakage) -> set[str]:
        lines = self.lines.get(breakage.path, {})
        return {test for line in breakage.lines for test in lines.get(str(line), ())}


def recorded(room: str) -> Recorded:
    """Return what is recorded for a room; record it where product or tests have changed."""
    digest = _digest(room)
    path = KEPT / f"{room.replace('/', '-')}.json"
    if path.exists():
        held = json.loads(path.read_text(encoding="utf-8"))
        if held.pop("digest") == digest:
            return Recorded(**held)
    KEPT.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if not child:  # this process has yet to load the product unmeasured
        found = _record(room)
        path.write_text(json.dumps(found | {"digest": digest}), encoding="utf-8")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"{room}: the tests that execute each line could not be recorded")
    held = json.loads(path.read_text(encoding="utf-8"))
    del held["digest"]
    return Recorded(**held)


def _digest(room: str) -> str:
    found = hashlib.sha256(" ".join(arguments(room)).encode())
    for folder in (*SOURCES, ROOT / "tests"):
        for path in sorted(folder.rglob("*")):
            if path.is_relative_to(Path(__file__).parent):
                continue
            if path.is_file() and path.suffix in {".py", ".txt", ".sql", ".json", ".jsonl"}:
                found.update(str(path).encode())
                found.update(path.read_bytes())
    return found.hexdigest()


class _Recorder:
    """Tells coverage which test runs, and notes how long it takes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        begun = time.monotonic()
        result = yield
        self.seconds[item.nodeid] = time.monotonic() - begun
        self._measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _record(room: str) -> dict[str, object]:
    measured = coverage.Coverage(
        data_file=None, config_file=False, include=[f"{each}/*" for each in SOURCES], messages=False
    )
    recorder = _Recorder(measured)
    measured.start()
    pytest.main([*arguments(room)], plugins=[recorder])
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for path in data.measured_files():
        for line, tests in data.contexts_by_lineno(path).items():
            lines[str(Path(path).relative_to(ROOT))][str(line)] = tests
    return {"seconds": recorder.seconds, "lines": lines, "failed": recorder.failed}
