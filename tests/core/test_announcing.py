"""What keeps a host of a wave that is due from being announced, and announced work from staying."""

import pytest

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.document import View, ahead_of, fresh, refreshed
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_admission import Admission
from forewarn_core.fleet.impact import SECOND_MS, Cause, Source
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState, Working
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.step import next_deadline_ms, step
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Complete,
    Enable,
    NoticeShown,
    Repair,
    Tick,
)
from forewarn_core.fleet.topology import Group, GroupKind, Vm
from forewarn_core.planning.plan import Wave
from forewarn_core.planning.plan_text import read_plan
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import Blocker, Code, code_of
from forewarn_core.rules.local_time import Window
from forewarn_server.control.planning import planner_task
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small, small_fleet

NOTICE_MS = 15 * MINUTE_MS
MARGIN_MS = 20_000


def blocker(rig: MaintenanceRig, number: int, host: str, start_ms: int) -> Blocker | None:
    """What keeps a host from being announced now for that start."""
    maintenance = rig.state.maintenances[number]
    waits = Blocker(code_of("time"), "x", rig.now_ms)
    wave = Wave(1, rig.now_ms, start_ms, start_ms, start_ms + 600 * SECOND_MS, (host,), waits)
    return Admission(Draft(rig.state, rig.now_ms, rig.terms()), maintenance).blocker(host, wave)


@pytest.mark.parametrize(("short_ms", "code"), [(0, None), (1, code_of("notice"))])
def test_host_is_announced_only_with_its_whole_notice(short_ms: int, code: Code | None) -> None:
    """The notice and the margin for showing it must fit before the wave's start. Source: N-1."""
    rig = fleet(policy=NoticePolicy(notice_margin_ms=MARGIN_MS))
    number = rig.create("h0")
    found = blocker(rig, number, "h0", rig.now_ms + NOTICE_MS + MARGIN_MS - short_ms)
    assert (found.code if found else None) is code


@pytest.mark.parametrize(("short_ms", "code"), [(0, None), (1, code_of("notice"))])
def test_host_is_announced_only_with_the_notice_of_the_policy(
    short_ms: int, code: Code | None
) -> None:
    """A wave that is announced late keeps the policy's longer notice, too. Source: N-1, F-3."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(notice_s=7200)))
    found = blocker(rig, rig.create("h0"), "h0", rig.now_ms + 120 * MINUTE_MS - short_ms)
    assert (found.code if found else None) is code


def test_postponed_host_is_not_announced_for_an_earlier_start() -> None:
    """Who asked for it, and until when, is what it waits for. Source: F-8, F-4."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    number = rig.create("h0", "h1")
    until_ms = rig.now_ms + 5 * 60 * MINUTE_MS
    rig.tell(words.PostponeHosts(number, ("h0",), until_ms, "alice"))
    expected = Blocker(code_of("postponed"), "alice", rig.now_ms, until_ms)
    assert blocker(rig, number, "h0", until_ms - 1) == expected
    assert blocker(rig, number, "h0", until_ms) is None
    assert blocker(rig, number, "h1", until_ms - 1) is None


def planned_rests(rig: MaintenanceRig, number: int) -> dict[str, int]:
    """When owners are disturbed last, as the planner sees it."""
    maintenance = rig.state.maintenances[number]
    task = planner_task(rig.state, maintenance, policy=rig.policy, now_ms=rig.now_ms)
    return dict(task.state.owners_disturbed)


def resting() -> tuple[MaintenanceRig, int]:
    """Hosts of one owner, the first of whom was disturbed a minute ago and rests for an hour."""
    rig = fleet(domains=1, policy=NoticePolicy(maintenance=MaintenancePolicy(owner_rest_s=3600)))
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    by_hand = rig.ask(Cause.HOST_REBOOT, "h5")
    rig.show()
    rig.approve("web_5", by_hand)
    rig.finish(by_hand)
    rig.wait(MINUTE_MS)
    return rig, rig.create("h0", "h1")


