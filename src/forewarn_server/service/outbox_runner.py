"""Runs the outbox of a service, which starts later if the store cannot be written."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forewarn_base.errors import PeerError
from forewarn_server.service.operators import imported

if TYPE_CHECKING:
    from forewarn_base.clock import Clock
    from forewarn_core.fleet.step import StepResult
    from forewarn_server.control.readable import CommitListeners
    from forewarn_server.outbox.delivery import SubmitLink
    from forewarn_server.outbox.outbox import Outbox
    from forewarn_server.service.configured import ConfiguredParts
    from forewarn_store import Store

log = logging.getLogger("forewarn")

#: Interval of attempts to start the outbox while the store cannot be written, in seconds.
AGAIN_S = 5.0


class OutboxRunner:
    """Delivers transitions to the configured destinations. Use it on one event loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        configured: ConfiguredParts,
        *,
        on_committed: CommitListeners,
        submit: SubmitLink,
    ) -> None:
        """Start nothing."""
        self._store = store
        self._clock = clock
        self._configured = configured
        self._on_committed = on_committed
        self._submit = submit
        self._listens = False
        #: The running outbox; None: there is no destination, or it starts later.
        self.outbox: Outbox | None = None
        self._due: asyncio.TimerHandle | None = None
        self._starting: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start delivering, later if the store cannot be written now."""
        if not self._configured.destinations:
            return
        if not self._listens:
            self._listens = True
            self._on_committed.add(self._grew)
        (module,) = await imported("forewarn_server.outbox.outbox")
        try:
            outbox: Outbox = await asyncio.to_thread(
                module.Outbox,
                self._store,
                self._configured.destinations,
                self._clock,
                submit=self._submit,
            )
        except PeerError as error:
            text = "the outbox starts later: %s"
            log.warning(text, error, extra={"action": "outbox.waits"})
            self._due = asyncio.get_running_loop().call_later(AGAIN_S, self._start_again)
            return
        self.outbox = outbox
        outbox.start()

    async def restart(self) -> None:
        """Deliver to the current destinations; each continues at its cursor."""
        before, self.outbox = self.outbox, None
        if before is not None:
            await asyncio.to_thread(before.stop)
        await self.start()

    def _grew(self, _: StepResult) -> None:
        """Deliver the entries of a commit; on the run loop's thread."""
        if self.outbox is not None:
            self.outbox.grew()

    async def stop(self) -> None:
        """Stop delivering."""
        if self._due is not None:
            self._due.cancel()
        if self.outbox is not None:
            await asyncio.to_thread(self.outbox.stop)

    def _start_again(self) -> None:
        self._starting = asyncio.ensure_future(self.start())
