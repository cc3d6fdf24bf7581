"""SQLite and PostgreSQL through the same work, the line to the latter cut at each message."""

import itertools
import random
from collections.abc import Callable

import pytest

from forewarn_core.fleet.state import Changes
from forewarn_store import HistoryPage, Store
from forewarn_store.errors import StoreUnavailable, StoreUncertain
from tests.store.proxy import Proxy
from tests.store.random_work import RandomWork
from tests.store.story import Story, begin

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
STEPS = 150
#: Messages within which the line is cut: some more than a commit and what comes after it.
MESSAGES = 60


@pytest.fixture
def pair(
    proxy: Proxy, postgres_address: str, memory: Store, opened: Callable[[str], Store]
) -> tuple[Story, Store]:
    """A story in SQLite, and a store in PostgreSQL behind the line that has the same."""
    database = postgres_address.partition("@/")[2].partition("?")[0]
    story, other = begin(memory), opened(proxy.address(database))
    assert begin(other).state == story.state
    return story, other


def commit(store: Store, changes: Changes) -> int:
    """Commit as the control plane does: again, or settled first where the end is unknown."""
    for _ in range(10):
        try:
            return store.commit(changes)
        except StoreUncertain:
            happened = settle(store)
            if happened is not None:
                assert happened == changes
                return store.history_seq
        except StoreUnavailable:
            continue
    raise AssertionError("the line was cut once, and the store does not come back")


def settle(store: Store) -> Changes | None:
    """Ask until the database can be reached again."""
    for _ in range(10):
        try:
            return store.settle()
        except StoreUncertain:
            continue
    raise AssertionError("the line was cut once, and the store does not come back")


def step(story: Story, other: Store, work: RandomWork) -> bool:
    """Commit one thing, or some together, in both; False if all were refused."""
    story.now_ms += work.wait_ms()
    result = story.decide_together(work.several(story.state))
    if result is None:
        return False
    changes = result.changes
    if changes:
        sequence = story.store.commit(changes)
        assert commit(other, changes) == sequence
    story.state.adopt(changes)
    return bool(changes)


def assert_same(story: Story, other: Store) -> None:
    """Both hold the same live state, and tell the same history."""
    assert list(other.entries()) == list(story.store.entries())
    assert other.load() == story.store.load() == story.state


@pytest.mark.parametrize("seed", [1, 2])
def test_both_stores_hold_the_same_after_the_same_work(
    pair: tuple[Story, Store], proxy: Proxy, seed: int
) -> None:
    """Whatever is cut off, each step is there once or is tried again. Source: A-6, L-7."""
    story, other = pair
    work, cuts = RandomWork(seed), random.Random(seed)
    done = 0
    for number in range(STEPS):
        proxy.left = cuts.randrange(MESSAGES) if number % 3 == 0 else None
        done += step(story, other, work)
    proxy.left = None
    assert done > STEPS / 3
    assert_same(story, other)


def test_commit_survives_a_cut_at_each_of_its_messages(
    pair: tuple[Story, Store], proxy: Proxy
) -> None:
    """No message of a commit is one whose loss does it twice, or not at all. Source: A-6, L-7."""
    story, other = pair
    work = RandomWork(7)
    cut = 0
    for passed in itertools.count():
        proxy.left = passed
        while not step(story, other, work):
            pass
        if not proxy.has_cut:  # all of its messages have passed
            break
        cut += 1
    proxy.left = None
    assert cut > 10
    assert_same(story, other)


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest", "newest"])
def test_both_stores_page_history_alike(pair: tuple[Story, Store], newest_first: bool) -> None:
    """Every filter finds the same entries in the same order. Source: A-6."""
    story, other = pair
    work = RandomWork(11)
    for _ in range(120):
        step(story, other, work)
    everything = story.store.history(HistoryPage(limit=1000))
    filters = [
        {field: getattr(recorded.entry, field)}
        for field in ("operation", "event", "group", "vm", "host", "action")
        for recorded in everything[::7]
        if getattr(recorded.entry, field)
    ]
    assert len(filters) > 20
    for each in filters:
        page = HistoryPage(limit=7, newest_first=newest_first, **each)
        assert other.history(page) == story.store.history(page)
