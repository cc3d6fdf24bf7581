"""The past of a store is checked after the start, in the background, and with progress."""

import logging
import threading
from collections.abc import Iterator

import pytest

from forewarn_base.clock import SystemClock
from forewarn_core.fleet.state import Changes
from forewarn_store import Store, reading
from forewarn_store.past_check import PastCheck
from forewarn_store.reading import PastProgress
from tests.store.story import Story, begin, entry
from tests.waiting import wait_until


@pytest.fixture
def story(store: Store) -> Story:
    """Some ended work."""
    story = begin(store)
    for _ in range(3):
        story.reboot("h0")
    return story


def checked(store: Store) -> PastProgress:
    """Check to the end; return the result."""
    check = PastCheck(store, SystemClock(), share=1.0)
    check._thread.join()
    check.stop()
    assert store.past_progress is not None
    return store.past_progress


def test_sound_past_is_said(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the end."""
    caplog.set_level(logging.INFO)
    assert checked(story.store) == PastProgress(100)
    assert [each.action for each in caplog.records if hasattr(each, "action")][-1] == "past.checked"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE history SET images = '?' WHERE seq = 1",
        "UPDATE history SET images = '?' WHERE seq = (SELECT MAX(seq) FROM history)",
        "UPDATE operation SET vms = '?' WHERE number = 1",
        "UPDATE event SET resources = '?' WHERE operation = 1",
    ],
)
def test_damage_of_the_past_is_reported(
    story: Story, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Wherever it is; the service goes on. Source: L-7."""
    with story.store._engine.writing() as transaction:
        transaction.run_text(damage)
    progress = checked(story.store)
    assert progress.percent == 100
    assert damage.split()[1] in progress.damage
    assert "store-damaged" in {getattr(each, "action", "") for each in caplog.records}
    story.reboot("h1")


def test_check_reads_everything_in_pages(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its progress grows from the first to the last page."""
    monkeypatch.setattr(reading, "PAGE_MAX", 3)
    story.store.commit(Changes(last_number=3, entries=[entry() for _ in range(20)]))
    shares = list(story.store.checked_past())
    assert shares == sorted(shares)
    assert len(set(shares)) > 10
    assert shares[-1] <= 1


def test_check_is_stopped_between_two_steps(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop of the service does not wait for it."""
    reached, go_on = threading.Event(), threading.Event()

    def pages(_: Store) -> Iterator[float]:
        reached.set()
        go_on.wait()
        yield 0.5
        raise AssertionError("it went on")

    monkeypatch.setattr(Store, "checked_past", pages)
    check = PastCheck(story.store, SystemClock(), share=1.0)
    wait_until(reached.is_set)
    check._stopping.set()
    go_on.set()
    check._thread.join()
    assert story.store.past_progress != PastProgress(100)
