"""The last poll and the client of each VM. Source: B-5."""

from pathlib import Path

import pytest

from forewarn_metadata.replication.messages import PollReport, VmPoll
from forewarn_server.telemetry.metadata_snapshot import CLIENTS_NAMED_MAX, client_families
from tests.metadata.feeds import run, until
from tests.metadata.live import EVENTS, request, serving
from tests.replication.rig import Feed


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("connection", ["", "close"])
def test_client_of_the_last_poll_is_known(*, portable: bool, connection: str) -> None:
    """Also where the answer comes from memory, and with two clients in one VM. Source: B-5."""
    with serving(portable=portable) as live:
        live.get()
        for client in ("one/1", "two/2", "one/1", "two/2"):
            live.get(user_agent=client, connection=connection)
            poll = live.call(lambda: live.server.service.poll_of("vm-a"))
            assert poll is not None
            assert poll.user_agent == client
        live.get("/metadata/instance?api-version=2021-02-01", user_agent="other/3")
        poll = live.call(lambda: live.server.service.poll_of("vm-a"))
        assert poll is not None
        assert poll.user_agent == "two/2"


def test_client_name_is_short_and_printable() -> None:
    """What a VM sends cannot fill the memory or write to an operator's terminal. Source: B-5."""
    with serving() as live, live.connect() as raw:
        raw.send(request(EVENTS, user_agent="x\u009b" * 300))
        raw.reply()
        poll = live.call(lambda: live.server.service.poll_of("vm-a"))
        assert poll is not None
        assert poll.user_agent == "x??" * 33 + "x"


def test_poll_is_reported_once() -> None:
    """A node reports who polled, not who was silent since the report before. Source: B-5."""
    with serving() as live:
        live.get(user_agent="one/1")
        seconds = live.server.service.second
        live.call(seconds), live.call(seconds)
        assert live.control.clients == {"vm-a": "one/1"}
        live.control.clients.clear()
        for _ in range(3):
            live.call(seconds)
        live.control.clients.clear()
        live.call(seconds)
        assert live.control.clients == {}
        assert live.server.user_agents() == {"one/1": 1}


def test_node_reports_polls_of_its_own_vms(tmp_path: Path) -> None:
    """Those of other nodes' VMs are ignored. Source: B-5, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        polls = (VmPoll("web_1", "bad", 0), VmPoll("web_0", "good", 0))
        node.feed_client.tell(PollReport(vms=polls))
        await until(lambda: bool(feed.control.clients))
        assert feed.control.clients == {"web_0": "good"}
        await node.stop()
        await feed.stop()

    run(story())


def test_newer_poll_of_another_node_counts() -> None:
    """The control plane keeps the latest poll that any node reports. Source: B-5."""
    with serving() as live:
        service = live.server.service
        live.call(lambda: service.note_polls([VmPoll("vm-a", "new", 5), VmPoll("gone", "x", 0)]))
        live.call(lambda: service.note_polls([VmPoll("vm-a", "old", 90)]))
        poll = live.call(lambda: service.poll_of("vm-a"))
        assert poll is not None
        assert poll.user_agent == "new"
        assert live.call(lambda: service.poll_of("gone")) is None


def test_metric_names_the_most_frequent_clients() -> None:
    """However many clients there are, the scrape stays short. Source: B-5."""
    (metric,) = client_families({f"c/{number}": number for number in range(1, 31)})
    counts = {sample.labels["client"]: sample.value for sample in metric.samples}
    assert len(counts) == CLIENTS_NAMED_MAX + 1
    assert (counts["c/30"], counts["other"]) == (30, sum(range(1, 11)))
