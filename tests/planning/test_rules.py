"""Each rule of a plan in the smallest fleet that shows it, and each plan judged by the checker."""

from dataclasses import replace

import pytest

from forewarn_core.planning.checker import check
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import FleetState, HandBack, Live, Plan, PlanRequest
from forewarn_core.planning.planner import plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, PolicyInvalid, Scope
from forewarn_core.rules.blockers import Code, code_of
from forewarn_core.rules.local_time import Window
from tests.planning.worlds import DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS, everyone, fleet_of

LONE = fleet_of("a", "b", "c", "d")


def planned(
    fleet: Fleet,
    policy: MaintenancePolicy | None = None,
    state: FleetState | None = None,
    **request: object,
) -> Plan:
    """Plan all hosts of a fleet; the plan has passed the checker."""
    policy, state = policy or MaintenancePolicy(), state or FleetState()
    found = plan(fleet, state, policy, now_ms=NOW_MS, request=everyone(fleet, **request))
    assert check(found, fleet, state=state, policy=policy) == ()
    return found


def waves(found: Plan) -> list[str]:
    """Return the hosts of each wave, as `h0 h2`."""
    return [" ".join(wave.hosts) for wave in found.waves]


def blocked(found: Plan) -> dict[str, tuple[Code, str]]:
    """Return code and subject of each blocker."""
    return {host: (blocker.code, blocker.subject) for host, blocker in found.blocked}


def test_hosts_that_share_nothing_go_together() -> None:
    """Without a reason to wait there is one wave."""
    assert waves(planned(LONE)) == ["h0 h1 h2 h3"]


def test_hosts_that_share_a_group_go_apart() -> None:
    """Two fault domains of a group are never in one wave. Source: G-1, F-3."""
    assert len(planned(fleet_of("a", "a", "a b", "b")).waves) == 3


def test_a_wave_has_hosts_of_one_failure_domain() -> None:
    """Hosts of a rack go together, unless a group lies in two of their fault domains. T-12."""
    hosts = [FleetHost(f"h{n}", "z1", f"r{n % 2}", n) for n in range(6)]
    fleet = Fleet.of(hosts, [FleetGroup("a")], [("h1", "a", 1), ("h5", "a", 1), ("h0", "a", 1)])
    found = waves(planned(fleet, failure_domain="rack"))
    assert found[0] == "h0 h2 h4"
    assert sorted(found[1:], key=len) in (["h5", "h1 h3"], ["h1", "h3 h5"])


def test_moving_plans_take_one_failure_domain_at_a_time() -> None:
    """Where VMs leave first, a wave has hosts of one failure domain as well. Source: T-12."""
    hosts = [FleetHost(f"h{n}", "z1", f"r{n % 2}", n, capacity=9) for n in range(6)]
    fleet = Fleet.of(hosts, [FleetGroup("a")], [("h1", "a", 1)])
    for wave in planned(fleet, failure_domain="rack", move_s=600).waves:
        assert len({int(host[1]) % 2 for host in wave.hosts}) == 1


def test_hosts_of_one_fault_domain_go_together() -> None:
    """Within one fault domain a group may be disturbed at once. Source: G-1."""
    hosts = [
        FleetHost("h0", fault_domain=1),
        FleetHost("h1", fault_domain=1),
        FleetHost("h2", "z2", "", 1),
    ]
    vms = [(host.name, "a", 1) for host in hosts]
    assert sorted(waves(planned(Fleet.of(hosts, [FleetGroup("a")], vms)))) == ["h0 h1", "h2"]


def test_each_host_is_told_in_one_update_domain() -> None:
    """What a host's groups are told names VMs of that host alone. Source: G-2, F-2."""
    found = planned(fleet_of("a b", "b"))
    assert [(entry.host, entry.groups) for entry in found.entries] == [
        ("h0", ("a", "b")),
        ("h1", ("b",)),
    ]