def test_first_host_of_a_wave_waits_for_its_owners_rest() -> None:
    """A wave begins once its owners have rested, and not a moment before. Source: F-3."""
    rig, number = resting()
    rested_ms = rig.now_ms + 59 * MINUTE_MS
    expected = Blocker(code_of("owner-rest"), "anna", rig.now_ms, rested_ms)
    assert blocker(rig, number, "h0", rested_ms - 1) == expected
    assert blocker(rig, number, "h0", rested_ms) is None


@pytest.mark.parametrize(
    ("cause", "target"), [(Cause.HOST_REBOOT, "h5"), (Cause.REBOOT, "web_5")], ids=["host", "vm"]
)
def test_wave_waits_while_its_owners_are_disturbed(cause: Cause, target: str) -> None:
    """Other work, announced or running, has its owner rest only once it has ended. Source: F-3."""
    rig, number = resting()
    late_ms = rig.now_ms + DAY_MS
    by_hand = rig.ask(cause, target, source=Source.PLATFORM)
    expected = Blocker(code_of("owner-rest"), "anna", rig.now_ms)
    assert blocker(rig, number, "h0", late_ms) == expected
    rig.show()
    rig.approve("web_5", by_hand)
    assert rig.now(by_hand).state is OperationState.RUNNING
    assert blocker(rig, number, "h0", late_ms) == expected
    rig.finish(by_hand)
    assert blocker(rig, number, "h0", late_ms) is None


