"""Calls that block, awaited: each on a thread that does not keep the process from ending.

The event loop's own threads are waited for at the end of the process, however long a far side
hangs. Nothing is sent from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def blocking(work: Callable[[], T]) -> T:
    """Return what a call returns; it goes on in the background if nobody waits any more."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="outbox call", daemon=True).start()
    return await answer
