"""Enabling and disabling: who is asked, and what a group that is not asked sees."""

from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.enabling import POLL_RECORD_INTERVAL_S
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Alert, OperationState
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.step import next_deadline_ms
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, GroupsPolled, Restored, Tick
from forewarn_core.fleet.topology import Group, Host, Vm
from tests.core.maintenance import fleet
from tests.core.rig import DAY_MS, MINUTE_MS, small, view_of

S = OperationState


def test_first_request_enables_the_group() -> None:
    """The first request of a group enables it, with an empty document at 0. Source: B-1, D-1."""
    rig = small(enabled=())
    rig.tell(Enable("web"))
    assert view_of(rig, "web").document == Document(0, ())
    assert set(rig.state.views) == {"web"}
    assert not rig.tell(Enable("web")).changes, "it is enabled once"
    rig.refuses(Enable("nobody"), Unknown)


def test_group_enabled_without_a_request_has_no_last_poll() -> None:
    """The emulator enables it; a step of its clock does not count as a request. B-4, B-5."""
    rig = small(enabled=())
    rig.tell(Enable("web", early=True), Enable("db"))
    enrolments = rig.state.enrolments
    assert (enrolments["web"].last_poll_ms, enrolments["db"].last_poll_ms) == (0, rig.now_ms)
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"}), forgiven=True))
    assert (enrolments["web"].last_poll_ms, enrolments["web"].polled_ms) == (0, rig.now_ms)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert enrolments["web"].last_poll_ms == rig.now_ms


def test_group_enabled_late_sees_the_truth() -> None:
    """What is announced or running already is seen at the first request. Source: B-3, D-1."""
    rig = small(enabled=("db",))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(Enable("web"))
    assert rig.document("web")[0] == 1
    assert rig.shown("web") == ["Reboot Scheduled"]
    rig.approve("db_0", operation)
    assert rig.now(operation).state is S.ANNOUNCED, "web is asked now, too"


def test_restore_raises_documents_of_groups_that_are_not_enabled() -> None:
    """Their VMs may have read since the backup: they are enabled, and go on from there. U-2."""
    rig = small(enabled=("web",))
    rig.checked = False  # the incarnation moves without a change
    rig.tell(Restored(1_000_000))
    assert set(rig.state.views) == set(rig.state.enrolments) == {"web", "db", "far"}
    assert all(view.document.incarnation == 1_000_000 for view in rig.state.views.values())


def test_disabled_group_delays_nothing() -> None:
    """The operation waits only for enabled groups. Source: B-3, L-2."""
    rig = small(enabled=("db",))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("db_0", operation)
    assert rig.now(operation).state is S.RUNNING


def test_nobody_to_ask_means_now() -> None:
    """Users' acts and routine work proceed at once where nobody is enabled. Source: B-3."""
    rig = small(enabled=())
    assert rig.ask(Cause.HOST_REBOOT, "h0").state is S.RUNNING
    assert rig.ask(Cause.REBOOT, "far_0").state is S.RUNNING
    assert not rig.state.views


def test_maintenance_asks_nobody_where_no_group_is_enabled() -> None:
    """The host begins with its wave; one with a group that is asked waits for it. Source: B-3."""
    rig = fleet(2)
    rig.tell(ChangeTopology(groups=(Group("mute"),), vms=(Vm("mute_0", "h1", "mute"),)))
    rig.tell(
        ChangeTopology(
            hosts=(Host("h2", 1, 2), Host("h3", 1, 3)),
            vms=(Vm("mute_1", "h2", "mute"),),
        )
    )
    number = rig.start("h1", "h2", "h3")
    begun = {host for host, each in rig.working(number).items() if each.state is S.RUNNING}
    assert begun == {"h2", "h3"}
    [text] = [e.text for e in rig.entries if e.action == "operation.started" and e.host == "h2"]
    assert text.endswith("is running: no VM on it polls for events, so nobody is asked")


def test_silent_day_disables_the_group() -> None:
    """A group that asks nothing for a day is disabled. Source: B-2."""
    rig = small()
    rig.wait(DAY_MS)
    assert "web" in rig.state.enrolments
    rig.wait(POLL_RECORD_INTERVAL_S * 1000)
    assert not rig.state.enrolments
    assert not rig.state.views


def test_incarnation_starts_anew() -> None:
    """Enabled again, a group's incarnation starts again. Source: B-2, D-1."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=rig.now_ms + 9 * DAY_MS)
    rig.show()
    rig.ask(Cause.HOST_UPDATE, "h0")
    rig.ask(Cause.REBOOT, "web_1")
    assert rig.document("web")[0] > 1
    rig.wait(2 * DAY_MS)
    rig.tell(Enable("web"))
    assert rig.document("web")[0] == 1
    rig.tell(Enable("far"))
    assert rig.document("far") == (0, ())


def test_polls_keep_a_group_enabled() -> None:
    """A poll is noted to the minute, and a day counts from it. Source: B-2."""
    rig = small()
    rig.now_ms += MINUTE_MS - 1
    assert not rig.tell(GroupsPolled(frozenset({"web"}))).changes, "not a write for every poll"
    rig.now_ms += 1
    rig.tell(GroupsPolled(frozenset({"web", "nobody"})))
    rig.wait(DAY_MS)
    assert set(rig.state.enrolments) == {"web"}
    rig.check_replay()


def test_next_deadline_names_what_comes_first() -> None:
    """The loop sleeps until a notice, an alert or a silent day is due. Source: B-2, L-8."""
    rig = small(enabled=())
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) is None
    rig.tell(Enable("web"))
    silent_ms = rig.now_ms + DAY_MS + MINUTE_MS
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) == silent_ms
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) == operation.not_before_ms
    rig.show()
    rig.approve("web_0", operation)
    alert_ms = rig.now_ms + 3_600_000
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) == alert_ms
    rig.wait(2 * 3_600_000)
    assert rig.now(operation).alert is not Alert.NONE
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) == silent_ms
    rig.now_ms = silent_ms
    assert next_deadline_ms(rig.state, rig.policy, rig.now_ms) is None
    rig.tell(Tick())
    assert not rig.state.enrolments


def test_poll_of_the_same_moment_writes_nothing() -> None:
    """A mark is as good as the last one for a minute, and not only after it. Source: B-2."""
    rig = small()
    assert not rig.tell(GroupsPolled(frozenset({"web"}))).changes