def test_wave_waits_for_room_that_announced_work_has_taken() -> None:
    """Two maintenances are due at once, and the budget has room for one host. Source: F-3."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),))
    rig = fleet(domains=1, policy=NoticePolicy(maintenance=policy))
    numbers = [rig.start(host, earliest_ms=rig.now_ms + DAY_MS) for host in ("h0", "h1")]
    rig.plans_made = False
    rig.now_ms = max(rig.due_ms(number) for number in numbers)
    rig.tell(Tick())
    assert [len(rig.working(number)) for number in numbers] == [1, 0]


def announced_at_rest() -> tuple[MaintenanceRig, dict[str, int]]:
    """A wave of two hosts of anna and one of bert is announced; return its operations by host."""
    policy = MaintenancePolicy(owner_rest_s=3600)
    rig = fleet(domains=1, policy=NoticePolicy(maintenance=policy))
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"), Group("db", owner="bert"))))
    rig.tell(ChangeTopology(vms=(Vm("web_2", "h2", "db"),)), Enable("db"))
    number = rig.start("h0", "h1", "h2")
    rig.show()
    return rig, {host: each.number for host, each in rig.working(number).items()}


def test_owner_disturbed_since_the_announcement_rests_before_the_start() -> None:
    """A failure that is repaired during the notice counts like any work. Source: F-3, F-4."""
    rig, work = announced_at_rest()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h5")
    rig.wait(30 * MINUTE_MS)
    assert rig.now(work["h0"]).state is OperationState.ANNOUNCED
    assert [each.code for each in rig.why(work["h0"])] == [code_of("owner-rest")]
    assert rig.now(work["h2"]).state is OperationState.RUNNING  # bert has rested
    rig.finish(failure)
    ended_ms = rig.now_ms
    [first] = rig.why(work["h0"])
    assert (first.subject, first.clears_ms) == ("anna", ended_ms + 60 * MINUTE_MS)
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) is not None
    rig.wait(60 * MINUTE_MS - 1)
    assert rig.now(work["h0"]).state is OperationState.ANNOUNCED
    rig.wait(1)
    assert {rig.now(work[host]).state for host in ("h0", "h1")} == {OperationState.RUNNING}


def test_owner_on_a_host_that_stays_failed_is_disturbed_until_the_repair() -> None:
    """The failure has ended without success, and its VMs are down yet. Source: F-3, F-4."""
    rig, work = announced_at_rest()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h5")
    rig.tell(Complete(failure.number, failed=True))
    rig.wait(90 * MINUTE_MS)
    assert rig.now(work["h0"]).state is OperationState.ANNOUNCED
    [first] = rig.why(work["h0"])
    assert (first.code, first.subject, first.clears_ms) == (code_of("owner-rest"), "anna", 0)
    rig.tell(Repair("h5"))
    assert {rig.now(work[host]).state for host in ("h0", "h1")} == {OperationState.RUNNING}


def test_withdrawn_work_wakes_nobody_once_its_owner_has_rested() -> None:
    """The wait ends with the work: the service has nothing to do at its end. Source: F-3."""
    rig, work = announced_at_rest()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h5")
    rig.wait(30 * MINUTE_MS)
    rig.finish(failure)
    rested_ms = rig.now_ms + 60 * MINUTE_MS
    assert next_deadline_ms(rig.state, rig.policy, rested_ms - 1) == rested_ms
    rig.tell(words.CancelMaintenance(rig.now(work["h0"]).maintenance))
    assert next_deadline_ms(rig.state, rig.policy, rested_ms - 1) != rested_ms


def test_hosts_of_a_wave_do_not_rest_from_one_another() -> None:
    """An early approval starts and ends one host, and the others follow in time. Source: F-3."""
    rig, work = announced_at_rest()
    rig.approve("web_0", work["h0"])
    rig.finish(work["h0"])
    rig.wait(30 * MINUTE_MS)
    assert {rig.now(work[host]).state for host in ("h1", "h2")} == {OperationState.RUNNING}


def test_plan_that_does_not_differ_is_stored_once() -> None:
    """While its owner rests, a maintenance keeps its plan, and since when it waits. F-2, F-4."""
    rig, number = resting()
    rig.tell(words.StartMaintenance(number))
    first, plans = rig.waits(number), dict(rig.plans)
    rig.wait(30 * MINUTE_MS)
    assert rig.waits(number) == first
    assert rig.plans == plans


def test_wave_goes_on_soon_after_what_it_waits_for_has_cleared() -> None:
    """The VMs belong to another owner, and the planned time is not waited for. Source: F-4."""
    rig, number = resting()
    rig.tell(words.StartMaintenance(number))
    first = rig.waits(number)
    assert (first.code, first.subject) == (code_of("owner-rest"), "anna")
    assert first.clears_ms > rig.now_ms + 40 * MINUTE_MS
    rig.tell(ChangeTopology(groups=(Group("web", owner="bert"),)))
    rig.wait(10 * MINUTE_MS)
    assert set(rig.working(number)) == {"h0", "h1"}


def test_users_own_work_leaves_its_owner_rested() -> None:
    """A restart that a user asked for, and that hangs, blocks no maintenance. Source: F-3, F-4."""
    rig, number = resting()
    restart = rig.ask(Cause.REBOOT, "web_4")
    rig.show()
    rig.approve("web_4", restart)
    assert rig.now(restart).state is OperationState.RUNNING
    assert blocker(rig, number, "h0", rig.now_ms + DAY_MS) is None
    assert planned_rests(rig, number) == {"anna": rig.now_ms - MINUTE_MS}


def test_further_hosts_of_a_wave_do_not_wait_for_its_first() -> None:
    """Hosts of one wave disturb an owner once. Source: F-3."""
    rig, number = resting()
    rig.tell(words.StartMaintenance(number))
    rig.wait(60 * MINUTE_MS)
    rig.show()
    both = rig.working(number)
    assert set(both) == {"h0", "h1"}
    rig.tell(Cancel(both["h1"].number, "not now"))
    rig.approve("web_0", both["h0"])
    rig.finish(both["h0"])
    maintenance = replace(rig.state.maintenances[number], phase=Working(1))
    rig.state.maintenances[number] = maintenance
    assert blocker(rig, number, "h1", rig.now_ms + NOTICE_MS) is None
    rig.state.maintenances[number] = replace(maintenance, phase=Working(2))
    found = blocker(rig, number, "h1", rig.now_ms + NOTICE_MS)
    assert found is not None
    assert found.code is code_of("owner-rest")


def test_host_that_somebody_works_on_is_not_announced() -> None:
    """Also where that is the first operation that there ever was. Source: G-1, F-4."""
    rig = fleet()
    by_hand = rig.ask(Cause.HOST_REBOOT, "h0")
    assert by_hand.number == 1
    number = rig.create("h0")
    found = blocker(rig, number, "h0", rig.now_ms + DAY_MS)
    assert found is not None
    assert (found.code, found.subject) == (code_of("host-busy"), "op-1")


@pytest.mark.parametrize(("late_ms", "stays"), [(0, True), (-1, False)], ids=["after", "within"])
def test_new_freeze_withdraws_what_would_not_have_ended_before(late_ms: int, stays: bool) -> None:
    """The time of announced work lasts from now until it would have ended. Source: F-2, F-3."""
    rig = fleet()
    number = rig.start("h0")
    [operation] = rig.working(number).values()
    end_ms = operation.not_before_ms + 600 * SECOND_MS
    freeze = (end_ms + late_ms, end_ms + DAY_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    assert (operation.number in rig.state.operations) is stays


def test_new_freeze_withdraws_what_is_due_and_waits() -> None:
    """Work that its NotBefore has come for does not start in a freeze either. Source: F-3."""
    rig = fleet()
    number = rig.start("h0")
    [operation] = rig.working(number).values()
    rig.now_ms = operation.not_before_ms
    freeze = (rig.now_ms, rig.now_ms + DAY_MS)
    outcome = rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    assert rig.now(operation).reason == "the new policy closes its time"
    assert not outcome.begin


def shown_late(**more: object) -> tuple[MaintenanceRig, int]:
    """A host announced for an hour of window, or before a deadline, and shown 40 minutes late."""
    windows = (Window("hour", from_min=0, to_min=60),) if not more else ()
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(windows=windows)))
    number = rig.start("h0", **more)
    while not rig.working(number):
        rig.now_ms = rig.due_ms(number)
        rig.tell(Tick())
    [operation] = rig.working(number).values()
    rig.now_ms += 40 * MINUTE_MS
    rig.tell(NoticeShown((operation.number,)))
    renewed = rig.now(operation)
    assert renewed.not_before_ms > operation.not_before_ms
    return rig, number


def test_notice_that_is_given_again_withdraws_nothing_yet() -> None:
    """Work that may start too late now may still be approved in time. Source: F-3, F-7, N-1."""
    rig, number = shown_late()
    assert len(rig.working(number)) == 1
    [operation] = rig.working(number).values()
    rig.wait(operation.not_before_ms - rig.now_ms + MINUTE_MS)
    assert rig.now(operation).reason == "its window closes before the work would end"


def test_work_that_is_due_too_late_does_not_start() -> None:
    """At the very time of its NotBefore, too: it would end after the deadline. Source: F-1, N-1."""
    start_ms = 1_790_000_000_000
    rig, number = shown_late(deadline_ms=start_ms + 60 * MINUTE_MS)
    [operation] = rig.working(number).values()
    rig.now_ms = operation.not_before_ms
    rig.tell(Tick())
    assert rig.now(operation).reason == "it would end after the deadline"
    assert not rig.now(operation).execution.started_ms


def test_stopped_wave_that_is_over_is_not_checked_again() -> None:
    """Who resumes it has seen what failed: no gate is asked, and a plan is made at once. F-5."""
    rig = fleet()
    number = rig.start("h0", "h3", "h1", "h4", gate="errors")
    rig.show()
    first, second = rig.working(number).values()
    rig.wait(20 * MINUTE_MS)
    rig.finish(first)
    rig.tell(words.GateFailed(number, "too many errors"))
    rig.finish(second)
    assert not rig.working(number)
    rig.tell(words.ResumeMaintenance(number))
    assert rig.gates == []
    assert rig.maintenance(number).state is MaintenanceState.RUNNING
    assert set(rig.working(number)) == {"h0", "h1", "h3", "h4"} - {first.host, second.host}


def test_new_policy_says_only_what_it_changes() -> None:
    """No pause is said to change that is as long as before, or that is not being made. F-2."""
    rig = fleet()
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=3600)))
    number = rig.start("h0", "h1")
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=7200)))
    assert rig.maintenance(number).rests_until_ms is None
    while not rig.maintenance(number).rests_until_ms:
        rig.run(limit=1)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=7200, max_failures=3)))
    assert "maintenance.pause-changed" not in {entry.action for entry in rig.entries}


@pytest.mark.parametrize("kept", [True, False], ids=["nothing-announced", "plan-wanted"])
def test_new_policy_has_limits_found_once_and_only_for_work(kept: bool) -> None:
    """Budgets are found again for what is announced, by one plan however many policies. F-3."""
    rig = fleet()
    number = rig.start("h0", "h3")
    if kept:
        rig.tell(words.PauseMaintenance(number, keep_announced=True))
        rig.tell(*(Cancel(each.number, "no") for each in rig.working(number).values()))
    rig.plans_made = False
    before = len(rig.entries)
    for failures in (1, 2):
        rig.tell(words.ApplyPolicy(MaintenancePolicy(max_failures=failures)))
    planned = [e.action for e in rig.entries[before:]].count("maintenance.replanning")
    assert planned == (0 if kept else 1)


def test_host_taken_back_since_the_plan_waits_for_another() -> None:
    """A plan from while its work was under way says nothing of it. Source: F-4."""
    rig = fleet()
    number = rig.start("h0", "h1")
    [operation] = rig.working(number).values()
    rig.tell(words.ApplyPolicy(MaintenancePolicy(max_failures=1)))
    rig.plans_made = False
    rig.tell(Cancel(operation.number, "not this one"))
    waits = rig.waits(number, operation.host)
    assert (waits.code, waits.subject) == (code_of("planning"), f"m-{number}")


def test_postponed_host_waits_no_longer_than_that() -> None:
    """From the very time that was granted it waits for something else. Source: F-8, F-4."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    number = rig.start("h0", "h1")
    until_ms = rig.now_ms + 60 * MINUTE_MS
    rig.tell(words.PostponeHosts(number, ("h1",), until_ms, "alice"))
    rig.now_ms = until_ms - 1
    assert rig.waits(number, "h1").code is code_of("postponed")
    rig.now_ms = until_ms
    assert rig.waits(number, "h1").code is not code_of("postponed")


