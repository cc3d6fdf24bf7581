"""The feed over a broker that loses, repeats, alters, reorders and delays messages. M-7."""

import asyncio
from collections.abc import Coroutine
from random import Random

import pytest

from forewarn.replication.access import NodeAccess
from forewarn.replication.carrier import FROM_NODE, BrokerRoute
from forewarn.replication.channel import (
    ACK_TICKS,
    RESEND_TICKS,
    Channel,
    Frame,
    FrameRefused,
    Kind,
    read_frame,
)
from forewarn.replication.feed_client import FeedClient, FeedRoute, NodeIdentity
from forewarn.replication.messages import ApprovalRequest, DocumentChange
from forewarn.replication.nodes import SILENT_S_MAX
from forewarn.replication.server import NODES_MAX, FeedServer
from tests.metadata.live import Control
from tests.replication.brokers import Exchange, SkippingLoop, Weather, skip
from tests.replication.rig import DB_0, WEB_0, WEB_1, shown

SESSION = bytes(16)
HEALED_S = 60.0
"""By then, in virtual time, every node shows everything."""


def run(story: Coroutine[object, object, None]) -> None:
    """Run a story in virtual time."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(asyncio.wait_for(story, 10 * HEALED_S))


def whole(incarnation: int) -> DocumentChange:
    """Return everything, with a document as far as that."""
    return DocumentChange(
        incarnation,
        whole=True,
        callers=(WEB_0, WEB_1, DB_0),
        publications=(shown("web", incarnation), shown("db", 1)),
    )


class Site:
    """A control plane and a node on one exchange, and each document that the node showed."""

    def __init__(self, weather: Weather) -> None:
        self.exchange = Exchange(weather)
        self.control = Control()
        self.incarnations: list[int] = []
        self.route = BrokerRoute("n1", self.exchange.connect)
        self.feed_client = FeedClient(
            "broker",
            self.apply,
            identity=NodeIdentity("n1"),
            route=FeedRoute(self.route.connect),
        )

    def apply(self, change: DocumentChange) -> None:
        """Show a change, as a node does."""
        self.incarnations += [
            each.document.incarnation for each in change.publications if each.view == "web"
        ]

    def serve(self, incarnation: int) -> None:
        """Have another process be the control plane, with the state there is now."""
        self.server = FeedServer(self.control, epoch="epoch", access=NodeAccess(["n1=h1"]))
        self.server.apply(whole(incarnation))
        self.server.start_broker(self.exchange.connect)

    async def stop(self) -> None:
        """Stop both ends."""
        await self.feed_client.stop()
        await self.route.close()
        await self.server.stop()


@pytest.mark.parametrize("seed", range(12))
def test_node_shows_the_newest_and_never_an_older_document(seed: int) -> None:
    """Whatever the network and takeovers do, a healed node shows the newest one. Source: M-7."""
    random = Random(seed)
    lost, repeated, altered = (random.random() / 3 for _ in range(3))
    rough = Weather(random, lost, repeated, altered, delay_s=3 * random.random())

    async def story() -> None:
        site = Site(rough)
        site.serve(1)
        site.feed_client.start()
        for incarnation in range(2, 40):
            await skip(random.random())
            if random.random() < 0.05:
                await site.server.stop()
                site.serve(incarnation)
            else:
                change = DocumentChange(incarnation, publications=(shown("web", incarnation),))
                site.server.apply(change)
        site.exchange.weather = Weather(random)
        assert await site.server.confirmed(39, HEALED_S, ["n1"]) == ()
        assert (site.incarnations[-1], site.incarnations) == (39, sorted(site.incarnations))
        await site.stop()

    run(story())


@pytest.mark.parametrize("seed", range(4))
def test_approval_is_answered_over_a_bad_network(seed: int) -> None:
    """A request that is lost, or whose answer is, is repeated until it is answered. M-3, M-7."""
    random = Random(seed)

    async def story() -> None:
        site = Site(Weather(random, lost=0.3, repeated=0.3, delay_s=1.0))
        site.serve(1)
        site.feed_client.start()
        answers = [
            site.feed_client.approve(ApprovalRequest("web_0", (f"E{number}",), ""))
            for number in range(20)
        ]
        assert all(answer.accepted for answer in await asyncio.gather(*answers))
        await site.stop()

    run(story())


def test_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    """What was sent stays until it has arrived, and is sent again. Source: M-7."""
    channel = Channel(SESSION)
    channel.write(b"x")
    channel.take()
    channel.receive(Frame(Kind.ACK, SESSION, expected=2))
    for _ in range(RESEND_TICKS):
        channel.tick()
    assert [read_frame(each).content for each in channel.take()] == [b"x"]


def test_session_ends_at_the_word_of_its_own_node_only() -> None:
    """Another node that knows the session's name changes nothing in it. Source: M-5, M-7."""

    async def story() -> None:
        site = Site(Weather(Random(1)))
        site.serve(1)
        site.feed_client.start()
        assert await site.server.confirmed(1, HEALED_S, ["n1"]) == ()
        assert site.server._brokered is not None
        sessions = site.server._brokered._transports
        [(session, transport)] = sessions.items()
        end = Frame(Kind.CLOSE, session, transport.channel._expected).encoded()
        site.exchange.deliver(f"{FROM_NODE}n2", end)
        assert sessions == {session: transport}
        site.exchange.deliver(f"{FROM_NODE}n1", end)
        assert sessions == {}
        await site.stop()

    run(story())


