"""What the garbage collector looks at: in a process of its own, since it is one for all."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, weakref
from forewarn.garbage import freeze_garbage

class Circle:
    def __init__(self):
        self.itself = self

freeze_garbage()
fleet = [[number] for number in range(100_000)]
gc.collect()  # looks at the fleet, once
left = len(gc.get_objects())
old = weakref.ref(Circle())
before = old() is not None
gc.collect()
print(json.dumps({"left": left, "before": before, "after": old() is not None}))
"""


def test_what_has_survived_is_not_looked_at_again_and_new_circles_are_freed() -> None:
    """A fleet that comes after the start stops requests once, not every few seconds."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    found = json.loads(ended.stdout)
    assert found["left"] < 1000, "the fleet is still looked at"
    assert found["before"], "the circle is there until somebody looks"
    assert not found["after"], "what is new is still collected"


GROWING = """
import gc
from forewarn.garbage import freeze_garbage

seen = []

def note(phase, collection):
    if phase == "start" and collection["generation"] == 2:
        seen.append(len(gc.get_objects()))

freeze_garbage()
gc.callbacks.append(note)
work = [[number] for number in range(200_000)]
print(max(seen))
"""


def test_collections_while_much_is_made_are_short() -> None:
    """A wave of work makes hundreds of thousands of records; none is looked at with many others."""
    ended = subprocess.run(
        [sys.executable, "-c", GROWING], check=True, capture_output=True, text=True, timeout=60
    )
    assert 0 < int(ended.stdout) < 20_000
