"""Maintenances: states, waves, pausing, stopping, and what they withdraw."""

from collections import Counter

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState, Planning, TargetState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import (
    MaintenanceInvalid,
    MaintenanceWrongState,
    PlanSuperseded,
    Unknown,
)
from forewarn_core.fleet.step import PORTION_MAX
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    DriverFailed,
    Recover,
    Repair,
    Tick,
)
from forewarn_core.fleet.topology import Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.local_time import Window
from tests.core.maintenance import fleet
from tests.core.rig import DAY_MS, MINUTE_MS, START_MS

S = MaintenanceState


def test_maintenance_goes_wave_by_wave_until_done() -> None:
    """Hosts of one fault domain go together, the next follow, and then it is done. F-1, F-3."""
    rig = fleet()
    number = rig.start("h0", "h1", "h2", "h3", "h4", "h5")
    waves = rig.run()
    assert sorted(map(sorted, waves)) == [["h0", "h3"], ["h1", "h4"], ["h2", "h5"]]
    assert rig.maintenance(number).state is S.DONE
    assert not rig.state.maintenances
    assert not rig.state.targets
    rig.check_replay()


def test_maintenances_of_the_same_hosts_have_plans_of_their_own() -> None:
    """Also where both are planned at the same instant, so neither replaces the other's. F-2."""
    rig = fleet()
    first, second = rig.create("h0", "h1"), rig.create("h0", "h1")
    plans = {number: rig.state.maintenances[number].plan for number in (first, second)}
    assert len({*plans.values()}) == 2, f"F-2: one plan for two maintenances: {plans}"
    rig.tell(words.StartMaintenance(first), words.StartMaintenance(second))
    for _ in range(2):
        rig.run()
    assert {rig.maintenance(number).state for number in (first, second)} == {S.DONE}
    rig.check_replay()


def test_maintenance_takes_one_failure_domain_at_a_time() -> None:
    """A wave has hosts with one value of a label that the policy names. Source: T-12."""
    rig = fleet()
    for n in range(6):
        known = rig.state.topology.hosts[f"h{n}"]
        rig.tell(ChangeTopology(hosts=(replace(known, labels=(("power", f"p{n % 3}"),)),)))
    hosts = [f"h{n}" for n in range(6)]
    with pytest.raises(MaintenanceInvalid, match="does not name 'power'"):
        rig.create(*hosts, failure_domain="power")
    rig.tell(words.ApplyPolicy(MaintenancePolicy(failure_domains=("power", "row"))))
    with pytest.raises(MaintenanceInvalid, match="h0 has no label row"):
        rig.create(*hosts, failure_domain="row")
    number = rig.start(*hosts, failure_domain="power")
    waves = rig.run()
    assert sorted(map(sorted, waves)) == [["h0", "h3"], ["h1", "h4"], ["h2", "h5"]]
    assert rig.maintenance(number).state is S.DONE
    rig.check_replay()


def test_draft_announces_nothing() -> None:
    """A draft is planned, and nothing of it is announced. Source: F-1."""
    rig = fleet()
    number = rig.create("h0", "h1")
    rig.wait(24 * 3_600_000)
    made = rig.maintenance(number)
    assert made.state is S.DRAFT
    assert rig.state.plans[made.plan].waves
    assert not rig.state.operations


def test_pause_withdraws_what_is_announced() -> None:
    """After a pause nothing is announced, and nothing starts until it is resumed. Source: F-6."""
    rig = fleet()
    number = rig.start("h0", "h1", "h2")
    assert set(rig.working(number)) == {"h0"}
    rig.tell(words.PauseMaintenance(number, "a game is on"))
    assert rig.maintenance(number).state is S.PAUSED
    assert rig.maintenance(number).halt_reason == "a game is on"
    assert not rig.state.operations
    assert rig.shown("web") == []
    rig.wait(24 * 3_600_000)
    assert not rig.state.operations
    rig.tell(words.ResumeMaintenance(number))
    assert sorted(map(sorted, rig.run())) == [["h0"], ["h1"], ["h2"]]
    assert rig.maintenance(number).state is S.DONE
    rig.check_replay()


