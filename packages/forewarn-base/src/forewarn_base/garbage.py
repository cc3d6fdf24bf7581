"""Limits garbage collection: none while a store loads, and only once for long-lived objects.

Nearly all records are freed by their reference count. The collector is needed only for reference
cycles, and it stops every thread.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: Collections of a generation before the next older one is collected. A full collection then
#: examines some 10,000 objects. With Python's default, 10, a full collection examined 50,000
#: objects in a wave of work, which delayed all answers by 8 to 16 ms.
YOUNG_MAX, MIDDLE_MAX = 5, 1
#: The oldest generation, whose collection examines everything.
_WHOLE = 2


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable collection while records are loaded, because records form no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze_garbage() -> None:
    """Exempt all current objects from collection, and repeat this after each full collection.

    Call it in started processes. Most objects that survive a full collection are the fleet, modules
    and connections. These stay in use and are not examined again. Otherwise a
    fleet of 20,000 hosts, added after the start, stopped every request for a tenth of a second
    every few seconds. A cycle among exempt objects is freed only if code breaks the cycle, as our
    connections do on closing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], YOUNG_MAX, MIDDLE_MAX)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, collection: Mapping[str, int]) -> None:
    if phase == "stop" and collection["generation"] == _WHOLE:
        gc.freeze()
