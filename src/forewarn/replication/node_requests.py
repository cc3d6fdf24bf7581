"""Restricts a node's requests to the VMs on its hosts.

If a VM has moved after an approval at the node, the approval is forwarded with the node's hosts.
The control plane decides on the requests. Source: M-3, M-5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from forewarn.replication.messages import (
    ApprovalRequest,
    FeedControlPlane,
    RequestAnswer,
    VmPoll,
)
from forewarn.replication.scopes import ScopedFeed, Scopes


class NodeRequests:
    """The `Upstream` of one node's session."""

    def __init__(
        self,
        upstream: FeedControlPlane,
        scopes: Scopes,
        *,
        feed: ScopedFeed,
        on_lie: Callable[[str], None],
    ) -> None:
        """Forward the requests of the VMs in `feed`; `on_lie` receives refused requests."""
        self._upstream = upstream
        self._scopes = scopes
        self._feed = feed
        self._on_lie = on_lie

    def approve(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Forward an approval of a VM on the node's hosts, or of a VM that was there.

        Source: M-3, M-5.
        """
        if self._feed.serves(self._scopes.state.callers.get(request.vm)):
            return self._upstream.approve(request)
        asked = self._upstream.approve(request, node_hosts=self._feed.hosts or ())
        asked.add_done_callback(partial(self._judged, request.vm))
        return asked

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of a VM on the node's hosts."""
        if self._serves(vm, "enable the group of"):
            return self._upstream.enable(vm)
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.cancel()
        return refused

    def outcome(self, vm: str, event_id: str) -> asyncio.Future[RequestAnswer]:
        """Look up the outcome of an event of a VM on the node's hosts."""
        if self._serves(vm, "show an outcome to"):
            return self._upstream.outcome(vm, event_id)
        refused: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        refused.cancel()
        return refused

    def polled(self, groups: frozenset[str], age_ms: int = 0) -> None:
        """Record polls of groups with VMs on the node's hosts."""
        own = frozenset(group for group in groups if self._scopes.shows_group(self._feed, group))
        foreign = groups - own - self._feed.former.keys()
        if foreign:
            self._lied("poll for group", min(foreign))
        if own:
            self._upstream.polled(own, age_ms)

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Record the last polls of VMs on the node's hosts."""
        callers = self._scopes.state.callers
        own = [each for each in polls if self._feed.serves(callers.get(each.vm))]
        if own:
            self._upstream.vms_polled(own)

    def _judged(self, vm: str, done: asyncio.Future[RequestAnswer]) -> None:
        refused = not done.cancelled() and not done.exception() and not done.result().accepted
        if refused and vm not in self._feed.former:
            self._lied("approve for vm", vm)

    def _serves(self, vm: str, what: str) -> bool:
        if self._feed.serves(self._scopes.state.callers.get(vm)):
            return True
        if vm not in self._feed.former:
            self._lied(f"{what} vm", vm)
        return False

    def _lied(self, what: str, name: str) -> None:
        node = self._feed.name
        self._on_lie(
            f"metadata node {node} asked to {what} {name[:80]}, which is not on the node's hosts"
        )
