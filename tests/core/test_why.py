"""What work waits for: the code, whom or what, since when and until when. Source: F-4."""

from collections import Counter

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState, Planning
from forewarn_core.fleet.outlook import GroupOutlook, outlook
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import PostponementRefused
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    DriverBegun,
    DriverFailed,
    DriverProgressed,
    Enable,
    Repair,
    Retry,
    Tick,
)
from forewarn_core.fleet.topology import Group, Health, Host, Vm
from forewarn_core.fleet.why import blocker_of, why, why_host, why_maintenance, why_wave
from forewarn_core.planning.plan_text import PlanBody
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import Blocker, Code, code_of
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS, START_MS, Rig, small

HOUR_MS = 60 * MINUTE_MS


def blocker(rig: Rig, number: int) -> Blocker:
    """What an operation waits for first."""
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    found = blocker_of(draft, rig.now(number))
    assert found is not None
    return found


def test_announced_work_waits_for_approval_or_its_time() -> None:
    """Since it was announced, until its NotBefore. Source: L-2, B-3."""
    rig = small()
    rig.now_ms += MINUTE_MS
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    event_id = rig.event_of(operation, "far").id
    rig.now_ms += MINUTE_MS
    text = f"op-1 of h2: group far has not approved event {event_id}"
    until_ms = operation.not_before_ms
    since_ms = START_MS + MINUTE_MS
    assert blocker(rig, 1) == Blocker(code_of("approval"), "far", since_ms, until_ms, text)
    later = rig.ask(Cause.DELETION, "db_0", not_before_ms=rig.now_ms + HOUR_MS)
    text = "op-2 of db_0: its NotBefore is not reached"
    assert blocker(rig, 2) == Blocker(
        code_of("time"), "op-2", rig.now_ms, later.not_before_ms, text
    )


def test_clock_put_back_makes_a_new_plan_once() -> None:
    """The plan of a later clock would begin waves by that clock. F-4, N-4."""
    rig = fleet()
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=((START_MS, START_MS + DAY_MS),))))
    rig.now_ms += 6 * HOUR_MS
    number = rig.start("h0")
    for back_ms, made in ((6 * HOUR_MS, True), (-MINUTE_MS, False)):
        before, rig.now_ms = len(rig.plans), rig.now_ms - back_ms
        rig.tell(Tick())
        assert (len(rig.plans) > before) is made
    assert rig.plans[rig.maintenance(number).plan].made_ms < rig.now_ms


def test_clock_put_back_does_not_delay_the_next_try() -> None:
    """A host that cannot be done is planned again by the clock that was put back. F-4, N-4."""
    rig = fleet()
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.now_ms += 6 * HOUR_MS
    number = rig.start("h0")
    rig.now_ms -= 6 * HOUR_MS
    rig.tell(Tick())
    planning = rig.maintenance(number).planning
    assert planning is not None
    assert rig.now_ms < (planning.at_ms or 0) < rig.now_ms + HOUR_MS


def test_wait_starts_now_at_the_latest() -> None:
    """Also for work of a later clock, which was put back since. F-4, N-4."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.now_ms -= HOUR_MS
    assert blocker(rig, operation.number).since_ms == rig.now_ms


def test_approved_work_waits_for_its_earliest_start() -> None:
    """Also for one that had passed before the clock was put back; then for nothing. F-4, N-4."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(pause_s=1800)))
    number = rig.start("h0", "h1")
    rig.run(limit=2)
    rests_until_ms = rig.maintenance(number).rests_until_ms or 0
    rig.now_ms = rests_until_ms + 6 * HOUR_MS
    rig.tell(Tick())
    rig.now_ms += MINUTE_MS
    rig.tell(Tick())
    [operation] = rig.working(number).values()
    rig.now_ms = rests_until_ms - 1
    rig.approve(f"web_{operation.host[1:]}", operation)
    text = f"{operation.id} of {operation.host}: its earliest start is not reached"
    expected = Blocker(code_of("time"), operation.id, rig.now_ms, rests_until_ms, text)
    assert blocker(rig, operation.number) == expected
    rig.now_ms = rests_until_ms
    rig.tell(Tick())
    assert rig.now(operation.number).state is OperationState.RUNNING


