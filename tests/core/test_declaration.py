"""Declared maintenance: nobody is disturbed before the hand-back deadline. Source: T-1, T-3."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import (
    DeclarationRefused,
    DeclarationRequired,
    MaintenanceWrongState,
)
from forewarn_core.fleet.stimulus import ChangeTopology, Tick
from forewarn_core.fleet.topology import Host, Vm
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.hand_back import Severity
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS

DAY_S = 86_400


def declared(rig: MaintenanceRig, *hosts: str, **more: object) -> int:
    """Declare routine work on hosts with a window of 14 days; return its number."""
    number = rig.create(*hosts, **more)  # type: ignore[arg-type]
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    return number


def test_declared_work_starts_at_the_hand_back_deadline() -> None:
    """The event is shown before, for its notice, and nobody starts it earlier. Source: T-3."""
    rig = fleet()
    number = declared(rig, "h0")
    deadline_ms = rig.now_ms + 14 * DAY_MS
    waits = rig.waits(number, "h0")
    assert (waits.code, waits.clears_ms) == (code_of("hand-back"), deadline_ms)
    rig.now_ms = rig.due_ms(number)
    assert deadline_ms - 30 * MINUTE_MS < rig.now_ms < deadline_ms
    rig.tell(Tick())
    work = rig.working(number)["h0"]
    rig.show()
    rig.approve("web_0", work)
    assert rig.now(work.number).execution.started_ms is None, "approved, and still the owner's time"
    rig.now_ms = deadline_ms
    rig.tell(Tick())
    assert rig.now(work.number).execution.started_ms == deadline_ms


def test_declared_work_keeps_the_deadline_for_groups_that_never_poll() -> None:
    """T-3 comes before B-3: nobody is asked, and the hand-back window stays. Source: T-3."""
    rig = fleet()
    rig.now_ms += 2 * DAY_MS
    rig.tell(Tick())  # nobody has polled: the group is disabled
    number = declared(rig, "h0")
    deadline_ms = rig.now_ms + 14 * DAY_MS
    assert rig.run()
    [work] = [each for each in rig.operations.values() if each.maintenance == number]
    started_ms = work.execution.started_ms
    assert started_ms is not None
    assert started_ms >= deadline_ms


def test_declared_host_without_vms_waits_for_nobody() -> None:
    """No VM is disturbed there, so its work starts with its notice. Source: T-3."""
    rig = fleet()
    rig.tell(ChangeTopology(hosts=(Host("empty", 0, 9),)))
    number = declared(rig, "empty", "h0")
    assert rig.working(number).keys() == {"empty"}, "announced at once"


def test_vm_that_arrives_takes_the_deadline_of_its_host() -> None:
    """An empty host waits for nobody until it has a VM. Source: T-1, T-3."""
    rig = fleet()
    rig.tell(ChangeTopology(hosts=(Host("empty", 0, 9),)))
    rig.plans_made = False
    number = declared(rig, "empty")
    rig.tell(ChangeTopology(vms=(Vm("late", "empty", "web"),)))
    rig.make_plan(number)
    assert rig.waits(number, "empty").code is code_of("hand-back")


@pytest.mark.parametrize(
    ("window_s", "severity", "problem"),
    [
        (14 * DAY_S - 1, Severity.ROUTINE, "requires 14 d for routine work"),
        (DAY_S - 1, Severity.URGENT, "requires 1 d for urgent work"),
        (90 * DAY_S + 1, Severity.URGENT, "allows 90 d at most"),
        (30 * DAY_S, Severity.ROUTINE, "after the deadline of the maintenance"),
    ],
)
def test_declaration_is_refused_outside_the_limits_of_the_policy(
    window_s: int, severity: Severity, problem: str
) -> None:
    """The policy has a least window for each severity, and a longest. Source: T-1."""
    rig = fleet()
    number = rig.create("h0", deadline_ms=rig.now_ms + 30 * DAY_MS)
    word = words.DeclareMaintenance(number, severity, window_s)
    with pytest.raises(DeclarationRefused, match=problem):
        rig.tell(word)
    assert rig.maintenance(number).state is MaintenanceState.DRAFT
    rig.tell(replace(word, severity=Severity.URGENT, hand_back_s=DAY_S))
    assert rig.maintenance(number).declaration is not None
    with pytest.raises(MaintenanceWrongState, match="cannot be declared"):
        rig.tell(word)


def test_undeclared_maintenance_is_refused_where_the_policy_requires_a_declaration() -> None:
    """Off by default. Source: T-1."""
    policy = MaintenancePolicy(require_declaration=True, hand_back_s=3600)
    rig = fleet(policy=NoticePolicy(maintenance=policy))
    number = rig.create("h0")
    with pytest.raises(DeclarationRequired):
        rig.tell(words.StartMaintenance(number))
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    declaration = rig.maintenance(number).declaration
    assert declaration is not None
    assert declaration.deadline_ms == rig.now_ms + 3600 * SECOND_MS


def test_pause_moves_no_hand_back_deadline() -> None:
    """A resumed maintenance waits for the same time. Source: T-1."""
    rig = fleet()
    number = declared(rig, "h0")
    deadline_ms = rig.waits(number, "h0").clears_ms
    rig.tell(words.PauseMaintenance(number))
    rig.now_ms += DAY_MS
    rig.tell(words.ResumeMaintenance(number))
    assert rig.waits(number, "h0").clears_ms == deadline_ms
