"""Durations learned from earlier work, and the plans and findings that follow from them."""

from dataclasses import replace

import pytest
from hypothesis import given

from forewarn_core.planning.checker import check
from forewarn_core.planning.durations import DurationSample, LearnedDuration, duration_text, learned
from forewarn_core.planning.fleet import Fleet, FleetHost
from forewarn_core.planning.plan import FleetState
from forewarn_core.planning.plan_text import NO_PLAN, plan_text, read_plan
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.local_time import Window
from tests.planning.test_rules import blocked, planned
from tests.planning.worlds import DAY_MS, MINUTE_MS, NOW_MS, World, everyone, learning_worlds

BY_MODEL = MaintenancePolicy(
    duration_percentile=90, duration_label="model", duration_samples=10, notice_s=900
)


def took(*minutes: int, model: str = "x") -> tuple[DurationSample, ...]:
    """Return samples of these minutes, on hosts of one model."""
    labels = ("zone=z1", f"model={model}")
    return tuple(DurationSample(n, labels, each * 60) for n, each in enumerate(minutes))


def hosts(*models: str) -> Fleet:
    """Return a fleet without VMs: one host of each model."""
    named = [FleetHost(f"h{n}", labels=(f"model={each}",)) for n, each in enumerate(models)]
    return Fleet.of(named, [])


@pytest.mark.parametrize(
    ("percent", "minutes"), [(1, 1), (10, 1), (11, 2), (50, 5), (90, 9), (91, 10), (100, 10)]
)
def test_percentile_is_a_duration_that_was_measured(percent: int, minutes: int) -> None:
    """By nearest rank: of ten samples, 90 % took at most the ninth. Source: F-9."""
    policy = MaintenancePolicy(duration_percentile=percent, duration_samples=10)
    samples = took(7, 3, 10, 1, 9, 2, 8, 4, 6, 5)
    assert learned(samples, policy) == (LearnedDuration("", percent, 10, minutes * 60),)


def test_few_samples_leave_what_was_asked() -> None:
    """One sample fewer than the policy wants, and nothing is learned. Source: F-9."""
    nine = took(*[5] * 9)
    assert learned(nine, BY_MODEL) == ()
    assert learned(nine + took(5, model="y"), BY_MODEL) == ()
    assert [each.samples for each in learned(nine + took(5), BY_MODEL)] == [10]
    assert learned(took(*[5] * 30), replace(BY_MODEL, duration_percentile=0)) == ()


def test_hosts_without_the_label_show_nothing() -> None:
    """Their work counts neither for a label nor for all hosts. Source: F-9."""
    bare = [DurationSample(1, ("zone=z1",), 60)] * 20
    assert learned(bare, BY_MODEL) == ()
    assert learned(bare, replace(BY_MODEL, duration_label="zone"))[0].label == "zone=z1"