def test_work_that_asks_nobody_waits_for_its_earliest_start() -> None:
    """That of its wave, or the time that was requested. Source: F-4, B-3."""
    rig = fleet()
    rig.tell(ChangeTopology(hosts=(Host("h9", 0, 0), Host("h10", 1, 1))))
    tonight = rig.now_ms + 10 * HOUR_MS
    number = rig.start("h9", earliest_ms=tonight)
    alone = rig.ask(Cause.HOST_REBOOT, "h10", not_before_ms=tonight)
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    waits = [*rig.why(rig.working(number)["h9"]), *rig.why(alone)]
    assert [each.clears_ms for each in waits] == [tonight, tonight]
    rig.now_ms = tonight
    rig.tell(Tick())
    assert {each.state for each in rig.state.operations.values()} == {OperationState.RUNNING}


def test_coupled_work_names_who_must_approve() -> None:
    """An approved deletion waits for the others of its request by name. Source: A-8."""
    rig = Rig()
    rig.tell(
        ChangeTopology(
            hosts=(Host("h"),),
            groups=(Group("g", terminate_notice_s=300),),
            vms=tuple(Vm(f"v{n}", "h", "g") for n in range(3)),
        ),
        Enable("g"),
    )
    first = rig.ask(Cause.DELETION, "v0", "v1", "v2")
    rig.approve("v0", first)
    text = "op-1 of v0: the same request's op-2, op-3 is not approved"
    expected = Blocker(code_of("coupled"), "op-2, op-3", START_MS, first.not_before_ms, text)
    assert blocker(rig, 1) == expected