@pytest.mark.parametrize(
    ("budget", "count"),
    [
        (Budget(Scope.FLEET, 1), 4),
        (Budget(Scope.FLEET, 50, percent=True), 2),
        (Budget(Scope.FLEET, 1, percent=True), 4),
        (Budget(Scope.ZONE, 2), 2),
        (Budget(Scope.RACK, 2), 2),
        (Budget(Scope.RACK, 1, name="other"), 1),
        (Budget(Scope.LABEL, 1, name="k=1"), 2),
        (Budget(Scope.OWNER, 2), 2),
        (Budget(Scope.GROUP, 1, name="a"), 1),
    ],
    ids=str,
)
def test_budget_limits_a_wave(budget: Budget, count: int) -> None:
    """No more hosts or VMs than a budget allows are in one wave. Source: F-3."""
    hosts = [replace(h, labels=("k=1",) if n < 2 else ()) for n, h in enumerate(LONE.hosts)]
    groups = [FleetGroup(name, "o") for name in "abcd"]
    fleet = Fleet.of(hosts, groups, [(f"h{n}", name, 1) for n, name in enumerate("abcd")])
    assert len(planned(fleet, MaintenancePolicy((budget,))).waves) == count


def test_strictest_budget_wins() -> None:
    """Of several budgets each holds, those of the maintenance, too. Source: F-1, F-3."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 3), Budget(Scope.FLEET, 75, percent=True)))
    assert len(planned(LONE, policy, budgets=(Budget(Scope.ZONE, 1),)).waves) == 4


def test_failures_count_against_budgets() -> None:
    """A failed host takes a place of a budget. Source: F-3."""
    found = planned(LONE, MaintenancePolicy((Budget(Scope.FLEET, 2),)), FleetState(failed=("h3",)))
    assert waves(found) == ["h0", "h1", "h2"]
    assert blocked(found) == {"h3": (code_of("host-failed"), "the failure of host h3")}


def test_host_without_room_in_a_budget_is_blocked() -> None:
    """Where a budget is used up for a time nobody knows, it is the blocker. Source: F-4."""
    found = planned(LONE, MaintenancePolicy((Budget(Scope.FLEET, 1),)), FleetState(failed=("h3",)))
    assert blocked(found)["h0"] == (code_of("budget"), "fleet")


def test_budget_that_is_free_later_delays() -> None:
    """Work by hand with a known end holds a wave up until then. Source: F-3, F-4."""
    state = FleetState((Live("op-1", "h3", ends_ms=NOW_MS + HOUR_MS),))
    fleet = fleet_of("a", "b", "c", "d")
    found = plan(
        fleet,
        state,
        MaintenancePolicy((Budget(Scope.FLEET, 1),)),
        now_ms=NOW_MS,
        request=PlanRequest(("h0",), 600),
    )
    assert found.waves[0].shown_ms == NOW_MS + HOUR_MS
    assert found.waves[0].waits.code is code_of("budget")


def test_work_in_another_zone_delays_nothing() -> None:
    """The budget of a host's own zone has room. Source: F-3."""
    fleet = Fleet.of([FleetHost(f"h{n}", zone) for n, zone in enumerate(("z1", "z1", "z2"))], [])
    state = FleetState((Live("op-1", "h2", ends_ms=NOW_MS + HOUR_MS),))
    policy = MaintenancePolicy((Budget(Scope.ZONE, 1),))
    found = plan(fleet, state, policy, now_ms=NOW_MS, request=PlanRequest(("h0",)))
    assert found.waves[0].shown_ms == NOW_MS


@pytest.mark.parametrize(
    ("live", "code"),
    [
        (Live("op-1", "h0"), code_of("host-busy")),
        (Live("op-1", "h1", 1), code_of("fault-domain")),
        (Live("op-1", "h2", destinations=("h0",)), code_of("arrivals")),
    ],
    ids=lambda value: getattr(value, "operation", str(value)),
)
def test_live_work_blocks(live: Live, code: Code) -> None:
    """Work nobody knows the end of blocks; with an end, it is waited for. Source: F-3, F-4."""
    fleet = fleet_of("a", "a", "c")
    found = planned(fleet, state=FleetState((live,)))
    assert blocked(found)["h0"] == (code, "op-1")
    ended = replace(live, ends_ms=NOW_MS + HOUR_MS)
    later = planned(fleet, state=FleetState((ended,)))
    wave = next(wave for wave in later.waves if "h0" in wave.hosts)
    assert wave.shown_ms >= NOW_MS + HOUR_MS


def test_unknown_host_is_blocked() -> None:
    """A host that is not there is named, and the others go on. Source: F-2, F-4."""
    found = plan(
        LONE,
        FleetState(),
        MaintenancePolicy(),
        now_ms=NOW_MS,
        request=PlanRequest(("h0", "h9"), canary_hosts=()),
    )
    assert blocked(found) == {"h9": (code_of("unknown-host"), "h9")}
    assert found.blocked[0][1].sentence("h9") == "host h9 is not in the fleet"


