"""Tries breakages, each in a forked process, in which all the tests are loaded already.

A breakage of a function is made by giving the function other code. What is executed while its
module is loaded cannot be replaced in that way, so those breakages begin before the product loads;
nor can what runs only in processes that tests start.
"""

import dataclasses
import gc
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType

import pytest
from hypothesis.internal.conjecture import engine

from tests.postgres import drop_shared_databases
from tests.simulator.mutation.finder import break_children, finder_of
from tests.simulator.mutation.generated import ROOT, SOUND, Breakage, broken
from tests.simulator.mutation.recorded import Recorded
from tests.simulator.mutation.rooms import EXPLORED, SIMULATED, arguments

#: How many states of each small world are visited where no test notices.
STATES = 700
#: How long the tests of one breakage take together, as recorded; slower ones are left out.
TESTS_S_MAX = 180.0
#: How many times as long as recorded a test may take before it counts as endless.
PATIENCE = 10.0
MARGIN_S = 20.0
#: How long the tests may take to load; with a breakage they may never end.
LOADED_S_MAX = 300.0
MEMORY_MAX = 4 * 1024**3
#: What is answered before the first verdict where the tests are loaded broken.
LOADED = "loaded\n"
#: The code a function would get names other variables of the function around it.
IRREPLACEABLE = "irreplaceable"
#: `killed`, `survived`, `timed out` or `no coverage`, and who noticed.
Verdict = tuple[str, str]


def verdicts(
    room: str, chosen: list[Breakage], held: Recorded
) -> Iterator[tuple[Breakage, Verdict]]:
    """Try breakages; those that can be made in loaded modules come first."""
    late = [each for each in chosen if held.is_replaceable(each)]
    covered = [each for each in late if held.tests(each)]
    for each in late:
        if each not in covered:
            yield each, ("no coverage", "")
    early = [each for each in chosen if each not in late]
    if covered:
        for each, verdict in zip(covered, _served(room, covered, held), strict=True):
            if verdict[0] == IRREPLACEABLE:
                early.append(each)
            else:
                yield each, verdict
    for each in early:
        (verdict,) = _served(room, [each], held, is_early=True)
        yield each, verdict


def noticed_while_sound(room: str, any_of_it: Breakage, held: Recorded) -> str:
    """Return who complains of the product as it is, with the tests in the order used here."""
    sound = dataclasses.replace(any_of_it, number=SOUND, is_in_function=False)
    ((verdict, who),) = _served(room, [sound], held)
    return "" if verdict == "survived" else f"{verdict}: {who}"