def test_work_waits_for_other_work_by_name() -> None:
    """What runs or is announced on the host, or is on its way there, is named. Source: G-1."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h2")
    rig.ask(Cause.HOST_REBOOT, "h2", queue=True)
    text = "op-2 of h2: op-1 is already announced on host h2"
    assert blocker(rig, 2) == Blocker(code_of("host-busy"), "op-1", START_MS, text=text)
    rig.approve("far_0", 1)
    text = "op-2 of h2: op-1 is already running on host h2"
    assert blocker(rig, 2).text == text
    rig.finish(1)
    rig.approve("far_0", 2)
    rig.finish(2)
    rig.ask(Cause.LIVE_MIGRATION, "h0", destination="h2")
    rig.ask(Cause.HOST_REBOOT, "h2")
    assert blocker(rig, 4).text == "op-4 of h2: op-3 is moving VMs to host h2"


def test_running_work_waits_for_its_driver() -> None:
    """Whether it has begun, how far it is, until when it should take, and that it is late. L-8."""
    rig = small(enabled=())
    rig.ask(Cause.HOST_UPDATE, "h2", duration_s=120)
    due_ms = START_MS + 120_000
    text = "op-1 of h2: the driver has not begun to work on h2"
    assert blocker(rig, 1) == Blocker(code_of("driver"), "h2", START_MS, due_ms, text)
    rig.tell(DriverBegun(1, 1))
    assert blocker(rig, 1).text == "op-1 of h2: the driver works on h2"
    rig.tell(DriverProgressed(1, 1, "copying", 40))
    assert blocker(rig, 1).text == "op-1 of h2: the driver works on h2: copying, 40 % done"
    rig.wait(120_000 - 1)
    assert blocker(rig, 1).clears_ms == due_ms
    rig.wait(1)
    assert blocker(rig, 1).clears_ms == 0
    rig.wait(HOUR_MS)
    late = "the driver works on h2: copying, 40 % done; it takes longer than it should"
    assert blocker(rig, 1).text == f"op-1 of h2: {late}"
    rig.tell(Retry(1))
    assert (rig.now(1).execution.progress, rig.now(1).execution.progress_percent) == ("", -1)
    assert blocker(rig, 1).text == "op-1 of h2: the driver has not begun to work on h2"


def test_running_work_waits_for_whom_its_driver_says() -> None:
    """What a driver says it waits for is what the work waits for. Source: L-8."""
    rig = small(enabled=())
    rig.ask(Cause.HOST_REBOOT, "h2")
    terms = replace(rig.terms(), driver_waits=lambda _: "somebody must push a button")
    [waiting] = why(Draft(rig.state, rig.now_ms, terms), rig.now(1))
    assert (waiting.code.value, waiting.subject) == ("operator", "h2")
    assert waiting.text == "somebody must push a button"
    rig.wait(HOUR_MS)
    terms = replace(rig.terms(), driver_waits=lambda _: "somebody must push a button")
    [waiting] = why(Draft(rig.state, rig.now_ms, terms), rig.now(1))
    assert waiting.text == "somebody must push a button; it takes longer than it should"
    rig.tell(DriverFailed(1, 1, "no power"))
    text = "op-1 of h2: the driver failed: no power; retry, complete or fail it"
    assert blocker(rig, 1) == Blocker(code_of("operator"), "h2", START_MS, text=text)


def of_wave(rig: MaintenanceRig, number: int, wave: int) -> Blocker | None:
    """What a wave waits for first."""
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    return why_wave(draft, rig.maintenance(number), wave)


def test_wave_waits_for_the_one_before_it() -> None:
    """Each wave of the plan in force says what it waits for; others say nothing. F-4."""
    rig = fleet()
    number = rig.start("h0", "h1", "h2")
    first, second = of_wave(rig, number, 1), of_wave(rig, number, 2)
    assert first is not None
    assert second is not None
    assert first == rig.waits(number)
    assert (first.code, first.subject) == (code_of("approval"), "web")
    assert (second.code, second.subject) == (code_of("previous-wave"), "wave 1")
    shown_ms = rig.state.plans[rig.maintenance(number).plan].waves[1].shown_ms
    assert second.clears_ms == shown_ms
    assert second.text == "wave 2 waits for wave 1 to end"
    assert rig.waits(number, "h1") == second
    assert of_wave(rig, number, 9) is None
    rig.tell(words.PauseMaintenance(number, "a game is on"))
    halted = f"resume m-{number}, which is paused (a game is on)"
    expected = Blocker(code_of("operator"), halted, rig.now_ms)
    assert of_wave(rig, number, 1) == of_wave(rig, number, 2) == expected
    assert rig.waits(number) == rig.waits(number, "h0") == expected
    rig.tell(words.CancelMaintenance(number))
    assert of_wave(rig, number, 1) is None
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    assert why_maintenance(draft, rig.maintenance(number)) is None
    assert why_host(draft, rig.maintenance(number), "h0") is None


@pytest.mark.parametrize("hosts", [("h0", "h1", "h2"), ("h0", "lone", "h1")])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_wave_planned_beside_a_running_one_names_its_own_wait(
    hosts: tuple[str, ...], closed: bool
) -> None:
    """A new policy plans it again: it waits for that wave, or longer for a window. F-4."""
    rig = fleet()
    rig.tell(ChangeTopology(hosts=(Host("lone", 0, 0),)))
    number = rig.start(*hosts, budgets=(Budget(Scope.FLEET, 1),))
    rig.approve("web_0", rig.working(number)["h0"])
    freeze = (START_MS + HOUR_MS, START_MS + DAY_MS)
    spans = ((rig.now_ms, freeze[1]),) if closed else (freeze,)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=spans)))
    [second, *_] = rig.state.plans[rig.maintenance(number).plan].waves
    waiting = of_wave(rig, number, second.number)
    assert waiting is not None
    expected = (code_of("window"), "a freeze") if closed else (code_of("previous-wave"), "wave 1")
    assert (waiting.code, waiting.subject) == expected
    assert rig.waits(number, second.hosts[0]) == waiting
    assert rig.waits(number).code is code_of("driver")


def test_next_wave_waits_for_the_gate_of_the_last() -> None:
    """The wave before is over, so the gate is named. Source: F-4, F-5."""
    rig = fleet()
    number = rig.start("h0", "h1", gate="errors")
    rig.approve("web_0", rig.working(number)["h0"])
    rig.finish(rig.working(number)["h0"])
    for waiting in (rig.waits(number), of_wave(rig, number, 2), rig.waits(number, "h1")):
        assert waiting == Blocker(code_of("gate"), "errors", rig.now_ms)


def test_maintenance_that_stands_still_names_its_operator() -> None:
    """A draft is to be started, what was stopped to be looked at; since when is said. F-4."""
    rig = fleet()
    number = rig.create("h0")
    assert rig.waits(number) == Blocker(code_of("operator"), f"start m-{number}", START_MS)
    rig.wait(MINUTE_MS)
    rig.tell(words.StartMaintenance(number), words.GateFailed(number, "errors"))
    subject = f"look at m-{number}, which is stopped, and resume it (errors)"
    assert rig.waits(number) == Blocker(code_of("operator"), subject, rig.now_ms)


def test_host_says_what_it_waits_for_before_its_wave() -> None:
    """A failed, removed, postponed or done host says so; a plan to come, too. Source: F-4, F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    rig.plans_made = False
    number = rig.start("h0", "h1", "h2", "h4")
    moved_ms = rig.now_ms
    planning = Blocker(code_of("planning"), f"m-{number}", moved_ms)
    assert rig.waits(number, "h0") == planning
    rig.make_plan(number)
    rig.plans_made = True
    until_ms = rig.now_ms + 5 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h2",), until_ms, "alice"))
    text = "host h2 is postponed at the request of alice"
    assert rig.waits(number, "h2") == Blocker(
        code_of("postponed"), "alice", moved_ms, until_ms, text
    )
    rig.ask(Cause.HARDWARE_FAILURE, "h1")
    text = "host h1 has failed; repair it first, then it is planned again"
    assert rig.waits(number, "h1") == Blocker(code_of("host-failed"), "h1", moved_ms, text=text)
    gone = ChangeTopology(removed=(("vm", "web_4"), ("host", "h4")))
    rig.tell(gone)
    text = "host h4 is not in the fleet"
    assert rig.waits(number, "h4") == Blocker(code_of("unknown-host"), "h4", moved_ms, text=text)
    rig.tell(Repair("h1"))
    rig.run(limit=2)
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    done = [each.host for each in rig.state.targets.values()]
    assert done
    assert why_host(draft, rig.maintenance(number), done[0]) is None


