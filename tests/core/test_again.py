"""Maintenances that are planned, announced or tried again: when, and what is said meanwhile."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.maintenance import Halted, MaintenanceState, Planning
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import (
    MaintenanceWrongState,
    PlanSuperseded,
    UnknownMaintenance,
)
from forewarn_core.fleet.step import PORTION_MAX
from forewarn_core.fleet.stimulus import (
    Complete,
    DriverFailed,
    Proceed,
    Repair,
    Tick,
)
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import Blocker, code_of
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS, START_MS

S = MaintenanceState
HOUR_MS = 60 * MINUTE_MS


def with_policy(hosts: int = 6, domains: int = 3, **more: object) -> MaintenanceRig:
    """A fleet with a maintenance policy."""
    policy = NoticePolicy(maintenance=MaintenancePolicy(**more))  # type: ignore[arg-type]
    return fleet(hosts, domains, policy=policy)


def test_plan_that_failed_is_made_again_after_a_minute() -> None:
    """Nothing is announced by it, why says so, and it is tried again. Source: F-2, F-4."""
    rig = fleet()
    rig.plans_made = False
    number = rig.start("h0", "h1")
    rig.tell(words.PlanFailed(number, "it took too long"))
    again_ms = rig.now_ms + MINUTE_MS
    assert rig.maintenance(number).phase == Planning(again_ms, "it took too long")
    assert not rig.maintenance(number).plan_wanted
    text = f"no plan of m-{number} could be made: it took too long"
    expected = Blocker(code_of("planning"), f"m-{number}", rig.now_ms, again_ms, text)
    assert rig.waits(number) == expected
    assert rig.waits(number, "h1") == expected
    for late in (words.PlanFailed(number, "again"), words.PlanFailed(99, "what?")):
        assert not rig.tell(late).changes
    rig.wait(MINUTE_MS - 1)
    assert not rig.maintenance(number).plan_wanted
    rig.wait(1)
    assert rig.maintenance(number).plan_wanted
    assert rig.maintenance(number).due_ms is None
    rig.plans_made = True
    rig.make_plan(number)
    assert len(rig.run()) == 2


def test_hosts_that_cannot_be_done_are_planned_less_and_less_often() -> None:
    """After a minute at first, then after an eighth of the wait, up to ten minutes. F-4."""
    rig = fleet()
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    number = rig.start("h0")
    pauses = []
    for _ in range(60):
        assert isinstance(rig.maintenance(number).phase, Planning)
        due_ms = rig.due_ms(number)
        pauses.append((due_ms - rig.now_ms) // 1000)
        rig.wait(due_ms - rig.now_ms)
    assert pauses[:2] == [60, 60]
    assert pauses == sorted(pauses)
    assert (min(pauses), max(pauses)) == (60, 600)
    waited_s = sum(pauses[:12])
    assert pauses[12] == max(60, waited_s // 8)
    assert rig.waits(number).code is code_of("host-failed")
    assert rig.waits(number).text == "host h0 has failed; repair it first, then it is planned again"
    rig.tell(Repair("h0"))
    assert rig.run() == [{"h0"}]


def test_repaired_host_does_not_wait_for_a_wave_that_comes_later() -> None:
    """A host that is free again is done although another was postponed for hours. F-4."""
    rig = with_policy(postpone_max_s=7 * 86_400)
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    number = rig.start("h0", "h3")
    rig.tell(words.PostponeHosts(number, ("h3",), rig.now_ms + 9 * HOUR_MS, "alice"))
    assert rig.waits(number, "h0").code is code_of("host-failed")
    rig.tell(Repair("h0"))
    assert rig.waits(number, "h0").code is code_of("planning")
    rig.wait(11 * MINUTE_MS)
    assert set(rig.working(number)) == {"h0"}


def test_host_that_cannot_be_done_before_a_time_is_planned_then() -> None:
    """Where it is known when a host may be done, the plan is made again no later. F-4."""
    rig = with_policy(postpone_max_s=7 * 86_400)
    number = rig.start("h0")
    until_ms = rig.now_ms + 2 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h0",), until_ms, "alice"))
    assert rig.run() == [{"h0"}]
    [last] = [each for each in rig.operations.values() if each.execution.started_ms]
    assert until_ms <= (last.execution.started_ms or 0) <= until_ms + 20 * MINUTE_MS


@pytest.mark.parametrize("moment", ["announced", "gate"])
def test_gate_that_passes_late_changes_nothing(moment: str) -> None:
    """A check that nobody waits for any more has no say. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", "h1", gate="errors")
    if moment == "gate":
        while not rig.gates:
            rig.run(limit=1)
        rig.tell(words.CancelMaintenance(number))
    assert not rig.tell(words.GatePassed(number)).changes
    assert not rig.tell(words.GatePassed(99)).changes


