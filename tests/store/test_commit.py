"""A commit happens whole or not at all, in one writer's order, and any error can be outlived."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

import pytest

from forewarn_base.errors import TEXT_CHARACTERS_MAX, clean_text
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.records import to_row
from forewarn_core.fleet.state import Changes, Image, State
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    DriverFailed,
    NoticeShown,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Vm
from forewarn_store import HistoryPage, OperationPage, Store
from forewarn_store.addresses import location_of
from forewarn_store.engine import Engine, Transaction
from forewarn_store.errors import (
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StoreLost,
    StoreUncertain,
)
from forewarn_store.migrations import migrate
from forewarn_store.postgres import PostgresEngine
from forewarn_store.sqlite import SqliteEngine
from tests.store.story import Story, begin, entry, live_records, replayed

Opener = Callable[[str], Store]
ROOT = Path(__file__).resolve().parents[2]
#: One more than a whole number in either database may be.
TOO_LARGE = 2**63


class Odd(Enum):
    """A state that no operation has."""

    WORD = "odd"


@pytest.fixture
def story(store: Store) -> Story:
    """A fleet whose groups are enabled, on each engine."""
    return begin(store)


def seen_by_others(story: Story) -> tuple[int, int, State]:
    """Everything there is: how much history, how many operations, the live state."""
    entries = sum(1 for _ in story.store.entries())
    return entries, len(story.store.operations(OperationPage())), story.store.load()


def spoiled(changes: Changes, spoil: str) -> Changes:
    """Make the last statement of a commit fail, after the others have run."""
    match spoil:
        case "history":
            changes.entries.append(entry(at_ms=TOO_LARGE))
        case "surrogate":
            changes.entries.append(entry("\ud800"))
        case "image":
            odd_image = Image("vm", "v", {"name": "\ud800"})
            changes.entries.append(replace(entry(), images=(odd_image,)))
        case "reference":
            changes.vms["lost"] = Vm("lost", "no-such-host", "web")
        case _:
            odd = {"duration_s": -2} if spoil == "number" else {"state": Odd.WORD}
            number, operation = next(iter(changes.operations.items()))
            changes.operations[number] = spoilt = replace(operation, **odd)
            image = Image("operation", number, to_row(spoilt))
            changes.entries.append(replace(entry(), images=(image,)))
    return changes


@pytest.mark.parametrize("spoil", ["history", "surrogate", "image", "reference", "number", "word"])
def test_commit_changes_nothing_when_refused(story: Story, spoil: str) -> None:
    """A commit that fails in any statement leaves no trace and can be repeated. Source: L-7."""
    before = seen_by_others(story)
    ask = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",))
    with pytest.raises(StoreContradiction) as refused:
        story.store.commit(spoiled(story.decide(ask), spoil))
    assert str(refused.value).startswith("The store ")
    assert refused.value.advice_text()
    assert seen_by_others(story) == before
    assert story.tell(ask) == before[0] + len(story.store.history(HistoryPage(after=before[0])))
    assert story.store.load() == story.state


def test_commit_returns_the_sequence_it_ends_with(story: Story) -> None:
    """History is numbered from 1 without gaps, failures included. Source: invariant 10."""
    last = story.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)))
    with pytest.raises(StoreContradiction):
        story.store.commit(
            Changes(last_number=story.state.last_number, entries=[entry(at_ms=TOO_LARGE)])
        )
    assert (
        story.store.commit(Changes(last_number=story.state.last_number, entries=[entry()]))
        == last + 1
    )
    assert [each.seq for each in story.store.entries()] == list(range(1, last + 2))


def test_second_writer_takes_the_place_of_the_first(postgres_address: str, opened: Opener) -> None:
    """Whoever loads last writes; the other is told and has changed nothing. Source: L-7."""
    first = begin(opened(postgres_address))
    second = begin(opened(postgres_address))
    ask = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",))
    with pytest.raises(StoreLost):
        first.store.commit(first.decide(ask))
    assert second.store.operations(OperationPage()) == []
    second.tell(ask)
    with pytest.raises(StoreLost):
        first.store.commit(first.decide(ask))
    assert begin(first.store).state == second.state


def test_writer_that_was_replaced_is_told_and_does_not_come_back() -> None:
    """It may not begin anything, nor become the writer again by asking. Source: L-7."""
    engine = SqliteEngine(None, must_exist=False)
    migrate(engine)
    first, second = Store(engine), Store(engine)
    first.load()
    first.confirm()
    assert first.settle() is None
    second.load()
    for refused in (first.confirm, first.settle, first.settle):
        with pytest.raises(StoreLost):
            refused()
    second.confirm()
    engine.close()


def test_store_that_was_not_loaded_takes_no_commit(address: str, opened: Opener) -> None:
    """Who has not become the writer writes nothing, whatever the store holds. Source: L-7."""
    begin(opened(address)).store.close()
    store = opened(address)
    with pytest.raises(AssertionError, match="load"):
        store.commit(Changes(last_number=0, entries=[entry()]))
    state = store.load()
    assert (
        store.commit(Changes(last_number=state.last_number, entries=[entry()])) == store.history_seq
    )


def test_generations_tell_writers_and_commits_apart(address: str, opened: Opener) -> None:
    """Each writer's number is above all before it; the sequence keeps its name. Source: L-7."""
    story = begin(opened(address))
    first, epoch = story.store.writer_generation, story.store.epoch
    assert epoch
    before = story.store.generation
    for number in range(1, 4):
        story.store.commit(one_entry(story))
        assert story.store.generation == before + number
    assert story.store.writer_generation == first
    story.store.close()
    again = opened(address)
    again.load()
    assert again.writer_generation > before + 3
    assert again.generation == again.writer_generation
    assert (again.epoch, again.history_seq) == (epoch, story.store.history_seq)


