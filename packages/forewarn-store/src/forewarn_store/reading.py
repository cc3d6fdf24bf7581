"""Reads pages of history and of ended work, and converts rows into records.

Every read is limited to one page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from forewarn_base.errors import ForewarnError
from forewarn_base.values import replace, value
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.document import Enrolment, View
from forewarn_core.fleet.history import CHECKPOINT
from forewarn_core.fleet.lifecycle import Event, Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan, Target
from forewarn_core.fleet.owner_choices import OwnerChoice
from forewarn_core.fleet.policy import AppliedPolicy
from forewarn_core.fleet.records import KIND_OF, Record, from_values
from forewarn_core.fleet.state import Entry, Image
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_store.availability import (
    AvailabilityPage,
    RecordedAvailability,
    read_page,
    since_ms,
)
from forewarn_store.engine import Engine, Row, Transaction, Value
from forewarn_store.errors import StoreDamaged
from forewarn_store.images import read_columns
from forewarn_store.processes import ControlProcess, processes
from forewarn_store.tickets import TicketPage, ticket_rows

R = TypeVar(
    "R",
    Host,
    Group,
    Vm,
    Operation,
    Event,
    Enrolment,
    View,
    Maintenance,
    MaintenancePlan,
    Target,
    OwnerChoice,
    Deferral,
    AppliedPolicy,
    Principal,
    AccessToken,
    Confirmation,
    Ticket,
)


#: Maximum number of rows of a page; larger limits are reduced.
#:
#: A page of history with images has about 2 MiB.
PAGE_MAX = 1000

#: Number of entries that `entries` reads at a time, so that the statement's overhead is small.
REPLAY_PAGE = 500


#: Number of history entries that `open_store` checks, in about a second.
CHECKED_MAX = 50_000


@value
class HistoryPage:
    """Filters for entries of history; an entry must match all set filters."""

    operation: int = 0
    event: str = ""
    group: str = ""
    #: Name of a VM: selects its actions, its changes, and entries about its events. Source: A-6.
    vm: str = ""
    host: str = ""
    action: str = ""
    #: Only entries with a higher sequence number; 0: no lower limit.
    after: int = 0
    #: Only entries with a lower sequence number; 0: no upper limit.
    before: int = 0
    limit: int = 100
    newest_first: bool = False
    #: Whether the page contains the entries' images.
    images: bool = False
    #: Owners of the affected VMs in the form of `owners_text`; empty: all owners.
    owners: str = ""


@value
class OperationPage:
    """Filters for operations, newest first; an operation must match all set filters."""

    #: Permitted states; empty: all states.
    states: frozenset[OperationState] = frozenset()
    #: Host of the work.
    host: str = ""
    #: VM that the work disturbs.
    vm: str = ""
    #: Group that has an event of the operation.
    group: str = ""
    #: Number of the operation's maintenance; 0: no filter.
    maintenance: int = 0
    #: The operation ended at or after `since_ms` and before `until_ms`; ms since the epoch UTC,
    #: 0: no limit.
    since_ms: int = 0
    until_ms: int = 0
    #: Only operations with a lower number; 0: no limit.
    before: int = 0
    limit: int = 100
    #: Owners of the affected VMs in the form of `owners_text`; empty: all owners.
    owners: str = ""


@value
class PastProgress:
    """The progress of a check of ended work and history."""

    #: Checked share in percent; 100: the check has ended.
    percent: int = 0
    #: First damage; empty without damage.
    damage: str = ""


@value
class Recorded:
    """An entry of history and its sequence number. The numbers start at 1 and have no gaps."""

    seq: int
    entry: Entry


# The history of a VM includes that of operations that disturb it. One row of history for each of a
# host's VMs would make every commit longer. Therefore this query joins the operations, and selects
# only their events with the VM.
_OF_VM = """seq IN (
    SELECT seq FROM history WHERE vm = :vm AND vm <> ''
    UNION ALL
    SELECT entry.seq FROM operation_vm
        JOIN history AS entry ON entry.operation = operation_vm.operation AND entry.operation <> 0
        LEFT JOIN event ON event.id = entry.event
        WHERE operation_vm.vm = :vm AND (
            entry.event = '' OR replace(event.resources, '"' || :vm || '"', '') <> event.resources
        )
)"""
# A group's history includes the history of operations with an event of the group.
_OF_GROUP = """seq IN (
    SELECT seq FROM history WHERE group_name = :group AND group_name <> ''
    UNION ALL
    SELECT entry.seq FROM event
        JOIN history AS entry ON entry.operation = event.operation AND entry.operation <> 0
        WHERE event.group_name = :group AND entry.event = ''
)"""
# Conditions of the same filters for a follower's next entries, each of which is checked.
_OF_VM_HERE = """(
    vm = :vm AND vm <> ''
    OR operation <> 0 AND EXISTS (
        SELECT 1 FROM operation_vm AS named LEFT JOIN event AS shown ON shown.id = history.event
            WHERE named.operation = history.operation AND named.vm = :vm AND (
                history.event = ''
                OR replace(shown.resources, '"' || :vm || '"', '') <> shown.resources
            )
    )
)"""
_OF_GROUP_HERE = """(
    group_name = :group AND group_name <> ''
    OR operation <> 0 AND event = '' AND EXISTS (
        SELECT 1 FROM event AS shown
            WHERE shown.operation = history.operation AND shown.group_name = :group
    )
)"""
# An owner's history is the history of its groups. A parameter contains the owners as lines, because
# no name contains a newline.
_OWNED = "SELECT name FROM vm_group WHERE replace(:owners, '\n' || owner || '\n', '') <> :owners"
_OF_OWNERS = f"""seq IN (
    SELECT seq FROM history WHERE group_name IN ({_OWNED}) AND group_name <> ''
    UNION ALL
    SELECT entry.seq FROM event
        JOIN history AS entry ON entry.operation = event.operation AND entry.operation <> 0
        WHERE event.group_name IN ({_OWNED}) AND entry.event = '' AND entry.group_name = ''
)"""  # noqa: S608 - fixed texts
_OF_OWNERS_HERE = f"""(
    group_name IN ({_OWNED}) AND group_name <> ''
    OR operation <> 0 AND event = '' AND group_name = '' AND EXISTS (
        SELECT 1 FROM event AS shown
            WHERE shown.operation = history.operation AND shown.group_name IN ({_OWNED})
    )
)"""  # noqa: S608 - fixed texts
# Both engines use a partial index only if the query repeats its condition literally.
_HISTORY_FILTERS = {
    "operation": "operation = :operation AND operation <> 0",
    "event": "event = :event AND event <> ''",
    "group": _OF_GROUP,
    "vm": _OF_VM,
    "host": "host = :host AND host <> ''",
    "action": "action = :action",
    "after": "seq > :after",
    "before": "seq < :before",
    "owners": _OF_OWNERS,
}
_HISTORY_FILTERS_HERE = {
    **_HISTORY_FILTERS,
    "group": _OF_GROUP_HERE,
    "vm": _OF_VM_HERE,
    "owners": _OF_OWNERS_HERE,
}
_OPERATION_FILTERS = {
    "host": "host = :host",
    "vm": "number IN (SELECT operation FROM operation_vm WHERE vm = :vm)",
    "group": "number IN (SELECT operation FROM event WHERE group_name = :group)",
    "maintenance": "maintenance = :maintenance AND maintenance > 0",
    "since_ms": """number IN (
        SELECT number FROM operation WHERE ended_ms >= :since_ms AND ended_ms > 0
    )""",
    "until_ms": "ended_ms < :until_ms AND ended_ms > 0",
    "before": "number < :before",
    "owners": f"""number IN (
        SELECT operation FROM event WHERE group_name IN ({_OWNED})
        UNION
        SELECT operation FROM operation_vm JOIN vm ON vm.name = operation_vm.vm
            WHERE vm.group_name IN ({_OWNED})
    )""",  # noqa: S608 - fixed texts
}
_NO_FILTER = "1 = 1"


class StoreReader:
    """The queries on a store, each in its own transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def backup_ms(self) -> int:
        """Return the start of the last backup, ms since the epoch UTC; 0 without a backup."""
        rows = self._engine.rows("backup_last")
        return int(rows[0][0]) if rows else 0

    def processes(self) -> tuple[ControlProcess, ...]:
        """Return the control planes that share the store, the active one first."""
        return processes(self._engine) if self._engine.is_shared else ()

    def history(self, page: HistoryPage) -> list[Recorded]:
        """Return one page of history."""
        values = _filter_values(page, _HISTORY_FILTERS)
        narrow = 0 < page.before - page.after <= PAGE_MAX + 1
        filters = _HISTORY_FILTERS_HERE if narrow else _HISTORY_FILTERS
        fills = {
            "images": "images, later_images" if page.images else "'[]', '[]'",
            "filters": _join(filters[name] for name in values),
            "direction": "DESC" if page.newest_first else "ASC",
        }
        with self._engine.reading() as transaction:
            rows = transaction.rows_filled("history", fills, limit=_bound(page.limit), **values)
        try:
            return [_recorded_of(row) for row in rows]
        except (ValueError, TypeError) as error:
            reason = f"history has an unreadable entry, number {rows[0][0]} or later: {error}"
            raise StoreDamaged(place=self._engine.place, reason=reason) from error

    def history_bounds(self) -> tuple[int, int]:
        """Return the numbers of the last removed and the newest entry; 0 without an entry."""
        [(removed, newest)] = self.rows("history_bounds")
        return int(removed), int(newest)

    def groups_of(self, owner: str) -> frozenset[str]:
        """Return the names of an owner's groups."""
        return frozenset(str(name) for (name,) in self.rows("groups_of", owner=owner))

    def entries(self, after: int = 0) -> Iterator[Recorded]:
        """Yield every entry after a sequence number with its images, oldest first.

        If older history was removed, the first entries are the entries of its checkpoint. The image
        of an existing record contains only the changes. `core.history.Rows` completes images, and
        `Replay` computes the state. Each page is a separate read, so a slow reader blocks nothing.
        Source: invariant 10.
        """
        [(seq,)] = self.rows("checkpoint_seq")
        if after < int(seq):
            yield from self._checkpoint(int(seq))
            after = int(seq)
        while page := self.history(HistoryPage(after=after, limit=REPLAY_PAGE, images=True)):
            yield from page
            assert page[-1].seq > after
            after = page[-1].seq

    def _checkpoint(self, seq: int) -> Iterator[Recorded]:
        """Yield the records that were live after the last removed entry, in batches."""
        after = 0
        while True:
            rows = self.rows("checkpoint", seq=seq, after=after)
            if not rows:
                return
            after, at_ms = int(rows[0][0]), int(rows[0][1])
            text = f"history up to entry {seq} was removed"
            try:
                live = _images(str(rows[0][2]), str(rows[0][3]))
            except ValueError as error:
                reason = f"batch {after} of its checkpoint cannot be read: {error}"
                raise StoreDamaged(place=self._engine.place, reason=reason) from error
            yield Recorded(seq, Entry(at_ms, "service", CHECKPOINT, text, images=live))

    def check(self) -> None:
        """Check that the newest history and operations are readable.

        Cost: `CHECKED_MAX` entries of history, a page of operations and their events.

        Raises:
            StoreDamaged: an entry or record is malformed.
        """
        page = HistoryPage(limit=PAGE_MAX, images=True, newest_first=True)
        for _ in range(CHECKED_MAX // PAGE_MAX):
            entries = self.history(page)
            if len(entries) < PAGE_MAX:
                break
            page = replace(page, before=entries[-1].seq)
        for operation in self.operations(OperationPage(limit=PAGE_MAX)):
            self.events_of(operation.number)

    def check_table(self, name: str) -> None:
        """Check the pages of a table; on any thread.

        Raises:
            StoreDamaged: the check failed.
        """
        self._engine.check_table(name)

    def checked_past(self) -> Iterator[float]:
        """Read all history and all operations, and yield the read share after each page.

        Raises:
            StoreDamaged: an entry or record is malformed.
        """
        removed, newest = self.history_bounds()
        for after in range(removed, newest, PAGE_MAX):
            before = after + PAGE_MAX + 1
            self.history(HistoryPage(after=after, before=before, limit=PAGE_MAX, images=True))
            yield 0.9 * (after - removed) / (newest - removed)
        page = OperationPage(limit=PAGE_MAX)
        while operations := self.operations(page):
            for operation in operations:
                self.events_of(operation.number)
            yield 0.9
            page = replace(page, before=operations[-1].number)

    def operation(self, number: int) -> Operation | None:
        """Return a live or ended operation; None if it never existed."""
        return next(iter(self.records(Operation, "operation", number=number)), None)

    def operations(self, page: OperationPage) -> list[Operation]:
        """Return one page of live and ended operations, newest first."""
        values = _filter_values(page, _OPERATION_FILTERS)
        filters = [_OPERATION_FILTERS[name] for name in values]
        if page.states:
            filters.append(_in_states(page.states))
        with self._engine.reading() as transaction:
            rows = transaction.rows_filled(
                "operations", {"filters": _join(filters)}, limit=_bound(page.limit), **values
            )
        return self.decoded(Operation, rows)

    def event(self, event_id: str) -> Event | None:
        """Return a live or ended event by its upper-case id; None if it never existed."""
        return next(iter(self.records(Event, "event", id=event_id)), None)

    def group(self, name: str) -> Group | None:
        """Return the current record of a group; None if the group does not exist."""
        return next(iter(self.records(Group, "group", name=name)), None)

    def events_of(self, operation: int) -> list[Event]:
        """Return the events of an operation, ordered by their groups' names."""
        return self.records(Event, "events_of", operation=operation)

    def availability(self, page: AvailabilityPage) -> list[RecordedAvailability]:
        """Return one page of records of availability, oldest first."""
        return read_page(self._engine, page)

    def availability_since_ms(self) -> int:
        """Return since when they are complete, ms since the epoch UTC; 0: since the beginning."""
        return since_ms(self._engine)

    def ticket(self, number: int) -> Ticket | None:
        """Return a live or ended ticket; None if it never existed."""
        return next(iter(self.records(Ticket, "ticket", number=number)), None)

    def tickets(self, page: TicketPage) -> list[Ticket]:
        """Return one page of live and ended tickets, newest first."""
        with self._engine.reading() as transaction:
            return self.decoded(Ticket, ticket_rows(transaction, page))

    def records(self, kind: type[R], name: str, /, **values: Value) -> list[R]:
        """Return the records of a kind that a named statement selects."""
        return self.decoded(kind, self.rows(name, **values))

    def token_uses(self) -> dict[str, int]:
        """Return the last use of each token, ms since the epoch UTC, accurate to 10 minutes."""
        return {str(token_id): int(used_ms) for token_id, used_ms in self.rows("token_uses")}

    def sign_outs(self) -> dict[str, int]:
        """Return the ended sessions by their token's digest, with the expiry of the token.

        Times are ms since the epoch UTC. The empty digest has the time of the last restore.
        """
        return {str(digest): int(at_ms) for digest, at_ms in self.rows("sign_outs")}

    def rows(self, name: str, /, **values: Value) -> list[Row]:
        """Return the rows of a named statement, in its own transaction."""
        return self._engine.rows(name, **values)

    def live(self, transaction: Transaction, kind: type[R]) -> Iterator[R]:
        """Yield all records of a kind in the live state."""
        return self._decode(kind, transaction.each(f"load_{KIND_OF[kind]}"))

    def record(self, kind: str, row: Row) -> Record:
        """Return the record in a row of a kind's table."""
        return from_values(kind, row)

    def decoded(self, kind: type[R], rows: list[Row]) -> list[R]:
        """Return the records in rows of a kind's table."""
        return list(self._decode(kind, rows))

    def _decode(self, kind: type[R], rows: Iterable[Row]) -> Iterator[R]:
        name = KIND_OF[kind]
        for row in rows:
            try:
                record = self.record(name, row)
            except (ForewarnError, ValueError, TypeError) as error:
                raise StoreDamaged(
                    place=self._engine.place, reason=f"{name} {row[0]} is none: {error}"
                ) from error
            assert isinstance(record, kind)
            yield record


def owners_text(owners: Iterable[str]) -> str:
    """Return owners in the form of a page's filter."""
    return "\n" + "".join(f"{owner}\n" for owner in sorted(owners))


def _filter_values(page: HistoryPage | OperationPage, filters: Iterable[str]) -> dict[str, Value]:
    """Return the values of the filters that are set."""
    wanted = {name: getattr(page, name) for name in filters}
    return {name: value for name, value in wanted.items() if value}


def _in_states(states: frozenset[OperationState]) -> str:
    """Return the filter for these states, in the form of the index of live operations."""
    wanted = (each.value for each in OperationState if each in states)
    return "(" + " OR ".join(f"state = '{word}'" for word in wanted) + ")"


def _join(filters: Iterable[str]) -> str:
    return " AND ".join(filters) or _NO_FILTER


def _bound(limit: int) -> int:
    return max(0, min(limit, PAGE_MAX))


def _recorded_of(row: Row) -> Recorded:
    seq, *columns, images, later_images = row
    became = _images(str(images), str(later_images))
    # the columns are the fields, which the type checker cannot derive from a row
    return Recorded(int(seq), Entry(*columns, became))  # type: ignore[arg-type, call-arg]


def _images(images: str, later: str) -> tuple[Image, ...]:
    return tuple([Image(kind, key, row) for kind, key, row in read_columns(images, later)])
