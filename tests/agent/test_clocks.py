"""A service whose clock differs from the VM's: the SDK, the running agent and `Handler`."""

import logging
import os
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import forewarn
from forewarn.agent.core.values import PrepareIntent
from forewarn.agent.hooks import hook_environment
from forewarn.agent.sdk.dialogue import CLOCKS_DIFFER_MS, DATE_MS, Dialogue
from forewarn.agent.sdk.http import HttpResponse
from forewarn_base.protocol.timestamps import rfc1123
from tests.agent.agents import Agent
from tests.agent.making import DRAIN, NOW, event
from tests.agent.service import Service
from tests.waiting import LIMIT_S, wait_until

NOTHING = b'{"DocumentIncarnation":1,"Events":[]}'
HOUR_MS = 3_600_000
WAYS = pytest.mark.parametrize("ahead_ms", [-300_000, 300_000], ids=["behind", "ahead"])


def polled(dialogue: Dialogue, date: str, *, asked_ms: int, answered_ms: int) -> int:
    """Poll once; return how far the service's clock seems to be ahead."""
    dialogue.poll_request(asked_ms)
    dialogue.take_poll(HttpResponse(200, {"date": date}, body=NOTHING), answered_ms)
    return dialogue.ahead_ms


@example(0, [(0, 0, 0)])
@example(0, [(1, 1, 999), (1, 1, 0)])
@example(0, [(900, 0, 999)])
@given(
    st.just(0) | st.integers(-HOUR_MS, HOUR_MS),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(0, 999)), min_size=1),
)
def test_difference_of_clocks_is_known_to_the_seconds_of_a_date(
    ahead_ms: int, polls: list[tuple[int, int, int]]
) -> None:
    """Whatever the network and the service's second hand do; later answers settle. C-11."""
    dialogue, now_ms, moves = Dialogue(("http://127.0.0.1",)), NOW, []
    for there_ms, back_ms, stale_ms in polls:
        date = rfc1123(now_ms + there_ms + ahead_ms - stale_ms)
        before, answered_ms = dialogue.ahead_ms, now_ms + there_ms + back_ms
        after = polled(dialogue, date, asked_ms=now_ms, answered_ms=answered_ms)
        moves.append(after - before)
        now_ms += 1000
    assert abs(dialogue.ahead_ms - ahead_ms) < DATE_MS + 900
    assert all(abs(move) < DATE_MS + 900 for move in moves[1:])
    if not ahead_ms:
        assert dialogue.ahead_ms == 0, f"C-11: equal clocks differ by {dialogue.ahead_ms} ms"


def test_answer_that_was_held_or_late_moves_no_clock() -> None:
    """A poll that waits for a minute, or a VM that was paused, says little. Source: E-9, C-11."""
    dialogue = Dialogue(("http://127.0.0.1",))
    known = polled(dialogue, rfc1123(NOW - 300_000), asked_ms=NOW, answered_ms=NOW + 5)
    assert abs(known + 300_000) <= DATE_MS
    late = rfc1123(NOW - 290_000)
    assert polled(dialogue, late, asked_ms=NOW + 1000, answered_ms=NOW + 60_000) == known
    for odd in ("", "yesterday", "x" * 1_000_000, "Thu, 99 Foo 2026 00:00:00 GMT"):
        assert polled(dialogue, odd, asked_ms=NOW, answered_ms=NOW) == known


@WAYS
def test_client_tells_the_time_left_by_the_services_clock(service: Service, ahead_ms: int) -> None:
    """NotBefore minus the Date of the answer, not minus the VM's time. Source: C-11."""
    service.ahead_ms = ahead_ms
    service.show(service.event("vm_0", notice_s=30, kind="Preempt"))
    with forewarn.Client(service.endpoint) as client:
        (shown,) = client.get().events
        left_s = client.seconds_left(shown)
        assert left_s is not None
        assert 30 - LIMIT_S < left_s <= 30 + DATE_MS / 1000
        assert client.seconds_left(event(not_before_ms=None)) is None


@WAYS
def test_agent_prepares_in_the_notice_and_warns_once(
    service: Service, tmp_path: Path, ahead_ms: int
) -> None:
    """A hook is given the time that the notice leaves, by the VM's own clock. Source: C-11."""
    service.ahead_ms, service.waits = ahead_ms, False
    prepare = f"echo $FOREWARN_DEADLINE $(date +%s) > {tmp_path}/deadline"
    with Agent(tmp_path, service.endpoint, prepare=prepare, timeout_s=3600) as agent:
        agent.until_said("clocks-differ")
        shown = service.event("vm_0", notice_s=120)
        service.show(shown)
        service.until(lambda: shown.event_id in service.approvals)
        deadline_s, begun_s = map(int, (tmp_path / "deadline").read_text().split())
        assert 120 - LIMIT_S < deadline_s - begun_s <= 120 + DATE_MS / 1000
        assert agent.log().count("clocks-differ") == 1
        service.ahead_ms = 0
        agent.until_said("clocks-agree")


def test_agent_with_the_services_time_says_nothing_of_clocks(
    service: Service, tmp_path: Path
) -> None:
    """A difference below what a Date can tell is none."""
    service.ahead_ms, service.waits = CLOCKS_DIFFER_MS - 1500, False
    with Agent(tmp_path, service.endpoint) as agent:
        service.until(lambda: len(service.requests) > 5)
        assert "clocks-differ" not in agent.log()


@WAYS
def test_handler_prepares_in_the_notice_and_warns(
    service: Service, tmp_path: Path, ahead_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler goes by the status, too. Source: C-11."""
    service.ahead_ms = ahead_ms
    prepared = threading.Event()
    handler = forewarn.Handler(
        lambda _: prepared.set(),
        lambda _: None,
        state_dir=tmp_path / "state",
        endpoint=service.endpoint,
    )
    with caplog.at_level(logging.WARNING, "forewarn"), handler:
        shown = service.event("vm_0", notice_s=30, kind="Preempt")
        service.show(shown)
        service.until(lambda: shown.event_id in service.approvals)
        wait_until(lambda: "clocks-differ" in caplog.text, what="a warning")
    assert prepared.is_set()


def test_deadline_of_a_hook_is_a_time_of_the_systems_clock() -> None:
    """The agent's own clock does not follow a step of the system's clock during an event. N-4."""
    intent = PrepareIntent("drain", DRAIN, event=event(), deadline_ms=NOW, attempt=1, run=1)
    variables = hook_environment(intent, name="vm_0", state=os.devnull, until_ms=NOW + 60_000)
    assert variables["FOREWARN_DEADLINE"] == str((NOW + 60_000) // 1000)