def test_two_writers_never_both_commit(postgres_address: str, opened: Opener) -> None:
    """Of two that race for each commit, one writes history and the other is lost. Source: L-7."""
    counts = []

    def race(store: Store) -> None:
        won = 0
        for _ in range(20):
            state = store.load()
            with suppress(StoreLost):
                for _ in range(3):
                    store.commit(Changes(last_number=state.last_number, entries=[entry()]))
                    won += 1
        counts.append(won)

    stores = [opened(postgres_address) for _ in range(2)]
    threads = [threading.Thread(target=race, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 2
    assert [each.seq for each in stores[0].entries()] == list(range(1, sum(counts) + 1))


def test_store_without_its_row_is_damaged(store: Store) -> None:
    """A store that does not say how far it has come is not guessed at. Source: D-1."""
    with store._engine.writing() as transaction:
        transaction.run_text("DELETE FROM service")
    with pytest.raises(StoreDamaged, match="service"):
        store.load()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE vm SET addresses = 'no list'",
        "UPDATE operation SET vms = '{'",
        "UPDATE document SET document = '[]'",
        "UPDATE host SET name = '../h0' WHERE name = 'h1'",
    ],
    ids=["vm", "operation", "document", "host"],
)
def test_record_that_is_none_is_damage(story: Story, statement: str) -> None:
    """A row that no version has written is reported by name, never half used. Source: L-7."""
    story.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)))
    with story.store._engine.writing() as transaction:
        transaction.run_text("DELETE FROM vm WHERE host = 'h1'")
        transaction.run_text(statement)
    with pytest.raises(StoreDamaged, match=statement.split()[1]):
        story.store.load()


