"""What a node keeps: it survives restarts, notices damage and a full disk."""

from pathlib import Path

import pytest

from forewarn_metadata.replication import node_files
from forewarn_metadata.replication.feed_tag import FeedTag
from forewarn_metadata.replication.messages import DocumentChange, NodePart, encoded
from forewarn_metadata.replication.node_files import NodeDirectory, NodeStoreUnusable
from forewarn_metadata.replication.node_store import FILE, NodeStore
from forewarn_metadata.replication.scopes import digest_of
from tests.metadata.feeds import run, until
from tests.replication.rig import DB_0, WEB_0, WHOLE, Feed, Node, shown
from tests.simulator.world.dice import Dice
from tests.simulator.world.node_disk import NodeDisk, NodeDiskFiles
from tests.simulator.world.virtual_loop import ProcessKilled

PART = NodePart((WEB_0, DB_0), (shown("web", 3),))
BODY, EMPTY = encoded(PART), encoded(NodePart((), ()))
TAG = FeedTag("e", 3, digest_of(BODY), "a commit")


def kept(directory: Path) -> tuple[FeedTag, NodePart] | None:
    """Return what a store has, as another process would read it."""
    store = NodeStore(NodeDirectory(directory))
    found = store.load()
    store.close()
    return found


def written(directory: Path) -> NodeStore:
    """Return a store with a part."""
    store = NodeStore(NodeDirectory(directory))
    assert store.load() is None
    store.keep(TAG, BODY)
    return store


def test_shown_part_outlives_a_loss_of_power() -> None:
    """Also if the process that stored it was killed before it synced the file's name. M-2."""
    disk = NodeDisk(Dice(1, "disk"))
    NodeStore(NodeDiskFiles(disk, lambda: None)).keep(TAG, BODY)
    disk.armed = "after a file is replaced"
    later = FeedTag("e", 4, digest_of(EMPTY), "a commit")
    with pytest.raises(ProcessKilled):
        NodeStore(NodeDiskFiles(disk, lambda: None)).keep(later, EMPTY)
    found = NodeStore(NodeDiskFiles(disk, lambda: None)).load()
    assert found is not None
    disk.lose_power()
    assert NodeStore(NodeDiskFiles(disk, lambda: None)).load() == found == (later, NodePart((), ()))


def test_node_restarts_without_its_control_plane(tmp_path: Path) -> None:
    """It shows what it showed, whoever is away. Source: M-2."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await feed.stop()
        await one.stop()
        again = Node(feed.address, "n1", tmp_path)
        assert again.feed_client.take_up()
        assert (again.vms, again.incarnation("db")) == ({"web_0", "db_0"}, 2)
        assert [change.whole for change in again.told] == [True]
        await again.stop()

    run(story())


def test_node_goes_on_after_what_it_kept(tmp_path: Path) -> None:
    """Node and control plane restart; what is equal is not sent again. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await one.stop()
        publications = (shown("db", 2), shown("web", 1))
        await feed.restart(
            DocumentChange(5, whole=True, callers=(DB_0, WEB_0), publications=publications)
        )
        one = await feed.node("n1")
        assert [change.sequence for change in one.told] == [2]
        assert one.feed_client.sequence == 5
        assert await feed.shows(DocumentChange(6, publications=(shown("db", 3),))) == ()
        assert [(change.sequence, change.whole) for change in one.told] == [(2, True), (6, False)]
        await one.stop()
        assert kept(tmp_path / "n1") is not None
        await feed.stop()

    run(story())


def test_node_that_differs_is_sent_its_part(tmp_path: Path) -> None:
    """The digest of the part proves that it equals the source, or that it does not. M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        changed = DocumentChange(5, whole=True, callers=(WEB_0,), publications=(shown("web", 7),))
        await feed.restart(changed)
        await until(lambda: one.incarnation("web") == 7)
        assert one.vms == {"web_0"}
        await one.stop()
        await feed.stop()

    run(story())


def test_node_refuses_a_feed_that_is_older(tmp_path: Path) -> None:
    """No incarnation goes back, whoever speaks for the control plane now. Source: M-1, L-7."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await feed.restart(WHOLE)
        await until(lambda: feed.server.connected == 1)
        assert one.incarnation("db") == 2
        feed.epoch = "after the backup"
        await feed.restart(WHOLE)
        await one.feed_client.followed.wait()
        assert one.incarnation("db") == 1
        await one.stop()
        await feed.stop()

    run(story())


def test_store_returns_what_was_kept(tmp_path: Path) -> None:
    """The part with its tag. Source: M-2."""
    written(tmp_path).close()
    assert kept(tmp_path) == (TAG, PART)


@pytest.mark.parametrize("place", [5, 30, 70, 200, -60])
def test_damage_is_noticed(tmp_path: Path, place: int) -> None:
    """A flipped bit is not a document: everything is fetched again. Source: M-2."""
    written(tmp_path).close()
    path = tmp_path / FILE
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 4
    path.write_bytes(damaged)
    found = kept(tmp_path)
    assert found is None or (place < 40 and found[1] == PART)


@pytest.mark.parametrize("length", [0, 1, 60, -7])
def test_half_a_file_is_noticed(tmp_path: Path, length: int) -> None:
    """So is a file that ends too early. Source: M-2."""
    written(tmp_path).close()
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:length])
    assert kept(tmp_path) is None
    assert not path.exists()


def test_full_disk_leaves_nothing_old_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be kept is shown, and no restart shows less than that. Source: M-2."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    store = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(node_files, "_written", full)
        store.keep(TAG._replace(sequence=4), BODY)
    assert store.trouble == "No space left on device"
    assert not (tmp_path / FILE).exists()
    store.keep(TAG._replace(sequence=5), BODY)
    assert store.trouble == ""
    store.close()
    found = kept(tmp_path)
    assert found is not None
    assert found[0].sequence == 5


def test_directory_has_one_node(tmp_path: Path) -> None:
    """Two nodes never write the same file. Source: M-2."""
    store = NodeStore(NodeDirectory(tmp_path))
    with pytest.raises(NodeStoreUnusable, match="another metadata node uses it"):
        NodeDirectory(tmp_path)
    store.close()
