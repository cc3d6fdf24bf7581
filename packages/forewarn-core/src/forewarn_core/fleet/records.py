"""Records as flat rows of text and whole numbers, for the store and for history.

The store and history share one codec, so they cannot drift apart. No SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from operator import attrgetter, itemgetter
from sys import intern
from typing import TypeAlias, TypeVar

from forewarn_base.protocol.documents import Document, read_document, render_document
from forewarn_base.protocol.versions import VERSIONS
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal, Role
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.deferrals import Deferral, DeferralState
from forewarn_core.fleet.document import Departure, Enrolment, View
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import (
    Alert,
    Event,
    EventState,
    Execution,
    FollowedBy,
    MaintenanceWindow,
    Notice,
    Operation,
    OperationState,
)
from forewarn_core.fleet.maintenance import (
    PHASES,
    Declaration,
    FirstGroup,
    Maintenance,
    MaintenancePlan,
    MaintenanceState,
    Phase,
    Planning,
    Postponement,
    Target,
    TargetState,
)
from forewarn_core.fleet.owner_choices import Decision, OwnerChoice
from forewarn_core.fleet.policy import AppliedPolicy
from forewarn_core.fleet.ticket import (
    HardwareCategory,
    Ticket,
    TicketState,
    TicketTarget,
    TicketText,
    TicketType,
)
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Vm
from forewarn_core.planning.plan_text import plan_text, read_plan
from forewarn_core.planning.policy_text import policy_text, read_policy
from forewarn_core.rules.budget import budgets_text, read_budgets
from forewarn_core.rules.hand_back import Severity

Record: TypeAlias = (
    Host
    | Group
    | Vm
    | Operation
    | Event
    | Enrolment
    | View
    | Maintenance
    | MaintenancePlan
    | Target
    | OwnerChoice
    | Deferral
    | AppliedPolicy
    | Principal
    | AccessToken
    | Confirmation
    | Ticket
)
#: The columns of a record by name, as the store and history have them.
Columns: TypeAlias = dict[str, str | int]
#: The operation, event, group, VM and host that index a history entry; 0 or empty: none.
Subject: TypeAlias = tuple[int, str, str, str, str]
_Write: TypeAlias = "Callable[[object], str | int]"
_Read: TypeAlias = "Callable[[str | int], object]"
_V = TypeVar("_V")
_R = TypeVar("_R")
_Form: TypeAlias = "tuple[_Write, _Read]"
_Writing: TypeAlias = (
    "tuple[attrgetter[tuple[str | int, ...]], tuple[str, ...], tuple[tuple[str, _Write], ...]]"
)
_Reading: TypeAlias = "tuple[itemgetter[tuple[str | int, ...]], tuple[tuple[int, _Read], ...]]"

#: Record type of each kind; the kind is also its table's name (`group`: `vm_group`).
KINDS: dict[str, type[Record]] = {
    "host": Host,
    "group": Group,
    "vm": Vm,
    "operation": Operation,
    "event": Event,
    "enrolment": Enrolment,
    "document": View,
    "plan": MaintenancePlan,
    "maintenance": Maintenance,
    "target": Target,
    "choice": OwnerChoice,
    "deferral": Deferral,
    "policy": AppliedPolicy,
    "principal": Principal,
    "token": AccessToken,
    "confirmation": Confirmation,
    "ticket": Ticket,
}
KIND_OF: dict[type[Record], str] = {kind: name for name, kind in KINDS.items()}

#: The column that identifies a record of each kind: the first.
KEYS: dict[str, str] = {name: kind.__match_args__[0] for name, kind in KINDS.items()}

#: Columns that never change after a record's creation: its parents. A store that leaves them
#: untouched saves the checks of their indexes and foreign keys.
FIXED: dict[str, tuple[str, ...]] = {
    "operation": ("request", "cause", "impact", "source", "host", "of_vm", "created_ms"),
    "event": ("operation", "group"),
    "document": ("group",),
    "maintenance": (
        "cause",
        "impact",
        "hosts",
        "created_ms",
        "actor",
        "duration_s",
        "move_s",
        "return_s",
    ),
    "target": ("maintenance", "host"),
    "ticket": ("type", "target_kind", "target", "opened_ms", "host", "serial", "actor"),
}

#: Values within records; their fields are columns of the record, in the record's order.
PARTS: dict[str, type[Notice | Execution | MaintenanceWindow]] = {
    "Notice": Notice,
    "Execution": Execution,
    "MaintenanceWindow": MaintenanceWindow,
}

#: Columns that version 0.1.0 did not write, with their default values.
ADDED: dict[str, Columns] = {
    "group": {"switched_off": "[]", "keep_apart": "[]", "keep_together": "[]"},
    "event": {"approved_ms": 0, "started_ms": 0},
    "operation": {
        "unseen_vms": "[]",
        "followed_by": "nothing",
        "unconfirmed_by": "",
        "planned_open_ms": 0,
        "planned_close_ms": 0,
        "opened_ms": 0,
        "incident": 0,
        "validation": "",
    },
    "maintenance": {"return_s": 0, "unconfirmed_by": "", "declaration": "", "failure_domain": ""},
    "target": {"duration_s": 0},
    "token": {"suspended": 0, "makers": "[]"},
    "confirmation": {"token": "", "names": "[]", "built_in": 0, "permission": "", "sentence": ""},
}

#: Columns with texts that many records share; each text is stored once.
SHARED: dict[str, tuple[str, ...]] = {
    "host": ("name", "zone", "driver"),
    "group": ("name", "owner"),
    "vm": ("host", "group", "size", "os_type", "location", "resource_group", "subscription"),
}

_NEWEST = VERSIONS[-1]
_encode = json.JSONEncoder(ensure_ascii=False).encode


def key_of(record: Record) -> str | int:
    """Return the key of a record, unique among records of the same kind."""
    key: str | int = getattr(record, KEYS[KIND_OF[type(record)]])
    return key


def subject_of(record: Record) -> Subject:
    """Return the index values of a history entry about a record."""
    match record:
        case Vm():
            return 0, "", record.group, record.name, record.host
        case Operation():
            return record.number, "", "", record.vms[0] if record.of_vm else "", record.host
        case Event():
            return record.operation, record.id, record.group, "", ""
        case Host():
            return 0, "", "", "", record.name
        case Group():
            return 0, "", record.name, "", ""
        case OwnerChoice() | Deferral():
            return 0, "", "", "", record.host
        case Target():
            return record.operation, "", "", "", record.host
        case Ticket():
            vm = record.target if record.target_kind is TicketTarget.VM else ""
            return record.operation, "", "", vm, record.host
        case Enrolment() | View():
            return 0, "", record.group, "", ""
    return 0, "", "", "", ""


def columns_of(kind: str) -> tuple[str, ...]:
    """Return the names of a kind's columns, in order."""
    return tuple([path.rpartition(".")[2] for path, _ in _columns(KINDS[kind])])