def test_signs_of_life_are_limited_over_all_nodes() -> None:
    """Ten thousand nodes are asked in turn, and still twice before one counts as silent. M-6."""
    server = FeedServer(Control(), access=NodeAccess(["*"]))
    server._sessions = dict.fromkeys(map(str, range(NODES_MAX)))  # type: ignore[assignment]
    assert 2 * server.heartbeat_s <= SILENT_S_MAX


def test_large_document_travels_in_frames_of_the_broker() -> None:
    """A message of the feed may be larger than the broker takes at once. Source: M-7."""

    async def story() -> None:
        site = Site(Weather(Random(1)))
        site.serve(1)
        site.feed_client.start()
        await site.feed_client.followed.wait()
        names = tuple(f"web_{number:0200}" for number in range(1000))
        request = ApprovalRequest("web_0", names, "")
        assert (await site.feed_client.approve(request)).accepted
        assert site.control.approvals[0].event_ids == names
        await site.stop()

    run(story())


@pytest.mark.parametrize("seed", range(50))
def test_channel_delivers_every_byte_once_and_in_order(seed: int) -> None:
    """What one end reads is always a beginning of what the other wrote, in the end all of it."""
    random = Random(seed)
    one, other = Channel(SESSION, frame_bytes=7), Channel(SESSION, frame_bytes=7)
    written, read, under_way = b"", b"", []
    for turn in range(900):
        rough = turn < 300
        if rough:
            text = random.randbytes(random.randrange(20))
            written += text
            one.write(text)
        if random.random() < 0.2 or not rough:
            one.tick()
            other.tick()
        under_way += [(other, frame) for frame in one.take()]
        under_way += [(one, frame) for frame in other.take()]
        if rough:
            random.shuffle(under_way)
            under_way = (under_way + under_way[:2])[:100]
        for _ in range(random.randrange(6) if rough else len(under_way)):
            if under_way:
                end, frame = under_way.pop(0)
                if not rough or random.random() < 0.6:
                    end.receive(read_frame(frame))
                    read += other.read()
                    one.read()
        assert written.startswith(read)
    assert read == written


def test_last_frame_is_sent_again_until_it_is_acknowledged() -> None:
    """Nothing comes after it that would show the gap; then both ends have nothing to do."""
    one, other = Channel(SESSION), Channel(SESSION)
    one.write(b"text")
    assert len(one.take()) == 1  # lost
    for _ in range(RESEND_TICKS):
        one.tick()
    [again] = one.take()
    other.receive(read_frame(again))
    assert other.read() == b"text"
    for _ in range(ACK_TICKS):
        other.tick()
    [acknowledgement] = other.take()
    one.receive(read_frame(acknowledgement))
    assert [one.waits, other.waits, one.has_output] == [False, False, False]


def test_frame_with_any_bit_altered_is_refused() -> None:
    """A checksum covers head and content. Source: M-7."""
    frame = Frame(Kind.DATA, SESSION, 1, 2, b"text").encoded()
    assert read_frame(frame).content == b"text"
    for bit in range(8 * len(frame)):
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameRefused):
            read_frame(bytes(altered))
