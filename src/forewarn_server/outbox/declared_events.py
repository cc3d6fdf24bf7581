"""The declaration of an entry of history, as other systems and owners need it. Source: T-1.

Members of the maintenance that never change come from its record; what changes comes from the
entry, if the entry changed it.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_base.protocol.timestamps import iso8601
from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.maintenance import Declaration, FirstGroup, Maintenance
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.records import from_row, read_declaration
from forewarn_core.fleet.state import Entry
from forewarn_store import Store

#: Kinds of records by which an entry is about the choices of owners.
_OF_OWNERS = ("choice", "deferral")
#: The action of an owner's test group, which the entry names. Source: T-8.
ORDERED = "declaration.ordered"
#: Actions of a declared maintenance that its owners receive; the others are its operators'.
OF_ALL_OWNERS = frozenset({"maintenance.declared", "maintenance.cancelled", "maintenance.done"})


class DeclaredEvents:
    """Finds the declarations of entries."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def form(self, entry: Entry, owner: str = "") -> dict[str, object] | None:
        """Return the declaration of an entry; None if the entry is about none.

        With an owner, it is limited to what this owner may read, and None if nothing is left: the
        hosts are those with the owner's VMs now.
        """
        number = _number_of(entry)
        maintenance = self._store.maintenances.get(number) if number else None
        if maintenance is None or maintenance.declaration is None:
            return None
        records = [each for each in _records_of(entry) if owner in {"", each.owner}]
        ordered = entry.action == ORDERED and entry.group in self._store.groups_of(owner)
        if owner and not (records or ordered) and entry.action not in OF_ALL_OWNERS:
            return None
        hosts: dict[str, list[str]] = {each: [] for each in maintenance.hosts}
        if owner:
            vms = [
                (str(host), str(vm))
                for host, vm in self._store.rows("places_of", owner=owner)
                if host in hosts
            ]
            hosts = {}
            for host, vm in vms:
                hosts.setdefault(host, []).append(vm)
            if not (records or ordered or hosts):
                return None
        declaration = _declaration_of(entry) or maintenance.declaration
        form = _maintenance_form(maintenance, declaration)
        form["hosts"] = sorted(hosts)
        if owner:
            form["vms"] = sorted(vm for each in hosts.values() for vm in each)
        form["choices"] = [_choice(each) for each in records if isinstance(each, OwnerChoice)]
        form["deferrals"] = [_deferral(each) for each in records if isinstance(each, Deferral)]
        form["first_groups"] = [
            _first_group(each) for each in declaration.first_groups if owner in {"", each.owner}
        ]
        return form


def _number_of(entry: Entry) -> int:
    """Return the number of the maintenance that an entry is about; 0: of none."""
    for image in entry.images:
        if image.kind == "maintenance":
            return int(image.key)
        if image.kind in _OF_OWNERS and image.row is not None:
            return int(image.row["maintenance"])
    return 0


def _records_of(entry: Entry) -> Iterator[OwnerChoice | Deferral]:
    for image in entry.images:
        if image.kind in _OF_OWNERS and image.row is not None:
            record = from_row(image.kind, image.row)
            assert isinstance(record, OwnerChoice | Deferral), record
            yield record


def _declaration_of(entry: Entry) -> Declaration | None:
    """Return the declaration as an entry left it; None: the entry did not change it."""
    for image in entry.images:
        if image.kind == "maintenance" and image.row and image.row.get("declaration"):
            return read_declaration(str(image.row["declaration"]))
    return None


def _maintenance_form(maintenance: Maintenance, declaration: Declaration) -> dict[str, object]:
    return {
        "id": maintenance.id,
        "severity": declaration.severity.value,
        "version": declaration.version,
        "cause": maintenance.cause.value,
        "impact": maintenance.shown_impact.value,
        "reason": maintenance.reason,
        "declared": iso8601(declaration.declared_ms),
        "hand_back_deadline": iso8601(declaration.deadline_ms),
        "earliest_start": _time(maintenance.earliest_ms),
        "window_s": maintenance.host_s,
    }


def _choice(choice: OwnerChoice) -> dict[str, object]:
    return {
        "host": choice.host,
        "owner": choice.owner,
        "decision": choice.decision.value,
        "start": iso8601(choice.start_ms) if choice.decision is Decision.AT else None,
        "approves": choice.approves,
        "chosen_by": choice.chosen_by,
        "displaced": _time(choice.displaced_ms),
    }


def _first_group(first: FirstGroup) -> dict[str, object]:
    return {
        "owner": first.owner,
        "group": first.group,
        "observation_s": first.observation_s,
        "held": first.held,
    }


def _deferral(deferral: Deferral) -> dict[str, object]:
    return {
        "host": deferral.host,
        "owner": deferral.owner,
        "state": deferral.state.value,
        "until": iso8601(deferral.until_ms),
        "reason": deferral.reason,
        "answer": deferral.answer,
    }


def _time(at_ms: int | None) -> str | None:
    return iso8601(at_ms) if at_ms else None