def _served(
    room: str, chosen: list[Breakage], held: Recorded, *, is_early: bool = False
) -> Iterator[Verdict]:
    """Load the tests in another process, which answers with a line for each breakage."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        if is_early:
            sys.meta_path.insert(0, finder_of(chosen[0].module, chosen[0].number))  # type: ignore[arg-type]
            break_children(chosen[0])
        server = _Server(room, chosen, held, writer, is_early=is_early)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = pytest.main([*arguments(room)], plugins=[server])
        if is_early and not server.is_loaded:
            os.write(writer, f"killed\tcollection ends with {int(code)}\n".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answers:
        for _ in chosen:
            if is_early and not select.select([reader], [], [], LOADED_S_MAX)[0]:
                os.kill(child, signal.SIGKILL)
                yield "timed out", "loading the tests"
                break
            line = answers.readline()
            if line == LOADED:
                line = answers.readline()
            if not line:
                os.waitpid(child, 0)
                raise SystemExit(f"{room}: the tests could not be loaded")
            verdict, _, who = line.rstrip("\n").partition("\t")
            yield verdict, who
    os.waitpid(child, 0)


class _Server:
    """Takes the place of pytest's loop over the tests."""

    def __init__(
        self,
        room: str,
        chosen: list[Breakage],
        held: Recorded,
        writer: int,
        *,
        is_early: bool,
    ) -> None:
        self._room, self._chosen, self._held = room, chosen, held
        self._writer, self._is_early = writer, is_early
        self.is_loaded = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each breakage in a process of its own."""
        if session.testsfailed:
            return True  # not even loaded
        self.is_loaded = True
        if self._is_early:
            os.write(self._writer, LOADED.encode())
        items = {item.nodeid: item for item in session.items}
        for each in self._chosen:
            verdict = self._try(each, items)
            os.write(self._writer, "\t".join(verdict).encode() + b"\n")
        return True

    def _try(self, breakage: Breakage, items: dict[str, pytest.Item]) -> Verdict:
        spent, names = 0.0, []
        for name in self._held.tests(breakage):
            spent += self._held.seconds[name]
            if name in items and spent <= TESTS_S_MAX:
                names.append(name)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            os.setpgid(0, 0)
            self._attempt(breakage, [items[name] for name in names], writer)
        os.close(writer)
        try:
            return _watched(reader, {**self._held.seconds})
        finally:
            os.close(reader)
            try:
                os.killpg(child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            drop_shared_databases()

    def _attempt(self, breakage: Breakage, items: list[pytest.Item], writer: int) -> None:
        def say(line: str) -> None:
            os.write(writer, line.replace("\n", " ").encode() + b"\n")

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        if not self._is_early and not replaced(breakage):
            say(f"{IRREPLACEABLE}\t")
            signal.pause()
        try:
            who = noticed(self._room, items, say)
        except BaseException as error:  # noqa: BLE001 - however it ends, it is noticed
            who = repr(error)
        say(f"killed\t{who}" if who else "survived\t")
        signal.pause()  # the server ends it, and whatever it started


def _watched(reader: int, seconds: dict[str, float]) -> Verdict:
    """Return what a process says last; it says first what it is going to run."""
    running, kept = "", b""
    deadline = time.monotonic() + MARGIN_S
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        said = os.read(reader, 65536)
        if not said:
            return "killed", f"{running}: the process ended"
        *lines, kept = (kept + said).split(b"\n")
        for line in lines:
            verdict, is_verdict, who = line.decode().partition("\t")
            if is_verdict:
                return verdict, who
            running = verdict
            deadline = time.monotonic() + MARGIN_S + PATIENCE * seconds.get(running, MARGIN_S)
    return "timed out", running


class _Failures:
    """Notes which test fails."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def noticed(room: str, items: list[pytest.Item], say: Callable[[str], None]) -> str:
    """Return who notices first that something is broken; empty if nobody does."""
    failures = _Failures()
    if items:
        items[0].config.pluginmanager.register(failures)
    engine.MAX_SHRINKS = 1  # nobody reads what hypothesis has found
    for item, following in zip(items, [*items[1:], None], strict=True):
        say(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.failed:
            return failures.failed
    if room in EXPLORED:
        from tests.simulator.exploration.explorer import Explorer
        from tests.simulator.exploration.worlds import WORLDS

        for world in WORLDS:
            say(f"exploration {world.name}")
            violation = Explorer(world).explore(STATES).violation
            if violation is not None:
                return f"exploration {world.name}: {violation.invariant}"
    if room in SIMULATED:
        from tests.simulator.runs import run_world
        from tests.simulator.world.world import WorldPlan

        say("world 1")
        return run_world(WorldPlan(1, 8, 60, 2.0)).invariant
    return ""


def replaced(breakage: Breakage) -> bool:
    """Give every function of a loaded module the code it has once it is broken, if that can be."""
    if breakage.number == SOUND:
        return True
    path = ROOT / breakage.path
    text = path.read_text(encoding="utf-8")
    old = _codes(compile(text, str(path), "exec", dont_inherit=True))
    new = _codes(compile(broken(text, breakage.number), str(path), "exec", dont_inherit=True))
    changed = {name for name in old if name not in new or new[name] != old[name]}
    made = 0
    gc.unfreeze()  # frozen objects are not among those below
    for each in gc.get_objects():
        if not isinstance(each, FunctionType) or each.__code__.co_filename != str(path):
            continue
        name = _name(each.__code__)
        if name in changed:
            if name not in new or new[name].co_freevars != each.__code__.co_freevars:
                return False
            each.__code__ = new[name]
            made += 1
    return made > 0


def _codes(code: CodeType) -> dict[tuple[object, ...], CodeType]:
    found, stack = {}, [code]
    while stack:
        each = stack.pop()
        found[_name(each)] = each
        stack += [const for const in each.co_consts if isinstance(const, CodeType)]
    return found


def _name(code: CodeType) -> tuple[object, ...]:
    column = next(iter(code.co_positions()), None)  # tells two lambdas in one line apart
    return code.co_qualname, code.co_firstlineno, column if "<lambda>" in code.co_name else None
