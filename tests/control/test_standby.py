"""Waiting to become the writer, and staying it, through outages of the shared database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import State
from forewarn_server.control.service_state import (
    SILENT_MS_MAX,
    Liveness,
    ServiceState,
    ServiceStatus,
)
from forewarn_server.control.standby import LeaseKeeper, StateFollower, become_writer, leave
from forewarn_store import Lease
from forewarn_store.errors import StoreDamaged, StoreLost, StoreUnavailable
from forewarn_store.lease import Tenure
from tests.clock import VirtualClock
from tests.waiting import LIMIT_S, wait_until

TERM_MS = 30


class SystemTime:
    """Real milliseconds."""

    def now_ms(self) -> int:
        """Return them."""
        return time.monotonic_ns() // 1_000_000


@dataclass
class Ticking:
    """A clock that is a third of a term further at each look, however slow the machine is."""

    at_ms: int = 0

    def now_ms(self) -> int:
        """Move on, and say when that is."""
        self.at_ms += TERM_MS // 3
        return self.at_ms


@dataclass
class LeaseTable:
    """Where the lease is kept: as the database has it, which may be away for some looks."""

    held: Lease = field(default_factory=lambda: Lease("", 0))
    place: str = "here"
    #: Why the next looks fail, in their order.
    outages: list[str] = field(default_factory=list)
    looks: int = 0
    clock: Ticking = field(default_factory=Ticking)
    #: When the last look began.
    looked_ms: int = 0

    def lease(self) -> Lease:
        """Return who holds the lease."""
        self.looks += 1
        self.looked_ms = self.clock.at_ms
        if self.outages:
            raise StoreUnavailable(place="here", reason=self.outages.pop(0))
        return self.held

    def move_lease(self, seen: Lease, holder: str, url: str = "") -> Lease | None:
        """Give the lease to somebody if it still stands as it was seen."""
        if self.outages:
            raise StoreUnavailable(place="here", reason=self.outages.pop(0))
        if seen != self.held:
            return None
        self.held = Lease(holder, seen.beat + 1, url)
        return self.held


def wait_for_lease(table: LeaseTable) -> list[int]:
    """Become the writer, and note after how many looks this process said that it stands by."""
    tenure, stood_by = Tenure(table, TERM_MS), []

    async def note() -> None:
        stood_by.append(table.looks)

    async def become() -> None:
        await asyncio.wait_for(become_writer(tenure, table.clock, note), LIMIT_S)  # type: ignore[arg-type]

    asyncio.run(become())
    assert tenure.held(table.looked_ms + TERM_MS - 1)
    assert not tenure.held(table.looked_ms + TERM_MS)
    return stood_by


def test_free_lease_makes_nobody_stand_by() -> None:
    """The first process writes at once. Source: L-7."""
    table = LeaseTable()
    assert wait_for_lease(table) == []
    assert table.looks == 1


def test_standby_takes_over_from_a_writer_that_fell_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It stands by from the first look on, is told so once, and writes after a term. L-7."""
    caplog.set_level("INFO")
    table = LeaseTable(Lease("another", 7))
    assert wait_for_lease(table) == [1]
    assert table.looks == 4
    assert table.held.beat == 8
    said = [each.message for each in caplog.records if "standing by" in each.message]
    assert said == ["standing by: another process is the writer"]


def test_standby_waits_through_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """A database that is away is waited for; each reason is said once. Source: L-7."""
    caplog.set_level("INFO")
    table = LeaseTable(outages=["one", "one", "two", "two"])
    assert wait_for_lease(table) == [1]
    assert table.looks == 5
    said = [each.message for each in caplog.records if "standing by" in each.message]
    assert [("one" in each, "two" in each) for each in said] == [(True, False), (False, True)]


def test_process_that_is_stopped_while_it_takes_over_releases_the_lease() -> None:
    """Its successor need not wait for a term. Source: H-2."""
    began, may_end = threading.Event(), threading.Event()

    class SlowTable(LeaseTable):
        def move_lease(self, seen: Lease, holder: str, url: str = "") -> Lease | None:
            began.set()
            assert may_end.wait(LIMIT_S)
            return super().move_lease(seen, holder, url)

    async def stop_early() -> None:
        tenure, clock = Tenure(table, TERM_MS), Ticking()
        waiting = asyncio.ensure_future(become_writer(tenure, clock, nothing))  # type: ignore[arg-type]
        assert await asyncio.to_thread(began.wait, 10)
        waiting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await leave(tenure)

    async def nothing() -> None:
        pass

    table = SlowTable()
    asyncio.run(stop_early())
    assert table.held == Lease("", 2)


