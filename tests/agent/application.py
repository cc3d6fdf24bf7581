"""An application that handles events by two functions, or coroutines where it is run `async`.

Each notes what it has done as its last act, once however often it is called, as authors are asked
to; that takes a while, so that it can be killed in the middle.
"""

import asyncio
import sys
from pathlib import Path

import forewarn
from forewarn_base.protocol.documents import ScheduledEvent

WORK_S = 0.05
DIRECTORY, ENDPOINT, *WORDS = sys.argv[1:]
ACTS = Path(DIRECTORY, "acts")


def note(act: str) -> None:
    """Write down what was done."""
    acts = ACTS.read_text().splitlines() if ACTS.exists() else []
    if acts[-1:] != [act]:
        with ACTS.open("a") as file:
            file.write(f"{act}\n")


def prepare(event: ScheduledEvent) -> None:
    """Prepare."""
    if not handler.cancelled.wait(WORK_S):
        note(f"prepare {event.event_id}")


def recover(event: ScheduledEvent) -> None:
    """Recover."""
    if not handler.cancelled.wait(WORK_S):
        note(f"recover {event.event_id}")


async def prepare_async(event: ScheduledEvent) -> None:
    """Prepare."""
    await asyncio.to_thread(handler.cancelled.wait, WORK_S)
    note(f"prepare {event.event_id}")


async def recover_async(event: ScheduledEvent) -> None:
    """Recover."""
    await asyncio.to_thread(handler.cancelled.wait, WORK_S)
    note(f"recover {event.event_id}")


async def serve() -> None:
    """Serve until killed."""
    async with handler:
        await asyncio.Event().wait()


functions = (prepare_async, recover_async) if WORDS else (prepare, recover)
handler = forewarn.Handler(*functions, state_dir=f"{DIRECTORY}/state", endpoint=ENDPOINT)
if WORDS:
    asyncio.run(serve())
else:
    handler.run()
