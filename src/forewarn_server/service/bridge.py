"""Passes changes and approvals between the control plane's thread and the metadata event loop.

The two planes never import each other. No function here may block either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from forewarn_base.errors import CallerError
from forewarn_core.fleet.stimulus import Enable, GroupsPolled
from forewarn_core.requests import ApprovalRequest, OutcomeRequest, RequestAnswer
from forewarn_metadata.replication.messages import PublishResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from forewarn_core.fleet.step import StepResult
    from forewarn_core.requests import Request
    from forewarn_metadata.replication.messages import DocumentChange, PollReport, VmPoll
    from forewarn_server.api.relay import Relay
    from forewarn_server.control.run_loop import ControlLoop


log = logging.getLogger("forewarn")


class LocalNode(Protocol):
    """The metadata node of this process, on the event loop."""

    def apply(self, change: DocumentChange) -> None:
        """Show a changed document."""

    def group_of(self, vm: str) -> str:
        """Return the group of a VM; empty if the VM does not exist."""

    def note_polls(self, polls: Sequence[VmPoll]) -> None:
        """Record when VMs last polled any of the nodes."""


class RemoteNodes(Protocol):
    """Metadata nodes in other processes; nodes confirm each change that they show."""

    def apply(self, change: DocumentChange) -> frozenset[str] | None:
        """Send a change to the nodes concerned; return their names, or None for all nodes."""

    def confirmed(
        self, sequence: int, wait_s: float, names: Collection[str] | None = None
    ) -> asyncio.Future[tuple[str, ...]]:
        """Wait until these nodes show the change; at the time limit return the missing nodes."""

    def hosts_of(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the hosts that these nodes serve; empty if a node serves every VM."""


#: How long work waits until nodes in other processes show it, in seconds. History names the nodes
#: that work did not wait for. Source: M-4.
NODES_WAIT_S_MAX = 10.0

#: Maximum concurrent look-ups of outcomes; further look-ups get 503.
LOOKUPS_MAX = 64

#: Maximum nodes named in one line of the log.
NAMED_MAX = 20