def test_gate_that_passes_has_the_next_wave_planned() -> None:
    """A plan is made when the check has passed, where hosts are left. Source: F-2, F-5."""
    rig = fleet()
    number = rig.start("h0", "h1", gate="errors")
    while not rig.gates:
        rig.run(limit=1)
    assert rig.waits(number) == Blocker(code_of("gate"), "errors", rig.maintenance(number).moved_ms)
    rig.plans_made = False
    assert rig.tell(words.GatePassed(number)).to_plan == (number,)
    rig.make_plan(number)
    rig.plans_made = True
    while len(rig.gates) < 2:
        rig.run(limit=1)
    assert rig.tell(words.GatePassed(number)).to_plan == ()
    assert rig.maintenance(number).state is S.DONE


def test_gate_that_fails_while_it_is_paused_stops_nothing() -> None:
    """Only what runs is stopped. Source: F-5, F-6."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.tell(words.PauseMaintenance(number))
    for late in (words.GateFailed(number, "errors"), words.GateFailed(99, "what?")):
        assert not rig.tell(late).changes


@pytest.mark.parametrize(
    ("word", "state"),
    [
        (words.StartMaintenance, "running"),
        (words.ResumeMaintenance, "running"),
        (words.StartMaintenance, "paused"),
        (words.PauseMaintenance, "paused"),
        (words.StartMaintenance, "stopped"),
        (words.PauseMaintenance, "stopped"),
    ],
)
def test_word_that_does_not_fit_is_refused(word: type[words.PauseMaintenance], state: str) -> None:
    """Each refusal says where the maintenance stands and what was asked. Source: F-1."""
    rig = fleet()
    number = rig.start("h0")
    if state == "paused":
        rig.tell(words.PauseMaintenance(number))
    if state == "stopped":
        rig.tell(words.GateFailed(number, "errors"))
    error = rig.refuses(word(number), MaintenanceWrongState)
    assert str(error) == f"m-{number} is {state}: it cannot be {words.WORDS[word]}."


@pytest.mark.parametrize(
    "word",
    [
        words.StartMaintenance(99),
        words.PauseMaintenance(99),
        words.ResumeMaintenance(99),
        words.CancelMaintenance(99),
        words.PostponeHosts(99, ("h0",), START_MS + DAY_MS, "alice"),
    ],
    ids=lambda word: type(word).__name__,
)
def test_maintenance_that_is_not_there_is_refused_by_name(word: words.OperatorWord) -> None:
    """A word about none is refused with the name that was asked for. Source: F-1."""
    assert "m-99" in str(fleet().refuses(word, UnknownMaintenance))


def test_plan_of_a_maintenance_that_has_ended_is_refused() -> None:
    """A plan that comes after the end takes no force, and names itself. Source: F-2."""
    rig = fleet()
    rig.plans_made = False
    number = rig.start("h0", "h1")
    made = rig.planned(number)
    rig.make_plan(number)
    error = rig.refuses(made, PlanSuperseded)
    plan = rig.maintenance(number).plan
    assert f"Plan {made.plan.id} of m-{number} follows plan (none)" in str(error)
    assert f"plan {plan} is in force" in str(error)
    rig.tell(words.CancelMaintenance(number))
    assert f"m-{number}" in str(rig.refuses(made, UnknownMaintenance))


def stopped(rig: MaintenanceRig, *hosts: str, **more: object) -> int:
    """A maintenance whose first wave's first host has failed, which has stopped it."""
    number = rig.start(*hosts, **more)
    rig.show()
    rig.wait(20 * MINUTE_MS)
    first = min(rig.working(number).values(), key=lambda each: each.number)
    rig.tell(DriverFailed(first.number, 1, "no power"), Complete(first.number, failed=True))
    assert rig.maintenance(number).state is S.STOPPED
    return number