def test_outage_costs_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    """It is renewed once the database is back; what is wrong is said once, and its end. L-7."""
    caplog.set_level("INFO")
    table = LeaseTable()
    tenure = Tenure(table, TERM_MS)
    assert tenure.attempt(SystemTime().now_ms())
    table.outages += ["one", "one", "two"]
    lost: list[ForewarnError] = []
    keeper = LeaseKeeper(tenure, SystemTime(), lost.append)  # type: ignore[arg-type]
    wait_until(lambda: table.held.beat > 3)
    table.outages.append("three")
    wait_until(lambda: not table.outages)
    beat = table.held.beat
    wait_until(lambda: table.held.beat > beat)
    keeper.stop()
    assert lost == []
    said = [getattr(each, "action", "") for each in caplog.records]
    unavailable, renewed = "store-unavailable", "lease.renewed"
    assert said == [unavailable, unavailable, renewed, unavailable, renewed]


def test_commits_are_compared_after_an_outage_before_the_lease_is_renewed() -> None:
    """Otherwise VMs would get answers by commits that the database has lost. Source: H-10."""
    table = LeaseTable()
    tenure = Tenure(table, TERM_MS)
    assert tenure.attempt(SystemTime().now_ms())
    beats: list[int] = []
    table.outages.append("one")
    keeper = LeaseKeeper(
        tenure,
        SystemTime(),  # type: ignore[arg-type]
        print,
        on_return=lambda: beats.append(table.held.beat),
    )
    wait_until(lambda: table.held.beat > 3)
    keeper.stop()
    assert beats == [1]


def test_lease_that_was_taken_is_renewed_no_more() -> None:
    """The keeper says so once, and leaves the lease to the other. Source: L-7."""
    table = LeaseTable()
    tenure = Tenure(table, TERM_MS)
    assert tenure.attempt(SystemTime().now_ms())
    table.held = Lease("another", 9)
    lost: list[ForewarnError] = []
    keeper = LeaseKeeper(tenure, SystemTime(), lost.append)  # type: ignore[arg-type]
    wait_until(lambda: lost)
    looks = table.looks
    keeper._thread.join(LIMIT_S)
    keeper.stop()
    assert [type(each) for each in lost] == [StoreLost]
    assert str(lost[0]) == "Another process is now the writer of the store here."
    assert (table.held, table.looks) == (Lease("another", 9), looks)


def test_lease_is_renewed_at_once_on_request() -> None:
    """So followers learn the URL of a new leader before a third of a term has passed. H-4."""
    table = LeaseTable()
    tenure = Tenure(table, 3_600_000)
    assert tenure.attempt(0)
    keeper = LeaseKeeper(tenure, SystemTime(), print)  # type: ignore[arg-type]
    keeper.renew()
    wait_until(lambda: table.held.beat == 2)
    keeper.stop()


def test_lease_is_renewed_no_more_after_the_end() -> None:
    """Else a process that has given it up would take it from the next one. Source: L-7."""
    table = LeaseTable()
    tenure = Tenure(table, TERM_MS)
    assert tenure.attempt(SystemTime().now_ms())
    keeper = LeaseKeeper(tenure, SystemTime(), print)  # type: ignore[arg-type]
    assert keeper._thread.daemon  # nor is a process kept alive for it
    wait_until(lambda: table.looks > 1)
    keeper.stop()
    assert not keeper._thread.is_alive()


@pytest.mark.parametrize("outages", [[], ["away"]], ids=["there", "away"])
def test_leaving_gives_the_lease_up_if_it_can(outages: list[str]) -> None:
    """A database that is away keeps nobody from ending. Source: L-7."""
    table = LeaseTable()
    tenure = Tenure(table, TERM_MS)
    tenure.attempt(0)
    table.outages += outages
    asyncio.run(leave(tenure))
    assert (table.held.holder == "") is not bool(outages)
    assert not tenure.held(0)


