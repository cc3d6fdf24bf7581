"""Maintenance windows: planned and actual open and close, and incidents by overruns. T-5."""

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import MaintenanceWindow, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.refusals import TicketWrongState, UnknownTicket
from forewarn_core.fleet.stimulus import (
    DriverBegun,
    DriverDone,
    MoveTicket,
    Recover,
    Tick,
)
from forewarn_core.fleet.ticket import Ticket, TicketMove, TicketState, TicketType
from tests.core.rig import MINUTE_MS, Rig, small
from tests.core.test_moving import begun, fleet


def tickets(rig: Rig) -> list[Ticket]:
    """Every ticket that ever was, as history has it."""
    return [each for each in rig.replay.records["ticket"].values() if isinstance(each, Ticket)]


def rebooting(duration_s: int = 600) -> tuple[Rig, int]:
    """A reboot of a host that has started; return its number."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0", duration_s=duration_s)
    rig.show()
    rig.wait(rig.now(operation).not_before_ms - rig.now_ms)
    assert rig.now(operation).state is OperationState.RUNNING
    rig.tell(DriverBegun(operation.number, 1))
    return rig, operation.number


def test_window_is_planned_with_the_announcement() -> None:
    """It opens at NotBefore and closes after the duration. Source: T-5."""
    rig = small()
    operation = rig.now(rig.ask(Cause.HOST_REBOOT, "h0", duration_s=600))
    not_before_ms = operation.not_before_ms
    assert operation.window == MaintenanceWindow(not_before_ms, not_before_ms + 600_000)


def test_overrun_opens_an_incident_once_and_closes_it_with_the_work() -> None:
    """The incident has the true time, and the overrun at its end. Source: T-5."""
    rig, number = rebooting()
    close_ms = rig.now(number).window.planned_close_ms
    assert close_ms is not None
    rig.wait(close_ms - rig.now_ms)
    assert not tickets(rig), "work that ends at its planned close is in time"
    rig.wait(1)
    [incident] = tickets(rig)
    assert (incident.type, incident.opened_ms) == (TicketType.INCIDENT, close_ms + 1)
    assert (incident.operation, incident.target) == (number, "h0")
    rig.wait(3 * MINUTE_MS)
    assert len(tickets(rig)) == 1
    rig.tell(DriverDone(number, 1))
    [closed] = tickets(rig)
    assert (closed.state, closed.closed_ms) == (TicketState.CLOSED, rig.now_ms)
    assert closed.action == "the work ended 3 min after the planned close"
    rig.check_replay()


def test_work_that_ends_in_time_has_no_incident() -> None:
    """No ticket without an overrun. Source: T-5."""
    rig, number = rebooting()
    rig.wait(5 * MINUTE_MS)
    rig.tell(DriverDone(number, 1))
    rig.wait(60 * MINUTE_MS)
    assert not tickets(rig)


def test_work_that_starts_late_has_its_whole_length() -> None:
    """Work that has not started cannot overrun. Source: T-5."""
    rig = small()
    first = rig.ask(Cause.HOST_REBOOT, "h0", duration_s=600)
    rig.show()
    rig.wait(rig.now(first).not_before_ms - rig.now_ms)
    second = rig.ask(Cause.REBOOT, "web_0", duration_s=60)
    assert second.window == MaintenanceWindow()
    window = rig.now(first).window
    late = rig.now(first)
    assert late.state is OperationState.RUNNING
    assert window.opened_ms == window.planned_open_ms


def test_incident_about_running_work_closes_with_the_work_alone() -> None:
    """Nobody closes it before. Source: T-5."""
    rig, number = rebooting()
    rig.wait(20 * MINUTE_MS)
    [incident] = tickets(rig)
    rig.refuses(MoveTicket(incident.number, TicketMove.CLOSE), TicketWrongState)
    rig.tell(DriverDone(number, 1))
    rig.refuses(MoveTicket(incident.number, TicketMove.CLOSE), UnknownTicket)


def test_restart_opens_the_incident_that_is_due() -> None:
    """A control plane that comes back finds the overrun at once. Source: T-5."""
    rig, _ = rebooting()
    rig.now_ms += 60 * MINUTE_MS
    rig.tell(Recover())
    [incident] = tickets(rig)
    assert incident.opened_ms == rig.now_ms
    rig.tell(Tick())
    assert len(tickets(rig)) == 1


def test_window_of_a_host_lasts_until_its_vms_are_back() -> None:
    """Moves, work and return share one window, and one incident. Source: T-5."""
    rig = fleet()
    number = rig.start("h0", move_s=600, return_vms=True)
    move = begun(rig, "h0", "v0", number)
    window = move.window
    assert window.planned_open_ms == move.not_before_ms
    assert window.planned_close_ms is not None
    maintenance = rig.maintenance(number)
    assert window.planned_close_ms == move.not_before_ms + maintenance.host_s * 1000
    rig.finish(move)
    work = rig.working(number)["h0"]
    assert work.window == window
    rig.wait(window.planned_close_ms - rig.now_ms + 1)
    [incident] = tickets(rig)
    assert rig.now(work).window.incident == incident.number
    rig.finish(work)
    [incident] = tickets(rig)
    assert incident.live
    rig.run()
    [incident] = tickets(rig)
    assert incident.state is TicketState.CLOSED
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_work_that_ends_before_a_tick_has_its_incident_too() -> None:
    """The overrun is recorded even if nothing woke the service in between. Source: T-5."""
    rig, number = rebooting()
    rig.now_ms += 90 * MINUTE_MS
    rig.tell(DriverDone(number, 1))
    [incident] = tickets(rig)
    assert incident.state is TicketState.CLOSED
    assert rig.now(number).window.incident == incident.number
