"""How the processes of a world that runs the product's shells reach each other.

The service's process has the product's bridge. A node away from it has its approvals handed to
that bridge while nothing cuts it off; its changes come as in every other world.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from forewarn.service.bridge import Bridge
from forewarn.simulator.world.shell_node import ShellNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forewarn.control.engine import ControlEngine
    from forewarn.replication.messages import (
        ApprovalAnswer,
        ApprovalRequest,
        DocumentChange,
        PublishResult,
        Upstream,
    )
    from forewarn.settings import MetadataSettings
    from forewarn.simulator.world.control_process import SimulatedControl
    from forewarn.simulator.world.event_queue import EventQueue


class OwnNode(ShellNode):
    """The node in the service's process, and the bridge beside it."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        show: Callable[[ShellNode, DocumentChange], None],
        polled: Callable[[frozenset[str]], None],
    ) -> None:
        """Begin with nothing to show; `show` brings a change to it, under everybody's eyes."""
        self._show_seen = show
        self._polled_seen = polled
        super().__init__(name, settings, service, queue=queue, new_upstream=self._new_bridge)

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Publish over the bridge; done before the next thing happens."""
        return self.loop.run(self.bridge.publish, change)

    def _new_bridge(self, _: ShellNode) -> Upstream:
        bridge = self.bridge = Bridge(self.loop)
        bridge.connect(cast("ControlEngine", self.service), _Shown(self, self._show_seen))
        bridge.on_polled = self._polled_seen
        return bridge


class _Shown:
    """The node as its bridge sees it."""

    def __init__(self, node: ShellNode, show: Callable[[ShellNode, DocumentChange], None]) -> None:
        """Bring changes to this node."""
        self._node = node
        self._show = show

    def apply(self, change: DocumentChange) -> None:
        """Show what this change says."""
        self._show(self._node, change)


class FarUpstream:
    """The control plane as a node on another machine reaches it, or does not."""

    def __init__(self, node: ShellNode, own: Callable[[], OwnNode]) -> None:
        """Reach the service's own node's process."""
        self._node = node
        self._own = own

    def approve(self, request: ApprovalRequest) -> asyncio.Future[ApprovalAnswer]:
        """Hand an approval on."""
        return self._ask(lambda own: own.bridge.approve(request))

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Have a group enabled."""
        return self._ask(lambda own: own.bridge.enable(vm))

    def polled(self, groups: frozenset[str]) -> None:
        """Hand poll marks on."""
        own = self._own()
        if self._node.connected and own.serves:
            own.loop.run(own.bridge.polled, groups)

    def _ask(self, ask: Callable[[OwnNode], asyncio.Future[Any]]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._node.loop.create_future()
        own = self._own()
        if self._node.connected and own.serves:
            asked = own.loop.run(ask, own)
            own.loop.run(asked.add_done_callback, partial(self._answered, answer))
        return answer

    def _answered(self, answer: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        if answer.done() or not self._node.connected:
            return
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        else:
            answer.set_exception(error)
