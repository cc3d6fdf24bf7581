"""A metadata node away from the control plane: follows its part of the feed by HTTP long polls.

Theory of operation. The node asks one of several control planes for its part, with the tag of the
part that it shows. The answer is a new part with its tag (200), or nothing new (304). The node
makes a new part durable, shows it, and asks again; the tag of that next request confirms the part.
A control plane that fails, refuses, or knows older information is left for the next address, after
a random pause in the time that the control plane has stated. Requests and reports of VMs are POSTs
to the same address. Source: M-1, M-4, H-3, H-5.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from forewarn_base.errors import OurError, PeerError
from forewarn_base.host_port import host_and_port
from forewarn_base.ids import Ids
from forewarn_base.values import value
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.collected_polls import CollectedPolls
from forewarn_metadata.replication.feed_state import FeedState
from forewarn_metadata.replication.feed_tag import FeedTag, read_tag
from forewarn_metadata.replication.http_stream import HttpAnswer, HttpBroken, HttpStream, Streams
from forewarn_metadata.replication.messages import (
    PART_BYTES_MAX,
    DocumentChange,
    FeedUnreadable,
    NodePart,
    PollReport,
    encoded,
    read_answer,
    read_part,
)
from forewarn_metadata.replication.node_failures import NodeFailures
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_metadata.replication.pace import CLOCK, INSTANCE, PACE, SEQUENCE, FeedPace, read_pace
from forewarn_metadata.replication.scopes import digest_of

#: Maximum number of requests that wait for an answer or for a lost feed.
PENDING_MAX = 10_000

#: Maximum number of requests of a node under way at a time.
ASKING_MAX = 16

#: Pause before a node asks again after a failure; the pause doubles up to the maximum, or to the
#: time that the control plane has stated for returns.
RETRY_S, RETRY_S_MAX = 0.2, 3.0

#: Time limit of a connection attempt with its handshake, and of an answer beyond the requested
#: wait, in seconds. What takes too long doubles the limit of the next one, and an answer in time
#: halves it, so that work for a rush of nodes is not given up shortly before its end.
PATIENCE_S, PATIENCE_S_MAX = 4.0, 30.0

#: Time limit of a report of polls, in seconds.
REPORTED_S_MAX = 5.0

#: Time limit for the answer to a VM's request, after which the node asks again.
ASK_S_MAX = 10.0

#: Maximum delay of an answer until the node shows the changes before it, in seconds.
SHOWN_S_MAX = 3.0

#: Age of a control plane's information in seconds at which a node leaves it. Source: H-3.
AGE_S_MAX = 10

#: Maximum number of VMs' last polls that wait for the next report; further polls are dropped.
VM_POLLS_MAX = 10_000

_LOG = logging.getLogger("forewarn.replication.feed_client")

Connect: TypeAlias = Callable[[str, ssl.SSLContext | None], Awaitable[Streams]]


class FeedLost(OurError):
    """A request could not be sent to the control plane."""

    code = "feed-lost"
    status = 503
    message = "The control plane cannot be reached."
    advice = "Repeat the request after a moment."


class ChangeNotShown(OurError):
    """A metadata node failed at a change."""

    code = "change-not-shown"
    message = "A metadata node could not show change {sequence}."
    advice = "The log contains the reason. The node requests everything again. Report this bug."


class FeedOlder(PeerError):
    """A control plane lacks changes that the node has already received."""

    code = "feed-older"
    message = (
        "The feed at {address} is at change {sequence}, but this node already shows change {shown}."
    )
    advice = (
        "Another control plane may be the writer now. If its store was restored from a backup, "
        "run `forewarn store restore --in-place` there."
    )


class FeedRefused(PeerError):
    """The control plane does not serve this node."""

    code = "feed-refused"
    message = "The control plane does not serve this node: {reason}"
    advice = (
        "Check this node's name, its certificate or token, and [feed] hosts of the control plane."
    )


@value
class NodeIdentity:
    """The node's identity, and the files that verify the other end."""

    name: str = "node"
    #: Hosts whose VMs the node serves; empty: all permitted hosts.
    hosts: tuple[str, ...] = ()
    token: str = ""
    #: TLS files; None: the address is reachable only from this machine.
    tls: ssl.SSLContext | None = None


async def connect(address: str, tls: ssl.SSLContext | None = None) -> Streams:
    """Open a stream to `HOST:PORT`."""
    host, port = host_and_port(address)
    return await asyncio.open_connection(host, port, ssl=tls)


@value
class FeedRoute:
    """The route to a feed."""

    connect: Connect = connect
    #: Random numbers that distribute requests over time.
    ids: Ids = field(default_factory=Ids)


class _Pending(NamedTuple):
    key: str
    body: bytes
    reply: asyncio.Future[RequestAnswer]


