"""Work that VMs could not be shown waits or goes on, as policy says for its impact."""

import pytest

from forewarn_core.fleet.impact import SECOND_MS, Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    ApplyPolicy,
    GroupsPolled,
    NoticeShown,
    NotShown,
    Recover,
)
from forewarn_core.fleet.topology import Topology
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.requests import ApprovalRequest
from forewarn_core.rules.blockers import Blocker, code_of
from forewarn_server.api.scope import neutral_waiting
from tests.core.rig import MINUTE_MS, Rig, small

S = OperationState
GOES_ON = MaintenancePolicy(wait_until_shown=())


def unseen(cause: Cause = Cause.HOST_REBOOT, target: str = "h0") -> Rig:
    """Return a fleet with work whose notice VMs on h0 are not shown in time."""
    rig = small()
    rig.ask(cause, target)
    rig.tell(NotShown((1,), ("n0",), ("h0",)))
    return rig


def first_blocker(rig: Rig) -> Blocker:
    """Return what the work waits for first."""
    return rig.why(1)[0]


def test_work_whose_vms_cannot_be_shown_it_waits() -> None:
    """History and `why` name the VMs, and people are alerted at NotBefore. Source: H-7."""
    rig = unseen()
    rig.wait(60 * MINUTE_MS)
    assert rig.now(1).state is S.ANNOUNCED
    blocker = first_blocker(rig)
    assert (blocker.code, blocker.subject, blocker.clears_ms) == (
        code_of("unseen"),
        "db_0, web_0",
        0,
    )
    assert "op-1 waits for the node, or for an approval" in blocker.text
    [entry] = [each for each in rig.entries if each.action == "operation.not-shown"]
    assert entry.text.endswith("VM db_0, web_0 may not know of it, and it waits for them")
    [alert] = [each for each in rig.entries if each.action == "operation.blocked"]
    assert "cannot see op-1" in alert.text


@pytest.mark.parametrize("cause", [Cause.HOST_REBOOT, Cause.HOST_UPDATE], ids=["waits", "goes on"])
def test_repeats_of_what_is_not_shown_are_recorded_once(cause: Cause) -> None:
    """A node that stays away does not fill history, also where notice is renewed. H-7."""
    rig = unseen(cause)
    rig.tell(Recover(), NotShown((1,), ("n0",), ("h0",)), NotShown((1,), ("n0",)))
    assert [each.action for each in rig.entries].count("operation.not-shown") == 1


def test_notice_counts_in_full_from_when_the_vms_are_shown_it() -> None:
    """However long the node was away, the notice is neither shorter nor longer. N-1, H-7."""
    rig = unseen()
    rig.wait(60 * MINUTE_MS)
    rig.tell(NoticeShown((1,)))
    rig.show()
    operation = rig.now(1)
    assert operation.not_before_ms == rig.now_ms + 15 * MINUTE_MS
    assert (operation.notice.shown_ms, operation.unseen_vms) == (rig.now_ms, ())
    assert first_blocker(rig).code is code_of("approval")


@pytest.mark.parametrize("cause", [Cause.HOST_UPDATE, Cause.EVICTION])
def test_work_of_other_impacts_goes_on_and_names_the_vms(cause: Cause) -> None:
    """It does not wait by default; `why` names the VMs until it has ended. Source: H-7, M-4."""
    rig = unseen(cause, "web_0" if cause is Cause.EVICTION else "h0")
    rig.show()
    unknown = "web_0 may not know of op-1: its notice was not shown, or not read"
    assert rig.why(1)[-1].text.endswith(unknown)
    rig.wait(20 * MINUTE_MS)
    assert rig.now(1).state is S.RUNNING
    assert rig.why(1)[-1].text.endswith(unknown)


def test_work_starts_once_somebody_approves_it_for_its_vms() -> None:
    """A person's way out, while the node stays away. Source: H-7, A-9."""
    rig = unseen()
    rig.tell(Acknowledge(rig.now(1).events))
    assert rig.now(1).state is S.RUNNING


def test_policy_that_no_longer_waits_gives_the_notice_from_then_on() -> None:
    """The time that it has waited is not added to the notice. Source: H-7."""
    rig = unseen()
    rig.wait(60 * MINUTE_MS)
    rig.tell(ApplyPolicy(GOES_ON))
    rig.show()
    assert rig.now(1).not_before_ms == rig.now_ms + 15 * MINUTE_MS
    rig.wait(15 * MINUTE_MS)
    assert rig.now(1).state is S.RUNNING


def test_takeover_keeps_the_names_of_unseen_vms() -> None:
    """Another process publishes it again, and `why` names the VMs at once. Source: H-7, L-7."""
    rig = unseen()
    assert rig.tell(Recover()).announced == (1,)
    assert first_blocker(rig).subject == "db_0, web_0"


def test_vms_of_groups_that_do_not_listen_hold_nothing_up() -> None:
    """Nobody there would read what is not shown. Source: H-7, B-3."""
    rig = small(enabled=("web",))
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(NotShown((1,), ("n0",), ("h0",)))
    assert rig.now(1).unseen_vms == ("web_0",)


def test_owner_is_named_only_their_own_vms_of_unseen_work() -> None:
    """What another owner's VMs were not shown is not theirs to read. Source: H-7, P-3."""
    rig = unseen()
    topology = rig.state.topology
    own = Topology(
        dict(topology.hosts), {"web": topology.groups["web"]}, {"web_0": topology.vms["web_0"]}
    )
    waiting = neutral_waiting(tuple(rig.why(1)), own)
    assert waiting[0].subject == "web_0"
    assert "db_0" not in "".join(each.text + each.subject for each in waiting)
    rig.tell(ApplyPolicy(GOES_ON))
    assert "db_0" not in repr(neutral_waiting(tuple(rig.why(1)), own))


def test_work_names_vms_whose_groups_have_not_read_its_notice() -> None:
    """Who asks for no document, as behind a control plane that is cut off, may not know. H-7."""
    rig = small()
    rig.wait(SECOND_MS)
    rig.ask(Cause.HOST_UPDATE, "h0")
    rig.show()
    rig.wait(SECOND_MS)
    rig.tell(GroupsPolled(frozenset({"db"})))  # within a minute of the last record
    rig.wait(20 * MINUTE_MS)
    assert rig.now(1).state is S.RUNNING
    assert rig.now(1).unseen_vms == ("web_0",)
    [entry] = [each for each in rig.entries if each.action == "operation.started"]
    text = "op-1 is running: NotBefore is reached; VM web_0 has not read the notice"
    assert entry.text == text
    assert rig.why(1)[-1].text.startswith("VM web_0 may not know of op-1")


def test_poll_before_the_notice_was_shown_does_not_count_as_reading_it() -> None:
    """A late report of a node has the time of the poll. Source: H-7, F-5."""
    rig = small()
    rig.ask(Cause.HOST_UPDATE, "h0")
    rig.wait(600)
    rig.show()  # the notice begins again
    rig.show()
    rig.tell(GroupsPolled(frozenset({"db", "web"}), age_ms=300))
    rig.wait(20 * MINUTE_MS)
    assert rig.now(1).unseen_vms == ("db_0", "web_0")


def test_group_that_approves_knows_of_the_work() -> None:
    """Whether its poll was reported or not. Source: H-7, A-4."""
    rig = small()
    operation = rig.ask(Cause.HOST_UPDATE, "h0")
    rig.show()
    for event_id in operation.events:
        event = rig.state.events[event_id]
        rig.tell(ApprovalRequest(event.resources[0], (event_id,), ""))
    assert (rig.now(1).state, rig.now(1).unseen_vms) == (S.RUNNING, ())
