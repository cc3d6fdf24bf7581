"""The emulator's clock: moved, scaled, paused, and always the time that is shown.

Scenarios have tests of their own; none of them in here.
"""

import urllib.request
from collections.abc import Callable

import pytest

from emulator_tests.asking import get
from emulator_tests.conftest import Stage
from forewarn_base.protocol import timestamps
from forewarn_emulator.options import ADVANCE_S_MAX, Options, margin_ms, settings_of
from forewarn_server.cli.api_client import ApiRefused


def clock_ms(stage: Stage) -> int:
    """Return the time the clock shows."""
    return timestamps.parse(stage.api.get("/v1/clock")["now"])


def test_clock_stands_while_it_is_paused(stage: Stage) -> None:
    """A paused clock shows the same time again. Source: N-4."""
    assert stage.api.get("/v1/clock")["stopped"] is True
    assert clock_ms(stage) == clock_ms(stage)


def test_clock_moves_by_what_it_is_told(stage: Stage) -> None:
    """Moving a paused clock by 15 minutes is 15 minutes, deadlines on the way or not."""
    before_ms = clock_ms(stage)
    stage.run("host-reboot")
    answer = stage.api.post("/v1/clock/advance", {"by": "PT15M"})
    assert timestamps.parse(answer["now"]) == before_ms + 900_000
    stage.advance("1h")
    assert clock_ms(stage) == before_ms + 4_500_000


def test_no_move_of_the_clock_makes_a_call_of_a_driver_hang() -> None:
    """A call that is under way while the clock is moved has its time still. Source: R-1."""
    assert settings_of(Options()).drivers.call_timeout_s > ADVANCE_S_MAX


def test_advanced_hour_is_the_hour_that_passed(stage: Stage) -> None:
    """What is due on the way happens at its own time, not at the end. Source: L-1, L-5."""
    stage.run("host-reboot")
    stage.advance("10h")
    operation = stage.api.get("/v1/operations/op-1")["operation"]
    started_ms = timestamps.parse(operation["started"])
    assert started_ms == timestamps.parse(operation["not_before"])
    assert timestamps.parse(operation["ended"]) == started_ms + 300_000


def test_shown_times_are_the_emulators(stage: Stage) -> None:
    """Date and NotBefore follow the emulator's clock. Source: E-7, D-7, N-1."""
    stage.advance("30d")
    announced_ms = clock_ms(stage)
    stage.run("host-reboot")
    not_before_ms = stage.emulator.document().events[0].not_before_ms
    assert not_before_ms is not None
    assert 900_000 <= not_before_ms - announced_ms <= 902_000
    ask = urllib.request.Request(stage.emulator.endpoint, headers={"Metadata": "true"})
    with urllib.request.urlopen(ask) as answer:
        shown_ms = timestamps.parse(answer.headers["Date"])
    assert 0 <= announced_ms - shown_ms < 1000


def test_running_clock_needs_nobody(stage: Stage) -> None:
    """At ten thousand times real time a quarter of an hour is over by itself. Source: L-1."""
    stage.run("host-update")
    stage.api.post("/v1/clock/speed", {"speed": 10_000})
    assert stage.api.post("/v1/clock/start")["stopped"] is False
    url = stage.emulator.endpoint + "&wait=30&incarnation="
    incarnation = 1
    while stage.sees():
        get(f"{url}{incarnation}")
        incarnation = stage.emulator.document().incarnation
    operation = stage.api.get("/v1/operations/op-1")["operation"]
    assert operation["state"] == "succeeded"
    assert timestamps.parse(operation["started"]) >= timestamps.parse(operation["not_before"])


@pytest.mark.parametrize("speed", [0, -1, 1e9])
def test_impossible_speed_is_refused(stage: Stage, speed: float) -> None:
    """A clock that runs backwards or not at all is refused; pause is another word."""
    with pytest.raises(ApiRefused, match=r"cannot run at speed|speed must be a number"):
        stage.api.post("/v1/clock/speed", {"speed": speed})
    assert stage.api.get("/v1/clock")["speed"] == 1.0


def test_clock_is_not_moved_too_far_or_back(stage: Stage) -> None:
    """A month at once is the most, and nobody goes back."""
    before_ms = clock_ms(stage)
    for by in ("32d", "-5m", -5, "soon", None):
        with pytest.raises(ApiRefused):
            stage.api.post("/v1/clock/advance", {"by": by})
    assert clock_ms(stage) == before_ms


def test_faster_clock_gives_a_larger_margin() -> None:
    """Showing an event takes real time; at high speed that must not eat the notice. Source: N-1."""
    assert margin_ms(1.0) == 500
    assert margin_ms(600.0) == 12_000


def test_notice_is_whole_at_high_speed(staged: Callable[..., Stage]) -> None:
    """Even at 2,000 times real time nothing starts with less than its notice. Source: N-1."""
    stage = staged(speed=2000.0)
    stage.api.post("/v1/clock/start")
    stage.api.post("/v1/scenarios/host-update/run")
    seen = stage.emulator.document().incarnation
    while seen < 3:
        get(f"{stage.emulator.endpoint}&wait=30&incarnation={seen}")
        seen = stage.emulator.document().incarnation
    entries = stage.api.get("/v1/history", operation="op-1")["entries"]
    at_ms = {entry["action"]: timestamps.parse(entry["at"]) for entry in entries}
    assert at_ms["operation.started"] - at_ms["operation.shown"] >= 900_000