class FeedClient:
    """A node's end of the feed; the node's `Upstream`."""

    def __init__(
        self,
        address: str,
        apply: Callable[[DocumentChange], None],
        *,
        identity: NodeIdentity | None = None,
        store: NodeStore | None = None,
        route: FeedRoute | None = None,
    ) -> None:
        """Follow the feed at `HOST:PORT`, or at one of several addresses, separated by commas."""
        self._route = route or FeedRoute()
        self._addresses = [each.strip() for each in address.split(",")]
        self._apply = apply
        self._identity = identity or NodeIdentity()
        self._instance = self._route.ids.token("instance")
        self._store = store
        #: What the node shows.
        self.state = FeedState()
        #: Tag of the part that the node shows; without an epoch, the node trusts no part.
        self._tag = FeedTag()
        #: What the control plane stated last.
        self._pace = FeedPace()
        #: The control plane's clock in its last answer, and when the answer came.
        self._clock_s: tuple[str, float] | None = None
        self._patience_s = PATIENCE_S
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._pending: dict[str, _Pending] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._idle: list[HttpStream] = []
        #: Answers that wait until the node shows the changes before them.
        self._late: list[tuple[int, _Pending, RequestAnswer, asyncio.TimerHandle]] = []
        self._polls = CollectedPolls(VM_POLLS_MAX)
        self._reported_s = float("-inf")
        self._report: asyncio.TimerHandle | None = None
        self._reporting: asyncio.Task[None] | None = None
        #: Set while the node follows a control plane and is up to date.
        self.followed = asyncio.Event()
        self._on_lost: Callable[[], None] = _nothing
        self.failures = NodeFailures(self._route.ids)
        self.failed = self.failures.failed

    @property
    def address(self) -> str:
        """The address that the node follows or tries, until it fails. Source: H-5."""
        return self._addresses[0]

    @property
    def sequence(self) -> int:
        """Return the number of the last shown change; 0: no change."""
        return self._tag.sequence

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """Call a function when a followed feed is lost; None: no function."""
        self._on_lost = call or _nothing

    def take_up(self) -> bool:
        """Show the stored documents before `start`; return whether the store has documents. M-2."""
        assert self._store is not None
        kept = self._store.load()
        if kept is None:
            return False
        self._tag, part = kept
        self._show_part(part, self._tag.sequence, whole=True)
        return True

    def start(self) -> None:
        """Start following, without waiting for an answer."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following; unanswered requests fail."""
        tasks = [each for each in (self._task, self._reporting, *self._asking) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._report is not None:
            self._report.cancel()
        self.failures.stop()
        for *_, timer in self._late:
            timer.cancel()
        for pending in tuple(self._pending.values()):
            if not pending.reply.done():
                pending.reply.set_exception(FeedLost())
                pending.reply.exception()  # the caller may have stopped waiting
        self._close_idle()

    # Requests and reports of VMs.

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Forward a request, after a return if the feed is lost. Source: A-6, B-1, X-1."""
        reply: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= PENDING_MAX:
            reply.set_exception(FeedLost())
            return reply
        self._number += 1
        key = f"{self._instance}-{self._number}"
        self._pending[key] = _Pending(key, encoded(request), reply)
        # A caller that stopped waiting has asked its client to retry. The request may still be
        # sent, because repeated approvals count once.
        reply.add_done_callback(lambda _: self._pending.pop(key, None))
        self._send_pending()
        return reply

    def tell(self, report: PollReport) -> None:
        """Report polls at the stated rate; collect them while the feed is lost. B-2, B-5."""
        # A VM that continues to poll is in the next report.
        self._polls.add(report if self.followed.is_set() else PollReport(report.groups))
        self._plan_report()

    def _send_pending(self) -> None:
        """Send waiting requests while the control plane is followed."""
        if not self.followed.is_set():
            return
        free = ASKING_MAX - len(self._asking)
        names = {task.get_name() for task in self._asking} if free > 0 else set()
        for key in tuple(self._pending)[: ASKING_MAX + 1]:
            if free <= 0:
                return
            if key not in names:
                task = asyncio.get_running_loop().create_task(self._ask(key), name=key)
                self._asking.add(task)
                task.add_done_callback(self._task_ended)
                free -= 1

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.result()
            self._send_pending()

    async def _ask(self, key: str) -> None:
        """Send one request until it is answered, or the feed is lost."""
        while self.followed.is_set() and (pending := self._pending.get(key)) is not None:
            try:
                response = await self._post(pending.body, key, ASK_S_MAX)
            except (OSError, EOFError, HttpBroken):
                await asyncio.sleep(RETRY_S * (1 + self._route.ids.fraction("retry")))
                continue
            if response.status in {429, 503}:  # another control plane may answer
                await asyncio.sleep(RETRY_S * (1 + self._route.ids.fraction("retry")))
                continue
            self._settle(pending, response)
            return

    def _settle(self, pending: _Pending, response: HttpAnswer) -> None:
        """Return an answer once the node shows the changes before it. Source: A-6."""
        try:
            result = read_answer(response.body) if response.status == 200 else None
        except FeedUnreadable:
            result = None
        self._pending.pop(pending.key, None)
        if pending.reply.done():
            return
        if result is None:
            pending.reply.set_exception(FeedLost())
            return
        stated = response.headers.get(SEQUENCE, "")[:18]
        sequence = int(stated) if stated.isdecimal() else 0
        if sequence <= self._tag.sequence:
            pending.reply.set_result(result)
            return
        later = asyncio.get_running_loop().call_later
        timer = later(SHOWN_S_MAX, self._answer_late, sequence)  # the result is durable anyway
        self._late.append((sequence, pending, result, timer))

    def _answer_late(self, sequence: int) -> None:
        """Return the answers whose earlier changes are shown."""
        waiting, self._late = self._late, []
        for each in waiting:
            due, pending, result, timer = each
            if due > sequence:
                self._late.append(each)
            else:
                timer.cancel()
                if not pending.reply.done():
                    pending.reply.set_result(result)

    def _plan_report(self) -> None:
        if self._report is None and self._reporting is None and self.followed.is_set():
            loop = asyncio.get_running_loop()
            due_s = max(loop.time(), self._reported_s + self._pace.report_s)
            self._report = loop.call_at(due_s, self._begin_report)

    def _begin_report(self) -> None:
        self._report = None
        if self.followed.is_set():
            task = self._reporting = asyncio.get_running_loop().create_task(self._send_report())
            task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._reporting = None
        if not task.cancelled():
            task.result()
            if self._polls:
                self._plan_report()

    async def _send_report(self) -> None:
        while self._polls and self.followed.is_set():
            self._reported_s = asyncio.get_running_loop().time()
            polls = self._polls.take()
            if not await self._sent(polls.reports()):
                self._polls.put_back(polls)
                return

    async def _sent(self, reports: tuple[PollReport, ...]) -> bool:
        """Send reports; return whether the control plane has taken all of them."""
        for report in reports:
            try:
                response = await self._post(encoded(report), "", REPORTED_S_MAX)
            except (OSError, EOFError, HttpBroken):
                return False
            if response.status in {429, 503}:
                return False
        return True

    async def _post(self, body: bytes, key: str, limit_s: float) -> HttpAnswer:
        """Send a POST, on a kept connection if possible; its key makes a repetition harmless."""
        headers = {**self._headers(), "Forewarn-Clock": self._clock()}
        if key:
            headers["Idempotency-Key"] = key
        target = self._target()
        async with asyncio.timeout(limit_s):
            while self._idle:
                stream = self._idle.pop()
                with contextlib.suppress(OSError, EOFError):
                    return self._keep(
                        stream, await stream.exchange("POST", target, headers, body=body)
                    )
            stream = await self._connected()
            return self._keep(stream, await stream.exchange("POST", target, headers, body=body))

    def _keep(self, stream: HttpStream, response: HttpAnswer) -> HttpAnswer:
        if stream.usable and len(self._idle) < ASKING_MAX:
            self._idle.append(stream)
        else:
            stream.close()
        return response

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # The feed.

    async def _follow(self) -> None:
        pause_s, trouble = RETRY_S, ""
        while True:
            loss_s = 0.0
            try:
                await self._follow_address()
            except (
                OSError,
                EOFError,
                PeerError,
                ValueError,
            ) as error:
                if isinstance(error, TimeoutError):
                    self._patience_s = min(2 * self._patience_s, PATIENCE_S_MAX)
                reason = str(error) or "the control plane does not answer"
                if reason != trouble:
                    trouble = reason
                    facts = {"action": "feed-lost"}
                    text = "The feed at %s cannot be followed: %s."
                    _LOG.warning(text, self.address, reason.removesuffix("."), extra=facts)
            except Exception:  # noqa: BLE001 - a node that stops following shows old news for ever
                self._tag = FeedTag()
                self.failures.note()
            finally:
                self._addresses.append(self._addresses.pop(0))
                self._close_idle()
                if self.followed.is_set():
                    pause_s, trouble, loss_s = RETRY_S, "", self._pace.return_s
                    self.followed.clear()
                    self._on_lost()
            # Nodes return at different times, and try each address at least once per longest pause.
            share = (1 + self._route.ids.fraction("retry")) / 2 / len(self._addresses)
            spread_s = loss_s * self._route.ids.fraction("return")
            await asyncio.sleep(pause_s * share + spread_s)
            pause_s = min(pause_s * 2, max(RETRY_S_MAX, self._pace.return_s))

    async def _follow_address(self) -> None:
        """Ask one control plane again and again, until it fails."""
        stream, wait_s = await self._connected(), 0.0
        try:
            while True:
                if not stream.usable:
                    stream = await self._connected()
                async with asyncio.timeout(wait_s + self._patience_s):
                    response = await stream.exchange("GET", self._target(wait_s), self._headers())
                self._take(response)
                self._patience_s = max(self._patience_s / 2, PATIENCE_S)
                wait_s = self._pace.wait_s
        finally:
            stream.close()

    async def _connected(self) -> HttpStream:
        address = self.address
        async with asyncio.timeout(self._patience_s):
            streams = await self._route.connect(address, self._identity.tls)
        return HttpStream(streams, address, PART_BYTES_MAX)

    def _take(self, response: HttpAnswer) -> None:
        """Show a new part.

        Raises:
            FeedRefused, FeedOlder, FeedUnreadable: another control plane must be asked.
            ChangeNotShown: the node failed because of a bug.
        """
        if response.status not in {200, 304}:
            raise FeedRefused(reason=_reason_of(response))
        age = response.headers.get("age", "0")
        if not age.isdecimal() or int(age[:9]) > AGE_S_MAX:
            raise FeedRefused(reason=f"its information is {age[:9]} s old.")
        self._pace = read_pace(response.headers.get(PACE, ""))
        self._clock_s = response.headers.get(CLOCK, ""), asyncio.get_running_loop().time()
        tag = read_tag(response.headers.get("etag", ""))
        if response.status == 200:
            self._take_part(tag, response.body)
        elif tag.epoch and tag.digest == self._tag.digest:
            self._tag = tag
        self._answer_late(self._tag.sequence)
        if not self.followed.is_set():
            facts = {"action": "feed-followed"}
            text = "%s follows the feed at %s, up to change %d"
            _LOG.info(text, self._identity.name, self.address, self._tag.sequence, extra=facts)
            self.followed.set()
            self._send_pending()
            self._plan_report()

    def _take_part(self, tag: FeedTag, body: bytes) -> None:
        shows = self._tag
        if not tag.epoch or digest_of(body) != tag.digest:
            raise FeedUnreadable(reason="the part differs from its tag")
        if tag.epoch == shows.epoch and tag.sequence < shows.sequence:
            raise FeedOlder(address=self.address, sequence=tag.sequence, shown=shows.sequence)
        part = read_part(body)
        # Until the part is shown, the node trusts nothing that it shows.
        self._tag = FeedTag()
        try:
            if self._store is not None:
                self._store.keep(tag, body)
            self._show_part(part, tag.sequence, whole=shows.epoch != tag.epoch)
        except Exception as error:
            raise ChangeNotShown(sequence=tag.sequence) from error
        self._tag = tag

    def _show_part(self, part: NodePart, sequence: int, *, whole: bool) -> None:
        if not whole:
            self._show(self.state.difference(part, sequence))
            return
        self._show(
            DocumentChange(sequence, whole=True, callers=part.vms, publications=part.documents)
        )

    def _show(self, change: DocumentChange) -> None:
        self._apply(change)
        self.state.apply(change)

    @property
    def _path(self) -> str:
        return f"/feed/{quote(self._identity.name, safe='')}"

    def _target(self, wait_s: float = 0.0) -> str:
        """Return the target of a request, which always states the node's hosts. Source: M-5."""
        hosts = quote(",".join(self._identity.hosts), safe=",")
        return f"{self._path}?wait={wait_s:g}" + (f"&hosts={hosts}" if hosts else "")

    def _headers(self) -> dict[str, str]:
        headers = {INSTANCE: self._instance}
        if self._identity.token:
            headers["Authorization"] = f"Bearer {self._identity.token}"
        if self._tag.epoch:
            headers["If-None-Match"] = self._tag.text()
        return headers

    def _clock(self) -> str:
        """Return the control plane's clock now, at most; it bounds the time of a report's way."""
        if self._clock_s is None or not self._clock_s[0]:
            return ""
        text, heard_s = self._clock_s
        process, _, clock_ms = text.rpartition(".")
        passed_ms = int((asyncio.get_running_loop().time() - heard_s) * 1000)
        return f"{process}.{int(clock_ms) + passed_ms}" if clock_ms.isdecimal() else ""


def _nothing() -> None:
    """Do nothing."""


def _reason_of(response: HttpAnswer) -> str:
    """Return the sentence of a refusal, or the beginning of a proxy's answer."""
    try:
        error = json.loads(response.body)["error"]
        return str(error["message"])[:500]
    except (ValueError, TypeError, KeyError):
        return f"{response.status} {response.body[:200].decode('utf-8', 'replace').strip()}."
