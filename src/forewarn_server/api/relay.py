"""Relays a follower's reports and its VMs' requests to the active process.

A follower serves the feed from its own state. The follower reports the confirmations of its nodes,
and the polls and approvals of VMs, to the active process. The reports use a path of the operator
API for processes of the same store. A process authenticates with the lease's token, which it reads
from the store. Source: H-4, L-7, M-3, M-4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.ids import Ids
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.collected_polls import CollectedPolls
from forewarn_metadata.replication.http_stream import HttpBroken
from forewarn_metadata.replication.messages import (
    FeedUnreadable,
    PollReport,
    RelayAnswer,
    Relayed,
    RelayedReport,
    RelayedRequests,
    Upstream,
    read_relay_answer,
    read_relayed,
)
from forewarn_metadata.replication.server import FeedServer
from forewarn_server.api.connections import ADMIT
from forewarn_server.api.responses import body_of, encoded
from forewarn_server.api.standby import BODY_BYTES_MAX, ActiveProcess, StandingBy, proves_relay

log = logging.getLogger("forewarn")

RELAY_PATH = "/v1/relay"
#: Maximum number of calls with VMs' requests at a time, of requests in a call, and of requests that
#: wait.
RELAYED_MAX, BATCH_MAX, WAITING_MAX = 16, 500, 10_000
#: Maximum number of polls that wait for the next report; further polls are dropped.
POLLS_MAX = 100_000
#: Maximum interval between a follower's reports, and delay of a retry, in seconds.
REPORT_S, AGAIN_S = 1.0, 0.2
#: Time limit of attempts to forward a VM's request, in seconds; afterwards the VM or its node
#: repeats the request.
TRIED_S = 3.0
#: Time limit of a report, and of a call with requests, which may wait for a slow disk, in seconds.
CALL_S, ANSWERED_S = 3.0, 6.0
#: Time of failing reports after which the feed closes, in seconds; longer than a takeover.
SILENT_S_MAX = 10.0


class RelayRefused(ConnectionError):
    """The active process refused a call."""

    def __init__(self, status: int) -> None:
        """`status` is the HTTP status of the answer."""
        super().__init__(f"the active process answered {status}")


class RelayEndpoint:
    """The active process's side of the relay; an ASGI application."""

    def __init__(
        self,
        upstream: Upstream,
        feed: Callable[[], FeedServer | None],
        generation: Callable[[], int],
        *,
        token: Callable[[], str],
    ) -> None:
        """Forward a follower's reports and requests to the parts of this process.

        Args:
            upstream: receives the requests of VMs.
            feed: returns the receiver of reports.
            generation: returns the number of the last commit.
            token: returns the token of this process's lease; empty: this process is not active.
        """
        self._upstream = upstream
        self._feed = feed
        self._generation = generation
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a follower."""
        if not proves_relay(dict(scope["headers"]), self._token()):
            await Response(status_code=403)(scope, receive, send)
            return
        scope.get("state", {}).get(ADMIT, lambda: None)()
        try:
            relayed = read_relayed(await body_of(receive, BODY_BYTES_MAX))
            answer = await self._act(relayed)
        except ClientDisconnect:
            return
        except (FeedUnreadable, CallerError):
            await Response(status_code=400)(scope, receive, send)
        except ForewarnError:
            await Response(status_code=503)(scope, receive, send)
        else:
            await Response(encoded(answer))(scope, receive, send)

    async def _act(self, relayed: Relayed) -> RelayAnswer:
        if isinstance(relayed, RelayedRequests):
            answers = await asyncio.gather(*map(self._result, relayed.requests))
            return RelayAnswer(self._generation(), answers=tuple(answers))
        for report in relayed.polls:
            self._upstream.tell(report)
        feed = self._feed()
        complete = feed is None or feed.take_report(relayed.nodes)
        return RelayAnswer(self._generation(), known=complete)

    async def _result(self, request: Request) -> RequestAnswer | int:
        """Return the result of one of several requests; a number: the status of a refusal."""
        try:
            return await self._upstream.ask(request)
        except CallerError:
            return 400
        except ForewarnError:
            return 503


class Relay:
    """A follower's side of the relay: the upstream of its nodes. Use it on one event loop."""

    def __init__(self, active: ActiveProcess) -> None:
        """Report to the active process."""
        self._active = active
        self._process = Ids().token("follower")
        #: Requests that no call has taken, with their results.
        self._requests: deque[tuple[Request, asyncio.Future[RequestAnswer]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Future[RequestAnswer]] = set()
        self._polls = CollectedPolls(POLLS_MAX)
        self._dirty = asyncio.Event()
        self._begins = True
        self._heard_s = float("-inf")
        self._feed: FeedServer | None = None
        self._task: asyncio.Task[None] | None = None
        #: Receives the waiting reports once this process is active.
        self.successor: Upstream | None = None

    def start(self, feed: FeedServer) -> None:
        """Start reporting on the nodes of a feed."""
        self._feed = feed
        feed.when_reportable(self._dirty.set)
        self._task = asyncio.create_task(self._report(feed))

    async def stop(self, successor: Upstream | None = None) -> None:
        """Stop reporting; the successor receives the waiting reports."""
        self.successor = successor
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._feed is not None:
            self._feed.when_reportable(lambda: None)
        if successor is not None:
            for report in self._polls.take().reports():
                successor.tell(report)

    @property
    def silent(self) -> bool:
        """Return whether the active process has accepted no report for too long, or never."""
        return asyncio.get_running_loop().time() - self._heard_s > SILENT_S_MAX

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Ask the active process; return once this process shows the effect. B-1, M-3."""
        task = asyncio.create_task(self._answer(request))
        if len(self._waiting) >= WAITING_MAX:
            task.cancel()
            return task
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task

    def tell(self, report: PollReport) -> None:
        """Add polls to the next report, which may omit VMs' polls. Source: B-2, B-5."""
        self._polls.add(report)

    async def _answer(self, request: Request) -> RequestAnswer:
        """Return the answer once the feed shows its effect.

        Raises:
            StandingBy: no active process has answered in time.
        """
        loop = asyncio.get_running_loop()
        until_s, reason = loop.time() + TRIED_S, ""
        while self.successor is None:
            try:
                return await self._queue(request)
            except (OSError, EOFError, HttpBroken, FeedUnreadable) as error:
                reason = f": {error}"
            if loop.time() > until_s:
                raise StandingBy(reason=reason)
            await asyncio.sleep(AGAIN_S)
        return await self.successor.ask(request)

    def _queue(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Send a request with others that wait."""
        reply: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        self._requests.append((request, reply))
        if len(self._senders) < RELAYED_MAX:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return reply

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        while self._requests:
            count = min(BATCH_MAX, len(self._requests))
            batch = [self._requests.popleft() for _ in range(count)]
            futures = [future for _, future in batch]
            try:
                answer = await self._call(RelayedRequests(tuple(each for each, _ in batch)))
                await self._await_shown(answer.generation)
            except (OSError, EOFError, HttpBroken, FeedUnreadable) as error:
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
                continue
            for future, result in zip(futures, answer.answers, strict=True):
                if future.done():
                    continue
                if isinstance(result, int):
                    future.set_exception(RelayRefused(result))
                else:
                    future.set_result(result)

    async def _await_shown(self, generation: int) -> None:
        """Wait until the feed shows a commit; it is durable, so not for long."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TRIED_S
        while self._feed and self._feed.generation < generation and self.successor is None:
            if loop.time() > until_s:
                break
            await asyncio.sleep(0.005)

    async def _report(self, feed: FeedServer) -> None:
        """Send reports after changes, and at an interval."""
        loop, trouble = asyncio.get_running_loop(), ""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._dirty.wait()
            self._dirty.clear()
            polls = self._polls.take()
            report = feed.report(self._process, begins=self._begins)
            try:
                answer = await self._call(RelayedReport(report, polls.reports()))
            except (OSError, EOFError, HttpBroken, FeedUnreadable) as error:
                self._begins = True
                self._polls.put_back(polls)
                if trouble != str(error):
                    trouble = str(error)
                    text = "the active process does not accept reports of metadata nodes: %s"
                    log.info(text, trouble, extra={"action": "relay.failed"})
                await asyncio.sleep(AGAIN_S)
            else:
                self._heard_s, trouble = loop.time(), ""
                self._begins = not answer.known
                if self._begins:
                    self._dirty.set()

    async def _call(self, relayed: Relayed) -> RelayAnswer:
        async with asyncio.timeout(CALL_S if isinstance(relayed, RelayedReport) else ANSWERED_S):
            stream = await self._active.connect()
            try:
                headers = dict((self._active.proof(),))
                response = await stream.exchange("POST", RELAY_PATH, headers, body=encoded(relayed))
            finally:
                stream.close()
        if response.status != 200:
            raise RelayRefused(response.status)
        return read_relay_answer(response.body)
