"""Who may become the writer: one at a time, and another soon after it falls silent."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn_core.fleet.state import Changes
from forewarn_server.control.standby import LeaseKeeper
from forewarn_store import Lease, Store
from forewarn_store.lease import Tenure
from tests.postgres import PostgresServer
from tests.store.story import begin, entry
from tests.store.test_postgres import hold_commits
from tests.waiting import wait_until

Opener = Callable[[str], Store]
TERM_MS = 10_000


@pytest.fixture
def pair(store: Store) -> tuple[Tenure, Tenure]:
    """Two processes that contend for one store."""
    return Tenure(store, TERM_MS), Tenure(store, TERM_MS)


def test_free_lease_is_taken_at_once(pair: tuple[Tenure, Tenure]) -> None:
    """A new store's lease goes to the first who asks, for one term. Source: L-7."""
    mine, theirs = pair
    assert not mine.held(0)
    assert mine.attempt(0)
    assert mine.held(TERM_MS - 1)
    assert not mine.held(TERM_MS)
    assert not theirs.attempt(0)


def test_renewed_lease_is_kept(pair: tuple[Tenure, Tenure]) -> None:
    """While it beats, nobody else gets it. Source: L-7."""
    mine, theirs = pair
    for now_ms in range(0, 10 * TERM_MS, TERM_MS // 2):
        assert mine.attempt(now_ms)
        assert not theirs.attempt(now_ms + 1)


def test_rival_knows_the_address_of_the_holder(store: Store) -> None:
    """It hands calls on to it; before its first look it knows of none. Source: L-7."""
    mine = Tenure(store, TERM_MS, lambda: "https://one.example")
    theirs = Tenure(store, TERM_MS)
    assert theirs.holder_url == ""
    assert mine.attempt(0)
    assert not theirs.attempt(0)
    assert theirs.holder_url == "https://one.example"


def test_silent_lease_is_taken_after_a_term(pair: tuple[Tenure, Tenure]) -> None:
    """A rival takes over a whole term after it saw the last beat, by its own clock. Source: N-4."""
    mine, theirs = pair
    rivals_clock_ms = 1_000_000_000  # hours apart: no two clocks are compared
    assert mine.attempt(0)
    assert not theirs.attempt(rivals_clock_ms)
    assert not theirs.attempt(rivals_clock_ms + TERM_MS - 1)
    assert theirs.attempt(rivals_clock_ms + TERM_MS)
    assert not mine.attempt(TERM_MS)
    assert not mine.held(TERM_MS)


def test_released_lease_is_free(pair: tuple[Tenure, Tenure]) -> None:
    """Who stops in order makes nobody wait. Source: L-7."""
    mine, theirs = pair
    mine.attempt(0)
    mine.release()
    assert not mine.held(0)
    assert theirs.attempt(1)
    mine.release()  # no longer ours: nothing happens
    assert theirs.attempt(2)


def test_lease_moves_only_as_it_was_seen(store: Store) -> None:
    """Of two who saw the same lease one gets it. Source: L-7."""
    seen = store.lease()
    assert seen == Lease("", 0)
    assert store.move_lease(seen, "a") == Lease("a", 1)
    assert store.move_lease(seen, "b") is None
    seen = store.lease()
    assert store.move_lease(seen, "a") == Lease("a", 2)  # it beats at the last moment
    assert store.move_lease(seen, "b") is None
    assert store.lease() == Lease("a", 2)


class Overtaken(Store):
    """A store in which a rival moves the lease between the look and the move."""

    def lease(self) -> Lease:
        """Look, and let the rival be quicker."""
        seen = super().lease()
        assert super().move_lease(seen, "rival") is not None
        return seen


def test_overtaken_attempt_holds_nothing(store: Store) -> None:
    """Who looked first but moved last does not have the lease. Source: L-7."""
    mine = Tenure(Overtaken(store._engine), TERM_MS)
    assert not mine.attempt(0)
    assert not mine.held(0)
    assert store.lease().holder == "rival"


def test_term_counts_from_the_end_of_a_slow_read(pair: tuple[Tenure, Tenure]) -> None:
    """The holder may have renewed the lease just before it was read. Source: H-1, H-3."""
    mine, theirs = pair
    assert mine.attempt(300)
    assert not theirs.attempt(0, lambda: 301)
    assert not theirs.attempt(300 + TERM_MS)
    assert mine.held(300 + TERM_MS - 1)
    assert theirs.attempt(301 + TERM_MS)


moves = st.lists(
    st.tuples(st.sampled_from(["attempt", "release"]), st.integers(0, 1), st.integers(0, TERM_MS)),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=moves, skew_ms=st.integers(-TERM_MS, TERM_MS))
def test_lease_is_never_held_twice(
    memory: Store, moves: list[tuple[str, int, int]], skew_ms: int
) -> None:
    """Whatever two do and whatever their clocks show, one at most holds it. Source: L-7."""
    last = memory.lease()
    memory.move_lease(last, "")
    contenders = (Tenure(memory, TERM_MS), Tenure(memory, TERM_MS))
    skews_ms = (0, skew_ms)
    now_ms = TERM_MS
    beats = [memory.lease().beat]
    for move, who, pause_ms in moves:
        now_ms += pause_ms
        if move == "attempt":
            contenders[who].attempt(now_ms + skews_ms[who])
        else:
            contenders[who].release()
        held = [each.held(now_ms + skew) for each, skew in zip(contenders, skews_ms, strict=True)]
        assert held.count(True) <= 1
        beats.append(memory.lease().beat)
    assert all(before <= after for before, after in pairwise(beats))


class SystemTime:
    """A clock nobody waits for."""

    def now_ms(self) -> int:
        """Real milliseconds."""
        return time.monotonic_ns() // 1_000_000


def test_lease_is_renewed_from_a_thread_of_its_own(store: Store) -> None:
    """Whatever the event loop and the writer do, it beats; and stops when told. Source: L-7."""
    tenure = Tenure(store, 30)
    clock = SystemTime()
    assert tenure.attempt(clock.now_ms())
    first = store.lease().beat
    keeper = LeaseKeeper(tenure, clock, pytest.fail)  # type: ignore[arg-type]
    wait_until(lambda: store.lease().beat > first + 3)
    keeper.stop()
    last = store.lease()
    assert Tenure(store, 30).attempt(0) is False
    assert store.lease() == last


@pytest.mark.postgres
def test_commit_held_up_costs_no_lease(
    server: PostgresServer, postgres_address: str, opened: Opener
) -> None:
    """A commit that takes longer than the lease lasts leaves it where it is. Source: L-7."""
    story = begin(opened(postgres_address))
    database = postgres_address.partition("@/")[2].partition("?")[0]
    hold_commits(server, database)
    changes = Changes(last_number=story.state.last_number, entries=[entry()])
    mine, theirs = (Tenure(each, TERM_MS) for each in (story.store, opened(postgres_address)))
    assert mine.attempt(0)
    with psycopg.connect(server.address(database), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1)")
        thread = threading.Thread(target=story.store.commit, args=(changes,))
        thread.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        while thread.is_alive() and not server.run(waiting, database):
            pass  # the server is in the middle of COMMIT
        for now_ms in range(TERM_MS // 2, 10 * TERM_MS, TERM_MS // 2):
            assert mine.attempt(now_ms)
            assert not theirs.attempt(now_ms)
        other.execute("SELECT pg_advisory_unlock(1)")
        thread.join()
    story.store.confirm()