class Bridge:
    """Publishes changes for the control loop, and answers requests of the metadata plane.

    `publish` is called on the control loop's thread, everything else on the event loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find_outcome: Callable[[str, str], RequestAnswer] | None = None,
    ) -> None:
        """Start without a control plane.

        `find_outcome` returns the outcome of a VM's event, on a thread; None: no outcome is known.
        """
        self._loop = loop
        self._control: ControlLoop | None = None
        self._node: LocalNode | None = None
        #: Forwards requests to the active process while this process follows.
        self._relay: Relay | None = None
        self._far: RemoteNodes | None = None
        self._wait_s = NODES_WAIT_S_MAX
        #: Nodes that did not confirm the last publication in time.
        self._behind: tuple[str, ...] = ()
        #: Whether the node of this process may show a partial change, after a bug.
        self._doubtful = False
        self._find_outcome = find_outcome or _no_outcome
        self._lookups = 0
        self._on_polled: Callable[[frozenset[str], int], None] | None = None

    def connect(
        self,
        control: ControlLoop,
        node: LocalNode,
        *,
        far: RemoteNodes | None = None,
        wait_s: float = NODES_WAIT_S_MAX,
        on_polled: Callable[[frozenset[str], int], None] | None = None,
    ) -> None:
        """Connect the two sides before the control loop starts; `far` has a time limit.

        `on_polled` is called on the event loop once a second with the groups that polled and the
        age of the polls in ms; it must be quick. None: nobody counts them.
        """
        self._control = control
        self._node = node
        self._far = far
        self._wait_s = wait_s
        self._on_polled = on_polled

    def follow(self, node: LocalNode, relay: Relay) -> None:
        """Forward the requests of nodes to another process, until `connect`."""
        self._node = node
        self._relay = relay

    # The control plane's side.

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Send a change to every node; done once all nodes show it, or at the time limit.

        The call fails if the node of this process could not show the change. Then no work may
        begin, and every other change fails until the complete state is published. Source: L-7, M-4.
        """
        shown: Future[PublishResult] = Future()
        try:
            self._loop.call_soon_threadsafe(self._try_show, change, shown)
        except RuntimeError as closed:  # the event loop has ended, so nodes get no change
            shown.set_exception(closed)
        return shown

    def call(self, act: Callable[[], object]) -> None:
        """Schedule an act on the event loop; do nothing if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def _try_show(self, change: DocumentChange, shown: Future[PublishResult]) -> None:
        concerned: frozenset[str] | None = None
        if self._doubtful and not change.whole:
            shown.set_exception(RuntimeError("an earlier change was not shown"))
            return
        try:
            if self._far is not None:  # this node first: after a bug, waiting is useless
                concerned = self._far.apply(change)
            self._show(change)
        except Exception as error:
            self._doubtful = True
            log.exception("showing a change failed because of a bug")
            shown.set_exception(error)
        else:
            self._confirm(change.sequence, concerned, shown)

    def _show(self, change: DocumentChange) -> None:
        assert self._node is not None
        self._node.apply(change)
        self._doubtful = False

    def _confirm(
        self, sequence: int, concerned: frozenset[str] | None, shown: Future[PublishResult]
    ) -> None:
        if self._far is None:
            shown.set_result(PublishResult())
            return
        confirmed = self._far.confirmed(sequence, self._wait_s, concerned)
        confirmed.add_done_callback(lambda done: self._confirmed(done.result(), shown))

    def _confirmed(self, behind: tuple[str, ...], shown: Future[PublishResult]) -> None:
        if behind and behind != self._behind:
            text, facts = "metadata nodes do not show the latest publication: %s", "nodes.behind"
            more = f" and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
            log.warning(text, ", ".join(behind[:NAMED_MAX]) + more, extra={"action": facts})
        self._behind = behind
        hosts = self._far.hosts_of(behind) if self._far and behind else ()
        shown.set_result(PublishResult(behind, hosts))

    # The metadata plane's side: forewarn_metadata.replication.messages.Upstream.

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Answer a request of a VM; an approval once it is durable. Source: A-6, B-1, X-1."""
        if isinstance(request, OutcomeRequest):
            return self._look_up(request)
        if self._control is None:
            assert self._relay is not None
            return self._relay.ask(request)
        reply: asyncio.Future[RequestAnswer] = self._loop.create_future()
        if isinstance(request, ApprovalRequest):
            submission = self._control.submit(request, f"vm {request.vm} at {request.address}")
        else:
            assert self._node is not None
            enabling = Enable(self._node.group_of(request.vm))
            submission = self._control.submit(enabling, f"vm {request.vm}")
        # The answer is set on the event loop, after all earlier publications.
        submission.add_done_callback(lambda done: self.call(lambda: _settle(done, reply)))
        return reply

    def _look_up(self, request: OutcomeRequest) -> asyncio.Future[RequestAnswer]:
        """Look up the outcome of a VM's event, on a thread. Source: X-1."""
        reply: asyncio.Future[RequestAnswer]
        if self._lookups >= LOOKUPS_MAX:
            reply = self._loop.create_future()
            reply.cancel()
            return reply
        self._lookups += 1
        thread = asyncio.to_thread(self._find_outcome, request.vm, request.event_id)
        reply = asyncio.ensure_future(thread)
        reply.add_done_callback(self._looked_up)
        return reply

    def _looked_up(self, _: object) -> None:
        self._lookups -= 1

    def tell(self, report: PollReport) -> None:
        """Record polls of groups, and the last polls of VMs, for lists. Source: B-2, B-5."""
        assert self._node is not None
        if report.vms:
            self._node.note_polls(report.vms)
        if self._control is None:
            assert self._relay is not None
            self._relay.tell(report)
            return
        by_age: dict[int, list[str]] = {}
        for group, age_ms in report.groups.items():
            by_age.setdefault(age_ms, []).append(group)
        for age_ms, groups in by_age.items():
            self._control.note(GroupsPolled(frozenset(groups), age_ms), "metadata")
            if self._on_polled is not None:
                self._on_polled(frozenset(groups), age_ms)


def _no_outcome(_vm: str, _event_id: str) -> RequestAnswer:
    return RequestAnswer(accepted=False)


def _settle(done: Future[StepResult], reply: asyncio.Future[RequestAnswer]) -> None:
    if reply.done():
        return
    error = done.exception()
    if error is None:
        reply.set_result(RequestAnswer(accepted=True))
    elif isinstance(error, CallerError):
        reply.set_result(RequestAnswer(accepted=False, error=str(error)))
    else:
        reply.set_exception(error)