def test_lease_lapses_while_a_part_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """Another process takes over; once the part answers, the lease is renewed again. H-3."""
    lapses: list[bool] = []
    table, hanging = LeaseTable(), [("event loop",)]
    tenure = Tenure(table, TERM_MS)
    assert tenure.attempt(SystemTime().now_ms())
    keeper = LeaseKeeper(
        tenure,
        SystemTime(),  # type: ignore[arg-type]
        print,
        silent=lambda: hanging[0] if hanging else (),
        on_lapse=lapses.append,
    )
    wait_until(lambda: lapses == [True])
    assert keeper.lapsed()
    assert table.held.beat == 1
    hanging.clear()
    wait_until(lambda: lapses == [True, False])
    keeper.stop()
    assert "event loop" in caplog.text


def test_lapse_is_seen_at_once_by_who_looks() -> None:
    """A process that was stopped looks before it answers; each change is reported once. H-3."""
    lapses: list[bool] = []
    table, moments = LeaseTable(), [0, 3_600_000]
    tenure = Tenure(table, 3_600_000)
    clock = SimpleNamespace(now_ms=lambda: moments[0])
    assert tenure.attempt(0)
    keeper = LeaseKeeper(tenure, clock, print, on_lapse=lapses.append)  # type: ignore[arg-type]
    assert not keeper.look()
    del moments[0]
    assert keeper.look()
    assert keeper.look()
    keeper.renew()
    wait_until(lambda: not keeper.look())
    keeper.stop()
    assert lapses == [True, False]


def test_part_that_does_not_answer_is_named() -> None:
    """It is asked once, and is well once that is answered. Source: H-3."""
    asked: list[Callable[[], object]] = []
    now = [0]
    liveness = Liveness(lambda: now[0])
    liveness.watch("deciding thread", asked.append)
    assert liveness.silent() == ()
    now[0] = SILENT_MS_MAX + 1
    assert liveness.silent() == ("deciding thread",)
    asked.pop()()
    assert liveness.silent() == ()


def test_takeover_does_not_log_that_the_service_stops(caplog: pytest.LogCaptureFixture) -> None:
    """The process goes on when it no longer follows, and its log names what has ended."""
    caplog.set_level("INFO")
    ServiceStatus("follower").become(ServiceState.STOPPING)
    assert caplog.messages == ["the follower is stopping"]


class SlowStore:
    """A store without news, each look at which takes 400 ms."""

    generation, history_seq = 7, 0

    def __init__(self, clock: ElapsedTime) -> None:
        self._clock = clock

    def follow(self) -> State:
        """Return an empty state."""
        return State()

    def catch_up(self, _: State) -> None:
        """Take the time, and find nothing."""
        self._clock.at_ms += 400


class ElapsedTime(VirtualClock):
    """A clock whose elapsed time a test moves."""

    at_ms = 0

    def elapsed_ms(self) -> int:
        """Return it."""
        return self.at_ms


def test_followed_state_is_as_old_as_the_look_at_the_store() -> None:
    """What was committed while the look took its time is not in the state. Source: H-4."""
    clock = ElapsedTime()
    store: Any = SlowStore(clock)
    follower = StateFollower(
        store, clock, NoticePolicy(), new_guid=str, show=lambda _change, _generation: None
    )
    follower._follow()
    follower._follow()
    assert follower.freshness().generation == 7
    assert follower.age_ms(follower.freshness()) == 400


class FailingStore(SlowStore):
    """A store that cannot be read for some looks."""

    failures = 3

    def follow(self) -> State:
        """Fail, or return an empty state."""
        if self.failures:
            self.failures -= 1
            raise StoreDamaged(place="here", reason="a record cannot be read")
        return State()

    def wait_for_commit(self, _timeout_s: float) -> None:
        """Learn of nothing."""


def test_follower_that_cannot_read_the_state_says_why_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ready, and a takeover would fail, so people must learn of it before. H-4."""
    caplog.set_level("INFO")
    clock = ElapsedTime()
    store: Any = FailingStore(clock)
    follower = StateFollower(
        store, clock, NoticePolicy(), new_guid=str, show=lambda _change, _generation: None
    )
    monkeypatch.setattr(follower._stopping, "wait", lambda _timeout_s: False)
    follower.start()
    wait_until(lambda: "the state is followed again" in caplog.messages)
    follower.stop()
    told = [each for each in caplog.messages if "cannot be followed" in each]
    assert len(told) == 1
    assert "a record cannot be read" in told[0]
