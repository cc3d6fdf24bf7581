"""The leaves: clocks, identifiers, errors."""

import re
import subprocess
import sys
import threading

import pytest

from forewarn_base import errors
from forewarn_base.clock import (
    MARK_ABSURD_MS,
    SPEED_MAX,
    STEP_MS_MIN,
    WAIT_TIMEOUT_S,
    ScaledClock,
    SystemClock,
)
from forewarn_base.errors import ClockSpeedInvalid, ClockWentBack
from forewarn_base.ids import Ids
from tools.product import PYTHONPATH

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
START_MS = START_NS // 1_000_000


class Source:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall = START_NS
        self.monotonic = 5 * SECOND_NS
        self.boottime = 90 * SECOND_NS
        self.boot = "a boot"

    def pass_s(self, seconds: float) -> None:
        """Let time pass on both."""
        self.wall += int(seconds * SECOND_NS)
        self.monotonic += int(seconds * SECOND_NS)
        self.boottime += int(seconds * SECOND_NS)

    def suspend_s(self, seconds: float) -> None:
        """Let time pass while the machine is suspended."""
        self.wall += int(seconds * SECOND_NS)
        self.boottime += int(seconds * SECOND_NS)

    def system(self) -> SystemClock:
        """Return the system's clock over this source."""
        return SystemClock(
            lambda: self.wall,
            lambda: self.monotonic,
            boottime_ns=lambda: self.boottime,
            boot_id=lambda: self.boot,
        )

    def scaled(self, speed: float = 1.0) -> ScaledClock:
        """Return a scaled clock over this source."""
        return ScaledClock(speed, wall_ns=lambda: self.wall, monotonic_ns=lambda: self.monotonic)


def test_step_of_the_system_clock_shortens_no_notice() -> None:
    """Neither a step ahead nor one back moves the service's clock. Source: N-4."""
    source = Source()
    clock = source.system()
    for step_s in (3600, -7200):
        source.wall += step_s * SECOND_NS
        assert clock.now_ms() == START_MS
        assert clock.wait_s(START_MS + 900_000) == 900.0
    source.pass_s(900)
    assert clock.now_ms() == START_MS + 900_000
    assert clock.wait_s(START_MS + 900_000) == 0.0


def test_system_clock_adopts_a_step_ahead() -> None:
    """Once no notice is running the system's time is taken over. Source: N-4."""
    source = Source()
    clock = source.system()
    told: list[int] = []
    clock.listen(lambda: told.append(clock.now_ms()))
    source.wall += 3600 * SECOND_NS
    assert clock.adopt() == 3_600_000
    assert clock.now_ms() == START_MS + 3_600_000
    assert told == [START_MS + 3_600_000]


def test_system_clock_adopts_a_step_back() -> None:
    """Only where no notice is running, time goes back with the system's, and waits know. N-4."""
    source = Source()
    clock = source.system()
    source.wall -= 60 * SECOND_NS
    assert (clock.now_ms(), clock.off_ms()) == (START_MS, -60_000)
    assert clock.adopt() == -60_000
    assert (clock.now_ms(), clock.off_ms()) == (START_MS - 60_000, 0)
    assert clock.wait_s(START_MS) == 60.0


def test_step_too_small_to_be_one_is_not_adopted() -> None:
    """Two clocks are never read at once: what that makes of them is not a step. Source: N-4."""
    source = Source()
    clock = source.system()
    source.wall += (STEP_MS_MIN - 1) * 1_000_000
    assert clock.adopt() == 0
    assert clock.now_ms() == START_MS
    source.wall += 1_000_000
    assert clock.adopt() == STEP_MS_MIN


@pytest.mark.parametrize("step_s", [3600, -7200])
def test_system_clock_resumes_from_a_mark(step_s: int) -> None:
    """A later process of the same boot goes on, whatever became of the system's clock. N-4."""
    source = Source()
    mark = source.system().mark
    source.pass_s(10)
    source.suspend_s(20)
    source.wall += step_s * SECOND_NS
    source.monotonic = 0
    clock = source.system()
    assert clock.resume(mark, since_ms=START_MS) == step_s * 1000
    assert clock.now_ms() == START_MS + 30_000
    assert clock.mark == mark
    clock.adopt()
    assert clock.mark != mark


@pytest.mark.parametrize(
    ("boot", "mark"),
    [
        pytest.param("another boot", ("a boot", START_MS), id="another boot"),
        pytest.param("", ("", START_MS), id="no boot"),
        pytest.param("a boot", ("a boot", START_MS + MARK_ABSURD_MS), id="far ahead"),
        pytest.param("a boot", ("a boot", START_MS - MARK_ABSURD_MS - 90_001), id="far behind"),
    ],
)
def test_mark_that_means_nothing_is_not_resumed(boot: str, mark: tuple[str, int]) -> None:
    """The system's clock is followed where a mark is of another boot, or absurd. N-4."""
    source = Source()
    clock = source.system()
    source.boot = boot
    source.wall += 5 * SECOND_NS
    assert clock.resume(mark, since_ms=START_MS) == 0
    assert clock.now_ms() == START_MS + 5000
    assert clock.mark[0] == boot


def test_real_clock_resumes_from_its_own_mark() -> None:
    """The system's own sources agree, where it tells its boots apart. Source: N-4."""
    before = SystemClock()
    clock = SystemClock()
    assert abs(clock.resume(before.mark, since_ms=before.now_ms())) < STEP_MS_MIN
    assert (clock.mark == before.mark) or clock.mark[0] == ""


