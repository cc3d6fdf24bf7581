"""When Python looks for garbage: never while a store is loaded, and never twice at what lives on.

Nearly all records die when nobody refers to them any more; the collector is there for the rest,
objects that refer to one another in a circle. It stops every thread while it looks.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Collections of a generation after which the next older one is looked at. A whole one then sees
#: some 10,000 objects, each of them once whatever these numbers are; with Python's own, 10, it saw
#: 50,000 of a wave of work, 8 to 16 ms in which nobody was answered.
YOUNG_MAX, MIDDLE_MAX = 5, 1
#: Generation of a collection that looks at everything it may look at.
_WHOLE = 2


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage while records are made: there is none, and they are looked at often."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze_garbage() -> None:
    """Take everything made so far out of the collector's sight, and so from now on.

    For processes, once started. What a whole collection has kept is in use, and most of
    it is the fleet, modules and connections, which stay: it is not looked at again. A fleet of
    20,000 hosts that came after the start stopped every request for a tenth of a second else,
    every few seconds. A circle among what stays is freed only where its own code opens it; ours
    does, as connections do when they close.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], YOUNG_MAX, MIDDLE_MAX)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, collection: Mapping[str, int]) -> None:
    if phase == "stop" and collection["generation"] == _WHOLE:
        gc.freeze()