def test_host_that_is_tried_again_rests_like_others() -> None:
    """After a failure the pause counts from its end; later than that there is none left. F-3."""
    for waits_ms, rests_ms in ((0, 30), (10, 20), (30, 0), (50, 0)):
        rig = with_policy(pause_s=1800)
        number = stopped(rig, "h0", "h1")
        ended_ms = rig.now_ms
        rig.wait(waits_ms * MINUTE_MS)
        rig.tell(words.ResumeMaintenance(number))
        assert rig.maintenance(number).rests_until_ms == ended_ms + 30 * MINUTE_MS
        rig.show()
        rig.run(limit=8)
        after = [each.execution.started_ms for each in rig.operations.values() if each.number > 2]
        starts = [each for each in after if each]
        assert not starts or min(starts) >= ended_ms + (waits_ms + rests_ms) * MINUTE_MS


def test_stopped_wave_goes_on_while_one_host_of_it_is_worked_on() -> None:
    """It ends with that host, as any wave, and is followed by its pause. Source: F-1, F-3."""
    rig = with_policy(pause_s=1800)
    number = stopped(rig, "h0", "h3", "h1", "h4")
    wave = rig.maintenance(number).wave
    assert len(rig.working(number)) == 1
    rig.tell(words.ResumeMaintenance(number))
    assert rig.maintenance(number).wave == wave
    assert not rig.maintenance(number).plan_wanted
    [last] = rig.working(number).values()
    rig.finish(last)
    assert rig.maintenance(number).rests_until_ms == rig.now_ms + 30 * MINUTE_MS


def test_failures_that_were_let_pass_do_not_stop_it_again() -> None:
    """A driver that is stuck when it is resumed counts no more; the next failure does. F-5."""
    rig = fleet()
    number = rig.start("h0", "h3", "h1", "h4")
    rig.show()
    rig.wait(20 * MINUTE_MS)
    first, second = rig.working(number).values()
    rig.tell(DriverFailed(first.number, 1, "no power"))
    rig.tell(words.ResumeMaintenance(number))
    assert (rig.maintenance(number).state, rig.maintenance(number).forgiven) == (S.RUNNING, 1)
    rig.tell(DriverFailed(second.number, 1, "no power"))
    assert rig.maintenance(number).state is S.STOPPED
    assert rig.maintenance(number).halt_reason == "2 hosts failed; 0 may"


def test_failure_that_is_tried_again_is_not_forgiven_in_advance() -> None:
    """A host that failed counts again if it fails again. Source: F-5, F-1."""
    rig = fleet()
    number = rig.start("h0")
    for _ in range(2):
        rig.show()
        rig.wait(30 * MINUTE_MS)
        [work] = rig.working(number).values()
        rig.tell(words.Complete(work.number, failed=True))
        assert rig.maintenance(number).state is S.STOPPED
        rig.tell(words.ResumeMaintenance(number))


def test_pause_in_a_wave_is_resumed_in_it() -> None:
    """Hosts that are done are not done again, and what was withdrawn is planned. F-6."""
    rig = fleet()
    number = rig.start("h0", "h3", "h1", "h4")
    rig.show()
    first, second = rig.working(number).values()
    rig.approve(first.vms[0], first)
    rig.tell(words.PauseMaintenance(number))
    assert set(rig.working(number)) == {first.host}
    rig.tell(words.ResumeMaintenance(number))
    rig.finish(first)
    done = [host for wave in rig.run() for host in wave]
    assert sorted([first.host, *done]) == ["h0", "h1", "h3", "h4"]
    assert second.host in done