def test_waves_keep_notice_and_pause() -> None:
    """A wave is told after the last one has ended, and starts after notice and pause."""
    found = planned(LONE, MaintenancePolicy((Budget(Scope.FLEET, 2),), pause_s=1800))
    first, second = found.waves
    assert first.latest_start_ms == NOW_MS + 15 * MINUTE_MS
    assert first.earliest_start_ms == first.shown_ms == NOW_MS
    assert first.waits.code is code_of("notice")
    assert second.earliest_start_ms == first.latest_end_ms + 30 * MINUTE_MS
    assert (second.waits.code, second.waits.subject) == (code_of("pause"), "wave 1")


def test_canary_wave_is_first() -> None:
    """The first wave has no more hosts than the policy's canary count. Source: F-3."""
    found = planned(LONE, MaintenancePolicy(canary_count=1))
    assert waves(found) == ["h0", "h1 h2 h3"]
    assert [wave.canary for wave in found.waves] == [True, False]
    named = planned(LONE, canary_hosts=("h2",))
    assert waves(named) == ["h2", "h0 h1 h3"]


def test_bound_of_a_canary_wave_says_no_windows() -> None:
    """The canary and the other hosts have the same windows. Source: F-2."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), canary_count=1)
    argument = planned(LONE, policy).bound.argument
    assert argument.endswith("; for other hosts, 3 hosts of the fleet are to be done, 1 at a time")


def test_canary_wave_is_not_repeated() -> None:
    """Once hosts are done, the others follow as the budgets allow. Source: F-3."""
    policy = MaintenancePolicy(canary_count=1)
    state = FleetState(in_force=planned(LONE, policy), done=("h0",))
    again = planned(LONE, policy, state)
    assert [(wave.hosts, wave.canary) for wave in again.waves] == [(("h1", "h2", "h3"), False)]


def test_nothing_goes_before_a_canary_that_cannot() -> None:
    """Where no named canary can be done, the others wait for it."""
    found = planned(LONE, canary_hosts=("h9",))
    assert set(blocked(found).values()) == {(code_of("previous-wave"), "the canary wave")}


def test_owner_rests() -> None:
    """An owner is not disturbed again within the set time; others go first. Source: F-3."""
    fleet = fleet_of("a", "a", "b", "b", owners={"a": "ann", "b": "bob"})
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), owner_rest_s=6 * 3600)
    found = planned(fleet, policy)
    assert waves(found) == ["h0", "h2", "h1", "h3"]
    assert (found.waves[2].waits.code, found.waves[2].waits.subject) == (
        code_of("owner-rest"),
        "ann",
    )
    apart = fleet_of("a", "b", "c", "d", owners={"a": "ann", "b": "ann", "c": "bob", "d": "bob"})
    assert waves(planned(apart, policy)) == ["h0", "h2", "h1", "h3"]
    state = FleetState(owners_disturbed=(("ann", NOW_MS), ("bob", NOW_MS)))
    assert planned(fleet, policy, state).waves[0].earliest_start_ms == NOW_MS + 6 * HOUR_MS


def test_vms_without_an_owner_do_not_rest() -> None:
    """They are nobody's: no two of them are the same owner's. Source: F-3."""
    fleet = fleet_of("a", "b", "c", owners={"c": "ann"})
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), owner_rest_s=6 * 3600)
    found = planned(fleet, policy)
    starts = [wave.latest_start_ms for wave in found.waves]
    apart_h = (max(starts) - min(starts)) / HOUR_MS
    assert apart_h < 6, f"F-3: hosts of nobody's VMs and of ann's are {apart_h} h apart"
    state = FleetState(owners_disturbed=(("", NOW_MS + HOUR_MS),))
    assert planned(fleet, policy, state).waves == found.waves


def test_operation_fits_into_its_window() -> None:
    """An operation whose time does not fit waits for the next opening. Source: F-7."""
    night = Window("night", from_min=120, to_min=240)
    found = planned(fleet_of("a", "a", "a"), MaintenancePolicy(windows=(night,)), duration_s=3000)
    starts = [wave.latest_start_ms - NOW_MS for wave in found.waves]
    assert starts == [2 * HOUR_MS, 185 * MINUTE_MS, DAY_MS + 2 * HOUR_MS]
    assert found.waves[2].waits.code is code_of("window")


def test_operation_may_fill_its_window() -> None:
    """An hour's work fits into an hour. Source: F-7."""
    found = planned(LONE, MaintenancePolicy(windows=(Window("hour", from_min=120, to_min=180),)))
    assert [wave.latest_start_ms for wave in found.waves] == [NOW_MS + 2 * HOUR_MS]


