"""Where the planes meet: what is published is shown everywhere, or it is said where not."""

import asyncio
from collections.abc import Collection
from typing import cast

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication.messages import DocumentChange, Publication, PublishResult
from forewarn_server.control.run_loop import ControlLoop
from forewarn_server.service.bridge import Bridge
from tests.metadata.live import FREEZE, VM_A
from tests.waiting import LIMIT_S

#: Nothing is asked of the control plane here.
NOBODY = cast("ControlLoop", None)

FIRST = DocumentChange(
    1, whole=True, callers=(VM_A,), publications=(Publication("g", True, Document()),)
)
SECOND = DocumentChange(2, publications=(Publication("g", True, Document(1, (FREEZE,))),))
THIRD = DocumentChange(3, gone=("nobody",))
EVERYTHING = DocumentChange(3, whole=True, callers=FIRST.callers, publications=SECOND.publications)
FOURTH = DocumentChange(4, gone=("nobody",))


class ShowingNode:
    """A node of the service's own process that fails at some changes."""

    def __init__(self, *failing: int) -> None:
        self.shown: list[DocumentChange] = []
        self._failing = failing

    def apply(self, change: DocumentChange) -> None:
        """Show a change, or fail."""
        if change.sequence in self._failing:
            raise ValueError("a bug")
        self.shown.append(change)

    def group_of(self, vm: str) -> str:  # noqa: ARG002
        """Know nobody."""
        return ""

    def note_polls(self, polls: object) -> None:
        """Forget them."""


class SilentNodes:
    """Nodes in other processes, of which some never confirm."""

    def __init__(self, *silent: str) -> None:
        self.sent: list[DocumentChange] = []
        self._silent = silent

    def apply(self, change: DocumentChange) -> frozenset[str] | None:
        """Send a change."""
        self.sent.append(change)
        return None

    def hosts_of(self, names: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Serve every VM."""
        return ()

    def confirmed(
        self,
        sequence: int,  # noqa: ARG002
        wait_s: float,  # noqa: ARG002
        names: Collection[str] | None = None,  # noqa: ARG002
    ) -> asyncio.Future[tuple[str, ...]]:
        """Say who does not show it."""
        done: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        done.set_result(self._silent)
        return done


async def published(bridge: Bridge, change: DocumentChange) -> PublishResult:
    """Publish a change and return what became of it."""
    return await asyncio.wait_for(asyncio.wrap_future(bridge.publish(change)), LIMIT_S)


def test_nodes_that_do_not_confirm_are_named() -> None:
    """Whoever begins afterwards knows which nodes do not show it. Source: M-4, L-7."""

    async def story() -> None:
        bridge = Bridge(asyncio.get_running_loop())
        far = SilentNodes("worker 1")
        bridge.connect(NOBODY, ShowingNode(), far=far, wait_s=0)
        assert await published(bridge, FIRST) == PublishResult(("worker 1",))
        assert far.sent == [FIRST]

    asyncio.run(story())


def test_publication_fails_where_the_own_node_does() -> None:
    """An exception there is nobody's secret; then it is shown nothing but everything. L-7."""

    async def story() -> None:
        bridge = Bridge(asyncio.get_running_loop())
        own, far = ShowingNode(2), SilentNodes()
        bridge.connect(NOBODY, own, far=far)
        await published(bridge, FIRST)
        with pytest.raises(ValueError, match="a bug"):
            await published(bridge, SECOND)
        with pytest.raises(RuntimeError, match="an earlier change"):
            await published(bridge, THIRD)
        assert await published(bridge, EVERYTHING) == PublishResult()
        assert await published(bridge, FOURTH) == PublishResult()
        assert far.sent == [FIRST, SECOND, EVERYTHING, FOURTH]
        assert own.shown == [FIRST, EVERYTHING, FOURTH]

    asyncio.run(story())
