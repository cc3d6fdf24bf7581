"""Relays a follower's reports and its VMs' requests to the active process.

A follower serves the feed from its own state. The follower reports the confirmations of its nodes,
and the polls and approvals of VMs, to the active process. The reports use a path of the operator
API for processes of the same store. Requests that wait together share a call, and so a commit of
the active process. A process authenticates with the lease's token, which it reads
from the store. Source: H-4, L-7, M-3, M-4.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forewarn.api.connections import ADMIT
from forewarn.api.responses import encoded
from forewarn.api.standby import LEASE_HEADER, StandingBy, proves_relay, read_forwarded
from forewarn.errors import CallerError, ForewarnError
from forewarn.http_client import new_connection
from forewarn.ids import Ids
from forewarn.replication.messages import (
    ApprovalRequest,
    FeedControlPlane,
    FeedUnreadable,
    RelayAnswer,
    Relayed,
    RelayedApproval,
    RelayedEnable,
    RelayedReport,
    RelayedRequest,
    RelayedRequests,
    RequestAnswer,
    VmPoll,
    read_relay_answer,
    read_relayed,
)
from forewarn.replication.server import FeedServer

T = TypeVar("T")

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
        self.status = status


class RelayEndpoint:
    """The active process's side of the relay; an ASGI application."""

    def __init__(
        self,
        upstream: FeedControlPlane,
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
            relayed = read_relayed(await read_forwarded(receive))
            answer = await self._act(relayed)
        except (FeedUnreadable, CallerError):
            await Response(status_code=400)(scope, receive, send)
        except ForewarnError:
            await Response(status_code=503)(scope, receive, send)
        else:
            await Response(encoded(answer))(scope, receive, send)

    async def _act(self, relayed: Relayed) -> RelayAnswer:
        if isinstance(relayed, RelayedReport):
            for groups, age_ms in relayed.polled:
                self._upstream.polled(frozenset(groups), age_ms)
            if relayed.polls:
                self._upstream.vms_polled(relayed.polls)
            feed = self._feed()
            known = feed is None or feed.take_report(relayed.nodes)
            return RelayAnswer(self._generation(), known=known)
        if isinstance(relayed, RelayedRequests):
            answers = await asyncio.gather(*map(self._own_result, relayed.requests))
            return RelayAnswer(self._generation(), answers=tuple(answers))
        answer = await self._take(relayed)
        return RelayAnswer(self._generation(), answer=answer)

    async def _own_result(self, request: RelayedRequest) -> RequestAnswer | int | None:
        """Return the result of one of several requests; a number: the status of a refusal."""
        try:
            return await self._take(request)
        except CallerError:
            return 400
        except ForewarnError:
            return 503

    async def _take(self, request: RelayedRequest) -> RequestAnswer | None:
        if isinstance(request, RelayedApproval):
            return await self._upstream.approve(request.request, node_hosts=request.node_hosts)
        await self._upstream.enable(request.vm)
        return None


class Relay:
    """A follower's side of the relay: the upstream of its nodes. Use it on one event loop."""

    def __init__(self, url: Callable[[], str], token: Callable[[], str], ca_file: str = "") -> None:
        """Report to the active process.

        `url` returns its URL, and `token` the token of its lease.
        """
        self._url = url
        self._token = token
        self._ca_file = ca_file
        self._threads = ThreadPoolExecutor(RELAYED_MAX + 1, "relay")
        self._process = Ids().token("follower")
        #: Requests that no call has taken, with their results.
        self._requests: deque[tuple[RelayedRequest, asyncio.Future[RelayAnswer]]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        #: URL of an active process of an earlier version, which takes single requests only.
        self._takes_single = ""
        self._waiting: set[asyncio.Future[Any]] = set()
        self._polled: dict[str, float] = {}
        self._polls: list[VmPoll] = []
        self._dirty = asyncio.Event()
        self._begins = True
        self._heard_s = float("-inf")
        self._feed: FeedServer | None = None
        self._task: asyncio.Task[None] | None = None
        #: Receives the waiting reports once this process is active.
        self.successor: FeedControlPlane | None = None

    def start(self, feed: FeedServer) -> None:
        """Start reporting on the nodes of a feed."""
        self._feed = feed
        feed.on_reportable = self._dirty.set
        self._task = asyncio.create_task(self._report(feed))

    async def stop(self, successor: FeedControlPlane | None = None) -> None:
        """Stop reporting; the successor receives the waiting reports."""
        self.successor = successor
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._feed is not None:
            self._feed.on_reportable = lambda: None
        if successor is not None and self._polled:
            now_s = asyncio.get_running_loop().time()
            for group, at_s in self._polled.items():
                successor.polled(frozenset((group,)), int((now_s - at_s) * 1000))
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def silent(self) -> bool:
        """Return whether the active process has accepted no report for too long, or never."""
        return asyncio.get_running_loop().time() - self._heard_s > SILENT_S_MAX

    def approve(
        self, request: ApprovalRequest, *, node_hosts: Collection[str] = ()
    ) -> asyncio.Future[RequestAnswer]:
        """Approve events at the active process; return once this process shows the result."""

        async def approve() -> RequestAnswer:
            relayed = RelayedApproval(request, tuple(sorted(node_hosts)))
            answer = await self._asked(relayed)
            if answer is None:
                assert self.successor is not None
                return await self.successor.approve(request, node_hosts=node_hosts)
            assert answer.answer is not None
            return answer.answer

        return self._begin(approve())

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of a VM at the active process. Source: B-1."""

        async def enable() -> None:
            if await self._asked(RelayedEnable(vm)) is None:
                assert self.successor is not None
                await self.successor.enable(vm)

        return self._begin(enable())

    def polled(self, groups: Collection[str], age_ms: int = 0) -> None:
        """Add polls of groups to the next report. Source: B-2."""
        at_s = asyncio.get_running_loop().time() - age_ms / 1000
        for group in groups:
            self._polled[group] = max(self._polled.get(group, 0.0), at_s)

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Add the last polls of VMs to the next report, which may omit some polls. Source: B-5."""
        self._polls += polls[: POLLS_MAX - len(self._polls)]

    def _begin(self, asking: Coroutine[object, object, T]) -> asyncio.Future[T]:
        task = asyncio.create_task(asking)
        if len(self._waiting) >= WAITING_MAX:
            task.cancel()
            return task
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task

    async def _asked(self, relayed: RelayedRequest) -> RelayAnswer | None:
        """Return the answer once the feed shows its effect; None if the successor must answer.

        Raises: StandingBy: no active process has answered in time.
        """
        loop = asyncio.get_running_loop()
        until_s, reason = loop.time() + TRIED_S, ""
        while self.successor is None:
            try:
                answer = await self._answer(relayed)
            except (OSError, http.client.HTTPException, FeedUnreadable, RuntimeError) as error:
                reason = f": {error}"
            else:
                return answer
            if loop.time() > until_s:
                raise StandingBy(reason=reason)
            await asyncio.sleep(AGAIN_S)
        return None

    def _answer(self, request: RelayedRequest) -> asyncio.Future[RelayAnswer]:
        """Send a request with others that wait."""
        answer: asyncio.Future[RelayAnswer] = asyncio.get_running_loop().create_future()
        self._requests.append((request, answer))
        if len(self._senders) < RELAYED_MAX:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return answer

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        while self._requests:
            url = self._url()
            count = min(1 if url == self._takes_single else BATCH_MAX, len(self._requests))
            batch = [self._requests.popleft() for _ in range(count)]
            requests = tuple(request for request, _ in batch)
            try:
                answer = await self._call(requests[0] if count == 1 else RelayedRequests(requests))
                await self._shown(answer.generation)
                results = (answer.answer,) if count == 1 else answer.answers
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():
                        continue
                    if isinstance(result, int):
                        future.set_exception(RelayRefused(result))
                    else:
                        future.set_result(RelayAnswer(answer.generation, answer=result))
            except (OSError, http.client.HTTPException, FeedUnreadable, RuntimeError) as error:
                if isinstance(error, RelayRefused) and error.status == 400 and count > 1:
                    self._takes_single = url
                    self._requests.extendleft(reversed(batch))
                    continue
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)

    async def _shown(self, generation: int) -> None:
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
            polled, polls = self._polled, self._polls
            self._polled, self._polls = {}, []
            report = feed.report(self._process, begins=self._begins)
            by_age: dict[int, list[str]] = {}
            for group, at_s in polled.items():
                by_age.setdefault(int((loop.time() - at_s) * 1000), []).append(group)
            marks = tuple((tuple(groups), age_ms) for age_ms, groups in by_age.items())
            try:
                answer = await self._call(RelayedReport(report, marks, tuple(polls)))
            except (OSError, http.client.HTTPException, FeedUnreadable) as error:
                self._begins, self._polled = True, polled | self._polled
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
        url, token = self._url(), self._token()
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._threads, self._post, url, token, relayed)

    def _post(self, url: str, token: str, relayed: Relayed) -> RelayAnswer:
        if not url:
            raise ConnectionError("no process is active")
        limit_s = CALL_S if isinstance(relayed, RelayedReport) else ANSWERED_S
        connection = new_connection(url, self._ca_file, timeout_s=limit_s)
        try:
            headers = {LEASE_HEADER.decode(): token, "Content-Type": "application/json"}
            connection.request("POST", RELAY_PATH, encoded(relayed), headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != http.client.OK:
                raise RelayRefused(answer.status)
            return read_relay_answer(text)
        finally:
            connection.close()