@pytest.mark.parametrize(("cause", "seconds"), [(Cause.HOST_REBOOT, 600), (Cause.HOST_UPDATE, 9)])
def test_reboot_interrupts_as_long_as_the_work_takes(cause: Cause, seconds: int) -> None:
    """VMs read the maintenance's duration where its cause names no interruption. Source: D-9."""
    rig = fleet()
    number = rig.start("h0", cause=cause)
    [operation] = rig.working(number).values()
    assert rig.now(operation).duration_s == seconds


def test_work_that_waits_for_what_is_withdrawn_goes_on() -> None:
    """Other work that kept clear of it is announced as soon as it is gone. Source: F-6, G-1."""
    rig = fleet()
    number = rig.start("h0")
    other = rig.ask(Cause.HOST_REBOOT, "h1")
    assert rig.now(other).state is OperationState.PLANNED
    rig.tell(words.PauseMaintenance(number, "a game is on"))
    assert rig.now(other).state is OperationState.ANNOUNCED


def test_pause_lets_running_work_end() -> None:
    """What runs when a maintenance is paused ends, and counts. Source: F-6."""
    rig = fleet()
    number = rig.start("h0", "h1")
    [operation] = rig.working(number).values()
    rig.show()
    rig.approve("web_0", operation)
    rig.tell(words.PauseMaintenance(number))
    assert rig.now(operation).state is OperationState.RUNNING
    rig.finish(operation)
    assert rig.state.progress(number).targets["h0"].state is TargetState.DONE
    assert not rig.state.operations


def test_pause_keeps_what_is_announced_where_asked() -> None:
    """Announced work that is kept goes on; the next wave waits for the resume. Source: F-6."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.tell(words.PauseMaintenance(number, "", keep_announced=True))
    assert rig.run() == [{"h0"}]
    rig.tell(words.ResumeMaintenance(number))
    assert rig.run() == [{"h1"}]
    assert rig.maintenance(number).state is S.DONE


def test_what_a_pause_kept_is_withdrawn_by_a_stop() -> None:
    """Keeping was for that pause alone. Source: F-5, F-6."""
    rig = fleet()
    number = rig.start("h0")
    rig.tell(words.PauseMaintenance(number, keep_announced=True))
    rig.tell(words.ResumeMaintenance(number))
    assert rig.working(number)
    rig.tell(words.GateFailed(number, "error rate is 4 %"))
    assert rig.maintenance(number).state is S.STOPPED
    assert not rig.working(number)


def test_what_a_pause_kept_is_withdrawn_by_a_cancel() -> None:
    """What is cancelled leaves nothing announced. Source: F-6."""
    rig = fleet()
    number = rig.start("h0")
    rig.tell(words.PauseMaintenance(number, keep_announced=True))
    assert rig.working(number)
    rig.tell(words.CancelMaintenance(number))
    assert not rig.working(number)


def test_cancel_ends_it_for_good() -> None:
    """A cancelled maintenance withdraws, and takes no further word. Source: F-1, F-6."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.plans_made = False
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=60)))
    assert rig.maintenance(number).plan_wanted
    rig.tell(words.CancelMaintenance(number, "not needed"))
    assert rig.maintenance(number).state is S.CANCELLED
    assert not rig.maintenance(number).plan_wanted
    assert not rig.state.operations
    assert not rig.state.maintenances
    rig.refuses(words.ResumeMaintenance(number), Unknown)
    rig.check_replay()


@pytest.mark.parametrize(
    "word",
    [words.PauseMaintenance, words.ResumeMaintenance],
    ids=["pause", "resume"],
)
def test_draft_refuses_other_words(word: type[words.PauseMaintenance]) -> None:
    """A move the table does not have is refused, and changes nothing. Source: F-1."""
    rig = fleet()
    number = rig.create("h0")
    rig.refuses(word(number), MaintenanceWrongState)