@pytest.mark.parametrize(
    ("spoil", "code", "subject"),
    [
        ("fail", code_of("host-failed"), "h0"),
        ("remove", code_of("unknown-host"), "h0"),
        ("busy", code_of("host-busy"), "op-2"),
        ("beside", code_of("fault-domain"), "op-2"),
        ("limit", code_of("budget"), "operations of the service"),
        ("budget", code_of("budget"), "fleet"),
    ],
)
def test_wave_that_is_due_is_kept_back(spoil: str, code: Code, subject: str) -> None:
    """What has come since the plan was made keeps a host from being announced. F-3, F-4."""
    rig = fleet(policy=NoticePolicy(max_operations=1))
    budgets = (Budget(Scope.FLEET, 1),)
    more = {"budgets": budgets} if spoil == "budget" else {}
    number = rig.start("h0", earliest_ms=START_MS + DAY_MS, **more)
    rig.plans_made = False
    if spoil == "fail":
        rig.ask(Cause.HARDWARE_FAILURE, "h0")
    elif spoil == "remove":
        made = rig.planned(number)
        rig.tell(ChangeTopology(removed=(("vm", "web_0"), ("host", "h0"))), made)
    elif spoil == "busy":
        rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=START_MS + 9 * DAY_MS)
    elif spoil == "beside":
        rig.ask(Cause.HOST_REBOOT, "h1", not_before_ms=START_MS + 9 * DAY_MS)
    elif spoil == "limit":
        vm = Vm("lone", "h5", "lone")
        rig.tell(ChangeTopology(groups=(Group("lone"),), vms=(vm,)))
        rig.ask(Cause.REBOOT, "lone", not_before_ms=START_MS + 9 * DAY_MS)
    else:
        rig.ask(Cause.HARDWARE_FAILURE, "h3")
    if spoil != "limit":
        rig.policy = NoticePolicy()
    due_ms = rig.due_ms(number)
    rig.wait(due_ms - rig.now_ms)
    blocked = rig.maintenance(number)
    assert not rig.working(number)
    assert blocked.phase == Planning(due_ms + 60_000)
    found = rig.waits(number)
    assert (found.code, found.subject, found.since_ms) == (code, subject, due_ms)
    rig.wait(60_000)
    assert rig.maintenance(number).plan_wanted


