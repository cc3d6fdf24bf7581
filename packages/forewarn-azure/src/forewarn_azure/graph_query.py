"""The part of Resource Graph's query language for queries about scheduled events. Pure.

A query is a table and steps between pipes; each step turns rows into rows. A recursive descent
parser reads expressions: `or` binds least, then `and`, then a comparison, then a value. The error
for an unknown word contains the word.
Source: https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

from forewarn_azure.json_values import JsonObject
from forewarn_base.errors import CallerError
from forewarn_base.validation.complexity import checkpoint

Rows: TypeAlias = list[JsonObject]
#: Function that returns the value of an expression in a row.
Expression: TypeAlias = Callable[[JsonObject], object]

#: The supported tables: scheduled events of VMs, and maintenances of managed clusters.
TABLE, CLUSTER_TABLE = "maintenanceresources", "containerserviceeventresources"
#: Maximum characters, tokens, steps and depth of parentheses of a query.
CHARACTERS_MAX, TOKENS_MAX, STEPS_MAX, DEPTH_MAX = 10_000, 1000, 50, 20

_TOKEN = re.compile(
    r"""
      (?P<text>'[^']*'|"[^"]*")
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<sign>==|=~|!=|!~|<=|>=|![A-Za-z_]+~?|in~|[<>=(),|])
    | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    | (?P<other>\S)
    """,
    re.VERBOSE,
)


class GraphQueryInvalid(CallerError):
    """Resource Graph does not support the query."""

    code = "arm-graph-query-invalid"
    message = "The query cannot be answered: {reason}."
    advice = (
        "See 'Azure Resource Manager' in the documentation for the supported part of the language."
    )


def answered(query: str, rows: Rows) -> Rows:
    """Return the result of a query on the rows of the table; O(tokens * rows). Source: Z-8.

    Raises:
        GraphQueryInvalid: the table or a word is unknown, or a limit is exceeded.
        Abandoned: the caller no longer waits.
    """
    if len(query) > CHARACTERS_MAX:
        raise GraphQueryInvalid(reason=f"it is longer than {CHARACTERS_MAX} characters")
    tokens = _Tokens(query)
    _table(tokens)
    for _ in range(STEPS_MAX):
        if not tokens.take_if("|"):
            break
        word = tokens.take()
        step = _STEPS.get(word.lower())
        if step is None:
            raise GraphQueryInvalid(reason=f"{word[:64]!r} is unknown")
        rows = step(tokens, rows)
    if tokens.next:
        reason = f"{tokens.next[:64]!r} is unexpected" if tokens.next != "|" else _TOO_LONG
        raise GraphQueryInvalid(reason=reason)
    return rows


def table_of(query: str) -> str:
    """Return the table of a query.

    Raises:
        GraphQueryInvalid: the table is unknown.
    """
    return _table(_Tokens(query[:CHARACTERS_MAX]))


def _table(tokens: _Tokens) -> str:
    table = tokens.take().lower()
    if table not in {TABLE, CLUSTER_TABLE}:
        reason = f"the tables are {TABLE} and {CLUSTER_TABLE}, not {table[:64]!r}"
        raise GraphQueryInvalid(reason=reason)
    return table


_TOO_LONG = f"it has more than {STEPS_MAX} steps"


class _Tokens:
    """The remaining tokens of a query."""

    def __init__(self, query: str) -> None:
        matches = itertools.islice(_TOKEN.finditer(query), TOKENS_MAX + 1)
        self._left = [(each[each.lastgroup or 0], each.lastgroup or "") for each in matches]
        if len(self._left) > TOKENS_MAX:
            raise GraphQueryInvalid(reason=f"it has more than {TOKENS_MAX} words and signs")
        self._left.reverse()
        self._depth = 0

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self._left[-1][0] if self._left else ""

    @property
    def kind(self) -> str:
        return self._left[-1][1] if self._left else ""

    def take(self) -> str:
        token = self.next
        if self._left:
            self._left.pop()
        return token

    def take_if(self, *words: str) -> str:
        """Return the next token if it is one of these words, ignoring case; otherwise `""`."""
        return self.take().lower() if self.next.lower() in words else ""

    def expect(self, word: str) -> None:
        if not self.take_if(word):
            position = repr(self.next[:64]) if self.next else "its end"
            raise GraphQueryInvalid(reason=f"{word!r} is expected instead of {position}")

    def name(self) -> str:
        if self.kind != "name":
            position = repr(self.next[:64]) if self.next else "its end"
            raise GraphQueryInvalid(reason=f"a column is expected instead of {position}")
        return self.take()

    def deeper(self, by: int) -> None:
        self._depth += by
        if self._depth > DEPTH_MAX:
            raise GraphQueryInvalid(reason=f"its parentheses are more than {DEPTH_MAX} deep")


# --- expressions -------------------------------------------------------------------------------


def _expression(tokens: _Tokens) -> Expression:
    tokens.deeper(1)
    parts = [_conjunction(tokens)]
    while tokens.take_if("or"):
        parts.append(_conjunction(tokens))
    tokens.deeper(-1)
    return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)


def _conjunction(tokens: _Tokens) -> Expression:
    parts = [_comparison(tokens)]
    while tokens.take_if("and"):
        parts.append(_comparison(tokens))
    return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)


def _comparison(tokens: _Tokens) -> Expression:
    left = _single_value(tokens)
    sign = tokens.next.lower()
    negated = sign.startswith("!") and sign not in {"!=", "!~"}
    if sign.lstrip("!") in {"in", "in~"}:
        tokens.take()
        among = _arguments(tokens)
        compare = _SIGNS["=~" if sign.endswith("~") else "=="]
        return lambda row: negated is not any(compare(left(row), each(row)) for each in among)
    known = _SIGNS.get(sign) or _SIGNS.get(sign.lstrip("!"))
    if known is None:
        return left
    tokens.take()
    right = _single_value(tokens)
    return lambda row: negated is not known(left(row), right(row))


def _single_value(tokens: _Tokens) -> Expression:
    """Parse a literal, a column, a function call, or an expression in parentheses."""
    if tokens.take_if("("):
        inner = _expression(tokens)
        tokens.expect(")")
        return inner
    kind, token = tokens.kind, tokens.next
    if kind == "text":
        literal: object = tokens.take()[1:-1]
        return lambda _: literal
    if kind == "number":
        number = float(tokens.take())
        return lambda _: number
    name = tokens.name()
    if tokens.next == "(":
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            raise GraphQueryInvalid(reason=f"the function {token[:64]!r} is unknown")
        (argument,) = _exactly_one(_arguments(tokens), name)
        return lambda row: function(argument(row))
    if name.lower() in {"true", "false"}:
        return lambda _: name.lower() == "true"
    return lambda row: _value(row, name)


def _arguments(tokens: _Tokens) -> list[Expression]:
    tokens.expect("(")
    arguments: list[Expression] = []
    while not tokens.take_if(")"):
        if arguments:
            tokens.expect(",")
        arguments.append(_expression(tokens))
    return arguments


def _exactly_one(arguments: list[Expression], name: str) -> list[Expression]:
    if len(arguments) != 1:
        raise GraphQueryInvalid(reason=f"{name[:64]} requires one value, not {len(arguments)}")
    return arguments


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _is_number(*values: object) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _equal(one: object, other: object) -> bool:
    if _is_number(one, other) or isinstance(other, bool):
        return one == other
    return _text(one) == _text(other)


def _below(one: object, other: object) -> bool:
    if _is_number(one, other):
        return cast("float", one) < cast("float", other)
    return _text(one) < _text(other)


def _fold(value: object) -> str:
    return _text(value).lower()


def _terms(value: object) -> str:
    return f" {' '.join(re.findall(r'[A-Za-z0-9_]+', _fold(value)))} "


_SIGNS: dict[str, Callable[[object, object], bool]] = {
    "==": _equal,
    "!=": lambda one, other: not _equal(one, other),
    "=~": lambda one, other: _fold(one) == _fold(other),
    "!~": lambda one, other: _fold(one) != _fold(other),
    "<": _below,
    ">": lambda one, other: _below(other, one),
    "<=": lambda one, other: not _below(other, one),
    ">=": lambda one, other: not _below(one, other),
    "contains": lambda one, other: _fold(other) in _fold(one),
    "contains_cs": lambda one, other: _text(other) in _text(one),
    "startswith": lambda one, other: _fold(one).startswith(_fold(other)),
    "endswith": lambda one, other: _fold(one).endswith(_fold(other)),
    "has": lambda one, other: _terms(other) in _terms(one),
}
_FUNCTIONS: dict[str, Callable[[object], object]] = {
    "tostring": _text,
    "tolower": _fold,
    "toupper": lambda value: _text(value).upper(),
    "strlen": lambda value: len(_text(value)),
    "array_length": lambda value: len(value) if isinstance(value, list) else None,
    "isempty": lambda value: value in (None, ""),
    "isnotempty": lambda value: value not in (None, ""),
    "isnull": lambda value: value is None,
    "isnotnull": lambda value: value is not None,
    "not": lambda value: not value,
}


# --- steps -------------------------------------------------------------------------------------


def _each(rows: Rows) -> Iterator[JsonObject]:
    """Yield the rows while the caller waits for the answer."""
    for row in rows:
        checkpoint()
        yield row


def _where(tokens: _Tokens, rows: Rows) -> Rows:
    condition = _expression(tokens)
    return [row for row in _each(rows) if condition(row)]


def _named(tokens: _Tokens) -> list[tuple[str, Expression]]:
    """Parse a list of columns and `name = expression` definitions."""
    columns: list[tuple[str, Expression]] = []
    while True:
        start = tokens.next
        value = _expression(tokens)
        name = start.replace(".", "_")
        if tokens.take_if("="):
            name, value = start, _expression(tokens)
        columns.append((name, value))
        if not tokens.take_if(","):
            return columns


def _extend(tokens: _Tokens, rows: Rows) -> Rows:
    added = _named(tokens)
    extended = [dict(row) for row in rows]
    for row in _each(extended):
        for name, value in added:  # a later column may use an earlier one
            row[name] = value(row)
    return extended


def _project(tokens: _Tokens, rows: Rows) -> Rows:
    named = _named(tokens)
    return [{name: value(row) for name, value in named} for row in _each(rows)]


def _distinct(tokens: _Tokens, rows: Rows) -> Rows:
    return [*{str(row): row for row in _project(tokens, rows)}.values()]


def _summarize(tokens: _Tokens, rows: Rows) -> Rows:
    """Count the rows of each group: `summarize [name =] count() [by column, …]`."""
    name = tokens.name()
    if tokens.take_if("="):
        counted = tokens.name()
    else:
        name, counted = "count_", name
    if counted.lower() != "count":
        raise GraphQueryInvalid(reason=f"{counted[:64]!r} is unknown; only count() is supported")
    tokens.expect("(")
    tokens.expect(")")
    by = _named(tokens) if tokens.take_if("by") else []
    groups: dict[str, JsonObject] = {} if by else {"": {name: 0}}
    for row in _each(rows):
        values: JsonObject = {column: value(row) for column, value in by}
        group = groups.setdefault(str(values) if by else "", {**values, name: 0})
        group[name] += 1
    return list(groups.values())


def _sort(tokens: _Tokens, rows: Rows) -> Rows:
    tokens.expect("by")
    keys: list[tuple[Expression, bool]] = []
    while True:
        value = _expression(tokens)
        keys.append((value, tokens.take_if("asc", "desc") != "asc"))
        if not tokens.take_if(","):
            break
    for value, descending in reversed(keys):
        rows = sorted(_each(rows), key=lambda row: _sort_key(value(row)), reverse=descending)
    return rows


def _sort_key(value: object) -> tuple[bool, float, str]:
    number = float(cast("float", value)) if _is_number(value) else 0.0
    return not _is_number(value), number, _text(value)


def _take(tokens: _Tokens, rows: Rows) -> Rows:
    if not re.fullmatch(r"\d{1,9}", tokens.next):
        raise GraphQueryInvalid(reason=f"{tokens.next[:64]!r} is not a number of rows")
    return rows[: int(tokens.take())]


def _count(_: _Tokens, rows: Rows) -> Rows:
    return [{"Count": len(rows)}]


_STEPS: dict[str, Callable[[_Tokens, Rows], Rows]] = {
    "where": _where,
    "extend": _extend,
    "project": _project,
    "distinct": _distinct,
    "summarize": _summarize,
    "sort": _sort,
    "order": _sort,
    "take": _take,
    "limit": _take,
    "count": _count,
}


def _value(row: JsonObject, column: str) -> object:
    """Return a row's value in a column, ignoring case; None without the column."""
    value: object = row
    for name in column.split("."):
        if not isinstance(value, dict):
            return None
        if name not in value:
            known = {str(each).lower(): each for each in value}
            name = known.get(name.lower(), name)
        value = value.get(name)
    return value