def test_driver_failure_beyond_the_budget_stops_it() -> None:
    """A driver that fails stops a maintenance that may have no failure. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", "h3", "h1", "h4")
    rig.show()
    first, second = rig.working(number).values()
    rig.wait(20 * MINUTE_MS)
    rig.tell(DriverFailed(first.number, 1, "no power"))
    assert rig.maintenance(number).state is S.STOPPED
    assert "1 host failed; 0 may" in rig.maintenance(number).halt_reason
    rig.finish(second)
    rig.tell(Complete(first.number, failed=True))
    rig.wait(24 * 3_600_000)
    assert not rig.state.operations
    rig.tell(words.ResumeMaintenance(number))
    again = {host for wave in rig.run() for host in wave}
    assert again == {"h0", "h3", "h1", "h4"} - {second.host}
    assert rig.maintenance(number).state is S.DONE
    rig.check_replay()


def test_host_that_ends_after_a_resumption_is_followed_by_a_pause() -> None:
    """A host of a stopped wave that ends late is the end of that wave. Source: F-1, F-3.

    A plan that is being made meanwhile takes no force.
    """
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(pause_s=1800)))
    number = rig.start("h0", "h3", "h1", "h4")
    rig.show()
    first, second = rig.working(number).values()
    rig.wait(20 * MINUTE_MS)
    rig.tell(DriverFailed(first.number, 1, "no power"))
    rig.tell(Complete(first.number, failed=True))
    rig.tell(words.ResumeMaintenance(number))
    rig.wait(40 * MINUTE_MS)
    ended_ms = rig.now_ms
    before = rig.planned(number)
    rig.plans_made = False
    rig.finish(second)
    rig.refuses(before, PlanSuperseded)
    rig.plans_made = True
    rig.make_plan(number)
    while not any(each.execution.started_ms for each in rig.working(number).values()):
        rig.wait(MINUTE_MS)
        rig.show()
    starts = [each.execution.started_ms for each in rig.working(number).values()]
    assert min(filter(None, starts)) >= ended_ms + 30 * MINUTE_MS
    rig.check_replay()


def test_host_that_fails_after_its_service_counts() -> None:
    """A host that fails soon after its service stops the maintenance. Source: F-5, G-3."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.show()
    [operation] = rig.working(number).values()
    rig.approve("web_0", operation)
    rig.finish(operation)
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    assert rig.maintenance(number).state is S.STOPPED
    assert not rig.working(number)


def test_vms_are_told_what_people_wrote() -> None:
    """A description of its own takes the place of the usual one. Source: D-9."""
    rig = fleet()
    number = rig.start("h0", description="new firmware")
    assert rig.working(number)["h0"].description == "new firmware"
    other = fleet()
    number = other.start("h0")
    assert other.working(number)["h0"].description == "Host server is undergoing maintenance."


def test_failures_within_the_budget_let_it_go_on() -> None:
    """A failure it may have does not stop a maintenance. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", "h1", max_failures=1)
    rig.show()
    rig.wait(20 * MINUTE_MS)
    [operation] = rig.working(number).values()
    rig.tell(Complete(operation.number, failed=True))
    assert rig.run() == [{"h1"}]
    assert rig.maintenance(number).state is S.DONE


def test_gate_that_fails_stops_it() -> None:
    """Checks that fail after a wave stop the maintenance with their reason. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.tell(words.GateFailed(number, "error rate is 4 %"))
    assert rig.maintenance(number).state is S.STOPPED
    assert rig.maintenance(number).halt_reason == "error rate is 4 %"
    assert not rig.state.operations


def test_plan_of_another_parent_takes_no_force() -> None:
    """A plan takes force only if its parent is the one in force. Source: F-2."""
    rig = fleet()
    number = rig.create("h0", "h1")
    first = rig.plans[rig.maintenance(number).plan]
    rig.plans_made = False
    rig.tell(words.StartMaintenance(number))
    planned = rig.planned(number)
    orphan = replace(planned.plan, id="0" * 16, parent="")
    rig.refuses(replace(planned, plan=orphan), PlanSuperseded)
    rig.wait(MINUTE_MS)
    rig.make_plan(number)
    assert rig.plans[rig.maintenance(number).plan].parent == first.id


def test_budget_counts_failures_and_work_by_hand() -> None:
    """A host that has failed takes the room of a budget; the wave waits. Source: F-3."""
    rig = fleet()
    number = rig.create("h0", "h3", budgets=(Budget(Scope.FLEET, 1),))
    rig.ask(Cause.HARDWARE_FAILURE, "h5")
    rig.tell(words.StartMaintenance(number))
    rig.wait(3_600_000)
    assert not rig.working(number)
    rig.tell(Repair("h5"))
    assert rig.run() == [{"h0"}, {"h3"}]
    assert rig.maintenance(number).state is S.DONE


