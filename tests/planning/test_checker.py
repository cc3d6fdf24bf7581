"""The checker finds each way to break a plan. What the planner does is tested elsewhere."""

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from forewarn_core.planning import checker
from forewarn_core.planning.checker import check
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import (
    FleetState,
    Live,
    Plan,
    PlanEntry,
    PlanRequest,
    VmMove,
    WaveBound,
)
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window
from tests.planning.worlds import DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS

FLEET = Fleet.of(
    [FleetHost(f"h{n}", "z1", f"r{n % 2}", n, capacity=4) for n in range(6)],
    [FleetGroup("a", "ann"), FleetGroup("b", "bob"), FleetGroup("c"), FleetGroup("d", "dan")],
    [
        ("h0", "a", 1),
        ("h1", "a", 1),
        ("h2", "b", 1),
        ("h3", "b", 1),
        ("h4", "c", 2),
        ("h5", "d", 1),
    ],
)
POLICY = MaintenancePolicy(
    (Budget(Scope.FLEET, 2), Budget(Scope.LABEL, 1, name="rack=r1")),
    (Window("night", from_min=60, to_min=600),),
    pause_s=600,
    owner_rest_s=60,
    canary_count=1,
)
STATE = FleetState(owners_disturbed=(("dan", NOW_MS),))
REQUEST = PlanRequest(tuple(f"h{n}" for n in range(6)), 1800, deadline_ms=NOW_MS + 5 * DAY_MS)
MOVING = replace(REQUEST, hosts=("h0", "h4"), move_s=600)
PAST = Window("past", last_date="2026-06-30")


@cache
def staying() -> Plan:
    """Return the plan that the breakages begin with."""
    return plan(FLEET, STATE, POLICY, now_ms=NOW_MS, request=REQUEST)


@cache
def moving() -> Plan:
    """Return a plan of hosts whose VMs leave."""
    return plan(FLEET, STATE, POLICY, now_ms=NOW_MS, request=MOVING)


def with_entry(found: Plan, host: str, **changes: object) -> Plan:
    """Return a plan with another entry for a host; its waves follow."""
    entries = tuple(
        replace(entry, **changes) if entry.host == host else entry  # type: ignore[arg-type]
        for entry in found.entries
    )
    return with_entries(found, entries)


def with_entries(found: Plan, entries: tuple[PlanEntry, ...]) -> Plan:
    """Return a plan with other entries, listed in the same waves as far as there are any."""
    waves = tuple(
        replace(wave, hosts=tuple(e.host for e in entries if e.wave == wave.number))
        for wave in found.waves
    )
    return replace(found, entries=entries, waves=tuple(wave for wave in waves if wave.hosts))


def shifted(found: Plan, host: str, by_ms: int) -> Plan:
    """Return a plan in which a host is done at another time."""
    entry = entry_in(found, host)
    names = ("shown_ms", "earliest_start_ms", "latest_start_ms", "earliest_end_ms", "latest_end_ms")
    return with_entry(found, host, **{name: getattr(entry, name) + by_ms for name in names})


def joined(found: Plan, host: str, other: str) -> Plan:
    """Return a plan in which a host is done with another one."""
    model = entry_in(found, other)
    entry = entry_in(found, host)
    together = replace(model, host=host, groups=entry.groups)
    return with_entries(found, tuple(together if e is entry else e for e in found.entries))


def entry_in(plan: Plan, host: str) -> PlanEntry:
    """Return the entry of a host in a plan."""
    return next(entry for entry in plan.entries if entry.host == host)


