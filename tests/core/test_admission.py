"""Admission: routine work waits, with its reason, until it disturbs only one fault domain."""

import pytest

from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.step import PORTION_MAX
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Complete,
    DriverDone,
    Enable,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from tests.core.maintenance import fleet
from tests.core.rig import MINUTE_MS, Rig, small

S = OperationState


def test_second_fault_domain_waits_with_its_reason() -> None:
    """Routine work on a second fault domain of a group waits for the first. Source: G-1."""
    rig = small()
    first = rig.ask(Cause.HOST_REBOOT, "h0")
    second = rig.ask(Cause.HOST_REBOOT, "h1")
    assert rig.now(second).state is S.PLANNED
    (waiting,) = rig.why(second)
    assert (waiting.code.value, waiting.subject) == ("fault-domain", first.id)
    assert "group web is disturbed in fault domain 0" in waiting.text
    assert rig.shown("web") == ["Reboot Scheduled"]


def test_next_fault_domain_follows_right_after() -> None:
    """When the first has ended the next is announced, with its whole notice. Source: G-1, N-1."""
    rig = small()
    first = rig.ask(Cause.HOST_REBOOT, "h0")
    second = rig.ask(Cause.HOST_REBOOT, "h1")
    rig.approve("web_0", first)
    rig.approve("db_0", first)
    rig.wait(MINUTE_MS)
    rig.finish(first)
    assert rig.now(second).state is S.ANNOUNCED
    assert rig.now(second).not_before_ms == rig.now_ms + 15 * MINUTE_MS
    assert rig.why(second)[0].code.value == "approval"


def test_cancelling_the_first_admits_the_second() -> None:
    """Withdrawn work stands in nobody's way; planned work can be withdrawn. Source: G-1, L-3."""
    rig = small()
    first = rig.ask(Cause.HOST_REBOOT, "h0")
    second = rig.ask(Cause.HOST_REBOOT, "h1")
    third = rig.ask(Cause.HOST_REBOOT, "h0", queue=True)
    rig.tell(Cancel(third.number))
    rig.tell(Cancel(first.number))
    assert rig.now(second).state is S.ANNOUNCED
    assert rig.now(third).state is S.CANCELLED


def test_same_fault_domain_may_be_disturbed_together() -> None:
    """Two hosts of one fault domain may be worked on at once. Source: G-1."""
    rig = small()
    rig.tell(ChangeTopology(hosts=(Host("h3", 0, 3),), vms=(Vm("web_3", "h3", "web"),)))
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.ask(Cause.HOST_REBOOT, "h3").state is S.ANNOUNCED
    events = rig.document("web")[1]
    assert [event.resources for event in events] == [("web_0",), ("web_3",)], "G-2: one each"


def test_groups_apart_do_not_wait_for_each_other() -> None:
    """Work that disturbs other groups is admitted at once. Source: G-1, G-2."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.ask(Cause.HOST_REBOOT, "h2").state is S.ANNOUNCED


def test_routine_work_waits_for_a_failure() -> None:
    """Announced routine work does not start while a failure disturbs its group. Source: G-1."""
    rig = small()
    routine = rig.ask(Cause.HOST_REBOOT, "h1")
    rig.show()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.approve("web_1", routine)
    assert rig.now(routine).state is S.ANNOUNCED
    assert [waiting.code.value for waiting in rig.why(routine)] == ["fault-domain"]
    rig.wait(30 * MINUTE_MS)
    assert rig.now(routine).state is S.ANNOUNCED, "NotBefore does not override it"
    rig.tell(Complete(failure.number))
    assert rig.now(routine).state is S.RUNNING


def test_other_work_is_not_held_up() -> None:
    """Users' own acts and failures wait for no fault domain. Source: G-1, L-4."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert rig.ask(Cause.REBOOT, "web_1").state is S.ANNOUNCED
    assert rig.ask(Cause.HARDWARE_DEGRADED, "h1").state is S.ANNOUNCED
    assert rig.ask(Cause.HARDWARE_FAILURE, "h1").state is S.RUNNING


@pytest.mark.parametrize("second", [Cause.REDEPLOY, Cause.EVICTION])
def test_vm_is_worked_on_one_by_one(second: Cause) -> None:
    """What is approved while other work on the VM runs waits for that to end. Source: L-6."""
    rig = small()
    reboot, other = rig.ask(Cause.REBOOT, "web_0"), rig.ask(second, "web_0")
    rig.show()
    rig.tell(ApprovalRequest("web_0", reboot.events, ""))
    rig.wait(other.not_before_ms - rig.now_ms)
    assert rig.now(other).state is S.ANNOUNCED
    assert [each.code.value for each in rig.why(other)] == ["vm-busy"]
    rig.finish(reboot)
    assert rig.now(other).state is not S.ANNOUNCED


def test_users_own_work_on_a_host_occupies_it() -> None:
    """A host its user works on takes no other work meanwhile. Source: G-1."""
    rig = small(enabled=())
    rig.ask(Cause.HOST_REBOOT, "h0", source=Source.USER)
    second = rig.ask(Cause.HOST_UPDATE, "h0")
    assert rig.now(second).state is S.PLANNED
    assert rig.why(second)[0].code.value == "host-busy"
    assert rig.ask(Cause.HOST_REBOOT, "h1").state is S.PLANNED, "its group is disturbed"