def test_owner_rests_until_a_time_that_is_said() -> None:
    """A wave that is due too soon after other work names the owner, and when they have rested."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(owner_rest_s=3600)))
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    number = rig.start("h0", earliest_ms=START_MS + DAY_MS)
    rig.plans_made = False
    due_ms = rig.due_ms(number)
    rig.wait(due_ms - rig.now_ms - MINUTE_MS)
    by_hand = rig.ask(Cause.HOST_REBOOT, "h3")
    rig.approve("web_3", by_hand)
    rig.finish(by_hand)
    ended_ms = rig.now_ms
    rig.wait(MINUTE_MS)
    assert not rig.working(number)
    expected = (code_of("owner-rest"), "anna", due_ms, ended_ms + HOUR_MS)
    found = rig.waits(number)
    assert (found.code, found.subject, found.since_ms, found.clears_ms) == expected


def test_postponed_host_is_kept_back_from_a_wave_that_comes_too_soon() -> None:
    """Whose wish keeps it back is said, and until when. Source: F-4, F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=2 * 86_400)))
    number = rig.start("h0", earliest_ms=START_MS + DAY_MS)
    until_ms = START_MS + DAY_MS + 12 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h0",), until_ms, "alice"))
    assert rig.waits(number).code is code_of("postponed")
    assert rig.waits(number).subject == "alice"
    assert rig.run() == [{"h0"}]
    [operation] = rig.operations.values()
    assert (operation.execution.started_ms or 0) >= until_ms


@pytest.mark.parametrize(
    ("host", "hours", "problem"),
    [
        ("h9", 5, "it is not among its hosts"),
        ("h0", 5, "its work has started already"),
        ("h1", 0, "has passed"),
        ("h1", 24 * 9, "the policy allows 2026-09-2"),
    ],
)
def test_postponement_is_refused_with_its_reason(host: str, hours: int, problem: str) -> None:
    """Each refusal says why, and which host and maintenance it is about. Source: F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    number = rig.start("h0", "h1")
    rig.show()
    rig.wait(20 * MINUTE_MS)
    assert rig.working(number)["h0"].state is OperationState.RUNNING
    asked = words.PostponeHosts(number, (host,), rig.now_ms + hours * HOUR_MS, "alice")
    error = rig.refuses(asked, PostponementRefused)
    assert problem in str(error)
    assert f"Host {host} of m-{number} " in str(error)


def test_postponement_counts_from_the_latest_start() -> None:
    """Of announced work from its NotBefore, of a planned wave from its latest start. F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=3600)))
    number = rig.start("h0", "h1")
    starts = {"h0": rig.working(number)["h0"].not_before_ms}
    [wave] = [w for w in rig.state.plans[rig.maintenance(number).plan].waves if "h1" in w.hosts]
    starts["h1"] = wave.latest_start_ms
    for host, from_ms in starts.items():
        late = words.PostponeHosts(number, (host,), from_ms + HOUR_MS + 1, "alice")
        rig.refuses(late, PostponementRefused)
    rig.plans_made = False
    rig.tell(words.PostponeHosts(number, ("h0", "h1"), max(starts.values()) + 1000, "alice"))
    kept = {each.host: each.from_ms for each in rig.maintenance(number).postponed}
    assert kept == starts


def test_draft_without_a_plan_is_postponed_from_its_earliest_start() -> None:
    """Where nothing is planned yet, the limit counts from when it could start. Source: F-8."""
    for earliest_ms in (0, START_MS + DAY_MS):
        rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=3600)))
        rig.plans_made = False
        number = rig.create("h0", earliest_ms=earliest_ms)
        from_ms = max(earliest_ms, rig.now_ms)
        late = words.PostponeHosts(number, ("h0",), from_ms + HOUR_MS + 1, "alice")
        rig.refuses(late, PostponementRefused)
        rig.tell(words.PostponeHosts(number, ("h0",), from_ms + HOUR_MS, "alice"))
        assert rig.maintenance(number).postponed[0].from_ms == from_ms


