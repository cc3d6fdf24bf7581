"""Limits of time as they are by default: no program gives up while another may still answer."""

import asyncio
import re
import threading
from pathlib import Path

import forewarn
from forewarn.agent.http_exchange import DescriptorPoll
from forewarn.agent.poller import APPROVAL_MS, FIRST_ANSWER_MS, Poller
from forewarn.agent.sdk.client_steps import PATIENCE_S, WAIT_S
from forewarn.agent.sdk.dialogue import Dialogue
from forewarn.agent.settings import DEFAULTS
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import MetadataSettings, OperatorSettings
from forewarn_server.api import fleet_watch, watch
from forewarn_server.cli import api_client
from tests.agent.service import Service
from tests.waiting import LIMIT_S

PAGE = Path(api_client.__file__).parents[1] / "web" / "api.js"


def test_client_waits_longer_than_it_lets_the_service_hold() -> None:
    """By default: an answer held for the whole time is an answer, not a timeout. Source: E-9."""
    with Service() as service, forewarn.Client(service.endpoint) as client:
        changes = client.changes()
        next(changes)
        threading.Thread(target=next, args=(changes, None), daemon=True).start()
        service.until(lambda: f"wait={WAIT_S:g}" in service.requests[-1], "the held poll")
        assert client._socket is not None
        limit_s = client._socket.gettimeout() or 0.0
        assert limit_s > WAIT_S, f"gives up after {limit_s} s, and lets the service hold {WAIT_S}"


def test_async_client_waits_longer_than_it_lets_the_service_hold() -> None:
    """The same for the other client. Source: E-9."""

    async def limit_of_held_poll(service: Service) -> float:
        client = forewarn.AsyncClient(service.endpoint)
        changes = client.changes()
        await anext(changes)
        follower = asyncio.ensure_future(anext(changes, None))
        held = f"wait={WAIT_S:g}"
        await asyncio.to_thread(service.until, lambda: held in service.requests[-1])
        assert client._limit is not None
        limit_s = (client._limit.when() or 0.0) - asyncio.get_running_loop().time()
        await client.close()
        await follower
        return limit_s

    with Service() as service:
        limit_s = asyncio.run(limit_of_held_poll(service))
    assert limit_s > WAIT_S, f"gives up after {limit_s} s, and lets the service hold {WAIT_S}"


def test_agent_waits_longer_than_it_lets_the_service_hold() -> None:
    """The agent's poll has as much time as the service may take, and some more. Source: E-9."""
    wait_s, now_ms = float(str(DEFAULTS["wait_s"])), SystemClock().now_ms()
    with Service() as service:
        dialogue = Dialogue((service.endpoint,), wait_s=wait_s)
        agent = Poller(dialogue, Ids(1), interval_s=1.0)
        agent.begin(now_ms)
        while not agent.polls:
            answer = DescriptorPoll()
            answer.watch(agent.poll_line.fd, write=agent.poll_line.wants_write)
            assert answer.wait(LIMIT_S), "no answer to the first poll"
            agent.poll_ready(now_ms)
        agent.begin(now_ms)
        limit_ms = agent.next_ms() - now_ms
        agent.poll_line.close()
    assert limit_ms > wait_s * 1000, f"gives up after {limit_ms} ms, service holds {wait_s} s"


def test_first_answers_and_approvals_may_take_as_long_as_the_service_takes() -> None:
    """Enabling takes up to two minutes, an approval until it is durable. Source: B-1, C-1, A-6."""
    service = MetadataSettings()
    assert service.enable_timeout_s * 1000 < FIRST_ANSWER_MS
    assert service.enable_timeout_s < PATIENCE_S
    assert service.approve_timeout_s * 1000 < APPROVAL_MS
    assert service.wait_timeout_s >= WAIT_S, "a client's wait would be shortened"


def test_command_line_and_page_wait_longer_than_the_service_is_silent() -> None:
    """A slow answer arrives, and a stream without news is not taken for a dead one. Source: F-4."""
    [page_s] = re.findall(r"^const SILENCE_S_MAX = (\d+);", PAGE.read_text(), re.MULTILINE)
    assert OperatorSettings().answer_timeout_s < api_client.ANSWER_TIMEOUT_S
    assert api_client.SILENCE_S_MAX > 2 * watch.SILENCE_S_MAX
    assert float(page_s) > 2 * fleet_watch.SILENCE_S_MAX
