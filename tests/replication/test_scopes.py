"""What a node of some hosts is sent, what it may ask, and how a VM goes from one to another."""

from pathlib import Path

import pytest

from forewarn_core.requests import ApprovalRequest, EnableRequest, OutcomeRequest
from forewarn_metadata.replication.feed_client import FeedLost
from forewarn_metadata.replication.messages import Caller, DocumentChange, PollReport, VmPoll
from tests.metadata.feeds import run, until
from tests.replication.rig import WEB_0, WEB_1, WHOLE, Feed, Node, caller, shown, token_of


def test_node_is_sent_what_its_vms_are_shown(tmp_path: Path) -> None:
    """A node holds what its own VMs need, and is told of nothing else. Source: M-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        assert (one.vms, two.vms) == ({"web_0", "db_0"}, {"web_1"})
        assert (two.incarnation("web"), two.incarnation("db")) == (1, None)
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        assert await feed.shows(DocumentChange(3, publications=(shown("web", 2),))) == ()
        assert [change.sequence for change in one.told] == [1, 2, 3]
        assert [change.sequence for change in two.told] == [1, 3]
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


def test_publication_waits_for_nodes_that_serve_it(tmp_path: Path) -> None:
    """A node that is away holds up what concerns its VMs, even if it never came. Source: M-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        concerned = feed.server.apply(DocumentChange(3, publications=(shown("web", 2),)))
        confirmed = feed.server.confirmed(3, 0.2, concerned)
        await until(lambda: one.incarnation("web") == 2)
        assert await confirmed == ("n2",)
        assert feed.server.hosts_of(("n2",)) == ("h2", "h3")
        assert feed.server.troubles().behind == ("n2",)
        await one.stop()
        await feed.stop()

    run(story())


def test_moved_vm_is_served_by_its_old_node_until_the_new_one_has_it(tmp_path: Path) -> None:
    """No poll falls between two nodes, and none sees an older document. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        seen: list[set[str]] = []
        two.feed_client._apply = lambda _: seen.append(one.vms)
        feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h3"),)))
        await until(lambda: "db_0" not in one.vms)
        assert seen == [{"web_0", "db_0"}]
        assert two.vms == {"web_1", "db_0"}
        assert two.incarnation("db") == 1
        assert one.incarnation("db") is None
        assert await feed.shows(DocumentChange(3, publications=(shown("db", 2),))) == ()
        assert (one.incarnation("db"), two.incarnation("db")) == (None, 2)
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


def test_vm_that_is_being_moved_is_served_on_both_hosts(tmp_path: Path) -> None:
    """It may resume on its new host at any moment, and is shown the same there. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        moving = caller("db_0", "h1", destinations=("h3",))
        begun = DocumentChange(2, callers=(moving,), publications=(shown("db", 2),))
        assert feed.server.apply(begun) == frozenset({"n1", "n2"})
        assert await feed.server.confirmed(2, 5.0, {"n1", "n2"}) == ()
        assert [node.incarnation("db") for node in (one, two)] == [2, 2]
        assert (await feed.ask(two, ApprovalRequest("db_0", ("A",), "10.0.0.1"))).accepted
        assert await feed.shows(DocumentChange(3, publications=(shown("db", 3),))) == ()
        assert [node.incarnation("db") for node in (one, two)] == [3, 3]
        await two.stop()
        two = await feed.node("n2")
        assert two.vms == {"web_1", "db_0"}
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize(("host", "gone"), [("h3", "one"), ("h1", "two")], ids=["moved", "stayed"])
def test_vm_leaves_the_node_of_the_host_it_is_not_on(tmp_path: Path, host: str, gone: str) -> None:
    """Where a move has ended, one node serves the VM without having ceased to. Source: M-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        nodes = {"one": await feed.node("n1"), "two": await feed.node("n2")}
        moving = caller("db_0", "h1", destinations=("h3",))
        assert await feed.shows(DocumentChange(2, callers=(moving,))) == ()
        ended = DocumentChange(3, callers=(caller("db_0", host),), publications=(shown("db", 2),))
        assert await feed.shows(ended) == ()
        left = nodes.pop(gone)
        [stays] = nodes.values()
        await until(lambda: "db_0" not in left.vms)
        assert "db_0" in stays.vms
        assert (left.incarnation("db"), stays.incarnation("db")) == (None, 2)
        assert [each for change in stays.told for each in change.gone] == []
        await left.stop()
        await stays.stop()
        await feed.stop()

    run(story())


def test_vm_stays_with_its_old_node_while_the_new_one_is_away(tmp_path: Path) -> None:
    """It is answered there, up to date, until the new node has it. Source: M-1, M-2."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        await two.stop()
        feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h3"),)))
        feed.server.apply(DocumentChange(3, publications=(shown("db", 2),)))
        await until(lambda: one.incarnation("db") == 2)
        assert one.vms == {"web_0", "db_0"}
        two = await feed.node("n2")
        await until(lambda: one.vms == {"web_0"})
        assert two.incarnation("db") == 2
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("under_way", [True, False], ids=["move-before", "move-within"])
def test_everything_that_is_published_again_ends_no_move(tmp_path: Path, under_way: bool) -> None:
    """After a failed publication, too, the old node answers until the new one has the VM. M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        await two.stop()
        moved = caller("db_0", "h3")
        if under_way:
            feed.server.apply(DocumentChange(2, callers=(moved,)))
        again = (shown("web", 1), shown("db", 2))
        feed.server.apply(
            DocumentChange(3, whole=True, callers=(WEB_0, WEB_1, moved), publications=again)
        )
        await until(lambda: one.incarnation("db") == 2 or "db_0" not in one.vms)
        assert one.vms == {"web_0", "db_0"}, f"M-1: nobody answers db_0, n1 has {one.vms}"
        two = await feed.node("n2")
        await until(lambda: one.vms == {"web_0"})
        assert two.vms == {"web_1", "db_0"}
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("comes", [True, False], ids=["comes-late", "there-is-none"])
def test_vm_stays_with_its_old_node_until_the_new_one_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, comes: bool
) -> None:
    """After a restart the new node has not come yet, and may never come. Source: M-1, M-2."""
    monkeypatch.setattr("forewarn_metadata.replication.moves.ABSENT_S_MAX", 60.0 if comes else 0.0)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        concerned = feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h3"),)))
        assert concerned == frozenset({"n2"})
        if comes:
            feed.server.apply(DocumentChange(3, publications=(shown("db", 2),)))
            await until(lambda: one.incarnation("db") == 2)
            assert "db_0" in one.vms
        else:
            await until(lambda: "db_0" not in one.vms)
        two = await feed.node("n2")
        await until(lambda: one.vms == {"web_0"})
        assert two.vms == {"web_1", "db_0"}
        assert await feed.shows(DocumentChange(4, publications=(shown("db", 3),))) == ()
        assert (one.incarnation("db"), two.incarnation("db")) == (None, 3)
        assert feed.server.connected == 2
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


def test_node_that_came_and_went_is_waited_for(tmp_path: Path) -> None:
    """It is not one that never came, and nobody else's news waits for it. Source: M-1, M-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h3"),)))
        two = await feed.node("n2")
        await until(lambda: one.vms == {"web_0"})
        await two.stop()
        await until(lambda: feed.server.connected == 1)
        feed.server._moves._give_up("n2")  # its hour is over
        assert feed.server.apply(DocumentChange(3, gone=("nobody",))) == frozenset()
        feed.server.apply(DocumentChange(4, callers=(caller("web_0", "h2"),)))
        assert one.vms == {"web_0"}
        await one.stop()
        await feed.stop()

    run(story())