def test_users_own_work_on_a_vm_keeps_no_other_fault_domain_back() -> None:
    """A restart that hangs blocks no maintenance of the group's other hosts. Source: G-1, F-4."""
    rig = fleet()
    restart = rig.ask(Cause.REBOOT, "web_1")
    rig.approve("web_1", restart)
    assert rig.now(restart).state is OperationState.RUNNING
    number = rig.start("h0")
    assert set(rig.working(number)) == {"h0"}


def test_failure_between_plan_and_wave_is_admitted_again() -> None:
    """What fails after the plan was made keeps a host from being announced. Source: F-3."""
    rig = fleet()
    number = rig.start("h0", "h1", budgets=(Budget(Scope.FLEET, 1),), earliest_ms=START_MS + DAY_MS)
    rig.wait(DAY_MS - 30 * MINUTE_MS)
    assert not rig.working(number)
    rig.plans_made = False
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h5")
    while not isinstance(rig.maintenance(number).phase, Planning):
        rig.wait(MINUTE_MS // 2)
        assert not rig.working(number)
    assert rig.maintenance(number).running
    assert rig.waits(number).code is code_of("fault-domain")
    rig.finish(failure)
    waits = rig.waits(number)
    again_ms = rig.due_ms(number)
    assert (waits.code, waits.subject, waits.clears_ms) == (
        code_of("planning"),
        f"m-{number}",
        again_ms,
    )


def test_work_starts_only_in_its_window() -> None:
    """An approval before the window opens starts nothing, and all of it ends inside. F-7, L-6."""
    opens = Window("night", from_min=0, to_min=240)
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(windows=(opens,))))
    number = rig.start("h0", "h1", "h2")
    began: dict[str, int] = {}
    for _ in range(24 * 24):
        rig.wait(5 * MINUTE_MS)
        rig.show()
        for operation in rig.working(number).values():
            if operation.state is OperationState.RUNNING:
                began[operation.host] = rig.now_ms
                rig.wait(9 * MINUTE_MS)
                rig.finish(operation)
            elif rig.shown("web"):
                rig.approve("web_0", operation)
    assert set(began) == {"h0", "h1", "h2"}
    assert all(at_ms % DAY_MS <= 230 * MINUTE_MS for at_ms in began.values())
    assert rig.maintenance(number).state is S.DONE


def test_large_wave_comes_in_portions() -> None:
    """A step announces a portion of a wave; the rest follows, and so do withdrawals. F-6."""
    count = 3 * PORTION_MAX
    rig = fleet(count, domains=1)
    number = rig.start(*(f"h{n}" for n in range(count)))
    assert len(rig.working(number)) == count
    announced = Counter(entry.action for entry in rig.entries)["operation.announced"]
    assert announced == count
    outcome = rig._tell(words.PauseMaintenance(number))
    cancelled = [each for each in outcome.changes.operations.values() if not each.live]
    assert 0 < len(cancelled) <= PORTION_MAX
    rig.now_ms += 3_600_000
    rig.tell(Tick())
    assert not rig.state.operations
    assert not rig.begun


def test_maintenance_survives_a_restart() -> None:
    """After a restart the same plan goes on, and a plan being made is made again. L-7."""
    rig = fleet()
    number = rig.start("h0", "h1")
    before = rig.maintenance(number)
    outcome = rig.tell(Recover())
    assert rig.maintenance(number) == before
    assert outcome.to_plan == ()
    rig.plans_made = False
    rig.run()
    assert rig.maintenance(number).plan_wanted
    assert rig.tell(Recover()).to_plan == (number,)


