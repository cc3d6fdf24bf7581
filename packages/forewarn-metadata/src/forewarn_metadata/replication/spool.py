"""Stores approvals that a node accepts while the control plane is unreachable.

The node stores an accepted approval on its disk, and delivers the approvals in order once it
follows the feed again. Repeated deliveries count once. The control plane decides whether an
approval is in time. Source: M-3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from forewarn_base.errors import ForewarnError
from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_core.requests import ApprovalRequest, Request, RequestAnswer
from forewarn_metadata.replication.feed_client import FeedClient
from forewarn_metadata.replication.messages import FeedUnreadable, PollReport, encoded, read_spooled
from forewarn_metadata.replication.node_files import NodeFiles

#: Name of the file in the node's directory.
FILE = "approvals"

#: Pause before the repetition of a failed delivery.
RETRY_S = 1.0

_LOG = logging.getLogger("forewarn.replication.spool")


class Spool:
    """The `Upstream` of a node that may accept approvals without the control plane."""

    def __init__(self, feed_client: FeedClient, files: NodeFiles, *, size_max: int) -> None:
        """Read the stored approvals; call on the event loop."""
        self._feed_client = feed_client
        self._files = files
        self._size_max = size_max
        self._waiting: dict[bytes, ApprovalRequest] = {}
        self._under_way: dict[asyncio.Future[RequestAnswer], ApprovalRequest] = {}
        self._arrived = asyncio.Event()
        self._load()
        feed_client.when_lost(self.take_over)
        self._task = asyncio.get_running_loop().create_task(self._deliver())

    @property
    def waiting(self) -> int:
        """Return the number of undelivered approvals."""
        return len(self._waiting)

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Forward a request; accept an approval here while the control plane is unreachable.

        M-3, A-6.
        """
        if not isinstance(request, ApprovalRequest):
            return self._feed_client.ask(request)
        reply: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        if not self._feed_client.followed.is_set():
            self._accept(request, reply)
            return reply
        forwarded = self._feed_client.ask(request)
        self._under_way[reply] = request
        forwarded.add_done_callback(lambda done: self._answered(done, reply))
        reply.add_done_callback(lambda _: forwarded.cancel())
        return reply

    def tell(self, report: PollReport) -> None:
        """Forward polls. Source: B-2, B-5."""
        self._feed_client.tell(report)

    async def stop(self) -> None:
        """Stop delivering; waiting approvals stay stored."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._feed_client.when_lost(None)

    def _answered(
        self, forwarded: asyncio.Future[RequestAnswer], reply: asyncio.Future[RequestAnswer]
    ) -> None:
        self._under_way.pop(reply, None)
        if reply.done():
            return
        error = None if forwarded.cancelled() else forwarded.exception()
        if error is not None:
            reply.set_exception(error)
        elif not forwarded.cancelled():
            reply.set_result(forwarded.result())

    def take_over(self) -> None:
        """Accept forwarded but unanswered approvals after the loss of the feed. Source: M-3."""
        under_way, self._under_way = self._under_way, {}
        for reply, request in under_way.items():
            if not reply.done():
                self._accept(request, reply)

    def _accept(self, request: ApprovalRequest, reply: asyncio.Future[RequestAnswer]) -> None:
        """Store an approval durably, and then answer it."""
        unknown = self._unknown(request)
        if unknown:
            error = str(UnknownEvent(event_id=unknown[0]))
            reply.set_result(RequestAnswer(accepted=False, error=error))
            return
        line = encoded(request) + b"\n"
        if line not in self._waiting:
            reason = f"{self._size_max} wait already"
            if len(self._waiting) < self._size_max:
                reason = self._append(line)
            if reason:
                text, facts = "an approval of %s cannot be stored: %s", {"action": "spool.failed"}
                _LOG.error(text, request.vm, reason, extra=facts)
                reply.cancel()
                return
            self._waiting[line] = request
            self._arrived.set()
            text, facts = (
                "an approval of %s is stored until the control plane is reachable",
                {"action": "spool.kept"},
            )
            _LOG.info(text, request.vm, extra=facts)
        reply.set_result(RequestAnswer(accepted=True))

    def _unknown(self, request: ApprovalRequest) -> list[str]:
        """Return the events among these that the VM's document does not contain.

        Source: A-3, M-5.
        """
        state = self._feed_client.state
        caller = state.callers.get(request.vm)
        shown = state.publications.get(caller.view) if caller else None
        ids = {event.event_id.upper() for event in shown.document.events} if shown else set()
        return [event_id for event_id in request.event_ids if event_id not in ids]

    def _append(self, line: bytes) -> str:
        """Write a line durably; return the reason of a failure, or an empty text."""
        try:
            self._files.append(FILE, (line,))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _load(self) -> None:
        """Read the stored approvals; ignore an incomplete last line, which was never answered.

        A killed process may have written a line without syncing it. The file is synced now, because
        a repeated request is answered immediately as durable.
        """
        whole = 0
        with contextlib.suppress(FileNotFoundError):
            for line in self._files.lines(FILE):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                try:
                    self._waiting[line] = read_spooled(line)
                except FeedUnreadable:
                    text = "a line of %s in %s is damaged: one approval is lost"
                    facts = {"action": "spool.damaged"}
                    _LOG.error(text, FILE, self._files.place, extra=facts)
            self._files.shorten(FILE, whole)
        if self._waiting:
            self._arrived.set()

    async def _deliver(self) -> None:
        """Deliver stored approvals one after the other, while the feed is connected."""
        while True:
            await self._arrived.wait()
            await self._feed_client.followed.wait()
            line, request = next(iter(self._waiting.items()))
            try:
                reply = await self._feed_client.ask(request)
            except (ForewarnError, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                    raise
                # A failed delivery must not delay the other approvals.
                self._waiting[line] = self._waiting.pop(line)
                await asyncio.sleep(RETRY_S)
                continue
            text, facts = (
                "the stored approval of %s was delivered: %s",
                {"action": "spool.delivered"},
            )
            _LOG.info(text, request.vm, reply.error or "it counts", extra=facts)
            del self._waiting[line]
            if not self._waiting:
                self._arrived.clear()
                with contextlib.suppress(OSError):
                    self._files.shorten(FILE, 0)