def test_window_shorter_than_the_operation_blocks() -> None:
    """A host whose window is always too short is blocked by it. Source: F-7, F-4."""
    short = Window("short", from_min=120, to_min=150)
    found = planned(LONE, MaintenancePolicy(windows=(short,)))
    assert set(blocked(found).values()) == {(code_of("window-too-short"), "window short")}
    assert (found.bound.waves, found.bound.argument) == (0, "no host can be done now")


def test_host_without_a_window_of_its_own_is_open() -> None:
    """A window is for the hosts its selector names."""
    fleet = Fleet.of([FleetHost("h0", "z1"), FleetHost("h1", "z2")], [])
    night = Window("night", from_min=120, to_min=240, hosts=("zone=z2",))
    assert waves(planned(fleet, MaintenancePolicy(windows=(night,)))) == ["h0", "h1"]


def test_window_for_groups_closes_no_other_host() -> None:
    """A window may be for the hosts of some groups, or of none yet. Source: Z-7, F-7."""
    windows = [
        Window("b's", from_min=120, to_min=240, groups=("b",)),
        Window("nobody's", from_min=120, to_min=240, groups=()),
    ]
    found = planned(LONE, MaintenancePolicy(windows=tuple(windows)))
    assert waves(found) == ["h0 h2 h3", "h1"]
    assert found.waves[1].latest_start_ms == NOW_MS + 2 * HOUR_MS


def test_freeze_closes_time() -> None:
    """Nothing runs in a freeze, and a freeze over all time blocks. Source: G-4."""
    found = planned(LONE, MaintenancePolicy(freezes=((NOW_MS, NOW_MS + DAY_MS),)))
    assert found.waves[0].latest_start_ms == NOW_MS + DAY_MS
    frozen = planned(LONE, MaintenancePolicy(freezes=((NOW_MS, NOW_MS + 5000 * DAY_MS),)))
    assert blocked(frozen)["h0"] == (code_of("window"), "a freeze")


def test_wave_that_misses_its_opening_because_of_other_work_waits_for_that_work() -> None:
    """Other work may end early; then the wave still fits before the freeze. Source: F-4."""
    policy = MaintenancePolicy(freezes=((NOW_MS + 2 * HOUR_MS, NOW_MS + DAY_MS),))
    state = FleetState((Live("op-1", "h0", ends_ms=NOW_MS + 3 * HOUR_MS),))
    waits = {wave.hosts: wave.waits for wave in planned(fleet_of("a"), policy, state).waves}
    assert waits["h0",].code is code_of("host-busy")
    assert waits["h0",].clears_ms == NOW_MS + DAY_MS


def test_owners_budget_counts_vms() -> None:
    """Two hosts with two VMs each fit into a budget of four, not of three. Source: F-3."""
    fleet = fleet_of("a a", "b b", owners={"a": "ann", "b": "ann"})
    assert waves(planned(fleet, MaintenancePolicy((Budget(Scope.OWNER, 4),)))) == ["h0 h1"]
    found = planned(fleet, MaintenancePolicy((Budget(Scope.OWNER, 3),)))
    assert waves(found) == ["h0", "h1"]
    assert found.bound.argument == "4 VMs of owner ann are to be done, 3 at a time"
    larger = fleet_of("a a", "b b", "c c", "d d", owners=dict.fromkeys("abcd", "ann"))
    found = planned(larger, MaintenancePolicy((Budget(Scope.OWNER, 4),)))
    assert waves(found) == ["h0 h1", "h2 h3"]


def test_search_saves_a_wave_of_first_fit() -> None:
    """3, 5, 7 and 5 VMs, ten at a time, fill two waves; first fit needs three. Source: F-2."""
    fleet = fleet_of("a " * 3, "b " * 5, "c " * 7, "d " * 5, owners=dict.fromkeys("abcd", "ann"))
    policy = MaintenancePolicy((Budget(Scope.OWNER, 10),))
    assert waves(planned(fleet, policy, steps=0)) == ["h0 h1", "h2", "h3"]
    assert waves(planned(fleet, policy)) == ["h0 h2", "h1 h3"]