def test_plan_is_made_again_later_than_now() -> None:
    """What clears at this very moment was seen by the plan; it is not made again at once. F-2."""
    rig = fleet()
    rig.plans_made = False
    number = rig.create("h0")
    rig.tell(words.StartMaintenance(number))
    made = rig.planned(number)
    blocked = f'["h0","{code_of("owner-rest").value}","anna",{rig.now_ms - 1},{rig.now_ms}]'
    body = f'{{"waves":[],"moves":{{}},"blocked":[{blocked}],"bound":[0,""],"limits":[]}}'
    made = replace(made, plan=replace(made.plan, body=read_plan(body)))
    outcome = step(rig.state, made, now_ms=rig.now_ms, terms=rig.terms())
    [planned] = outcome.changes.maintenances.values()
    assert planned.due_ms == rig.now_ms + MINUTE_MS


# -- documents: who is shown which event, as what, and when the incarnation moves ----------------


def test_each_group_gets_its_own_event() -> None:
    """A host with two groups gives each its own event, naming its own VMs. Source: S-5, S-4."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("db_1", "h0", "db"),)))
    rig.ask(Cause.HOST_REBOOT, "h0")
    (web,), (db,) = rig.document("web")[1], rig.document("db")[1]
    assert (web.resources, db.resources) == (("web_0",), ("db_0", "db_1"))
    assert web.event_id != db.event_id
    assert rig.document("far") == (0, ())


def test_event_has_every_field() -> None:
    """An event shows id, type, resources, NotBefore, text, source, duration. Source: D-3 to D-9."""
    rig = small()
    operation = rig.ask(Cause.LIVE_MIGRATION, "h0")
    (event,) = rig.document("web")[1]
    assert event.event_id == event.event_id.upper()
    assert (event.status, event.event_type) == ("Scheduled", "Freeze")
    assert (event.resource_type, event.resources) == ("VirtualMachine", ("web_0",))
    assert event.not_before_ms == operation.not_before_ms
    assert (event.source, event.duration_s) == ("Platform", 5)
    assert "Live Migration" in event.description


def test_incarnation_moves_with_the_events_only() -> None:
    """It grows by one with every change of the events, and only then. Source: D-1, D-2."""
    rig = small()
    assert rig.document("web") == (0, ())
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.document("web")[0] == 1
    rig.show()
    rig.approve("web_0", operation)
    assert rig.document("web")[0] == 1
    rig.approve("db_0", operation)
    assert (rig.document("web")[0], rig.shown("web")) == (2, ["Reboot Started"])
    rig.finish(operation)
    assert rig.document("web") == (3, ())
    rig.check_replay()


def test_cancelled_event_is_gone() -> None:
    """A cancelled event goes without impact, and its id does not come back. Source: L-3, D-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(Cancel(operation.number))
    assert rig.document("web") == (2, ())
    assert not rig.begun
    again = rig.ask(Cause.HOST_REBOOT, "h0")
    assert set(again.events).isdisjoint(operation.events)