def to_row(record: Record) -> Columns:
    """Return a record as a row, which must not be changed; lists become JSON text, enums words."""
    read, names, written = _WRITING[KIND_OF[type(record)]]
    row = dict(zip(names, read(record), strict=True))
    for name, write in written:
        row[name] = write(row[name])
    return row


def changed_row(before: Record, after: Record, row: Columns) -> Columns:
    """Return the columns of a record's row that changed."""
    read, names, _ = _WRITING[KIND_OF[type(after)]]
    pairs = zip(names, read(before), read(after), strict=True)
    return {name: row[name] for name, old, new in pairs if old is not new and old != new}


def from_row(kind: str, row: Mapping[str, str | int]) -> Record:
    """Return the record of a row.

    Raises:
        KeyError: a column is missing; the row is of another kind.
        ValueError: a value is invalid in its column.
    """
    columns, _ = _READING[kind]
    return from_values(kind, columns({**ADDED[kind], **row} if kind in ADDED else row))


def from_values(kind: str, row: Sequence[str | int]) -> Record:
    """Return the record with these values, in the order of its columns.

    Raises:
        TypeError: the number of values is wrong, or a shared text is a number.
        ValueError: a value is invalid in its column.
    """
    values: list[object] = [*row]
    for place, read in _READING[kind][1]:
        values[place] = read(row[place])
    for at, part in _PARTS_OF[kind]:
        end = at + len(part.__match_args__)
        values[at:end] = [part(*values[at:end])]  # type: ignore[arg-type]
    # The forms give each column its type, which the type checker cannot infer from a row.
    return KINDS[kind](*values)  # type: ignore[arg-type]