def test_what_has_ended_wants_nothing() -> None:
    """Neither a plan nor a time is kept of a maintenance that is over. Source: F-1."""
    for end in ("done", "cancelled", "stopped"):
        rig = fleet()
        number = rig.start("h0", "h1")
        if end == "done":
            rig.run()
        elif end == "cancelled":
            rig.tell(words.CancelMaintenance(number))
        else:
            rig.tell(words.GateFailed(number, "errors"))
        over = rig.maintenance(number)
        assert over.state.value == end
        assert over.phase == Halted(over.halt_reason, over.wave)
        assert over.moved_ms == rig.now_ms
        assert over.ended_ms == (rig.now_ms if end != "stopped" else None)


def test_portion_of_waves_is_as_large_as_it_may_be() -> None:
    """A step announces a full portion of hosts, of all maintenances together, and no fewer. F-3."""
    count = PORTION_MAX + 2
    rig = fleet(2 * count, domains=1)
    numbers = [
        rig.start(*(f"h{n}" for n in range(first, first + count)), earliest_ms=START_MS + DAY_MS)
        for first in (0, count)
    ]
    rig.now_ms = max(rig.due_ms(number) for number in numbers)
    sizes, outcome = [], rig._tell(Tick())
    for _ in range(10):
        entries = outcome.changes.entries
        sizes.append(sum(entry.action == "operation.announced" for entry in entries))
        outcome = rig._tell(Proceed(outcome.remaining))
    assert sum(sizes) == 2 * count
    assert max(sizes) == PORTION_MAX
    assert sizes[:3] == [PORTION_MAX, PORTION_MAX, 4]


def test_wave_that_ends_is_followed_by_one_plan() -> None:
    """Where a pause follows each wave, too, nothing is planned twice. Source: F-2, F-3."""
    rig = with_policy(pause_s=1800, owner_rest_s=60)
    rig.start("h0", "h3", "h1", "h4")
    rig.run()
    names = [entry.action for entry in rig.entries]
    assert names.count("maintenance.planned") == 3, "of the draft, the start and the second wave"
    assert names.count("maintenance.wave-over") == 1
    assert "maintenance.replanning" not in names


def test_failure_is_let_pass_once() -> None:
    """Each resume lets the failures until then pass, and no further one. Source: F-5."""
    rig = fleet(9)
    number = rig.start("h0", "h3", "h6", "h1", "h4", "h7")
    rig.show()
    rig.wait(20 * MINUTE_MS)
    first, second, third = rig.working(number).values()
    for failed in (first, second):
        rig.tell(DriverFailed(failed.number, 1, "no power"))
        assert rig.maintenance(number).state is S.STOPPED
        rig.tell(words.ResumeMaintenance(number))
        assert rig.maintenance(number).state is S.RUNNING
    rig.tell(DriverFailed(third.number, 1, "no power"))
    assert rig.maintenance(number).state is S.STOPPED


def test_failure_that_a_retry_makes_good_does_not_count() -> None:
    """The host is done, and the failures that are allowed are left for others. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", "h3", "h1", "h4", max_failures=1)
    rig.show()
    rig.wait(20 * MINUTE_MS)
    first, second = rig.working(number).values()
    rig.tell(DriverFailed(first.number, 1, "no power"), words.Retry(first.number))
    rig.finish(first)
    rig.tell(DriverFailed(second.number, 1, "no power"))
    assert rig.maintenance(number).state is S.RUNNING


def test_pause_counts_from_the_last_host_of_a_stopped_wave() -> None:
    """The host that ended while the maintenance was stopped is rested from. Source: F-3, F-1."""
    rig = with_policy(pause_s=1800)
    number = stopped(rig, "h0", "h3", "h1", "h4")
    [last] = rig.working(number).values()
    rig.wait(40 * MINUTE_MS)
    rig.finish(rig.now(last))
    ended_ms = rig.now_ms
    rig.wait(10 * MINUTE_MS)
    rig.tell(words.ResumeMaintenance(number))
    assert (rig.maintenance(number).rests_until_ms or 0) >= ended_ms + 30 * MINUTE_MS
