"""Policy files: conversion of a policy between TOML, YAML or JSON and values.

The forms, the reader and the writer are made from the members that the rules declare
(`rules/members.py`). The functions take and return bytes; they open no files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_base.protocol import timestamps
from forewarn_base.validation import fields
from forewarn_base.validation.durations import iso_duration, read_time_ms
from forewarn_base.validation.fields import NAME, ValidationFailed, Values, ValueType
from forewarn_base.validation.forms import Field, Form, ListOf, Named
from forewarn_core.fleet.naming import read_selector
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules import members as kinds
from forewarn_core.rules.local_time import Window
from forewarn_core.rules.members import members_of
from forewarn_core.rules.window import WINDOW_TABLE
from forewarn_server.api.topology_file import TOML, YAML, toml_key, toml_value

_WHERE = "the policy"


def _type_of(kind: kinds.Kind) -> ValueType:
    """Return the type that reads values of a kind."""
    return _TYPES[type(kind)](kind)


def _form(name: str, meaning: str, members: Iterable[kinds.PolicyMember]) -> Form:
    return Form(
        name,
        meaning,
        tuple(
            Field(each.name, _type_of(each.kind), each.meaning, each.required) for each in members
        ),
    )


#: Kind -> the type that reads its values; kinds nest as deep as the policy is declared.
_TYPES: dict[type[object], Callable[[Any], ValueType]] = {
    kinds.SecondsKind: lambda _: fields.Duration(),
    kinds.FlagKind: lambda _: fields.Boolean(),
    kinds.CountKind: lambda kind: fields.Integer(0, kind.most),
    kinds.ShareKind: lambda kind: fields.Share(kind.most),
    kinds.TimeOfDayKind: lambda _: fields.TimeOfDay(),
    kinds.MomentKind: lambda _: fields.Timestamp(),
    kinds.TextKind: lambda kind: fields.Text(kind.length_max, kind.pattern, kind.wanted),
    kinds.NameKind: lambda _: NAME,
    kinds.SelectorKind: lambda _: fields.Text(),
    kinds.ChoiceKind: lambda kind: fields.Choice({**kind.words}),
    kinds.ListKind: lambda kind: ListOf(_type_of(kind.kind), kind.most, kind.least),
    kinds.ByNameKind: lambda kind: Named(_type_of(kind.kind), kind.most),
    kinds.TableKind: lambda kind: _form(kind.name, kind.meaning, kind.members),
}
_MEMBERS = members_of(MaintenancePolicy)
POLICY = _form(
    "PolicyForm",
    "Limits on maintenances, in addition to the guarantees of the contract.",
    (each for _, each in _MEMBERS),
)

#: Members of a window that name hosts, which a rule of an owner already knows, and tags.
_OF_POLICY_ALONE = frozenset({"hosts", "groups", "tags"})
RULE_WINDOW = _form(
    "RuleWindowForm",
    "A recurring time in which an owner wants work to start; members as in a policy's window.",
    (each for each in WINDOW_TABLE.members if each.name not in _OF_POLICY_ALONE),
)


def window_of(form: Values, where: str) -> Window:
    """Return the window of a rule from its members.

    Raises:
        ValidationFailed: members contradict each other.
    """
    window = _table(WINDOW_TABLE, form, where, "rule")
    assert isinstance(window, Window), window
    return window


def table_forms() -> Iterator[tuple[str, Form]]:
    """Yield the forms of the tables in a policy, each with its place in a TOML file."""
    for each in POLICY.fields:
        if isinstance(each.kind, ListOf) and isinstance(each.kind.kind, Form):
            yield f"[[{each.name}]]", each.kind.kind
        elif isinstance(each.kind, Named) and isinstance(each.kind.kind, Form):
            yield f"[{each.name}.NAME]", each.kind.kind


def read_policy_table(table: object) -> MaintenancePolicy:
    """Return the policy from the unchecked members of a policy file; raises as `policy_of`."""
    return policy_of(POLICY.read(table, _WHERE))


def policy_of(form: Values) -> MaintenancePolicy:
    """Return the policy from the members of a policy file.

    Raises:
        ValidationFailed: members contradict each other.
    """
    return MaintenancePolicy(
        **{
            name: _value(each.kind, form[each.name], f"{_WHERE}.{each.name}")
            for name, each in _MEMBERS
            if each.name in form
        }
    )


def _value(kind: kinds.Kind, item: Any, where: str) -> Any:  # noqa: ANN401
    """Return the value of a member that the form has read."""
    read = _READERS.get(type(kind))
    return read(kind, item, where) if read else item


def _list(kind: kinds.ListKind, items: Iterable[object], where: str) -> tuple[object, ...]:
    values = [_value(kind.kind, each, f"{where}[{number}]") for number, each in enumerate(items)]
    return tuple(dict.fromkeys(values) if kind.distinct else values)


def _by_name(kind: kinds.ByNameKind, tables: Values, where: str) -> object:
    if not isinstance(kind.kind, kinds.TableKind):
        return tables
    return tuple(_table(kind.kind, each, f"{where}.{name}", name) for name, each in tables.items())


def _table(kind: kinds.TableKind, form: Values, where: str, name: str = "") -> object:
    kind_of = {each.name: each.kind for each in kind.members}
    try:
        values = {each: _value(kind_of[each], form[each], f"{where}.{each}") for each in form}
        return kind.read(name, values)
    except CallerError as error:
        if isinstance(error, ValidationFailed):
            raise
        problem = f"is wrong: {error.facts['problem']}"
        raise ValidationFailed(where=where, problem=problem) from error


def _moment(_: kinds.MomentKind, text: str, where: str) -> int:
    if text.startswith("+"):
        raise ValidationFailed(where=where, problem="must be a fixed time")
    return read_time_ms(text, 0)


#: Kind -> its conversion from what the form reads; without one that is the value.
_READERS: dict[type[object], Callable[[Any, Any, str], object]] = {
    kinds.ListKind: _list,
    kinds.ByNameKind: _by_name,
    kinds.TableKind: _table,
    kinds.MomentKind: _moment,
    kinds.SelectorKind: lambda _, given, __: tuple(map("=".join, read_selector(given))),
}


def policy_form(policy: MaintenancePolicy) -> dict[str, Any]:
    """Return a policy as a form for `PUT`, without defaults; tables come last, as in TOML."""
    plain = MaintenancePolicy()
    form = {
        each.name: _file_form(each.kind, getattr(policy, name))
        for name, each in _MEMBERS
        if getattr(policy, name) != getattr(plain, name)
    }
    return dict(sorted(form.items(), key=lambda each: _is_table(each[1])))


def _file_form(kind: kinds.Kind, item: Any) -> Any:  # noqa: ANN401
    """Return a value as a policy file has it."""
    write = _WRITERS.get(type(kind))
    return write(kind, item) if write else item


def _written_by_name(kind: kinds.ByNameKind, values: Any) -> object:  # noqa: ANN401
    if not isinstance(kind.kind, kinds.TableKind):
        return values
    return {each.name: _written_table(kind.kind, each) for each in values}


def _written_table(kind: kinds.TableKind, form: object) -> dict[str, Any]:
    kind_of = {each.name: each.kind for each in kind.members}
    return {name: _file_form(kind_of[name], each) for name, each in kind.write(form).items()}


#: Kind -> its form in a policy file; without one that is the value.
_WRITERS: dict[type[object], Callable[[Any, Any], object]] = {
    kinds.SecondsKind: lambda _, given: iso_duration(given),
    kinds.ShareKind: lambda _, given: f"{given[0]}%" if given[1] else given[0],
    kinds.TimeOfDayKind: lambda _, given: f"{given // 60:02}:{given % 60:02}",
    kinds.MomentKind: lambda _, given: timestamps.iso8601(given),
    kinds.SelectorKind: lambda _, given: ",".join(given),
    kinds.ChoiceKind: lambda kind, given: next(w for w in kind.words if kind.words[w] == given),
    kinds.ListKind: lambda kind, given: [_file_form(kind.kind, each) for each in given],
    kinds.ByNameKind: _written_by_name,
    kinds.TableKind: _written_table,
}


def written_policy(policy: MaintenancePolicy, media: str) -> bytes:
    """Return a policy as a file for `PUT`."""
    form = policy_form(policy)
    if media == YAML:
        from forewarn_server.yaml_reader import written_yaml  # noqa: PLC0415 - rarely needed

        return bytes(written_yaml(form))
    if media == TOML:
        return "\n".join(_toml_lines(form)).encode()
    return (json.dumps(form, indent=2) + "\n").encode()


def _toml_lines(form: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of a TOML file: plain members first, then lists of tables, then tables."""
    tables = {name: each for name, each in form.items() if _is_table(each)}
    yield from (f"{key} = {toml_value(form[key])}" for key in form if key not in tables)
    for kind, item in sorted(tables.items(), key=lambda each: isinstance(each[1], dict)):
        named = isinstance(item, dict)
        for name, table in item.items() if named else (("", each) for each in item):
            yield f"\n[{kind}.{toml_key(name)}]" if named else f"\n[[{kind}]]"
            yield from (f"{key} = {toml_value(value)}" for key, value in table.items())
    yield ""


def _is_table(item: object) -> bool:
    return isinstance(item, dict) or (isinstance(item, list) and isinstance(item[0], dict))
