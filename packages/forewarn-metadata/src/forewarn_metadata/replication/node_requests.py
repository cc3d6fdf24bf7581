"""Restricts a node's requests to the VMs on its hosts.

If a VM has moved after an approval at the node, the approval is forwarded with the node's hosts.
The control plane decides on the requests. Source: M-3, M-5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from forewarn_core.requests import ApprovalRequest, OutcomeRequest, Request, RequestAnswer
from forewarn_metadata.replication.messages import PollReport, Upstream
from forewarn_metadata.replication.scopes import ScopedFeed, Scopes


class NodeRequests:
    """The `Upstream` of one node."""

    def __init__(
        self,
        upstream: Upstream,
        scopes: Scopes,
        *,
        feed: ScopedFeed,
        on_misuse: Callable[[str], None],
    ) -> None:
        """Forward the requests of the VMs in `feed`; `on_misuse` receives refused requests."""
        self._upstream = upstream
        self._scopes = scopes
        self._feed = feed
        self._on_misuse = on_misuse

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Forward a request of a VM on the node's hosts, or the approval of a VM that was there.

        Source: M-3, M-5.
        """
        is_here = self._feed.serves(self._scopes.state.callers.get(request.vm))
        if isinstance(request, ApprovalRequest):
            hosts = () if is_here else tuple(sorted(self._feed.hosts))
            reply = self._upstream.ask(request.from_hosts(hosts))
            if hosts:
                reply.add_done_callback(partial(self._check_refusal, request.vm))
            return reply
        if is_here:
            return self._upstream.ask(request)
        if request.vm not in self._feed.former:
            is_look_up = isinstance(request, OutcomeRequest)
            what = "show an outcome to" if is_look_up else "enable the group of"
            self._report_misuse(f"{what} vm", request.vm)
        refused: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        refused.cancel()
        return refused

    def tell(self, report: PollReport) -> None:
        """Record polls of VMs, and of groups with VMs, on the node's hosts."""
        callers, feed = self._scopes.state.callers, self._feed
        own = {
            group: age_ms
            for group, age_ms in report.groups.items()
            if self._scopes.shows_group(feed, group)
        }
        foreign = report.groups.keys() - own.keys() - feed.former.keys()
        if foreign:
            self._report_misuse("poll for group", min(foreign))
        vms = tuple(each for each in report.vms if feed.serves(callers.get(each.vm)))
        if own or vms:
            self._upstream.tell(PollReport(own, vms))

    def _check_refusal(self, vm: str, done: asyncio.Future[RequestAnswer]) -> None:
        """Report a refused approval of a VM that was never on the node's hosts."""
        refused = not done.cancelled() and not done.exception() and not done.result().accepted
        if refused and vm not in self._feed.former:
            self._report_misuse("approve for vm", vm)

    def _report_misuse(self, what: str, name: str) -> None:
        node = self._feed.name
        self._on_misuse(
            f"metadata node {node} asked to {what} {name[:80]}, which is not on the node's hosts"
        )
