"""A follower relays requests of VMs that wait together in one call. Source: H-4, M-3."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from forewarn_core.requests import ApprovalRequest, Request, RequestAnswer
from forewarn_metadata.replication.messages import PollReport
from forewarn_server.api.relay import RELAYED_MAX, Relay, RelayEndpoint
from forewarn_server.api.standby import ActiveProcess, StandingBy

TOKEN = "of the lease"
VMS = [f"v{number}" for number in range(300)]


class Inbox:
    """Answers approvals once all that are expected have arrived, as a slow commit does."""

    def __init__(self, expected: int) -> None:
        """Refuse nobody."""
        self.approved: list[str] = []
        self.refused: set[str] = set()
        self._expected, self._complete = expected, asyncio.Event()

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Answer once all have arrived."""
        return asyncio.ensure_future(self._answer(request.vm))

    async def _answer(self, vm: str) -> RequestAnswer:
        self.approved.append(vm)
        if len(self.approved) >= self._expected:
            self._complete.set()
        await self._complete.wait()
        if vm in self.refused:
            self.refused.discard(vm)
            raise StandingBy(reason="its disk is full")
        return RequestAnswer(accepted=True, error=vm)

    def tell(self, report: PollReport) -> None:
        """Nobody polls."""


class Active:
    """An active process that counts calls."""

    def __init__(self, inbox: Inbox) -> None:
        """Serve the relay."""
        self.calls = 0
        self._endpoint = RelayEndpoint(inbox, lambda: None, lambda: 1, token=lambda: TOKEN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call."""
        self.calls += 1
        await self._endpoint(scope, receive, send)


@asynccontextmanager
async def relaying(active: Active) -> AsyncIterator[Relay]:
    """Run the active process and the follower's side."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(active, lifespan="off", log_config=None))
    serving = asyncio.create_task(server._serve([listener]))
    port = listener.getsockname()[1]
    relay = Relay(ActiveProcess(lambda: f"http://127.0.0.1:{port}", lambda: TOKEN))
    yield relay
    await relay.stop()
    server.should_exit = True
    await serving


async def rush(relay: Relay) -> list[RequestAnswer | BaseException]:
    """Have every VM approve at once."""
    requests = [ApprovalRequest(vm, ("E",), "10.0.0.1") for vm in VMS]
    return await asyncio.gather(*map(relay.ask, requests), return_exceptions=True)


def played(story: Coroutine[object, object, None]) -> None:
    """Run a story to its end."""
    asyncio.run(asyncio.wait_for(story, 60))


def test_requests_that_wait_together_share_a_call() -> None:
    """None waits for the answer of an earlier one, and each has its own result."""

    async def story() -> None:
        inbox = Inbox(len(VMS))
        active = Active(inbox)
        async with relaying(active) as relay:
            answers = await rush(relay)
        assert answers == [RequestAnswer(accepted=True, error=vm) for vm in VMS]
        assert active.calls <= RELAYED_MAX

    played(story())


def test_one_refused_request_leaves_the_others_of_its_call() -> None:
    """It is asked for again alone, because the others are durable."""

    async def story() -> None:
        inbox = Inbox(len(VMS))
        inbox.refused = {VMS[-1]}
        async with relaying(Active(inbox)) as relay:
            answers = await rush(relay)
        assert answers == [RequestAnswer(accepted=True, error=vm) for vm in VMS]
        assert sorted(inbox.approved) == sorted([*VMS, VMS[-1]])

    played(story())
