"""Notice: how much is given, from when it counts, and that nothing shortens it."""

import pytest

from forewarn_core.fleet.impact import DAY_S, Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Alert, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Enable,
    NoticeShown,
    PutOff,
    Recover,
    Repair,
    Tick,
)
from forewarn_core.fleet.topology import Group, Health, Vm
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small, small_fleet

S = OperationState


@pytest.mark.parametrize(
    ("cause", "target", "notice_s"),
    [
        (Cause.LIVE_MIGRATION, "h0", 900),
        (Cause.HOST_REBOOT, "h0", 900),
        (Cause.REBOOT, "web_0", 900),
        (Cause.REDEPLOY, "web_0", 600),
        (Cause.EVICTION, "web_0", 30),
    ],
    ids=lambda each: each.value if isinstance(each, Cause) else "",
)
def test_notice_is_what_is_owed(cause: Cause, target: str, notice_s: int) -> None:
    """NotBefore lies the least notice ahead, for users' work too. Source: N-1, N-3."""
    rig = small()
    operation = rig.ask(cause, target)
    assert operation.not_before_ms == rig.now_ms + notice_s * 1000


def test_starts_when_notbefore_is_reached() -> None:
    """Without approval it starts at NotBefore, not before. Source: L-1, D-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.wait(15 * MINUTE_MS - 1)
    assert rig.now(operation).state is S.ANNOUNCED
    rig.wait(1)
    assert rig.now(operation).state is S.RUNNING
    assert rig.document("web")[1][0].not_before_ms is None


def test_does_not_start_before_it_was_shown() -> None:
    """Nothing is begun that was not shown: a late publication renews the notice. Source: L-7."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.wait(20 * MINUTE_MS)
    assert rig.now(operation).state is S.ANNOUNCED
    rig.tell(NoticeShown((operation.number,)))
    renewed = rig.now(operation)
    assert renewed.notice.shown_ms is None
    assert renewed.not_before_ms >= rig.now_ms + 15 * MINUTE_MS
    rig.tell(NoticeShown((operation.number,)))
    assert rig.now(operation).notice.shown_ms == rig.now_ms
    rig.wait(renewed.not_before_ms - rig.now_ms)
    assert rig.now(operation).state is S.RUNNING


def test_each_missed_notbefore_alerts() -> None:
    """A renewed notice ends the alert, so that the next NotBefore missed is one again. N-1, L-8."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    for alerts in (1, 2):
        rig.wait(rig.now(operation).not_before_ms - rig.now_ms)
        assert rig.now(operation).alert is Alert.BLOCKED
        assert [each.action for each in rig.entries].count("operation.blocked") == alerts
        rig.tell(NoticeShown((operation.number,)))
        assert rig.now(operation).alert is Alert.NONE


def test_withdrawn_work_alerts_nobody() -> None:
    """What could not start and is cancelled holds nobody up any more. Source: L-3, L-8."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.wait(20 * MINUTE_MS)
    rig.tell(Cancel(operation.number))
    assert rig.now(operation).alert is Alert.NONE


def test_second_try_at_showing_has_room() -> None:
    """A renewed notice leaves twice the delay, so that a slow publication ends. Source: N-1."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    for _ in range(2):
        rig.now_ms += 1500
        rig.tell(NoticeShown((operation.number,)))
    assert rig.now(operation).notice.shown_ms == rig.now_ms


def test_margin_is_added_to_the_notice() -> None:
    """A margin keeps the time from commit to first view from eating into notice. Source: N-1."""
    rig = small(policy=NoticePolicy(notice_margin_ms=500))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert operation.not_before_ms == rig.now_ms + 15 * MINUTE_MS + 1000
    rig.now_ms += 400
    rig.show()
    assert rig.now(operation).notice.shown_ms == rig.now_ms


def test_confirmation_counts_once() -> None:
    """A confirmation said twice, the second time late, does not move NotBefore. Source: D-1."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    before = rig.document("web")
    rig.now_ms += MINUTE_MS
    rig.tell(NoticeShown((operation.number, 99)))
    assert rig.document("web") == before