def test_events_stand_in_the_order_of_their_operations() -> None:
    """What was asked for first stands first. Source: D-2."""
    rig = small()
    rig.ask(Cause.REBOOT, "web_1")
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert [event.resources for event in rig.document("web")[1]] == [("web_1",), ("web_0",)]


def test_gpu_vm_sees_only_events_that_name_it() -> None:
    """A GPU VM of one fault domain sees its own events, the group sees all. Source: S-3, S-1."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", GroupKind.SCALE_SET, fault_domain_count=1)),
        ChangeTopology(
            vms=(Vm("web_2", "h2", "web", gpu=True), Vm("web_3", "h1", "web", gpu=True))
        ),
        Enable("web"),
    )
    rig.ask(Cause.HOST_REBOOT, "h2")
    rig.ask(Cause.REBOOT, "web_0")
    assert rig.shown("web/web_2") == ["Reboot Scheduled"]
    assert rig.document("web/web_3") == (0, ())
    assert len(rig.shown("web")) == 2


def test_lone_vm_sees_only_its_own() -> None:
    """A lone VM sees its own events. Source: S-2."""
    rig = Rig()
    rig.tell(
        small_fleet(far=Group("far", GroupKind.LONE)),
        *(Enable(group) for group in ("web", "far")),
    )
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.document("far") == (0, ())


def test_started_event_has_no_notbefore_and_stays_until_the_end() -> None:
    """Started, then gone when the operation has ended. Source: L-1, L-5, D-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.approve("far_0", operation)
    rig.wait(10 * MINUTE_MS)
    assert rig.document("far")[1][0].not_before_ms is None
    rig.finish(operation)
    assert rig.document("far")[1] == ()


def test_same_events_leave_the_view_alone() -> None:
    """A view asked to show what it shows is the same view. Source: D-1."""
    view: View = fresh("web", "web")
    assert refreshed(view, ()) is view
    assert (view.vm, fresh("web/a", "web").vm) == ("", "a")


@pytest.mark.parametrize(
    ("own", "shared"),
    [((5, True), 6), ((3, True), 4), ((2, True), 3), ((3, False), 3), ((5, False), 6)],
    ids=["ahead", "as far", "behind", "the same", "ahead, nothing shown"],
)
def test_shared_document_is_ahead_of_a_dropped_one(own: tuple[int, bool], shared: int) -> None:
    """A VM that reads the shared one from now on sees it move if it shows something else. D-1."""
    incarnation, is_other = own
    events = (ScheduledEvent(event_id="E"),) if is_other else ()
    dropped = View("web/a", "web", Document(incarnation, events))
    view = View("web", "web", Document(3, ()))
    assert ahead_of(view, [dropped]).document == Document(shared, ())
