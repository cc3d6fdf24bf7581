"""What a node keeps: it survives restarts, notices damage and a full disk, proves equality."""

from pathlib import Path

import pytest

from forewarn.replication import node_files, node_store
from forewarn.replication.messages import DocumentChange
from forewarn.replication.node_files import NodeDirectory, NodeStoreUnusable
from forewarn.replication.node_store import FILE, NodeStore, Position
from forewarn.replication.portions import cut
from tests.metadata.feeds import run, until
from tests.replication.rig import DB_0, WEB_0, WHOLE, Feed, Node, shown


def kept(directory: Path) -> DocumentChange | None:
    """Return what a store has, as another process would read it."""
    store = NodeStore(NodeDirectory(directory))
    whole = store.load()
    store.close()
    return whole


def written(directory: Path) -> NodeStore:
    """Return a store with a whole and two changes."""
    store = NodeStore(NodeDirectory(directory))
    assert store.load() is None
    store.keep(WHOLE, Position("e", 1, 11))
    for sequence in (2, 3):
        change = DocumentChange(sequence, publications=(shown("web", sequence),))
        *_, last = cut(change, store.position.checksum)
        store.keep(change, Position("e", sequence, last.checksum))
    return store


def test_node_restarts_without_its_control_plane(tmp_path: Path) -> None:
    """It shows what it showed, whoever is away. Source: M-2."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await feed.server.stop()
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
        assert one.store.position.sequence == 5
        assert await feed.shows(DocumentChange(6, publications=(shown("db", 3),))) == ()
        assert [(change.sequence, change.whole) for change in one.told] == [(2, True), (6, False)]
        await one.stop()
        assert kept(tmp_path / "n1") is not None
        await feed.server.stop()

    run(story())


def test_node_that_differs_is_sent_the_whole(tmp_path: Path) -> None:
    """The digest of its records proves that it equals the source, or that it does not. M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        changed = DocumentChange(5, whole=True, callers=(WEB_0,), publications=(shown("web", 7),))
        await feed.restart(changed)
        await until(lambda: one.incarnation("web") == 7)
        assert one.vms == {"web_0"}
        await one.stop()
        await feed.server.stop()

    run(story())


def test_node_refuses_a_feed_that_is_older(tmp_path: Path) -> None:
    """No incarnation goes back, whoever speaks for the control plane now. Source: M-1, L-7."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await feed.restart(WHOLE)
        await until(lambda: feed.server.connected == 1)
        await until(lambda: feed.server.connected == 0)
        assert one.incarnation("db") == 2
        feed.epoch = "after the backup"
        await feed.restart(WHOLE)
        await one.feed_client.followed.wait()
        assert one.incarnation("db") == 1
        await one.stop()
        await feed.server.stop()

    run(story())


def test_store_returns_what_was_kept(tmp_path: Path) -> None:
    """Changes are laid over the whole. Source: M-2."""
    written(tmp_path).close()
    whole = kept(tmp_path)
    assert whole is not None
    assert whole.sequence == 3
    assert set(whole.publications) == {shown("web", 3), shown("db", 1)}


def test_line_cut_off_was_never_shown(tmp_path: Path) -> None:
    """A crash while a change is written leaves what was before. Source: M-2."""
    written(tmp_path).close()
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-7])
    whole = kept(tmp_path)
    assert whole is not None
    assert whole.sequence == 2


@pytest.mark.parametrize("place", [5, 60, 200, -60])
def test_damage_is_noticed(tmp_path: Path, place: int) -> None:
    """A flipped bit is not a document: everything is fetched again. Source: M-2."""
    written(tmp_path).close()
    path = tmp_path / FILE
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 4
    path.write_bytes(damaged)
    assert kept(tmp_path) is None
    assert not path.exists()


def test_changes_are_folded_into_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is bounded by what it holds, not by how often that changed. Source: M-2."""
    monkeypatch.setattr(node_store, "GROWTH_BYTES_MIN", 0)
    store = written(tmp_path)
    sizes = []
    for sequence in range(4, 40):
        change = DocumentChange(sequence, publications=(shown("web", sequence),))
        store.keep(change, Position("e", sequence, 0))
        sizes.append((tmp_path / FILE).stat().st_size)
    assert max(sizes) < 4 * sizes[0]
    store.close()


def test_full_disk_leaves_nothing_old_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that cannot be kept is shown, and no restart shows less than that. Source: M-2."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    store = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(node_files, "_written", full)
        store.keep(DocumentChange(4, publications=(shown("web", 4),)), Position("e", 4, 0))
    assert store.trouble == "No space left on device"
    assert not (tmp_path / FILE).exists()
    store.keep(DocumentChange(5, publications=(shown("db", 5),)), Position("e", 5, 0))
    assert store.trouble == ""
    store.close()
    whole = kept(tmp_path)
    assert whole is not None
    assert set(whole.publications) == {shown("web", 4), shown("db", 5)}


def test_directory_has_one_node(tmp_path: Path) -> None:
    """Two nodes never write the same file. Source: M-2."""
    store = NodeStore(NodeDirectory(tmp_path))
    with pytest.raises(NodeStoreUnusable, match="another metadata node uses it"):
        NodeDirectory(tmp_path)
    store.close()
