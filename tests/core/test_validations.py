"""Validated return: a host is checked after its work, before it counts as done. Source: T-7."""

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.refusals import ReasonNeeded, TicketWrongState
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    DriverBegun,
    DriverDone,
    Enable,
    HostRejected,
    HostValidated,
    MoveTicket,
    Recover,
    Retry,
    Tick,
)
from forewarn_core.fleet.ticket import TicketMove, TicketState
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.rules.blockers import code_of
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import MINUTE_MS, Rig
from tests.core.test_windows import tickets

LABELS = (("validation", "burn-in"),)
FLEET = ChangeTopology(
    hosts=tuple(Host(f"h{n}", n, n, labels=LABELS) for n in range(2)),
    groups=(Group("web"),),
    vms=tuple(Vm(f"web_{n}", f"h{n}", "web") for n in range(2)),
)


def worked_on() -> tuple[Rig, Operation]:
    """A host whose work its driver has done."""
    rig = Rig()
    rig.tell(FLEET, Enable("web"))
    operation = rig.ask(Cause.HOST_REBOOT, "h0", duration_s=600)
    rig.show()
    rig.approve("web_0", operation)
    rig.tell(DriverBegun(operation.number, 1), DriverDone(operation.number, 1, 70))
    return rig, rig.now(operation)


def test_event_stays_started_until_the_validation_passes() -> None:
    """The VMs see the work until the host is checked. Source: T-7."""
    rig, operation = worked_on()
    assert (operation.state, operation.execution.validation) == (OperationState.RUNNING, "burn-in")
    assert rig.shown("web") == ["Reboot Started"]
    assert rig.tell(Tick()).validate == ()
    assert rig.tell(Recover()).validate == (operation.number,)
    rig.tell(DriverDone(operation.number, 1))
    assert rig.now(operation).state is OperationState.RUNNING
    rig.tell(HostValidated(operation.number, 1))
    assert rig.now(operation).state is OperationState.SUCCEEDED
    assert rig.now(operation).execution.interruption_ms == 70
    assert rig.shown("web") == []
    assert not tickets(rig)
    rig.check_replay()


def test_failed_validation_keeps_the_host_out_of_service() -> None:
    """An incident is open, and the event stays Started. Source: T-7.

    The incident does not repeat the gate's reason, which may name VMs of others. Source: P-3.
    """
    rig, operation = worked_on()
    rig.tell(HostRejected(operation.number, 1, "no link"))
    stuck = rig.now(operation)
    assert (stuck.alert, stuck.reason) == (Alert.STUCK, "validation failed: no link")
    assert rig.shown("web") == ["Reboot Started"]
    [incident] = tickets(rig)
    assert (incident.operation, incident.description) == (operation.number, "validation failed")
    rig.refuses(MoveTicket(incident.number, TicketMove.CLOSE), TicketWrongState)
    rig.tell(HostValidated(operation.number, 1))
    assert rig.now(operation).state is OperationState.RUNNING


def test_each_failed_validation_is_told_in_one_incident() -> None:
    """A retry that fails again adds a text to the open incident. Source: T-7."""
    rig, operation = worked_on()
    rig.tell(HostRejected(operation.number, 1, "no link"), Retry(operation.number))
    rig.tell(DriverBegun(operation.number, 2), DriverDone(operation.number, 2))
    rig.tell(HostRejected(operation.number, 2, "no link"))
    [incident] = tickets(rig)
    assert [each.text for each in incident.texts] == ["validation failed once more"]
    rig.tell(Complete(operation.number, failed=True, reason="broken"))
    assert [each.live for each in tickets(rig)] == [False]


def test_why_names_the_gate_and_not_the_driver() -> None:
    """While it is checked, and after it has failed. Source: T-7, F-4."""
    rig, operation = worked_on()
    [checked] = rig.why(operation)
    assert checked.code is code_of("gate")
    assert checked.text == "its work is done; gate burn-in validates h0"
    rig.tell(HostRejected(operation.number, 1, "no link"))
    [stuck] = rig.why(operation)
    assert stuck.text == "validation failed: no link; retry, complete or fail it"


def test_operator_accepts_a_host_with_a_reason_alone() -> None:
    """The reason closes the incident. Source: T-7."""
    rig, operation = worked_on()
    rig.tell(HostRejected(operation.number, 1, "no link"))
    rig.refuses(Complete(operation.number), ReasonNeeded)
    rig.tell(Complete(operation.number, reason="the link is not used"))
    assert rig.now(operation).state is OperationState.SUCCEEDED
    [incident] = tickets(rig)
    assert incident.state is TicketState.CLOSED
    assert "the link is not used" in incident.action


def test_retry_works_and_validates_again() -> None:
    """A result of the earlier attempt counts for nothing. Source: T-7, L-8."""
    rig, operation = worked_on()
    rig.tell(HostRejected(operation.number, 1, "no link"), Retry(operation.number))
    assert rig.now(operation).execution.validation == ""
    rig.tell(DriverBegun(operation.number, 2), DriverDone(operation.number, 2))
    rig.tell(HostValidated(operation.number, 1))
    assert rig.now(operation).state is OperationState.RUNNING
    rig.tell(HostValidated(operation.number, 2))
    assert rig.now(operation).state is OperationState.SUCCEEDED
    [incident] = tickets(rig)
    assert incident.state is TicketState.CLOSED


def test_window_contains_the_validation() -> None:
    """A validation beyond the planned close is an overrun. Source: T-5, T-7."""
    rig, operation = worked_on()
    close_ms = operation.window.planned_close_ms
    assert close_ms is not None
    rig.wait(close_ms - rig.now_ms + MINUTE_MS)
    assert [each.live for each in tickets(rig)] == [True]
    rig.tell(HostValidated(operation.number, 1))
    assert [each.live for each in tickets(rig)] == [False]


def test_failed_validation_stops_the_wave() -> None:
    """It counts as a failed host of its maintenance. Source: T-7, F-5."""
    rig = MaintenanceRig()
    rig.tell(FLEET, Enable("web"))
    number = rig.start("h0", "h1")
    rig.show()
    [(host, operation)] = rig.working(number).items()
    rig.approve(f"web_{host[1]}", operation)
    rig.tell(DriverBegun(operation.number, 1), DriverDone(operation.number, 1))
    rig.tell(HostRejected(operation.number, 1, "no link"))
    assert rig.maintenance(number).state is MaintenanceState.STOPPED