WRITER = """
import sys
from forewarn_store import open_store
from tests.store.story import begin
story = begin(open_store(sys.argv[1]))
while True:
    for host in ("h0", "h1"):
        story.reboot(host)
        print(story.state.last_number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 6])
def test_killed_writer_leaves_whole_steps(address: str, opened: Opener, lines: int) -> None:
    """After SIGKILL everything acknowledged is there, and history is whole. Source: L-7, A-6."""
    command = [sys.executable, "-c", WRITER, address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(lines)]
        process.kill()
    again = begin(opened(address))
    assert again.state.last_number >= told[-1]
    for number in told:
        ended = again.store.operation(number)
        assert ended is not None
        assert not ended.live
    assert replayed(again.store) == live_records(again.state)


def test_load_gives_the_writers_place_back(store: Store) -> None:
    """One process may load as often as it likes and goes on writing. Source: L-7."""
    for expected in range(1, 4):
        state = store.load()
        assert store.commit(Changes(last_number=state.last_number, entries=[entry()])) == expected


def test_store_that_can_only_be_read_is_loaded(
    address: str, opened: Callable[[str], Store], request: pytest.FixtureRequest
) -> None:
    """What it holds is known; it is written once that is possible, unless by another. Source: L-7.

    The documents are shown meanwhile, and nothing is decided.
    """
    story = begin(opened(address))
    story.store.close()
    engine = location_of(address).open(must_exist=True)
    store = Store(engine)
    request.addfinalizer(store.close)
    read_only(engine, shut=True)
    assert store.load() == story.state
    for refused in (store.confirm, store.settle, lambda: store.commit(one_entry(story))):
        with pytest.raises(StoreFull, match="only"):
            refused()
    read_only(engine, shut=False)
    store.confirm()
    store.commit(one_entry(story))
    assert store.settle() is None


def test_claim_whose_answer_was_lost_is_made_again(
    address: str, opened: Callable[[str], Store], request: pytest.FixtureRequest
) -> None:
    """A claim that happened unknown to its own writer takes nothing from it. Source: L-7."""
    story = begin(opened(address))
    story.store.close()
    engine = location_of(address).open(must_exist=True)
    store = Store(engine)
    request.addfinalizer(store.close)
    read_only(engine, shut=True)
    store.load()
    seen = store.generation
    read_only(engine, shut=False)
    with answer_lost(engine), pytest.raises(StoreUncertain):
        store.commit(one_entry(story))
    assert store.settle() is None
    assert store.writer_generation > seen
    assert store.commit(one_entry(story)) == store.history_seq


@pytest.mark.parametrize("reason", ["\0", "a\0b\n\udc80" * 500, "x" * 10**6], ids=len)
def test_odd_reason_of_a_driver_is_kept(story: Story, reason: str) -> None:
    """Whatever a driver says, every store takes it, and nobody's disk is filled. Source: L-8."""
    story.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)))
    story.tell(NoticeShown((1,)))
    story.tell(*(Acknowledge((each,)) for each in story.state.operations[1].events))
    story.tell(DriverFailed(1, 1, clean_text(reason)))
    kept = story.store.load().operations[1].reason
    assert kept.isprintable()
    assert 0 < len(kept) <= TEXT_CHARACTERS_MAX
    found = story.store.history(HistoryPage(action="operation.stuck"))
    assert [each.entry.text for each in found] == [f"op-1 is stuck: {kept}"]


def one_entry(story: Story) -> Changes:
    """A change that is one entry of history."""
    return Changes(last_number=story.state.last_number, entries=[entry()])


@contextmanager
def answer_lost(engine: Engine) -> Iterator[None]:
    """Let the engine's transactions happen while nobody hears of it."""
    writing = engine.writing

    @contextmanager
    def lost() -> Iterator[Transaction]:
        with writing() as transaction:
            yield transaction
        raise StoreUncertain(place=engine.place, reason="the line was cut")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "writing", lost)
        yield


def read_only(engine: Engine, *, shut: bool) -> None:
    """Have the database refuse what the engine's writer writes."""
    if isinstance(engine, SqliteEngine):
        engine._writer.execute(f"PRAGMA query_only = {int(shut)}")
        return
    assert isinstance(engine, PostgresEngine)
    with engine._writer.use() as connection:
        connection.execute(f"SET default_transaction_read_only = {'on' if shut else 'off'}")
