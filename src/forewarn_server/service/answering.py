"""Decides whether VMs and metadata nodes are answered: only while this process may be the newest.

Use it on the event loop, unless a method says otherwise. Source: H-3, H-10.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn_metadata.endpoint.fault import Outdated
from forewarn_metadata.endpoint.responder import BUSY

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn_server.service.bridge import Bridge
    from forewarn_server.service.parts import ActiveParts, FollowerParts


class Answering:
    """Suspends the answers of a process while another process may have newer documents."""

    def __init__(
        self,
        bridge: Bridge,
        parts: Callable[[], FollowerParts | ActiveParts | None],
        *,
        serves_vms: Callable[[], bool],
    ) -> None:
        """Answer at first.

        `parts` returns the parts in use, and `serves_vms` whether VMs are answered while the lease
        is held, and refused otherwise.
        """
        self._bridge = bridge
        self._parts = parts
        self._serves_vms = serves_vms
        #: Whether VMs have seen documents that the store has lost.
        self.outdated = False

    def take_lapse(self, lapsed: bool) -> None:  # noqa: FBT001 - as the keeper calls it
        """Follow the lease: it has lapsed, or is held again; on any thread."""
        self._bridge.call(partial(self.show_lapse, lapsed=lapsed))

    def show_lapse(self, *, lapsed: bool) -> None:
        """Report no freshness while another process may hold the lease. Source: H-3."""
        parts = self._parts()
        if self.outdated or parts is None:
            return
        if parts.feed is not None:
            parts.feed.suspend(suspended=lapsed)
        if self._serves_vms():
            parts.metadata.service.set_fault(Outdated(BUSY) if lapsed else None)

    def refuse_for_good(self) -> None:
        """Answer no VM and no node again: they have seen newer documents; on any thread. H-10."""
        self._bridge.call(self._refuse)

    def _refuse(self) -> None:
        self.outdated = True
        parts = self._parts()
        assert parts is not None, "the active process has its parts"
        parts.metadata.service.set_fault(Outdated(BUSY))
        if parts.feed is not None:
            parts.feed.suspend(suspended=True)