@pytest.mark.parametrize("models", ["xyz", "yxz", "zyx"])
def test_wave_lasts_as_long_as_its_slowest_host(models: str) -> None:
    """Each host has the duration of its model, and model z what was asked. Source: F-9."""
    state = FleetState(samples=took(*[90] * 10) + took(*[5] * 10, model="y"))
    found = planned(hosts(*models), BY_MODEL, state, duration_s=1200)
    lasts_ms = {each.host: each.latest_end_ms - each.latest_start_ms for each in found.entries}
    minutes = [lasts_ms[f"h{n}"] // MINUTE_MS for n in range(3)]
    assert minutes == [{"x": 90, "y": 5, "z": 20}[each] for each in models]
    [wave] = found.waves
    lasts_min = (wave.latest_end_ms - wave.latest_start_ms) // MINUTE_MS
    assert lasts_min == 90, f"F-9: the wave of hosts of {minutes} min lasts {lasts_min} min"
    assert [each.label for each in found.learned] == ["model=x", "model=y"]


@pytest.mark.parametrize("models", ["xy", "yx"])
def test_wave_waits_for_an_opening_for_its_slowest_host(models: str) -> None:
    """Only the fast host fits into what is left of the window today. Source: F-9, F-7."""
    policy = replace(BY_MODEL, windows=(Window("night", from_min=0, to_min=100),))
    state = FleetState(samples=took(*[90] * 10) + took(*[5] * 10, model="y"))
    found = planned(hosts(*models), policy, state)
    for each in found.entries:
        opens_ms = NOW_MS + (each.latest_start_ms - NOW_MS) // DAY_MS * DAY_MS
        over_min = (each.latest_end_ms - opens_ms) // MINUTE_MS - 100
        assert over_min <= 0, f"F-7: {each.host} works until {over_min} min after the window"


def test_window_must_be_open_for_what_was_learned() -> None:
    """Longer work does not fit into a window that what was asked fits into. Source: F-9, F-7."""
    policy = replace(BY_MODEL, windows=(Window("night", from_min=60, to_min=120),))
    state = FleetState(samples=took(*[90] * 10))
    found = planned(hosts("x", "y"), policy, state, duration_s=3600)
    assert blocked(found) == {"h0": (code_of("window-too-short"), "window night")}
    shorter = planned(hosts("x", "y"), policy, FleetState(samples=took(*[5] * 10)), duration_s=7200)
    assert blocked(shorter) == {"h1": (code_of("window-too-short"), "window night")}


@pytest.mark.parametrize(
    "wrong",
    [
        LearnedDuration("model=x", 90, 11, 300),
        LearnedDuration("model=x", 90, 10, 240),
        LearnedDuration("model=y", 90, 10, 300),
    ],
)
def test_checker_computes_the_duration_again(wrong: LearnedDuration) -> None:
    """A figure that is not that of the samples is found. Source: F-9, invariant 19."""
    fleet, state = hosts("x"), FleetState(samples=took(*[5] * 10))
    right = plan(fleet, state, BY_MODEL, now_ms=NOW_MS, request=everyone(fleet))
    assert check(right, fleet, state=state, policy=BY_MODEL) == ()
    found = check(replace(right, learned=(wrong,)), fleet, state=state, policy=BY_MODEL)
    assert "durations" in {each.rule for each in found}


def test_checker_finds_a_wave_of_another_duration() -> None:
    """The plan states a figure and does not plan with it. Source: F-9, invariant 19."""
    fleet, state = hosts("x"), FleetState(samples=took(*[5] * 10))
    request = plan(fleet, FleetState(), BY_MODEL, now_ms=NOW_MS, request=everyone(fleet))
    stated = replace(request, learned=learned(state.samples, BY_MODEL))
    found = check(stated, fleet, state=state, policy=BY_MODEL)
    assert {each.rule for each in found} == {"times"}


def test_stored_plan_keeps_its_figures() -> None:
    """A plan without any has the text that the release before writes. Source: F-9, H-8."""
    figures = (LearnedDuration("model=x", 90, 63, 2520),)
    body = replace(NO_PLAN, learned=figures)
    assert read_plan(plan_text(body)) == body
    assert "learned" not in plan_text(NO_PLAN)


def test_sentence_names_figure_count_and_request() -> None:
    """Minutes are rounded up. Source: F-9."""
    figure = LearnedDuration("model=x", 90, 63, 2461)
    text = "took at most 42 min in 90 % of 63 earlier operations of its kind on hosts with model=x"
    assert duration_text(figure) == text
    assert duration_text(figure, 3600) == f"{text}; 60 min was asked"
    whole = duration_text(LearnedDuration("", 50, 20, 95))
    assert whole == "took at most 95 s in 50 % of 20 earlier operations of its kind"


@pytest.mark.slow
@given(learning_worlds())
def test_plan_with_learned_durations_passes_the_checker(world: World) -> None:
    """Whatever the samples, also where VMs move. Source: F-9, F-3."""
    fleet, state, policy, request = world
    found = plan(fleet, state, policy, now_ms=NOW_MS, request=request)
    assert check(found, fleet, state=state, policy=policy) == ()
