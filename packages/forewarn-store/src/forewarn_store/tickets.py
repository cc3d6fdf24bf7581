"""Tickets: pages of live and ended ones, newest first, and their deletion after 400 days.

A ticket is kept apart from the limits of history, since a tenant may ask for its records over the
whole time of its use (T-10).
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn_base.values import value
from forewarn_core.fleet.ticket import TicketTarget, TicketType
from forewarn_store.availability import KEPT_MS
from forewarn_store.engine import Engine, Row, Transaction, Value

#: Maximum number of tickets on one page, and of tickets that one deletion removes.
PAGE_MAX = 500

# A filter of several owners has the form of `reading.owners_text`.
_FILTERS = {
    "type": "type = :type",
    "target_kind": "target_kind = :target_kind",
    "target": "target = :target",
    "host": "host = :host AND host <> ''",
    "rack": """(host = :host AND host <> ''
        OR target_kind = 'rack' AND target = :rack)""",
    "operation": "operation = :operation AND operation > 0",
    "owner": "number IN (SELECT ticket FROM ticket_owner WHERE owner = :owner)",
    "owners": """number IN (
        SELECT ticket FROM ticket_owner
        WHERE replace(:owners, '\n' || owner || '\n', '') <> :owners
    )""",
    "before": "number < :before",
}


@value
class TicketPage:
    """Filters for tickets, newest first; a ticket must match all set filters."""

    type: TicketType | None = None
    target_kind: TicketTarget | None = None
    target: str = ""
    #: Host of the target, and its rack: tickets about the rack are the host's, too.
    host: str = ""
    rack: str = ""
    operation: int = 0
    owner: str = ""
    #: Only tickets that have not ended.
    live: bool = False
    #: Only tickets with a lower number; 0: no limit.
    before: int = 0
    limit: int = PAGE_MAX
    #: Owners whose tickets are read, in the form of `owners_text`; empty: all.
    owners: str = ""


def ticket_rows(transaction: Transaction, page: TicketPage) -> list[Row]:
    """Return the rows of one page of tickets."""
    values: dict[str, Value] = {
        name: getattr(each, "value", each) for name in _FILTERS if (each := getattr(page, name))
    }
    names = [name for name in values if name != "host" or "rack" not in values]
    filters = [_FILTERS[name] for name in names] + ["closed_ms = 0"] * page.live
    fills = {"filters": " AND ".join(filters) or "1 = 1"}
    limit = min(page.limit, PAGE_MAX)
    return transaction.rows_filled("tickets", fills, limit=limit, **values)


def trim_tickets(engine: Engine, confirm: Callable[[], None], now_ms: int) -> int:
    """Delete tickets that ended before `KEPT_MS`, in pages; return their number.

    `confirm` checks before each page that this process is still the writer.
    """
    before_ms, count = now_ms - KEPT_MS, 0
    while gone := engine.rows("tickets_old", before_ms=before_ms, limit=PAGE_MAX):
        confirm()
        with engine.writing() as transaction:
            for statement in ("ticket_owner_forget", "ticket_forget"):
                transaction.run_many(statement, gone)
        count += len(gone)
    return count
