"""Records as flat rows of text and whole numbers, for the store and for history.

One codec for both, so that what history says and what the store holds cannot drift apart.
No SQL and no rules about change may live here.
"""

from __future__ import annotations

import json
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from forewarn.core.document import Enrolment, View
from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import Event, EventState, Operation, OperationState
from forewarn.core.topology import Group, GroupKind, Health, Host, Vm
from forewarn.wire import VERSIONS, Document, read_document, render_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Record: TypeAlias = Host | Group | Vm | Operation | Event | Enrolment | View
Row: TypeAlias = dict[str, str | int]

#: Record type of each kind; the kind is also its table's name (`group`: `vm_group`).
KINDS: dict[str, type[Record]] = {
    "host": Host,
    "group": Group,
    "vm": Vm,
    "operation": Operation,
    "event": Event,
    "enrolment": Enrolment,
    "document": View,
}
KIND_OF: dict[type[Record], str] = {kind: name for name, kind in KINDS.items()}

#: The column that identifies a record of each kind.
KEYS: dict[str, str] = {
    "host": "name",
    "group": "name",
    "vm": "name",
    "operation": "number",
    "event": "id",
    "enrolment": "group",
    "document": "key",
}

_NEWEST = VERSIONS[-1]
_list_text = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes it anew


def key_of(record: Record) -> str | int:
    """Return what identifies a record among those of its kind."""
    key: str | int = getattr(record, KEYS[KIND_OF[type(record)]])
    return key


@cache
def columns_of(kind: str) -> tuple[str, ...]:
    """Return the names of a kind's columns, in the record's order."""
    return tuple(field.name for field in fields(KINDS[kind]) if not field.name.startswith("_"))


def to_row(record: Record) -> Row:
    """Return a record as a row; lists become JSON text, enums their values."""
    kind = KIND_OF[type(record)]
    return {name: _flat(getattr(record, name)) for name in columns_of(kind)}


def from_row(kind: str, row: Mapping[str, str | int]) -> Record:
    """Return the record a row holds.

    Raises:
        KeyError: a column is missing; the row is of another kind or another time.
        ValueError: a value is none its column may have.
    """
    read = _READERS[kind]
    values = {
        name: read[name](row[name]) if name in read else row[name] for name in columns_of(kind)
    }
    # The readers give each column its type, which the type checker cannot see through a row.
    return KINDS[kind](**values)  # type: ignore[arg-type]


def _flat(value: object) -> str | int:
    if type(value) is str or type(value) is int:  # nearly every column, so it is asked first
        return value
    if isinstance(value, Document):
        return render_document(value, _NEWEST).decode()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, frozenset):
        return json.dumps(sorted(str(member.value) for member in value))
    if isinstance(value, tuple):
        return _list_text(value)
    assert isinstance(value, bool), value
    return int(value)


def _truth(value: str | int) -> bool:
    return bool(value)


def _texts(value: str | int) -> tuple[str, ...]:
    return tuple(json.loads(str(value)))


def _pairs(value: str | int) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in json.loads(str(value)))


def _impacts(value: str | int) -> frozenset[Impact]:
    return frozenset(Impact(name) for name in json.loads(str(value)))


def _document(value: str | int) -> Document:
    return read_document(str(value))


#: How columns that are not plain text or numbers are read.
_READERS: dict[str, dict[str, Callable[[str | int], object]]] = {
    "host": {"health": Health},
    "group": {
        "kind": GroupKind,
        "strict_approval": _truth,
        "automatic_approval": _impacts,
        "reimage_notice": _truth,
    },
    "vm": {"gpu": _truth, "spot": _truth, "addresses": _texts, "tags": _pairs},
    "operation": {
        "cause": Cause,
        "impact": Impact,
        "source": Source,
        "state": OperationState,
        "routine": _truth,
        "of_vm": _truth,
        "silent": _truth,
        "alerted": _truth,
        "vms": _texts,
        "events": _texts,
    },
    "event": {"state": EventState, "resources": _texts, "approved_by": _texts},
    "enrolment": {},
    "document": {"document": _document},
}
