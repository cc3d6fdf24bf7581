"""Kinds of records that version 0.1 does not know: it follows and replays without them. H-8."""

from collections.abc import Callable

import pytest

from forewarn_core.fleet.records import KINDS
from forewarn_core.fleet.stimulus import MoveTicket, OpenTicket
from forewarn_core.fleet.ticket import TicketMove, TicketState, TicketTarget, TicketType
from forewarn_store import Store, TicketPage
from forewarn_store.availability import KEPT_MS
from forewarn_store.images import LATER_KINDS, read_columns, read_images
from forewarn_store.reading import owners_text
from forewarn_store.retention import Retention
from tests.store.story import Story, begin, replayed

REPORT = OpenTicket(TicketType.REPORT, TicketTarget.VM, "db_0", description="disk errors")
DAY_MS = 86_400_000


@pytest.fixture
def story(store: Store) -> Story:
    """A store with a fleet of two owners."""
    return begin(store)


def test_older_version_reads_no_kind_that_it_does_not_know(story: Story) -> None:
    """The column that it reads has the kinds that it knows alone. Source: H-8."""
    story.tell(REPORT)
    rows = story.store.rows("images_since", after=0, until=story.store.history_seq)
    known = {kind for text, _ in rows for kind, _, _ in read_images(str(text))}
    later = {kind for _, text in rows for kind, _, _ in read_images(str(text))}
    assert later == {"ticket"}
    assert later <= LATER_KINDS
    assert known
    assert known <= KINDS.keys() - LATER_KINDS


def test_kind_of_a_later_version_is_left_out() -> None:
    """This version follows commits of the next one. Source: H-8."""
    text = '[["novelty",1,{"number":1}],["host","h1",null]]'
    assert [kind for kind, _, _ in read_columns("[]", text)] == ["host"]


def test_ticket_is_followed_and_replayed(address: str, opened: Callable[[str], Store]) -> None:
    """Another process has it, and history alone gives it. Source: A-6, invariant 10."""
    story = begin(opened(address))
    story.tell(REPORT)
    number = story.state.last_number
    story.tell(MoveTicket(number, TicketMove.ASK, "Since when?"))
    assert replayed(story.store)["ticket"] == dict(story.state.tickets)
    story.store.close()
    again = opened(address)
    assert again.load().tickets == story.state.tickets


def test_checkpoint_has_tickets(story: Story) -> None:
    """A replay after a deletion of history gives them, too. Source: invariant 10."""
    story.tell(REPORT)
    number = story.state.last_number
    story.reboot("h0")
    assert story.store.trim(Retention(None, max_age_ms=1), story.now_ms + 2).entries
    story.tell(MoveTicket(number, TicketMove.ANSWER, "Still so."))
    assert replayed(story.store)["ticket"] == dict(story.state.tickets)


def test_tickets_are_read_by_owner_and_deleted_after_400_days(story: Story) -> None:
    """An owner's filter matches its tickets alone. Source: P-3, T-10."""
    story.tell(REPORT)
    number = story.state.last_number
    for page, count in (
        (TicketPage(), 1),
        (TicketPage(owners=owners_text({"Ümit's"})), 1),
        (TicketPage(owners=owners_text({"other"})), 0),
        (TicketPage(type=TicketType.INCIDENT), 0),
        (TicketPage(target="db_0", live=True), 1),
    ):
        assert len(story.store.tickets(page)) == count, page
    story.tell(MoveTicket(number, TicketMove.CLOSE))
    ticket = story.store.ticket(number)
    assert ticket
    assert ticket.state is TicketState.CLOSED
    assert story.store.tickets(TicketPage(live=True)) == []
    assert story.store.trim_tickets(story.now_ms + KEPT_MS - DAY_MS) == 0
    assert story.store.trim_tickets(story.now_ms + KEPT_MS + 1) == 1
    assert story.store.ticket(number) is None
