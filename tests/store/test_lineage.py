"""A store that has lost commits is recognised by every process that knows them. Source: H-10."""

from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import RequestMaintenance
from forewarn_store import Store, open_store
from forewarn_store.backup import restore
from forewarn_store.errors import StoreLost, StoreWentBack
from forewarn_store.lineage import CommitFile, CommitId, read_signed_commit
from tests.store.rewinding import Snapshot
from tests.store.story import Story, begin, entry, poll

REBOOT = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",))
OTHER = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1",))
Open = Callable[[str], Store]


def write(story: Story, count: int = 1) -> None:
    """Commit entries that change nothing."""
    for _ in range(count):
        story.store.commit(Changes(last_number=story.state.last_number, entries=[entry()]))


def test_writer_notices_that_its_commits_are_lost(address: str, opened: Open) -> None:
    """It neither commits nor confirms, though its token is still the writer's. Source: H-10."""
    story = begin(opened(address))
    before = Snapshot(address)
    story.tell(REBOOT)
    before.put_back()
    with pytest.raises(StoreWentBack, match="memory"):
        story.store.confirm()
    with pytest.raises(StoreWentBack):
        story.tell(OTHER)
    with pytest.raises(StoreWentBack):
        story.store.settle()
    assert story.store.lineage.ahead


def test_mark_stops_every_later_writer(address: str) -> None:
    """A process without memory, too, until a restore begins another epoch. Source: H-10, U-2."""
    first = begin(open_store(address))
    before = Snapshot(address)
    write(first)
    before.put_back()
    with pytest.raises(StoreWentBack):
        write(first)
    first.store.close()
    later = Story(store := open_store(address), store.load())
    with pytest.raises(StoreWentBack):
        write(later)
    assert not store.lineage.ahead
    store.close()
    restore(None, address, now_ms=first.now_ms)
    restored = Story(store := open_store(address), store.load())
    write(restored)
    store.close()


def test_another_past_is_noticed_once_the_numbers_have_passed(address: str, tmp_path: Path) -> None:
    """By the digest of the commit that a witness knows. Source: H-10."""
    first = begin(open_store(address, commit_file=str(tmp_path / "elsewhere")))
    before = Snapshot(address)
    first.tell(REBOOT)
    known = first.store.newest_commit()
    first.store.close()
    before.put_back()
    later = Story(store := open_store(address), store.load())
    later.tell(OTHER)
    write(later, 5)
    with pytest.raises(StoreWentBack, match="node n1"):
        store.check_commits({known: "node n1"})
    with pytest.raises(StoreWentBack):
        write(later)
    store.close()


def test_commits_of_the_store_are_accepted(address: str, opened: Open) -> None:
    """The newest, older ones, and one that is older than the digests. Source: H-10."""
    story = begin(opened(address))
    known = [story.store.newest_commit()]
    write(story)
    known.append(story.store.newest_commit())
    write(story)
    for text in known:
        story.store.check_commits({text: "node n1"})
    write(story)


def test_forged_commit_is_ignored(address: str, opened: Open) -> None:
    """Only what the store has signed counts, so no node can stop the service. Source: H-10."""
    story = begin(opened(address))
    newest = story.store.newest
    later = CommitId(newest.epoch, newest.generation + 100, newest.digest)
    for text in ("", later.text, later.signed("guess"), f"{later.text}/", "x/y/z/w"):
        story.store.check_commits({text: "node n1"})
    write(story)


def test_signed_commit_is_read_again() -> None:
    """With the same key only."""
    commit = CommitId("epoch", 7, "digest")
    assert read_signed_commit(commit.signed("key"), "key") == commit
    assert read_signed_commit(commit.signed("key"), "other") is None
    assert read_signed_commit(commit.signed(""), "") is None


@pytest.mark.parametrize("content", ["", "x", "a/b/c", "epoch/1"])
def test_damaged_file_of_the_last_commit_proves_nothing(content: str, tmp_path: Path) -> None:
    """It is read as if it were missing."""
    path = tmp_path / "commit"
    path.write_text(content)
    assert CommitFile(path).read() == CommitId()


def test_file_beside_the_process_is_a_witness(address: str, tmp_path: Path) -> None:
    """A process that starts on a copy refuses to decide, and shows nothing old. Source: H-10."""
    file = tmp_path / "last-commit"
    first = begin(open_store(address, commit_file=str(file)))
    before = Snapshot(address)
    write(first)
    first.store.close()
    before.put_back()
    later = Story(store := open_store(address, commit_file=str(file)), store.load())
    assert store.lineage.lost is not None
    assert str(file) in str(store.lineage.lost)
    with pytest.raises(StoreWentBack):
        write(later)
    store.close()


def test_commits_of_the_earlier_version_are_accepted(address: str, opened: Open) -> None:
    """They have no digest; numbers are compared all the same. Source: H-8, H-10."""
    story = begin(opened(address))
    known = story.store.newest_commit()
    with story.store._engine.writing() as transaction:
        transaction.run_text("DELETE FROM commit_digest")
    story.store.check_commits({known: "node n1"})
    write(story)
    before = Snapshot(address)
    write(story)
    before.put_back()
    with pytest.raises(StoreWentBack):
        write(story)


@pytest.mark.postgres
def test_follower_notices_and_keeps_its_state(postgres_address: str, opened: Open) -> None:
    """It neither follows nor takes over what is older; what it shows stays. Source: H-10."""
    story = begin(opened(postgres_address))
    before = Snapshot(postgres_address)
    follower = opened(postgres_address)
    followed = follower.follow()
    story.tell(REBOOT)
    follower.catch_up(followed)
    before.put_back()
    with pytest.raises(StoreWentBack):
        follower.catch_up(followed)
    assert follower.load(followed) is followed
    assert story.state.last_number in followed.operations
    with pytest.raises(StoreWentBack):
        follower.confirm()
    with pytest.raises(StoreWentBack):
        write(story)


@pytest.mark.postgres
def test_follower_without_lost_commits_refuses_a_marked_store(
    postgres_address: str, opened: Open
) -> None:
    """Another process is the witness. Source: H-10."""
    story = begin(opened(postgres_address))
    before = Snapshot(postgres_address)
    write(story)
    before.put_back()
    follower = opened(postgres_address)
    followed = follower.follow()
    with pytest.raises(StoreWentBack):
        write(story)
    with pytest.raises(StoreWentBack):
        follower.catch_up(followed)
    assert not follower.lineage.ahead


@pytest.mark.postgres
def test_replaced_writer_is_told_so_as_before(postgres_address: str, opened: Open) -> None:
    """Nothing is lost where another process has become the writer. Source: H-1."""
    story = begin(opened(postgres_address))
    opened(postgres_address).load()
    with pytest.raises(StoreLost):
        write(story)
    with pytest.raises(StoreLost):
        story.store.confirm()


def test_uncertain_commit_has_the_digest_that_was_written(address: str, opened: Open) -> None:
    """Polls and entries alike, so that later commits follow it. Source: H-10, L-7."""
    story = begin(opened(address))
    story.store.commit(poll(story))
    assert story.store.newest == _newest(story.store)
    write(story)
    assert story.store.newest == _newest(story.store)


def _newest(store: Store) -> CommitId:
    with store._engine.reading() as transaction:
        return store._row(transaction).commit
