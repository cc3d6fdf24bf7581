"""Cursors of the outbox, on each engine."""

from collections.abc import Callable

from forewarn_core.fleet.state import Changes
from forewarn_store import Store
from tests.store.story import START_MS, entry


def test_cursor_only_moves_forwards(address: str, opened: Callable[[str], Store]) -> None:
    """A new destination begins behind the newest entry; a cursor survives and never goes back."""
    store = opened(address)
    assert store.cursors.take_up(["a", "b"], 7) == {"a": 7, "b": 7}
    store.cursors.save({"a": 9, "b": 3})
    store.close()
    store = opened(address)
    assert store.cursors.take_up(["a", "b", "c"], 20) == {"a": 9, "b": 7, "c": 20}


def test_next_entry_says_when_it_happened(store: Store) -> None:
    """How late the outbox is counts from the first entry that it has not sent. Source: L-7."""
    times = [START_MS + n for n in range(3)]
    store.commit(Changes(last_number=0, entries=[entry(at_ms=at_ms) for at_ms in times]))
    assert [store.cursors.next_ms(seq) for seq in range(4)] == [*times, 0]


def test_history_is_held_for_destinations_of_the_settings(store: Store) -> None:
    """One that the settings no longer have holds nothing; it goes on where it was once it is back.

    Source: L-7.
    """
    assert store.cursors.held() is None
    store.cursors.take_up(["a", "b"], 3)
    store.cursors.save({"b": 8})
    assert store.cursors.held() == 3
    store.cursors.take_up(["b"], 30)
    assert store.cursors.held() == 8
    assert store.cursors.take_up(["a", "b"], 30) == {"a": 3, "b": 8}
    assert store.cursors.next_ms(30) == 0