def test_degraded_host_is_worked_on_one_by_one() -> None:
    """An evacuation does not start on a host where other work is running. Source: G-1."""
    rig = small()
    routine = rig.ask(Cause.HOST_REBOOT, "h2")
    predicted = rig.ask(Cause.HARDWARE_DEGRADED, "h2")
    rig.approve("far_0", routine)
    rig.approve("far_0", predicted)
    assert rig.now(routine).state is S.RUNNING
    assert [waiting.code.value for waiting in rig.why(predicted)] == ["host-busy"]
    rig.finish(routine)
    assert rig.now(predicted).state is S.RUNNING


def test_a_wave_of_hosts_passes_one_fault_domain_at_a_time() -> None:
    """Asked for all at once, the hosts follow each other and none is forgotten. Source: G-1."""
    rig = Rig()
    hosts = tuple(Host(f"h{n}", fault_domain=n % 3, update_domain=n) for n in range(6))
    from forewarn_core.fleet.topology import Group

    vms = tuple(Vm(f"v{n}", f"h{n}", "g") for n in range(6))
    rig.tell(ChangeTopology(hosts=hosts, groups=(Group("g"),), vms=vms), Enable("g"))
    rig.ask(Cause.HOST_REBOOT, *(host.name for host in hosts))
    rounds = 0
    while rig.state.operations:
        rounds += 1
        rig.show()
        announced = list(rig.state.operations.values())
        for operation in [each for each in announced if each.state is S.ANNOUNCED]:
            rig.approve(operation.vms[0], operation)
        running = [each for each in rig.state.operations.values() if each.state is S.RUNNING]
        assert len({each.host for each in running} & {"h0", "h3"}) in {0, 2}
        zones = {rig.state.topology.hosts[each.host].fault_domain for each in running}
        assert len(zones) == 1
        for operation in running:
            rig.finish(operation)
    assert rounds == 3
    rig.check_replay()


@pytest.mark.parametrize("cause", [Cause.REIMAGE, Cause.REBOOT, Cause.REDEPLOY])
@pytest.mark.parametrize("source", [Source.PLATFORM, Source.USER])
def test_platform_work_on_vms_takes_fault_domains_in_turn(cause: Cause, source: Source) -> None:
    """The platform's planned work on VMs is routine, a user's own is not. Source: G-1."""
    rig = small()
    first = rig.ask(cause, "web_0", "web_1", source=source)
    second = rig.now(first.number + 1)
    assert (second.state is S.PLANNED) == (source is Source.PLATFORM)


def test_platform_work_on_a_vm_and_on_a_host_take_turns() -> None:
    """One group, two fault domains: a VM's image and another's host. Source: G-1."""
    rig = small()
    image = rig.ask(Cause.REIMAGE, "web_0", source=Source.PLATFORM)
    update = rig.ask(Cause.HOST_UPDATE, "h1")
    assert [waiting.subject for waiting in rig.why(update)] == [image.id]
    beside = rig.ask(Cause.HOST_UPDATE, "h0")
    assert rig.now(beside).state is S.ANNOUNCED
    rig.finish(image)
    assert [waiting.subject for waiting in rig.why(update)] == [beside.id]


def test_work_that_waits_for_what_is_withdrawn_in_the_same_step_goes_on() -> None:
    """What ends frees work that is too late by then, and that frees the next. Source: G-1, F-4."""
    rig = fleet()
    own = rig.ask(Cause.HOST_REBOOT, "h2", source=Source.USER)
    number = rig.start("h0", deadline_ms=rig.now_ms + 40 * MINUTE_MS)
    rig.show()
    rig.approve("web_2", own)
    other = rig.ask(Cause.HOST_REBOOT, "h1")
    assert [waiting.subject for waiting in rig.why(other)] == [own.id]
    rig.checked = False  # what is late is withdrawn when what it waits for has ended
    rig.wait(60 * MINUTE_MS)
    rig.checked, rig.plans_made = True, False
    assert set(rig.working(number)) == {"h0"}
    rig.tell(DriverDone(own.number, 1))
    assert not rig.working(number), "it would end after the deadline"
    assert rig.now(other).state is S.ANNOUNCED


def test_step_announces_a_full_portion() -> None:
    """One step announces and starts as much as it may, and no more. Source: L-1."""
    names = [f"h{n}" for n in range(2 * PORTION_MAX)]
    rig = Rig()
    rig.tell(
        ChangeTopology(
            hosts=tuple(Host(name) for name in names),
            groups=tuple(Group(f"g-{name}") for name in names),
            vms=tuple(Vm(f"v-{name}", name, f"g-{name}") for name in names),
        )
    )
    outcome = rig._tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=tuple(names)))
    actions = [entry.action for entry in outcome.changes.entries]
    assert actions.count("operation.announced") + actions.count("operation.started") == PORTION_MAX


def test_work_goes_on_when_the_last_vm_that_it_would_disturb_too_is_gone() -> None:
    """A group that is no longer on both hosts holds neither up. Source: G-1, F-4."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    planned = rig.ask(Cause.HOST_REBOOT, "h1")
    assert rig.now(planned).state is OperationState.PLANNED
    gone = rig.ask(Cause.EVICTION, "web_0")
    rig.approve("web_0", gone)
    rig.finish(gone)
    assert rig.now(planned).state is OperationState.ANNOUNCED


def test_work_that_nobody_is_asked_about_is_not_limited() -> None:
    """Of a group that is not enabled any number may be asked for at once. Source: O-1, B-3."""
    rig = small(enabled=(), policy=NoticePolicy(max_user_operations=1))
    rig.ask(Cause.REBOOT, "web_0", "web_1")
    assert {each.state for each in rig.state.operations.values()} == {OperationState.RUNNING}