def test_wait_has_a_longest() -> None:
    """Far deadlines are waited for in parts. Source: N-4."""
    assert Source().system().wait_s(START_MS + 10**12) == WAIT_TIMEOUT_S
    assert Source().scaled().wait_s(START_MS + 10**12) == WAIT_TIMEOUT_S


def test_real_clock_goes_ahead() -> None:
    """The system's own sources are the defaults. Source: N-4."""
    clock = SystemClock()
    assert START_MS < clock.now_ms() <= clock.now_ms()


def test_scaled_clock_runs_pauses_and_jumps() -> None:
    """Speed, pause, resume and a jump change the time as they say. Source: N-4."""
    source = Source()
    clock = source.scaled(60)
    changes: list[int] = []

    def listener() -> None:
        changes.append(clock.now_ms())

    clock.listen(listener)
    source.pass_s(1)
    assert clock.now_ms() == START_MS + 60_000
    assert clock.wait_s(START_MS + 120_000) == 1.0
    assert clock.wait_s(START_MS) == 0.0
    clock.stop()
    source.pass_s(5)
    assert (clock.stopped, clock.now_ms()) == (True, START_MS + 60_000)
    assert clock.wait_s(START_MS + 120_000) == WAIT_TIMEOUT_S
    clock.advance(1000)
    clock.set_speed(2)
    assert (clock.stopped, clock.speed) == (True, 2.0)
    clock.start()
    source.pass_s(1)
    assert clock.now_ms() == START_MS + 63_000
    assert changes == [START_MS + n for n in (60_000, 61_000, 61_000, 61_000)]
    clock.unlisten(listener)
    clock.stop()
    assert len(changes) == 4


def test_scaled_clock_starts_where_it_is_told() -> None:
    """A start may be given. Source: N-4."""
    assert ScaledClock(1.0, start_ms=5, monotonic_ns=lambda: 0).now_ms() == 5


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf"), SPEED_MAX * 2])
def test_impossible_speed_is_refused_and_changes_nothing(speed: float) -> None:
    """A speed that is none raises and changes nothing. Source: N-4."""
    clock = Source().scaled(3)
    with pytest.raises(ClockSpeedInvalid):
        clock.set_speed(speed)
    assert clock.speed == 3.0
    with pytest.raises(ClockSpeedInvalid):
        ScaledClock(speed)


def test_scaled_clock_never_goes_back() -> None:
    """Going back raises and changes nothing. Source: N-4."""
    scaled = Source().scaled()
    with pytest.raises(ClockWentBack):
        scaled.advance(-1)
    assert scaled.now_ms() == START_MS


def test_scaled_clock_never_goes_back_between_threads() -> None:
    """Readers on other threads see time go ahead through every change. Source: N-4."""
    clock = ScaledClock(1000.0)
    broken: list[tuple[int, int]] = []

    def read() -> None:
        before = clock.now_ms()
        for _ in range(5000):
            now = clock.now_ms()
            if now < before:
                broken.append((before, now))
            before = now

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(200):
        clock.set_speed(1 + n % 7 * 1000)
        clock.advance(1)
    for thread in threads:
        thread.join()
    assert broken == []


GUID = re.compile(r"[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}")


@pytest.mark.parametrize("seed", [None, 7])
def test_guids_are_guids_and_never_repeat(seed: int | None) -> None:
    """Upper case, version 4, no two alike. Source: D-3."""
    ids = Ids(seed)
    guids = {ids.guid("event") for _ in range(1000)}
    assert len(guids) == 1000
    assert all(GUID.fullmatch(guid) for guid in guids)


def test_seeded_streams_repeat_and_do_not_disturb_each_other() -> None:
    """The same seed gives the same ids, whatever other kinds were asked for. Source: D-3."""
    one, two = Ids(7), Ids(7)
    two.token("other")
    two.fraction("other")
    assert [one.guid("event") for _ in range(3)] == [two.guid("event") for _ in range(3)]
    assert one.guid("event") != Ids(8).guid("event")
    assert re.fullmatch("[0-9a-f]{32}", one.token("lease"))
    assert 0.0 <= one.fraction("jitter") < 1.0


def test_every_error_says_what_and_what_to_do() -> None:
    """Each class of the tree has a code of its own, a status and a sentence."""
    kinds = errors.every_error()
    assert {errors.CallerError, errors.PeerError, errors.OurError, ClockWentBack} <= set(kinds)
    assert all(re.fullmatch("[a-z0-9-]+", kind.code) for kind in kinds)
    assert all(400 <= kind.status < 600 and kind.message for kind in kinds)
    error = ClockWentBack(now_ms=5, wanted_ms=3)
    assert str(error) == "The clock cannot go from 5 ms back to 3 ms."
    assert error.facts == {"now_ms": 5, "wanted_ms": 3}
    assert ClockSpeedInvalid(speed=0, speed_max=9).advice_text().startswith("Give a speed above 0")


def test_leaves_and_wire_import_nothing_heavy() -> None:
    """The agent pays for every module these import."""
    heavy = {"dataclasses", "typing", "datetime", "logging", "asyncio", "http", "email", "pathlib"}
    code = (
        "import sys; before = set(sys.modules)\n"
        "import forewarn_base.protocol.documents, forewarn_base.protocol.approvals\n"
        "import forewarn_base.clock, forewarn_base.errors, forewarn_base.ids\n"
        f"print(sorted((set(sys.modules) - before) & {heavy!r}))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True,
        env={"PYTHONPATH": PYTHONPATH}, check=True)  # fmt: skip
    assert done.stdout == "[]\n"
