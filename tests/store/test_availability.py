"""Records of availability: written with their commit, read in pages, kept for 400 days."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.availability_records import AvailabilityKind
from forewarn_store import AvailabilityPage, Store
from forewarn_store.availability import KEPT_MS
from forewarn_store.reading import HistoryPage, owners_text
from tests.store.story import Story, begin

SAMPLE = Path(__file__).resolve().parents[1] / "samples/0.1.0/store.db"

ALL = AvailabilityPage()
DAY_MS = 86_400_000


@pytest.fixture
def story(store: Store) -> Story:
    """A store with a fleet of two owners."""
    return begin(store)


def test_records_are_as_durable_as_their_commit(
    address: str, opened: Callable[[str], Store]
) -> None:
    """They are read back as they were written, by another process, too. Source: T-13."""
    story = begin(opened(address))
    number = story.reboot("h0")
    records = [each.record for each in story.store.availability(ALL)]
    assert [(each.kind, each.group) for each in records] == [
        (AvailabilityKind.ARRIVED, "web"),
        (AvailabilityKind.ARRIVED, "db"),
        (AvailabilityKind.EVENT, "db"),
        (AvailabilityKind.EVENT, "web"),
    ]
    assert records[0].vms == ("web_0", "web_1")
    assert records[2].operation == number
    assert records[2].owner == "Ümit's"
    story.store.close()
    assert [each.record for each in opened(address).availability(ALL)] == records


def test_records_are_filtered_and_paged(story: Story) -> None:
    """By time, owner, group and VM; pages continue after the last place. Source: T-13, P-3."""
    story.reboot("h0")
    story.reboot("h1")
    whole = story.store.availability(ALL)
    page, paged = replace(ALL, limit=2), []
    while part := story.store.availability(page):
        paged += part
        page = replace(page, after=part[-1].place)
    assert paged == whole
    first_ms = whole[2].record.at_ms
    groups = {
        replace(ALL, owner="Ümit's"): ["db", "db"],
        replace(ALL, owner=""): ["web", "web", "web"],
        replace(ALL, owners=owners_text(["Ümit's", "x"])): ["db", "db"],
        replace(ALL, vm="web_1"): ["web", "web"],
        replace(ALL, group="web", since_ms=first_ms): ["web", "web"],
    }
    for wanted, found in groups.items():
        records = [each.record for each in story.store.availability(wanted)]
        assert [each.group for each in records] == found


def test_records_are_deleted_after_400_days(story: Story) -> None:
    """And not before, whatever the limits of history are. Source: T-13."""
    story.reboot("h0")
    records = [each.record for each in story.store.availability(ALL)]
    last_ms = records[-1].at_ms
    assert story.store.trim_availability(last_ms + KEPT_MS) == 2
    assert [each.record for each in story.store.availability(ALL)] == records[2:]
    assert story.store.trim_availability(last_ms + KEPT_MS + 1) == 2
    assert KEPT_MS == 400 * DAY_MS


def test_store_of_an_earlier_version_has_records_from_its_upgrade_on(
    tmp_path: Path, opened: Callable[[str], Store]
) -> None:
    """What happened before has no figure, so the period begins there. Source: T-13, H-8."""
    shutil.copy(SAMPLE, tmp_path)
    store = opened(f"sqlite://{tmp_path}/store.db")
    [newest] = store.history(HistoryPage(limit=1, newest_first=True))
    assert store.availability_since_ms() == newest.entry.at_ms
    assert store.availability(ALL) == []


def test_new_store_has_records_from_its_beginning(store: Store) -> None:
    """Nothing came before them. Source: T-13."""
    assert store.availability_since_ms() == 0