def test_confirmation_of_what_has_started_means_nothing() -> None:
    """A notice confirmed after everybody approved changes nothing. Source: L-1."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.approve("far_0", operation)
    assert not rig.tell(NoticeShown((operation.number,))).changes


def test_crash_before_publication_gives_notice_anew() -> None:
    """What may never have been shown gets its whole notice after a restart. Source: L-7, N-1."""
    rig = small()
    hidden = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.now_ms += 10 * MINUTE_MS
    rig.tell(Recover())
    assert rig.now(hidden).not_before_ms == rig.now_ms + 15 * MINUTE_MS


def test_crash_after_publication_keeps_notice() -> None:
    """A promise that was shown is kept to the second over a restart. Source: L-7, N-4."""
    rig = small()
    shown = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.now_ms += 10 * MINUTE_MS
    rig.tell(Recover())
    assert rig.now(shown).not_before_ms == shown.not_before_ms
    rig.now_ms += 60 * MINUTE_MS
    rig.tell(Recover())
    assert rig.now(shown).state is S.RUNNING, "its time came while nobody was there"


def test_predicted_failure_is_announced_days_ahead() -> None:
    """A predicted failure is announced seven days ahead, or as the operator says. Source: N-2."""
    rig = small()
    operation = rig.ask(Cause.HARDWARE_DEGRADED, "h0")
    assert operation.not_before_ms == rig.now_ms + 7 * DAY_S * 1000
    assert rig.state.topology.hosts["h0"].health is Health.DEGRADED
    sooner = rig.now_ms + 2 * DAY_MS
    other = rig.ask(Cause.HARDWARE_DEGRADED, "h2", not_before_ms=sooner, impact=Impact.FREEZE)
    assert other.not_before_ms == sooner


def test_failure_ends_the_prediction() -> None:
    """If the host fails first, the predicted events go, a started one comes. Source: N-2, L-4."""
    rig = small()
    predicted = rig.ask(Cause.HARDWARE_DEGRADED, "h0")
    by_user = rig.ask(Cause.HOST_UPDATE, "h0", source=Source.USER)
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    assert rig.now(predicted).state is rig.now(by_user).state is S.CANCELLED
    assert rig.now(failure).state is S.RUNNING
    assert rig.shown("web") == ["Reboot Started"]


def test_repair_ends_the_prediction() -> None:
    """A host that is well again is not evacuated. Source: N-2, L-3."""
    rig = small()
    predicted = rig.ask(Cause.HARDWARE_DEGRADED, "h0")
    rig.tell(Repair("h0"))
    assert rig.now(predicted).state is S.CANCELLED
    assert rig.state.topology.hosts["h0"].health is Health.HEALTHY


TALKATIVE = Group("web", terminate_notice_s=420, reimage_notice=True)


def with_web(group: Group, *vms: Vm) -> Rig:
    """The small fleet with another kind of `web`."""
    rig = Rig()
    rig.tell(small_fleet(web=group), Enable("web"))
    if vms:
        rig.tell(ChangeTopology(vms=vms))
    return rig


def test_terminate_notice_is_the_groups() -> None:
    """Terminate's notice is what its group set. Source: N-1."""
    rig = with_web(TALKATIVE)
    operation = rig.ask(Cause.DELETION, "web_0")
    assert operation.not_before_ms == rig.now_ms + 420_000
    assert rig.shown("web") == ["Terminate Scheduled"]


def test_without_terminate_setting_there_is_no_notice() -> None:
    """Without a setting nobody is told of a deletion, and it happens at once. Source: N-1."""
    rig = with_web(Group("web"))
    operation = rig.ask(Cause.DELETION, "web_0")
    assert (operation.silent, operation.events, operation.state) == (True, (), S.RUNNING)
    assert rig.document("web") == (0, ())
    rig.finish(operation)
    assert "web_0" not in rig.state.topology.vms


def test_silent_deletion_may_be_asked_for_later() -> None:
    """A silent deletion waits for the time its user asked for. Source: B-3."""
    rig = with_web(Group("web"))
    operation = rig.ask(Cause.DELETION, "web_0", not_before_ms=rig.now_ms + MINUTE_MS)
    assert rig.now(operation).state is S.ANNOUNCED
    assert [waiting.code.value for waiting in rig.why(operation)] == ["time"]
    rig.show()
    rig.wait(MINUTE_MS)
    assert rig.now(operation).state is S.RUNNING


@pytest.mark.parametrize(
    ("group", "size", "told"),
    [
        (TALKATIVE, "Standard_D4", True),
        (TALKATIVE, "Standard_G5", False),
        (Group("web"), "Standard_D4", False),
    ],
    ids=["on", "size", "off"],
)
def test_reimage_is_announced_where_switched_on(group: Group, size: str, *, told: bool) -> None:
    """A reimage is announced 15 minutes ahead where the scale set asks for it. Source: N-1."""
    rig = with_web(group, Vm("web_2", "h2", "web", size=size))
    operation = rig.ask(Cause.REIMAGE, "web_2")
    assert operation.silent is not told
    if told:
        assert operation.not_before_ms == rig.now_ms + 15 * MINUTE_MS


def test_time_that_stands_still_changes_nothing() -> None:
    """A tick before anything is due writes nothing. Source: N-4."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    assert not rig.tell(Tick()).changes


def test_notice_given_again_frees_the_other_deletions_of_its_request() -> None:
    """A deletion whose notice was shown late is no longer waited for by the others. A-8, L-7."""
    rig = with_web(TALKATIVE)
    first = rig.ask(Cause.DELETION, "web_0", "web_1")
    rig.approve("web_0", first)
    assert rig.now(first).state is S.ANNOUNCED
    rig.now_ms += 2 * MINUTE_MS
    rig.tell(NoticeShown((first.number + 1,)))
    assert rig.now(first.number + 1).not_before_ms > first.not_before_ms
    assert rig.now(first).state is S.RUNNING


def test_notice_shown_in_the_very_moment_of_its_end_counts() -> None:
    """Silent work that is confirmed as its time comes starts then. Source: B-3, L-1."""
    rig = with_web(Group("web"))
    operation = rig.ask(Cause.DELETION, "web_0", not_before_ms=rig.now_ms + MINUTE_MS)
    rig.now_ms += MINUTE_MS
    rig.tell(NoticeShown((operation.number,)))
    assert rig.now(operation).state is S.RUNNING


def test_notice_put_off_is_shown_as_long_after_as_before() -> None:
    """What nobody was shown stays unshown; what was shown has as long as it had. Source: N-4."""
    rig = small()
    unshown = rig.ask(Cause.HOST_REBOOT, "h2")
    shown = rig.ask(Cause.REBOOT, "web_1")
    rig.tell(NoticeShown((shown.number,)))
    before = rig.now(shown)
    rig.tell(PutOff(7000))
    after = rig.now(shown)
    assert before.notice.shown_ms == rig.now_ms
    assert rig.now(unshown).notice.shown_ms is None
    assert after.notice.shown_ms == before.notice.shown_ms + 7000
    assert (
        after.not_before_ms - after.notice.shown_ms == before.not_before_ms - before.notice.shown_ms
    )
