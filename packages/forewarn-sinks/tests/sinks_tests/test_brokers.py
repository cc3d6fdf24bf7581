"""Real brokers and a real service, both killed at random moments: nothing lost, all in order."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_server.outbox.cloudevents import CloudEvent
from forewarn_sinks import nats_sink
from forewarn_sinks.nats_sink import NatsOptions, NatsSink
from sinks_tests.brokers import Broker, Kafka, Nats
from tests.api.live import SETTINGS
from tests.outbox.rig import Life, delivering, is_complete
from tests.waiting import wait_until

SEED = 20261123
ROUNDS = 5
#: Longest wait for a broker that has come back, on a slow machine.
DELIVERED_S_MAX = 120


@pytest.fixture(params=[Nats, Kafka], ids=["nats", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker of its own."""
    made = request.param(tmp_path)
    try:
        made.prepare()
        yield made
    finally:
        made.kill()


@pytest.mark.slow
def test_nothing_is_lost_or_out_of_order(broker: Broker, tmp_path: Path) -> None:
    """Service and broker killed at random: each VM's transitions arrive in order. Source: L-7."""
    chance = random.Random(SEED)
    tables = {"broker": broker.options}
    settings = delivering(tables, SETTINGS, store=f"sqlite://{tmp_path}/f.db")
    life = Life(settings)
    life.fleet()
    down = False
    for _ in range(ROUNDS):
        for _ in range(chance.randrange(3, 9)):
            host = chance.choice(("h1", "h2"))
            life.call("POST", f"/v1/hosts/{host}/{chance.choice(('reboot', 'update'))}", {})
            for each in life.call("GET", "/v1/operations?state=planned&limit=1")["operations"]:
                life.call("POST", f"/v1/operations/{each['id']}/cancel", {})
        if chance.random() < 0.5:
            (broker.start if down else broker.kill)()
            down = not down
        if chance.random() < 0.6:
            life.kill()
            life = Life(settings)
    if down:
        broker.start()
    end = life.last()
    life.call("POST", "/v1/outbox/broker/retry", {})

    def caught_up() -> bool:
        return not life.call("GET", "/v1/outbox")["destinations"][0]["behind"]

    try:
        wait_until(caught_up, what="the broker to have everything", limit_s=DELIVERED_S_MAX)
    finally:
        life.kill()
    assert end > 40
    events = broker.events()
    assert is_complete([int(each["sequence"]) for each in events], end)
    seen: dict[str, int] = {}
    for each in {each["id"]: each for each in reversed(events)}.values():
        for vm in (each["data"].get("operation") or {}).get("vms", ()):
            seen[vm] = seen.get(vm, 0) + 1
    assert set(seen) == {"web-0", "web-1", "db-0"}


def test_stream_drops_repetitions_and_keeps_equal_numbers_of_two_services(tmp_path: Path) -> None:
    """An event is what its source and its id name, as in CloudEvents. Source: L-7."""
    broker = Nats(tmp_path)
    try:
        broker.prepare()
        sink = nats_sink.create("broker", NatsOptions(kind="nats", servers=broker.servers))
        events: list[CloudEvent] = [
            {"source": source, "id": number, "type": "forewarn.host.failed"}
            for source in ("/one", "/two", "/one")
            for number in ("7", "8")
        ]
        asyncio.run(_sent(sink, events))
        kept = [(each["source"], each["id"]) for each in broker.events()]
    finally:
        broker.kill()
    assert kept == [("/one", "7"), ("/one", "8"), ("/two", "7"), ("/two", "8")], kept


async def _sent(sink: NatsSink, events: list[CloudEvent]) -> None:
    await sink.open()
    await sink.send(events)
    await sink.close()