def test_rings_of_five_hosts_need_three_waves() -> None:
    """No search finds two, and both rings share the three. Source: F-2, G-1."""
    rings = ("a e", "a b", "b c", "c d", "d e", "f j", "f g", "g h", "h i", "i j")
    fleet = fleet_of(*rings)
    assert len(planned(fleet).waves) == 3


def test_work_on_a_vm_takes_no_room_for_hosts() -> None:
    """A budget of hosts counts work on whole hosts alone. Source: F-3."""
    state = FleetState((Live("op-1", "h1", vm=1),))
    found = planned(fleet_of("a", "b"), MaintenancePolicy((Budget(Scope.FLEET, 1),)), state)
    assert waves(found)[0] == "h0"


def test_host_to_be_emptied_without_room_in_a_budget_names_it() -> None:
    """Work without a known end takes the whole budget. Source: F-3, F-4."""
    state = FleetState((Live("op-1", "h1"),))
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),))
    found = planned(fleet_of("a", "b", "c"), policy, state, move_s=600)
    assert blocked(found)["h0"] == (code_of("budget"), "fleet")


def test_bound_leaves_out_hosts_that_are_too_late() -> None:
    """Nothing of their window is left to be done. Source: F-2."""
    fleet = Fleet.of([FleetHost("h0", "z1"), FleetHost("h1", "z2")], [])
    evening = Window("evening", from_min=1200, to_min=1380, hosts=("zone=z2",))
    state = FleetState((Live("op-1", "h1", ends_ms=NOW_MS + 21 * HOUR_MS),))
    deadline_ms = NOW_MS + 21 * HOUR_MS + 30 * MINUTE_MS
    found = planned(fleet, MaintenancePolicy(windows=(evening,)), state, deadline_ms=deadline_ms)
    assert (waves(found), found.bound.waves, list(blocked(found))) == (["h0"], 1, ["h1"])


def test_nothing_follows_moves_that_come_too_late() -> None:
    """Hosts that are emptied one after another need the room of those before. Source: F-3."""
    fleet = fleet_of("a", "b", "c", "", capacity=1)
    found = planned(fleet, move_s=600, deadline_ms=NOW_MS + 4 * HOUR_MS)
    assert waves(found) == ["h3", "h0"]
    assert set(blocked(found)) == {"h1", "h2"}
    assert set(blocked(found).values()) == {(code_of("deadline"), "wave 2")}


def test_deadline_before_the_next_opening_names_the_window() -> None:
    """A longer window would help, not an earlier end of the wave before. Source: F-4, F-7."""
    policy = MaintenancePolicy(windows=(Window("night", from_min=120, to_min=240),))
    found = planned(fleet_of("a", "a", "a"), policy, duration_s=3000, deadline_ms=NOW_MS + DAY_MS)
    assert blocked(found) == {"h2": (code_of("deadline"), "window night")}