def test_vm_moved_while_its_new_node_was_away_leaves_the_old_one(tmp_path: Path) -> None:
    """The new node comes after the whole move: it has the VM, the other one lets go. M-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h1", destinations=("h3",)),)))
        feed.server.apply(DocumentChange(3, callers=(caller("db_0", "h3"),)))
        two = await feed.node("n2")
        await until(lambda: "db_0" not in one.vms)
        assert two.vms == {"web_1", "db_0"}
        assert await feed.shows(DocumentChange(4, publications=(shown("db", 2),))) == ()
        assert two.incarnation("db") == 2
        assert feed.server.connected == 2
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("host", ["h4", "h9"], ids=["to-a-node", "to-none"])
def test_vm_that_moved_on_does_not_wait_for_a_node_that_is_away(tmp_path: Path, host: str) -> None:
    """It was to be served there, and went elsewhere before: its first node lets go. M-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two, three = [await feed.node(name) for name in ("n1", "n2", "n3")]
        await two.stop()
        feed.server.apply(DocumentChange(2, callers=(caller("db_0", "h3"),)))
        feed.server.apply(DocumentChange(3, callers=(caller("db_0", host),)))
        await until(lambda: one.vms == {"web_0"})
        assert one.incarnation("db") is None
        assert three.vms == ({"db_0"} if host == "h4" else set())
        await one.stop()
        await three.stop()
        await feed.stop()

    run(story())


def test_everything_is_awaited_at_the_nodes_that_are_named(tmp_path: Path) -> None:
    """After a restart nobody has come yet, and work waits for the nodes all the same. M-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        concerned = feed.server.apply(WHOLE)
        assert concerned == frozenset({"n1", "n2"})
        confirmed = feed.server.confirmed(WHOLE.sequence, 0.2, concerned)
        one = await feed.node("n1")
        assert await confirmed == ("n2",)
        await one.stop()
        await feed.stop()

    run(story())


def test_node_shows_no_document_that_its_vms_do_not_read(tmp_path: Path) -> None:
    """A VM reads another document from now on: the one before leaves its node. M-1, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        two = await feed.node("n2")
        own = Caller("web_1", "web", "web/web_1", host="h2")
        opened = DocumentChange(2, callers=(own,), publications=(shown("web/web_1", 2),))
        assert await feed.shows(opened) == ()
        assert (two.incarnation("web/web_1"), two.incarnation("web")) == (2, None)
        feed.server.apply(DocumentChange(3, publications=(shown("web", 2),)))
        assert await feed.shows(DocumentChange(4, publications=(shown("web/web_1", 3),))) == ()
        assert (two.incarnation("web/web_1"), two.incarnation("web")) == (3, None)
        await two.stop()
        await feed.stop()

    run(story())


