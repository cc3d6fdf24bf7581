"""What people read in history of maintenances, their hosts, waves and plans."""

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import MaintenanceImpossible
from forewarn_core.fleet.stimulus import Complete, DriverFailed
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS
from tests.core.test_sentences import texts


def test_life_of_a_maintenance_is_told() -> None:
    """From its draft to its end, wave by wave. Source: F-1, A-6."""
    rig = fleet()
    rig.start("h0", "h3", "h1", "h4", "h2")
    rig.run()
    told = [e.text for e in rig.entries if e.action.startswith("maintenance.")]
    assert told == [
        "m-1 is a draft: host-reboot of 5 hosts",
        "m-1 is planned in 3 waves",
        "m-1 is running",
        "m-1 is planned in 3 waves",
        "wave 1 of m-1 begins: 1 host",
        "wave 1 of m-1 is announced",
        "host h2 of m-1 is done",
        "wave 1 of m-1 is over; 4 hosts left",
        "m-1 is planned in 2 waves",
        "wave 2 of m-1 begins: 2 hosts",
        "wave 2 of m-1 is announced",
        "host h0 of m-1 is done",
        "host h3 of m-1 is done",
        "wave 2 of m-1 is over; 2 hosts left",
        "m-1 is planned in 1 wave",
        "wave 3 of m-1 begins: 2 hosts",
        "wave 3 of m-1 is announced",
        "host h1 of m-1 is done",
        "host h4 of m-1 is done",
        "m-1 is done",
    ]
    planned = [text for text in texts(rig, "operation.planned") if "h3" in text]
    assert planned == ["op-4: host h3 is in wave 2 of m-1"]


def told(rig: MaintenanceRig, action: str) -> str:
    """What history says last of maintenances under a name."""
    return texts(rig, f"maintenance.{action}")[-1]


def test_words_about_a_maintenance_are_told() -> None:
    """Whoever reads history finds each word, its reason, and what became of the hosts. F-1."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    rig.start("h0", "h1")
    until_ms = rig.now_ms + 60 * MINUTE_MS
    rig.tell(words.PostponeHosts(1, ("h1", "h0"), until_ms, "alice", "a release"))
    said = "h1, h0 of m-1 postponed until 2026-09-21T15:13:20Z for alice"
    assert told(rig, "postponed") == f"{said}: a release"
    assert texts(rig, "operation.cancelled") == ["op-2 is cancelled: postponed for alice"]
    assert told(rig, "host-withdrawn") == "host h0 is still to be done by m-1"
    rig.tell(words.PostponeHosts(1, ("h1", "h0"), until_ms, "alice"))
    assert told(rig, "postponed") == said
    rig.tell(words.PauseMaintenance(1, "a game is on"))
    assert told(rig, "paused") == "m-1 is paused: a game is on"
    rig.tell(words.ResumeMaintenance(1))
    assert told(rig, "resumed") == "m-1 goes on"
    rig.tell(words.GateFailed(1, "errors"))
    assert told(rig, "stopped") == "m-1 is stopped: errors"
    rig.tell(words.CancelMaintenance(1))
    assert told(rig, "cancelled") == "m-1 is cancelled"


def test_checks_and_plans_that_fail_are_told() -> None:
    """Why a plan is missing, what a gate has found, and which hosts count against it. F-2, F-5."""
    rig = fleet()
    rig.start("h0", "h1", gate="errors", max_failures=1)
    rig.show()
    rig.wait(20 * MINUTE_MS)
    rig.tell(DriverFailed(2, 1, "no power"))
    assert told(rig, "host-failed") == "host h0 counts as a failure of m-1: no power"
    rig.tell(Complete(2, failed=True))
    assert told(rig, "host-failed") == "host h0 of m-1 failed"
    assert rig.state.targets["1/h0"].reason == "its operation failed"
    rig.tell(words.GatePassed(1))
    assert told(rig, "gate-passed") == "gate errors lets m-1 go on"
    rig.tell(words.GateFailed(1, "errors"))
    rig.tell(words.ResumeMaintenance(1))
    assert told(rig, "retried") == "1 host of m-1 that failed: tried again"
    rig.plans_made = False
    number = rig.create("h2", "h5")
    rig.tell(words.PlanFailed(number, "it took too long"))
    said = f"no plan could be made for m-{number}: it took too long"
    assert told(rig, "unplanned") == said


def test_applied_policy_is_told() -> None:
    """History says how much a new policy has of each kind, and what follows. Source: F-3."""
    rig = fleet()
    rig.start("h0", "h1")
    closed = (rig.now_ms, rig.now_ms + DAY_MS)
    policy = MaintenancePolicy(
        budgets=(Budget(Scope.FLEET, 3), Budget(Scope.RACK, 1)),
        windows=(Window("always"),),
        freezes=(closed,),
    )
    rig.tell(words.ApplyPolicy(policy))
    assert texts(rig, "policy.applied") == [
        "the maintenance policy has 2 budgets, 1 window, 1 freeze"
    ]
    assert texts(rig, "operation.cancelled") == [
        "op-2 is cancelled: the new policy closes its time"
    ]
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=60)))
    assert texts(rig, "policy.applied")[-1].endswith("0 budgets, 0 windows, 0 freezes")
    assert told(rig, "replanning") == "m-1 is planned by the new policy"


def test_maintenance_that_can_never_be_done_is_not_started() -> None:
    """A draft names its blocker, which refuses the start; the rest can be started. Source: F-4."""
    rig = fleet()
    rig.create("h0", "h1", "h2", deadline_ms=rig.now_ms + 60 * MINUTE_MS)
    text = "host h2 cannot be done before the deadline because of wave 2"
    assert (rig.waits(1).text, rig.waits(1, "h0").text) == (text, text)
    error = rig.refuses(words.StartMaintenance(1), MaintenanceImpossible)
    assert text in str(error)
    assert rig.maintenance(1).state is MaintenanceState.DRAFT
    rig.start("h0", deadline_ms=rig.now_ms + 60 * MINUTE_MS)
    late = rig.create("h1", deadline_ms=rig.now_ms + 90 * MINUTE_MS)
    rig.now_ms += 70 * MINUTE_MS
    error = rig.refuses(words.StartMaintenance(late), MaintenanceImpossible)
    assert "deadline because of its notice" in str(error)