def _writing(kind: str) -> _Writing:
    """Return a getter of all fields, their names, and the writers of columns that need a codec."""
    names, columns = columns_of(kind), list(_columns(KINDS[kind]))
    formed = [(name, column) for name, (_, column) in zip(names, columns, strict=True)]
    written = tuple((name, _FORMS[column][0]) for name, column in formed if column in _FORMS)
    return attrgetter(*(path for path, _ in columns)), names, written


def _reading(kind: str) -> _Reading:
    """Return a getter of all columns, and the readers of columns that need a codec."""
    names, shared = columns_of(kind), SHARED.get(kind, ())
    readers: list[tuple[int, _Read]] = []
    for at, (path, column) in enumerate(_columns(KINDS[kind])):
        if column in _FORMS:
            readers.append((at, _FORMS[column][1]))
        elif path in shared:
            readers.append((at, intern))  # type: ignore[arg-type]  # a column of texts
    return itemgetter(*names), tuple(readers)


def _columns(kind: type[object]) -> Iterator[tuple[str, str]]:
    """Yield the getter of each column of a record, such as `execution.attempt`, and its type."""
    for name in kind.__match_args__:  # type: ignore[attr-defined]
        column = kind.__annotations__[name]
        part = PARTS.get(column)
        columns = {name: column}
        if part is not None:
            columns = {f"{name}.{each}": part.__annotations__[each] for each in part.__match_args__}
        assert all(each in _FORMS or each in {"int", "str"} for each in columns.values()), kind
        yield from columns.items()


def _ms(time: int | None) -> int:
    return time or 0


def _time(ms: int) -> int | None:
    return ms or None


def _number(truth: object) -> int:
    return 1 if truth else 0


def _list_text(items: object) -> str:
    """Encode a list; most are empty."""
    return _encode(items) if items else "[]"


def _texts_text(texts: object) -> str:
    """Encode a list; most have one plain text or none."""
    assert isinstance(texts, tuple), texts
    if len(texts) == 1:
        text: str = texts[0]
        if text.isprintable() and '"' not in text and "\\" not in text:
            return f'["{text}"]'
    return _list_text(texts)


def _texts(value: str | int) -> tuple[str, ...]:
    """Decode a list; most have one plain text or none, and a fleet has a million of them."""
    text = str(value)
    if text == "[]":
        return ()
    if text.count('"') == 2 and "\\" not in text and text[:2] == '["' and text[-2:] == '"]':
        return (text[2:-2],)
    return tuple(json.loads(text))


def _pairs(value: str | int) -> tuple[tuple[str, str], ...]:
    if value == "[]":
        return ()
    return tuple((name, text) for name, text in json.loads(str(value)))


def _impacts_text(impacts: frozenset[Impact]) -> str:
    return json.dumps(sorted(impact.value for impact in impacts))


def _impacts(text: str) -> frozenset[Impact]:
    return frozenset(Impact(name) for name in json.loads(text))


def _document_text(document: Document) -> str:
    return render_document(document, _NEWEST).decode()


def _declaration_text(declaration: Declaration | None) -> str:
    if declaration is None:
        return ""
    *values, waived, first_groups = (getattr(declaration, n) for n in Declaration.__match_args__)
    plain = [each.value if isinstance(each, Severity) else each for each in values]
    more = [
        waived,
        [[getattr(each, n) for n in FirstGroup.__match_args__] for each in first_groups],
    ]
    while more and not more[-1]:
        more.pop()
    return json.dumps([*plain, *more])