def test_vm_that_is_gone_leaves_its_node(tmp_path: Path) -> None:
    """Who is removed is nobody from then on, and so is its document. Source: S-6."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one = await feed.node("n1")
        assert await feed.shows(DocumentChange(2, gone=("db_0",))) == ()
        assert (one.vms, one.incarnation("db")) == ({"web_0"}, None)
        await one.stop()
        await feed.stop()

    run(story())


def test_node_asks_only_for_its_own_vms(tmp_path: Path) -> None:
    """What it asks for others is refused, and people are told. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        two = await feed.node("n2")
        own = await feed.ask(two, ApprovalRequest("web_1", ("A",), "10.0.0.1"))
        foreign = await feed.ask(two, ApprovalRequest("db_0", ("A",), "10.0.0.1"))
        assert own.accepted
        assert not foreign.accepted
        feed.control.outcomes["db_0", "A"] = "{}"
        for request in (EnableRequest("db_0"), OutcomeRequest("db_0", "A")):
            with pytest.raises(FeedLost):
                await two.feed_client.ask(request)
        polls = tuple(VmPoll(vm, f"client of {vm}", 0) for vm in ("web_1", "db_0", "nobody"))
        two.feed_client.tell(PollReport({"web": 0, "db": 0}, polls))
        await until(lambda: feed.control.groups != [])
        assert [request.vm for request in feed.control.approvals] == ["web_1"]
        assert (feed.control.enabled, feed.control.groups) == ([], [frozenset({"web"})])
        clients = feed.control.clients
        assert clients == {"web_1": "client of web_1"}, f"M-5: n2 reports the polls of {clients}"
        assert [what.split()[2] for what in feed.server.troubles().refused] == ["n2"] * 4
        await two.stop()
        await feed.stop()

    run(story())


def test_request_for_a_vm_that_has_just_left_is_no_lie(tmp_path: Path) -> None:
    """It was under way: the control plane says whether it counts, and nobody lied. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        assert await feed.shows(DocumentChange(2, callers=(caller("db_0", "h2"),))) == ()
        await until(lambda: "db_0" not in one.vms)
        feed.control.left.add(("db_0", frozenset({"h1"})))
        shown_there = ApprovalRequest("db_0", ("A",), "10.0.0.1")
        assert (await feed.ask(one, shown_there)).accepted
        feed.control.left.clear()
        assert not (await feed.ask(one, shown_there)).accepted
        one.feed_client.tell(PollReport({"db": 0}))
        assert (await feed.ask(one, ApprovalRequest("web_0", ("A",), "10.0.0.1"))).accepted
        assert feed.server.troubles().refused == ()
        assert [request.vm for request in feed.control.approvals] == ["db_0", "web_0"]
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize(
    ("name", "token", "hosts", "told"),
    [
        ("n1", "n2", (), "node n1 "),
        ("n9", "n1", (), "A caller "),
        ("n1", "n1", ("h2",), "node n1 "),
        ("n 1", "n1", (), "A caller "),
    ],
    ids=["token", "name", "hosts", "form"],
)
def test_node_that_cannot_prove_itself_is_refused(
    tmp_path: Path, name: str, token: str, hosts: tuple[str, ...], told: str
) -> None:
    """Nobody is sent anything who is not whom the settings know. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        liar = Node(feed.address, name, tmp_path, token=token_of(token))
        liar.feed_client._identity.hosts = hosts  # type: ignore[misc]  # as somebody else's program may
        liar.feed_client.start()
        await until(lambda: feed.server.troubles().refused != ())
        assert told in feed.server.troubles().refused[0]
        assert liar.told == []
        assert feed.server.connected == 0
        await liar.stop()
        await feed.stop()

    run(story())


def test_two_nodes_of_one_host_both_serve_it(tmp_path: Path) -> None:
    """A VM that comes back before it has left stays. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        one, two = await feed.node("n1"), await feed.node("n2")
        await two.stop()
        feed.server.apply(DocumentChange(2, callers=(caller("web_0", "h2"),)))
        feed.server.apply(DocumentChange(3, callers=(WEB_0,)))
        two = await feed.node("n2")
        await until(lambda: two.vms == {"web_1"})
        assert one.vms == {"web_0", "db_0"}
        await one.stop()
        await two.stop()
        await feed.stop()

    run(story())