@pytest.mark.parametrize(
    "asked",
    [
        {"hosts": ()},
        {"hosts": ("h0", "h0")},
        {"duration_s": 0},
        {"cause": Cause.REBOOT},
        {"cause": Cause.HARDWARE_FAILURE},
        {"deadline_ms": 1},
        {"canary_hosts": ("h5",)},
        {"max_failures": -1},
    ],
    ids=["none", "twice", "no-time", "of-a-vm", "a-fault", "past", "canary", "negative"],
)
def test_maintenance_that_contradicts_itself_is_refused(asked: dict[str, object]) -> None:
    """What cannot be meant is refused and changes nothing. Source: F-1."""
    rig = fleet()
    form = {"cause": Cause.HOST_REBOOT, "hosts": ("h0", "h1"), "duration_s": 600} | asked
    rig.refuses(words.CreateMaintenance(**form), MaintenanceInvalid)  # type: ignore[arg-type]


def test_canary_outside_the_maintenance_is_named() -> None:
    """The refusal names the canary that is not among the hosts. Source: F-1."""
    form = words.CreateMaintenance(
        cause=Cause.HOST_REBOOT, hosts=("h0", "h1"), duration_s=600, canary_hosts=("h1", "h5")
    )
    assert "the canary h5 is not among" in str(fleet().refuses(form, MaintenanceInvalid))


def test_each_state_has_its_first_blocker() -> None:
    """What a maintenance waits for is named in every state, with who can clear it. Source: F-4."""
    rig = fleet()
    number = rig.create("h0", "h1")
    assert rig.waits(number).code is code_of("operator")
    rig.tell(words.StartMaintenance(number))
    assert rig.waits(number).code is code_of("approval")
    assert rig.waits(number, host="h1").code is code_of("previous-wave")
    rig.tell(words.PauseMaintenance(number, "a game is on"))
    assert "a game is on" in rig.waits(number).sentence("")
    rig.plans_made = False
    rig.tell(words.ResumeMaintenance(number))
    assert rig.waits(number).code is code_of("planning")
    rig.make_plan(number)
    rig.ask(Cause.HARDWARE_FAILURE, "h1")
    assert rig.waits(number, host="h1").code is code_of("host-failed")


def test_nothing_waits_without_a_blocker() -> None:
    """At each moment of a life a running maintenance has a first blocker. Source: F-4."""
    rig = fleet()
    number = rig.start("h0", "h1", "h2", "h3")
    seen = set()
    while rig.maintenance(number).live:
        seen.add(rig.waits(number).code)
        rig.show()
        for operation in rig.working(number).values():
            seen.add(rig.waits(number, host=operation.host).code)
            if operation.state is OperationState.RUNNING:
                rig.finish(operation)
        rig.wait(MINUTE_MS)
    assert {code_of("approval"), code_of("driver")} <= seen


def test_equal_fault_domains_of_two_zones_are_two() -> None:
    """Fault domain 0 of another zone waits for work in fault domain 0 of this one. G-1."""
    rig = fleet()
    other = Host("h9", 0, 0, zone="z2")
    rig.tell(ChangeTopology(hosts=(other,), vms=(Vm("web_9", "h9", "web"),)))
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.ask(Cause.HOST_REBOOT, "h3").state is OperationState.ANNOUNCED
    assert rig.ask(Cause.HOST_REBOOT, "h9").state is OperationState.PLANNED


def test_reason_names_the_zone_of_the_other_fault_domain() -> None:
    """The waiting host may have a fault domain of the same number. Source: G-1."""
    rig = fleet()
    other = Host("h9", 0, 0, zone="z2")
    rig.tell(ChangeTopology(hosts=(other,), vms=(Vm("web_9", "h9", "web"),)))
    rig.ask(Cause.HOST_REBOOT, "h9")
    [blocker] = rig.why(rig.ask(Cause.HOST_REBOOT, "h0"))
    assert blocker.text == "group web is disturbed in fault domain 0 of zone z2 by op-1"


def test_resumed_maintenance_has_the_start_of_its_first_day() -> None:
    """Pausing and resuming do not move when it began, which reports show. Source: F-1, F-6."""
    rig = fleet()
    number = rig.start("h0", "h1")
    started_ms = rig.maintenance(number).started_ms
    assert started_ms == rig.now_ms
    rig.tell(words.PauseMaintenance(number))
    rig.wait(MINUTE_MS)
    rig.tell(words.ResumeMaintenance(number))
    assert rig.maintenance(number).started_ms == started_ms
    rig.check_replay()