def read_declaration(text: str) -> Declaration | None:
    """Return the declaration of a column's text; None: the maintenance is not declared."""
    if not text:
        return None
    declared_ms, deadline_ms, severity, version, answers, *more = json.loads(text)
    waived = more[0] if more else []
    first_groups = more[1] if more[1:] else []
    return Declaration(
        declared_ms,
        deadline_ms,
        Severity(severity),
        version,
        answers,
        tuple(waived),
        tuple(FirstGroup(*each) for each in first_groups),
    )


def _phase_text(phase: object) -> str:
    """Encode a phase as a list: its name, then its fields; a plan in it is a list as well."""
    fields = [getattr(phase, name) for name in type(phase).__match_args__]  # type: ignore[attr-defined]
    plain = [[each.at_ms, each.reason] if isinstance(each, Planning) else each for each in fields]
    return json.dumps((type(phase).__name__, *plain), ensure_ascii=False)


def _phase(value: str | int) -> Phase:
    name, *fields = json.loads(str(value))
    values = [Planning(*each) if isinstance(each, list) else each for each in fields]
    return _PHASES[name](*values)  # type: ignore[arg-type]  # as it was written


def _value_list(kind: type[Departure | Postponement | TicketText]) -> _Form:
    """Return the codec of a list of small values."""
    values = attrgetter(*kind.__match_args__)

    def text(items: object) -> str:
        assert isinstance(items, tuple), items
        return _list_text(tuple(map(values, items)))

    def read(value: str | int) -> object:
        return () if value == "[]" else tuple(kind(*each) for each in json.loads(str(value)))

    return text, read


def _form(write: Callable[[_V], str | int], read: Callable[[_R], object]) -> _Form:
    """Return the codec of a column whose values are all of one type."""
    return write, read  # type: ignore[return-value]


_PHASES = {phase.__name__: phase for phase in PHASES}
_PAIRS: _Form = (_list_text, _pairs)
_WORDS: tuple[type[Enum], ...] = (
    *(Alert, Cause, Decision, DeferralState, EventState, FollowedBy, GroupKind, Health, Impact),
    *(MaintenanceState, OperationState, Role, Source, TargetState),
    *(HardwareCategory, TicketState, TicketTarget, TicketType),
)

#: Codec of each type of column, except plain texts and numbers.
_FORMS: dict[str, _Form] = {
    "bool": (_number, bool),
    "int | None": _form(_ms, _time),
    "tuple[str, ...]": (_texts_text, _texts),
    "tuple[tuple[str, str], ...]": _PAIRS,
    "Labels": _PAIRS,
    "frozenset[Impact]": _form(_impacts_text, _impacts),
    "tuple[Departure, ...]": _value_list(Departure),
    "tuple[Postponement, ...]": _value_list(Postponement),
    "tuple[TicketText, ...]": _value_list(TicketText),
    "tuple[Budget, ...]": _form(budgets_text, read_budgets),
    "Declaration | None": _form(_declaration_text, read_declaration),
    "Document": _form(_document_text, read_document),
    "MaintenancePolicy": _form(policy_text, read_policy),
    "Phase": (_phase_text, _phase),
    "PlanBody": _form(plan_text, read_plan),
    # `value` itself is a slow property written in Python.
    **{word.__name__: (attrgetter("_value_"), word) for word in _WORDS},
}
_PARTS_OF = {
    name: [
        (at, PARTS[kind.__annotations__[each]])
        for at, each in enumerate(kind.__match_args__)
        if kind.__annotations__[each] in PARTS
    ]
    for name, kind in KINDS.items()
}

_WRITING: dict[str, _Writing] = {kind: _writing(kind) for kind in KINDS}
_READING: dict[str, _Reading] = {kind: _reading(kind) for kind in KINDS}