@pytest.mark.parametrize(
    ("windows", "left_ms", "subject"),
    [
        ((), HOUR_MS - 1, "the duration of its work"),
        ((), -1, "the duration of its work"),
        ((Window("noon", from_min=720, to_min=840),), 12 * HOUR_MS + HOUR_MS // 2, "window noon"),
    ],
    ids=["short", "over", "within a window"],
)
def test_deadline_that_leaves_no_time_for_the_work_is_no_closed_window(
    windows: tuple[Window, ...], left_ms: int, subject: str
) -> None:
    """A freeze or a longer window would change nothing. Source: F-4."""
    policy, deadline_ms = MaintenancePolicy(windows=windows), NOW_MS + left_ms
    found = planned(fleet_of("a"), policy, duration_s=3600, deadline_ms=deadline_ms)
    assert blocked(found) == {"h0": (code_of("deadline"), subject)}


def test_host_that_cannot_be_emptied_keeps_no_room_from_others() -> None:
    """Only one of its two VMs finds room, which another host's VM then takes. Source: F-3."""
    hosts = [FleetHost(f"h{n}", fault_domain=n, capacity=size) for n, size in enumerate((4, 2, 2))]
    vms = [("h0", "a", 2), ("h0", "a", 2), ("h1", "b", 2)]
    fleet = Fleet.of(hosts, [FleetGroup("a"), FleetGroup("b")], vms)
    found = planned(fleet, move_s=600)
    assert waves(found) == ["h2", "h1"]
    assert set(blocked(found)) == {"h0"}


def test_host_without_room_for_its_vms_keeps_no_other_from_its_wave() -> None:
    """h3 has room for h0's and h2's VMs, or for those of h1. Source: F-3."""
    sizes = enumerate((1, 2, 1, 2))
    hosts = [FleetHost(f"h{n}", fault_domain=n, capacity=size) for n, size in sizes]
    vms = [("h0", "a", 1), ("h1", "b", 1), ("h1", "b", 1), ("h2", "c", 1)]
    fleet = Fleet.of(hosts, map(FleetGroup, "abc"), vms)
    request = PlanRequest(("h0", "h1", "h2"), move_s=600)
    found = plan(fleet, FleetState(), MaintenancePolicy(), now_ms=NOW_MS, request=request)
    assert waves(found) == ["h0 h2", "h1"]


def test_vms_move_to_a_host_without_work_first() -> None:
    """From a host that is to be done they would soon move again. Source: F-3."""
    request = PlanRequest(("h0", "h1"), move_s=600)
    fleet = fleet_of("a", "", "")
    found = plan(fleet, FleetState(), MaintenancePolicy(), now_ms=NOW_MS, request=request)
    assert [move.to_host for entry in found.entries for move in entry.moves] == ["h2"]


def test_host_with_work_on_a_vm_takes_none_after_its_own_wave() -> None:
    """That work goes on; so h0 is emptied last, though it would have room for b. Source: F-3."""
    state = FleetState((Live("op-1", "h0", 0, disturbs_groups=False),))
    found = planned(fleet_of("a", "b", "", capacity=1), state=state, move_s=600)
    assert waves(found) == ["h1", "h2", "h0"]
    assert "h0" not in {move.to_host for entry in found.entries for move in entry.moves}


def test_work_may_end_at_its_deadline() -> None:
    """Notice and an hour's work fill the time. Source: F-1."""
    found = planned(LONE, deadline_ms=NOW_MS + 75 * MINUTE_MS)
    assert waves(found) == ["h0 h1 h2 h3"]


def test_deadline_blocks_what_comes_too_late() -> None:
    """Hosts that cannot be done in time are blocked; the bound is for the others. Source: F-1."""
    found = planned(fleet_of("a", "a", "a"), deadline_ms=NOW_MS + 3 * HOUR_MS)
    assert len(found.waves) == 2 == found.bound.waves
    assert [code for code, _ in blocked(found).values()] == [code_of("deadline")]


def test_work_on_one_host_keeps_no_other_from_the_last_opening() -> None:
    """Hosts that share a wave part where only one of them must wait too long. Source: F-4."""
    state = FleetState((Live("op-1", "h0", ends_ms=NOW_MS + 3 * HOUR_MS),))
    found = planned(fleet_of("a", "b"), None, state, deadline_ms=NOW_MS + 2 * HOUR_MS)
    assert waves(found) == ["h1"]
    assert blocked(found) == {"h0": (code_of("deadline"), "op-1")}


def test_host_that_is_too_late_delays_no_other_host_of_its_wave() -> None:
    """Its owner rests too long, so the wave is timed as that of its other host. Source: F-4."""
    fleet = fleet_of("a", "", "b", owners={"a": "ann", "b": "bob"})
    policy = MaintenancePolicy((Budget(Scope.FLEET, 2),), owner_rest_s=6 * 3600)
    state = FleetState(owners_disturbed=(("ann", NOW_MS),))
    found = planned(fleet, policy, state, deadline_ms=NOW_MS + 3 * HOUR_MS)
    assert waves(found) == ["h1", "h2"]
    assert blocked(found) == {"h0": (code_of("deadline"), "ann")}


def test_earliest_start_holds() -> None:
    """Nothing starts before the maintenance may. Source: F-1."""
    found = planned(LONE, earliest_ms=NOW_MS + DAY_MS)
    assert found.waves[0].earliest_start_ms == NOW_MS + DAY_MS
    assert found.waves[0].waits.code is code_of("earliest-start")


def test_postponing_moves_one_host() -> None:
    """A postponed host goes later, with its notice, and no other does. Source: F-8."""
    found = planned(LONE, postponed=(("h1", NOW_MS + DAY_MS, "ann"),))
    assert waves(found) == ["h0 h2 h3", "h1"]
    assert found.waves[1].earliest_start_ms == NOW_MS + DAY_MS
    assert (found.waves[1].waits.code, found.waves[1].waits.subject) == (
        code_of("postponed"),
        "ann",
    )


def test_vms_that_move_fit_where_they_go() -> None:
    """VMs move only to hosts with room, and use the room that is done. Source: F-3."""
    fleet = fleet_of("a a a", "b b b", "", capacity=3)
    found = planned(fleet, move_s=600)
    to_hosts = [{move.to_host for move in entry.moves} for entry in found.entries]
    assert waves(found) == ["h2", "h0", "h1"]
    assert to_hosts == [set(), {"h2"}, {"h0"}]


def test_vms_that_return_leave_the_room_of_the_next_wave() -> None:
    """Each host's VMs go to the same spare host, and are back before the next wave. F-1, F-3."""
    fleet = fleet_of("a a a", "b b b", "", capacity=3)
    found = planned(fleet, move_s=600, return_s=1500)
    to_hosts = [{move.to_host for move in entry.moves} for entry in found.entries]
    assert (waves(found), to_hosts) == (["h0", "h1", "h2"], [{"h2"}, {"h2"}, set()])
    first = found.waves[0]
    assert (
        first.latest_end_ms - first.latest_start_ms
        == (600 + found.request.duration_s + 1500) * 1000
    )


def test_host_whose_window_opens_first_is_emptied_first() -> None:
    """Each wave of moves waits for the one before. Source: F-3, F-7."""
    fleet = Fleet.of([FleetHost("h0", "z1"), FleetHost("h1", "z2")], [])
    evening = Window("evening", from_min=1200, to_min=1380, hosts=("zone=z1",))
    night = Window("night", from_min=120, to_min=240, hosts=("zone=z2",))
    found = planned(fleet, MaintenancePolicy(windows=(evening, night)), move_s=600)
    assert waves(found) == ["h1", "h0"]


def test_vms_that_fit_nowhere_block() -> None:
    """Where there is no room, capacity is the blocker, with who would give it. F-3, F-4."""
    found = planned(fleet_of("a a", "b b", capacity=2), move_s=600)
    assert blocked(found) == {"h0": (code_of("capacity"), "h1"), "h1": (code_of("capacity"), "h0")}


def test_vm_of_unknown_size_blocks_its_host() -> None:
    """Nobody knows whether it fits elsewhere. Source: F-3, F-4."""
    fleet = fleet_of("a", "")
    fleet.vm_sizes[0] = 0
    found = planned(fleet, move_s=600)
    assert blocked(found) == {"h0": (code_of("capacity"), "a VM with an unknown memory size")}


def test_replanning_leaves_out_what_is_announced() -> None:
    """What is announced is not planned again, and the parent is named."""
    fleet = fleet_of("a", "a", "a")
    first = planned(fleet)
    state = FleetState(in_force=first, done=("h0",), failed=("h2",))
    fleet2 = Fleet.of([*fleet.hosts, FleetHost("h3", fault_domain=9)], fleet.groups)
    fleet2.vm_hosts, fleet2.vm_groups, fleet2.vm_sizes = (
        fleet.vm_hosts,
        fleet.vm_groups,
        fleet.vm_sizes,
    )
    policy = MaintenancePolicy()
    again = plan(fleet2, state, policy, now_ms=NOW_MS, request=everyone(fleet2))
    assert check(again, fleet2, state=state, policy=policy) == ()
    assert "h0" not in {each.host for each in again.entries} | blocked(again).keys()
    assert again.parent == first.id != again.id
    assert len(again.id) == 16
    assert blocked(again)["h1"] == (code_of("fault-domain"), "the failure of host h2")
    assert waves(again) == ["h3"]


@pytest.mark.parametrize(("total", "most"), [(1, 1), (9, 1), (19, 1), (20, 2), (29, 2)])
def test_share_of_a_budget_is_rounded_down_and_at_least_one(total: int, most: int) -> None:
    """Ten per cent are never exceeded, unless nothing could be done at all. Source: F-3."""
    assert Budget(Scope.FLEET, 10, percent=True).most(total) == most


def test_budget_that_contradicts_itself_is_refused() -> None:
    """A budget that cannot be meant is refused."""
    for wrong in ({"limit": -1}, {"limit": 0, "percent": True}, {"limit": 101, "percent": True}):
        with pytest.raises(PolicyInvalid):
            Budget(Scope.FLEET, **wrong)  # type: ignore[arg-type]
    with pytest.raises(PolicyInvalid, match="key=value"):
        Budget(Scope.LABEL, 1)


def test_two_works_on_a_host_take_its_budget_once() -> None:
    """A VM's own work and its host's disturb one host: another has room. Source: F-3, F-4."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 2),))
    state = FleetState((Live("op-1", "h0"), Live("op-2", "h0")))
    found = planned(LONE, policy, state)
    assert waves(found) == ["h1", "h2", "h3"]
    assert set(blocked(found)) == {"h0"}


def test_works_on_vms_of_one_host_each_take_their_owners_budget() -> None:
    """Two groups of one owner are disturbed on one host: both VMs count, and once. F-3, F-4."""
    fleet = fleet_of("a b", "c", "d", owners=dict.fromkeys("abc", "bob"))
    policy = MaintenancePolicy((Budget(Scope.OWNER, 2),))
    works = [Live(f"op-{vm}", "h0", vm) for vm in (0, 1)]
    plan = planned(fleet, policy, FleetState(tuple(works)))
    assert waves(plan) == ["h0 h2"]
    assert blocked(plan) == {"h1": (code_of("budget"), "owner bob")}


def test_works_on_vms_of_one_group_and_host_each_take_its_budget() -> None:
    """Two VMs are disturbed, however few groups they have. Source: F-3."""
    policy = MaintenancePolicy((Budget(Scope.GROUP, 2, name="a"),))
    works = [Live(f"op-{vm}", "h0", vm, disturbs_groups=False) for vm in (0, 0, 1)]
    found = planned(fleet_of("a a", "a", "b"), policy, FleetState(tuple(works)))
    assert waves(found) == ["h0 h2"]
    assert blocked(found) == {"h1": (code_of("budget"), "group a")}


def test_vm_with_work_of_its_own_counts_once_where_it_moves() -> None:
    """It leaves h0 for h1, which is emptied later: one VM is disturbed then, too. F-3, F-4."""
    policy = MaintenancePolicy((Budget(Scope.GROUP, 60, percent=True),))
    fleet = fleet_of("a", "", "", capacity=1)
    state = FleetState((Live("op-1", "h0", 0, disturbs_groups=False),))
    found = planned(fleet, policy, state, move_s=600)
    assert (len(found.waves), found.blocked) == (2, ())


def test_short_freeze_closes_the_time_around_it() -> None:
    """Work that begins before it and ends after it does not fit. Source: F-7."""
    freeze = (NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + MINUTE_MS)
    policy = MaintenancePolicy(freezes=(freeze,))
    assert not policy.is_open(frozenset(), (NOW_MS, NOW_MS + 2 * HOUR_MS))
    assert policy.is_open(frozenset(), (NOW_MS, freeze[0]))
    assert policy.is_open(frozenset(), (freeze[1], NOW_MS + 2 * HOUR_MS))


@pytest.mark.parametrize("chosen_in_min", [0, 15, 59, 74, 75, 90])
def test_chosen_start_is_kept_or_waits_for_its_deadline(chosen_in_min: int) -> None:
    """Early approvals start no work between a choice that is not kept and the deadline. T-2, T-3.

    Work on another host of the group comes first, and may end after the chosen start.
    """
    chosen_ms, deadline_ms = NOW_MS + chosen_in_min * MINUTE_MS, NOW_MS + 2 * HOUR_MS
    hand_backs = (HandBack("h0", chosen_ms, "a choice", deadline_ms),)
    state = FleetState((Live("op-1", "h1", ends_ms=NOW_MS + HOUR_MS),), done=("h1",))
    found = planned(
        fleet_of("a", "a"), MaintenancePolicy(notice_s=900), state, hand_backs=hand_backs
    )
    entry = next(each for each in found.entries if each.host == "h0")
    kept = entry.earliest_start_ms == entry.latest_start_ms == chosen_ms
    assert kept or entry.earliest_start_ms >= deadline_ms, entry
    assert kept is (chosen_in_min >= 60 + 15), entry  # the notice begins when h1 is done