def test_postponing_leaves_a_paused_maintenance_paused() -> None:
    """What stands still is planned when it goes on. Source: F-6, F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    number = rig.start("h0", "h1")
    rig.tell(words.PauseMaintenance(number))
    until_ms = rig.now_ms + 5 * HOUR_MS
    outcome = rig.tell(words.PostponeHosts(number, ("h1",), until_ms, "alice"))
    assert outcome.to_plan == ()
    assert rig.maintenance(number).state is MaintenanceState.PAUSED
    rig.tell(words.ResumeMaintenance(number))
    rig.run()
    [late] = [
        each for each in rig.operations.values() if each.host == "h1" and each.execution.started_ms
    ]
    assert (late.execution.started_ms or 0) >= until_ms


# -- what a plan means for each group, held against a count of everything ------------------------


def planned(rig: MaintenanceRig, number: int) -> PlanBody:
    """Make a plan of what is true now."""
    return rig.planned(number).plan.body


def counted(rig: MaintenanceRig, number: int, occupied: set[str]) -> dict[str, tuple[object, ...]]:
    """Count, for each group that a plan disturbs, everything that is said about it."""
    topology, plan = rig.state.topology, planned(rig, number).waves
    found: dict[str, tuple[object, ...]] = {}
    for group in topology.groups.values():
        vms = [vm for vm in topology.vms.values() if vm.group == group.name]
        up = sum(
            vm.host not in occupied and topology.hosts[vm.host].health is not Health.FAILED
            for vm in vms
        )
        hits = [wave for wave in plan for vm in vms if vm.host in wave.hosts]
        if hits:
            waves = Counter(wave.number for wave in hits)
            told = [wave.shown_ms for wave in hits]
            least = max(up - max(waves.values()), 0)
            times = len(waves), min(told), max(told)
            found[group.name] = (group.owner, len(vms), up, least, *times)
    return found


def rows(found: tuple[GroupOutlook, ...]) -> dict[str, tuple[object, ...]]:
    """Return what an outlook says, in the same form."""
    return {
        row.group: (
            *(row.owner, row.vms, row.up_before, row.up_least),
            *(row.waves, row.first_notice_ms, row.last_notice_ms),
        )
        for row in found
    }


def test_outlook_is_what_a_count_of_everything_gives() -> None:
    """Every disturbed group has a row, the worst first; the others have none. Source: F-2."""
    rig = fleet()
    groups = Group("db", owner="data"), Group("far")
    vms = Vm("db_0", "h0", "db"), Vm("db_1", "h3", "db"), Vm("far_0", "h5", "far")
    rig.tell(ChangeTopology(groups=groups, vms=vms))
    number = rig.create("h0", "h1", "h2", "h3")
    for occupied in (set[str](), {"h5"}, {"h0", "h3"}):
        found = outlook(planned(rig, number), rig.state.topology, occupied)
        assert rows(found) == counted(rig, number, occupied)
        assert [row.group for row in found] == ["db", "web"]


def test_removed_host_is_named_as_removed() -> None:
    """Not as failed, nor as one with the most room, until the next plan. Source: F-4."""
    rig = fleet(3)
    rig.tell(ChangeTopology(hosts=(Host("old", 0, 9),)))
    failure = rig.ask(Cause.HARDWARE_FAILURE, "old")
    rig.tell(words.Complete(failure.number, failed=True))
    number = rig.start("old")
    assert rig.waits(number).code is code_of("host-failed")
    rig.tell(ChangeTopology(removed=(("host", "old"),)))
    assert rig.waits(number).text == "host old is not in the fleet"


def test_removed_host_is_not_named_as_the_one_with_most_room() -> None:
    """A host whose VMs fit nowhere names hosts of the fleet. Source: F-4."""
    rig = fleet(2)
    hosts = tuple(Host(name, 0, 9, memory_mib=9) for name in ("full", "spare"))
    vms = (Vm("big", "full", "web", memory_mib=8), Vm("other", "spare", "web", memory_mib=8))
    rig.tell(ChangeTopology(hosts=hosts, vms=vms))
    number = rig.start("full", move_s=600)
    assert rig.waits(number).subject == "spare"
    rig.tell(ChangeTopology(removed=(("vm", "other"), ("host", "spare"))))
    assert "spare" not in rig.waits(number).text
