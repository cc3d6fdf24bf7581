"""Loads the whole live state at a start, and derives the changes of another process's commits.

Every commit has an image of each record that it writes, except enrolments (invariant 10), so
following costs O(changes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.document import Enrolment, View
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan, Target
from forewarn_core.fleet.owner_choices import OwnerChoice
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy, NoticePolicy, maintenance_policy
from forewarn_core.fleet.records import Columns, Record, from_row, to_row
from forewarn_core.fleet.refusals import FleetContradiction
from forewarn_core.fleet.state import TABLES, Changes, Entry, Image, State
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.topology import Group, Host, Topology, Vm
from forewarn_store.durations import loaded_durations
from forewarn_store.engine import Transaction
from forewarn_store.errors import StoreDamaged
from forewarn_store.images import read_columns
from forewarn_store.reading import StoreReader

#: Work that ended less than this many seconds ago is always loaded, for owners' rest periods and
#: for the count of unconfirmed work.
REST_S_MIN = 86_400


def loaded(
    reader: StoreReader, transaction: Transaction, last_number: int, *, place: str
) -> Changes:
    """Return the whole live state, as a change of an empty state.

    Raises:
        StoreDamaged: the records contradict each other.
    """
    live = reader.live
    try:
        topology = Topology(
            hosts={each.name: each for each in live(transaction, Host)},
            groups={each.name: each for each in live(transaction, Group)},
            vms={each.name: each for each in live(transaction, Vm)},
        )
    except FleetContradiction as error:
        raise StoreDamaged(place=place, reason=str(error)) from error
    policies = {each.name: each for each in live(transaction, AppliedPolicy)}
    operations = {
        each.number: each
        for each in (*_recent_work(reader, transaction, policies), *live(transaction, Operation))
    }
    return Changes(
        last_number=last_number,
        topology=topology,
        operations=operations,
        events={each.id: each for each in live(transaction, Event)},
        enrolments={each.group: each for each in live(transaction, Enrolment)},
        views={each.key: each for each in live(transaction, View)},
        plans={each.id: each for each in live(transaction, MaintenancePlan)},
        maintenances={each.number: each for each in live(transaction, Maintenance)},
        targets={each.key: each for each in live(transaction, Target)},
        choices={each.key: each for each in live(transaction, OwnerChoice)},
        deferrals={each.key: each for each in live(transaction, Deferral)},
        policies=policies,
        principals={each.name: each for each in live(transaction, Principal)},
        tokens={each.id: each for each in live(transaction, AccessToken)},
        confirmations={each.number: each for each in live(transaction, Confirmation)},
        tickets={each.number: each for each in live(transaction, Ticket)},
        durations=loaded_durations(transaction),
    )


def _recent_work(
    reader: StoreReader, transaction: Transaction, policies: Mapping[str, AppliedPolicy]
) -> list[Operation]:
    """Return recently ended work, which owners' rests and unconfirmed work count; O(work).

    A later policy with a longer time does not count work that ended before `REST_S_MIN`.
    """
    within_ms = counted_ms(policies.get(FLEET_POLICY))
    return reader.decoded(Operation, transaction.rows("load_ended", within_ms=within_ms))


def counted_ms(applied: AppliedPolicy | None) -> int:
    """Return how long the policy counts ended work, in ms."""
    policy = maintenance_policy(applied, NoticePolicy())
    return max(policy.counts_ended_s, REST_S_MIN) * SECOND_MS


def changes_since(state: State, images: Iterable[tuple[str, str]], last_number: int) -> Changes:
    """Return the changes of commits, from their images in order; `state` is the state before.

    Args:
        state: the state before the commits.
        images: both columns of each entry's images.
        last_number: the highest number after the commits.

    Raises:
        ValueError: an image is malformed.
    """
    changes = Changes(last_number=last_number)
    written: list[Image] = []
    rows: dict[tuple[str, str | int], Columns | None] = {}
    for columns in images:
        for kind, key, changed in read_columns(*columns):
            place = kind, key
            before = rows[place] if place in rows else _row(state.record(kind, key))
            # An entry about an unchanged record has no columns.
            row = changed if before is None or changed is None else {**before, **changed}
            rows[place] = row
            written.append(Image(kind, key, row, changed if before else None))
    for (kind, key), row in rows.items():
        getattr(changes, TABLES[kind])[key] = None if row is None else from_row(kind, row)
    changes.entries.append(Entry(0, "", "", "", images=tuple(written)))
    return changes


def _row(record: Record | None) -> Columns | None:
    return None if record is None else to_row(record)
