"""A VM has one running operation at a time, whether on the VM or on its host."""

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.outcomes import EventOutcome, EventResult
from forewarn_core.rules.blockers import Code, code_of
from tests.core.rig import Rig, small

S = OperationState
OF_HOST = (Cause.LIVE_MIGRATION, Cause.HOST_UPDATE, Cause.HOST_REBOOT, Cause.HARDWARE_DEGRADED)
OF_VM = (Cause.REBOOT, Cause.REDEPLOY, Cause.REIMAGE, Cause.DELETION)


def both(rig: Rig, on_host: Cause, on_vm: Cause) -> tuple[Operation, Operation]:
    """Announced work on a host and on one of its VMs."""
    return rig.ask(on_host, "h1"), rig.ask(on_vm, "web_1")


@pytest.mark.parametrize("on_host", OF_HOST)
@pytest.mark.parametrize(("first", "code"), [(0, code_of("host-busy")), (1, code_of("vm-busy"))])
def test_work_on_a_host_and_work_on_its_vm_exclude_each_other(
    on_host: Cause, first: int, code: Code
) -> None:
    """Both are approved, and the second starts when the first has ended. Source: L-10."""
    rig = small()
    works = both(rig, on_host, Cause.REBOOT)
    running, waiting = works[first], works[1 - first]
    rig.approve("web_1", running)
    rig.approve("web_1", waiting)
    assert (rig.now(running).state, rig.now(waiting).state) == (S.RUNNING, S.ANNOUNCED)
    [blocker] = rig.why(waiting)
    assert (blocker.code, blocker.subject) == (code, running.id)
    rig.finish(running)
    assert rig.now(waiting).state is S.RUNNING


@pytest.mark.parametrize("on_vm", OF_VM)
def test_failure_ends_running_work_on_the_hosts_vms(on_vm: Cause) -> None:
    """The failure replaces what runs on a VM, whose driver is notified. Source: L-10, L-4, X-1."""
    rig = small()
    of_vm, announced = rig.ask(on_vm, "web_1"), rig.ask(Cause.EVICTION, "web_0")
    if rig.now(of_vm).state is S.ANNOUNCED:
        rig.approve("web_0", of_vm)
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h1")
    ended = rig.now(of_vm)
    assert (ended.state, ended.replaced_by, rig.aborted) == (
        S.FAILED,
        failure.number,
        [of_vm.number],
    )
    assert all(
        EventOutcome(rig.events[each], ended).result is EventResult.REPLACED
        for each in ended.events
    )
    assert rig.now(announced).state is S.ANNOUNCED
    rig.check_replay()


def test_announced_work_on_a_vm_of_a_failed_host_waits_for_the_repair() -> None:
    """It is neither lost nor done under the failure. Source: L-10."""
    rig = small()
    reboot = rig.ask(Cause.REBOOT, "web_1")
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h1")
    rig.approve("web_0", reboot)
    assert rig.now(reboot).state is S.ANNOUNCED
    rig.finish(failure)
    assert rig.now(reboot).state is S.RUNNING
