"""A world's history as it is read back from its store: each entry once, and a digest of all.

What an entry means is checked in `invariants.py`.
"""

import hashlib

import msgspec

from forewarn_base.values import replace
from forewarn_core.fleet.history import Rows
from forewarn_core.fleet.state import Entry
from tests.simulator.world.simulated_store import SimulatedStore

_line = msgspec.json.Encoder().encode


class HistoryReader:
    """Reads on where it stopped; a replay of history gets every entry once."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._seq = 0
        self._digest = hashlib.sha256()
        self._unread: list[Entry] = []
        self._rows = Rows()

    def news(self, store: SimulatedStore) -> list[Entry]:
        """Return the entries written since the last call, to be replayed.

        A document's images but the last are left out: a replay has no rule for how it moves,
        which the checker has seen each time, and they are the longest to read.
        """
        self._read(store)
        unread, self._unread = self._unread, []
        later: set[str | int] = set()
        return [_without_older_documents(entry, later) for entry in reversed(unread)][::-1]

    def digest(self, store: SimulatedStore) -> str:
        """SHA-256 of the whole history: the same for the same seed, everywhere."""
        self._read(store)
        return self._digest.hexdigest()

    def _read(self, store: SimulatedStore) -> None:
        for recorded in store.entries(self._seq):
            self._seq = recorded.seq
            entry = self._rows.whole(recorded.entry)
            self._digest.update(_told(recorded.seq, entry))
            self._unread.append(entry)


def _without_older_documents(entry: Entry, later: set[str | int]) -> Entry:
    """Return an entry less the documents of which there is an image in a later one."""
    images = [i for i in entry.images if i.kind != "document" or i.key not in later]
    later.update(image.key for image in images if image.kind == "document")
    return entry if len(images) == len(entry.images) else replace(entry, images=tuple(images))


def _told(seq: int, entry: Entry) -> bytes:
    images = [(image.kind, image.key, image.row) for image in entry.images]
    line = (seq, entry.at_ms, entry.actor, entry.action, entry.text, images)
    return _line(line) + b"\n"