BREAKAGES: dict[str, tuple[str, Callable[[], Plan]]] = {
    "host left out": ("complete", lambda: with_entries(staying(), staying().entries[:-1])),
    "host twice": (
        "complete",
        lambda: with_entries(staying(), (*staying().entries, staying().entries[0])),
    ),
    "foreign parent": ("parent", lambda: replace(staying(), parent="x")),
    "bound too high": ("bound", lambda: replace(staying(), bound=WaveBound(99, ""))),
    "waves differ": ("waves", lambda: replace(staying(), waves=staying().waves[:-1])),
    "no canary": (
        "canary",
        lambda: replace(staying(), waves=tuple(replace(w, canary=False) for w in staying().waves)),
    ),
    "group in two domains": ("fault-domain", lambda: joined(staying(), "h1", "h0")),
    "fleet budget": ("budget", lambda: joined(joined(staying(), "h4", "h2"), "h5", "h2")),
    "label budget": ("budget", lambda: joined(joined(staying(), "h5", "h3"), "h3", "h3")),
    "told late": (
        "notice",
        lambda: with_entry(
            staying(), "h0", shown_ms=entry_in(staying(), "h0").shown_ms + 2 * MINUTE_MS
        ),
    ),
    "told in the past": ("notice", lambda: shifted(staying(), "h0", -DAY_MS)),
    "end too early": (
        "times",
        lambda: with_entry(staying(), "h0", latest_end_ms=entry_in(staying(), "h0").shown_ms),
    ),
    "start too early": (
        "earliest",
        lambda: replace(staying(), request=replace(REQUEST, earliest_ms=NOW_MS + 4 * DAY_MS)),
    ),
    "postponed": (
        "earliest",
        lambda: replace(
            staying(), request=replace(REQUEST, postponed=(("h0", NOW_MS + DAY_MS, ""),))
        ),
    ),
    "deadline": (
        "deadline",
        lambda: replace(staying(), request=replace(REQUEST, deadline_ms=NOW_MS + 1)),
    ),
    "closed window": ("window", lambda: shifted(staying(), "h0", 12 * HOUR_MS)),
    "waves overlap": (
        "waves",
        lambda: shifted(staying(), staying().waves[1].hosts[0], -20 * MINUTE_MS),
    ),
    "host of no fleet": (
        "unknown-host",
        lambda: with_entries(staying(), (replace(entry_in(staying(), "h0"), host="h99"),)),
    ),
    "destination of no fleet": (
        "unknown-host",
        lambda: with_entry(moving(), "h4", moves=(VmMove(4, "h99"),)),
    ),
    "not all get notice": ("groups", lambda: with_entry(staying(), "h0", groups=())),
    "VM forgotten": ("moves", lambda: with_entry(moving(), "h4", moves=())),
    "VM where work is": ("arrivals", lambda: with_entry(moving(), "h4", moves=(VmMove(4, "h4"),))),
    "no room": (
        "capacity",
        lambda: with_entry(
            moving(), "h0", moves=(VmMove(0, "h4"), VmMove(4, "h4"), VmMove(5, "h4"))
        ),
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_checker_finds(breakage: str) -> None:
    """A plan that is broken in one place is refused for that. Source: F-3."""
    rule, broken = BREAKAGES[breakage]
    found = check(broken(), FLEET, state=STATE, policy=POLICY)
    assert rule in {finding.rule for finding in found}, found


@pytest.mark.parametrize("good", [staying, moving])
def test_checker_passes_the_unbroken_plan(good: Callable[[], Plan]) -> None:
    """What the breakages begin with is right."""
    assert check(good(), FLEET, state=STATE, policy=POLICY) == ()
    assert not good().blocked


@pytest.mark.parametrize(
    ("rule", "state", "policy"),
    [
        ("one-at-a-time", FleetState((Live("op", "h0"),)), POLICY),
        ("one-at-a-time", FleetState(failed=("h0",)), POLICY),
        ("fault-domain", FleetState((Live("op", "h0", 0),)), POLICY),
        (
            "arrivals",
            FleetState((Live("op", "h9"), Live("op", "h5", destinations=("h0",)))),
            POLICY,
        ),
        ("budget", FleetState((Live("op", "h5"), Live("op", "h4"))), POLICY),
        ("owner-rest", FleetState(owners_disturbed=(("ann", NOW_MS + DAY_MS),)), POLICY),
        ("owner-rest", STATE, replace(POLICY, owner_rest_s=5 * 86_400)),
        ("window", STATE, replace(POLICY, freezes=((NOW_MS, NOW_MS + DAY_MS),))),
        ("window", STATE, replace(POLICY, windows=(PAST,))),
        ("window", STATE, replace(POLICY, windows=(replace(PAST, hosts=("zone=z1", "rack=r1")),))),
    ],
    ids=str,
)
def test_checker_finds_what_the_world_forbids(
    rule: str, state: FleetState, policy: MaintenancePolicy
) -> None:
    """A plan that was right is refused in a world with other work or another policy."""
    found = check(staying(), FLEET, state=state, policy=policy)
    assert rule in {finding.rule for finding in found}, found


def test_checker_finds_a_short_freeze_within_work() -> None:
    """A freeze of a minute, ten minutes after the start. Source: Invariant 19."""
    begins_ms = staying().waves[0].latest_start_ms
    freeze = (begins_ms + 10 * MINUTE_MS, begins_ms + 11 * MINUTE_MS)
    found = check(staying(), FLEET, state=STATE, policy=replace(POLICY, freezes=(freeze,)))
    assert "window" in {finding.rule for finding in found}, found


def test_checker_passes_freezes_up_to_work_and_from_its_end() -> None:
    """Neither closes the time of the work. Source: F-7."""
    wave = staying().waves[0]
    before = (wave.earliest_start_ms - MINUTE_MS, wave.earliest_start_ms)
    policy = replace(POLICY, freezes=(before, (wave.latest_end_ms, wave.latest_end_ms + MINUTE_MS)))
    assert check(staying(), FLEET, state=STATE, policy=policy) == ()


@pytest.mark.parametrize("other", [{"zone": "z2"}, {"driver": "nova"}, {"scheduled": True}])
def test_checker_finds_a_vm_where_it_cannot_be_moved(other: dict[str, str | bool]) -> None:
    """Its new host is in another zone, of another driver, or is chosen by a scheduler. F-3."""
    there = entry_in(moving(), "h0").moves[0].to_host
    hosts = [replace(host, **other) if host.name == there else host for host in FLEET.hosts]  # type: ignore[arg-type]
    fleet = replace(FLEET, hosts=tuple(hosts))
    found = check(moving(), fleet, state=STATE, policy=POLICY)
    assert "moves" in {finding.rule for finding in found}


def test_checker_stands_apart() -> None:
    """It imports values alone, and calls no function of the planner."""
    text = Path(checker.__file__).read_text("utf-8")
    modules = {n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    values = {"fleet", "plan", "policy", "wall_clock"}
    ours = {name.rpartition(".")[2] for name in modules if name and "planning" in name}
    assert ours <= values
