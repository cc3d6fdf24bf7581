"""Immutable records, with fast changed copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from operator import attrgetter
from reprlib import recursive_repr
from typing import TypeAlias, TypeVar, dataclass_transform

_R = TypeVar("_R")
_Fields: TypeAlias = "tuple[attrgetter[tuple[object, ...]], dict[str, int]]"

_KNOWN: dict[type[object], _Fields] = {}
#: Placeholder for an argument that was not given.
_LEFT_OUT = object()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[_R]) -> type[_R]:
    """Make a class a dataclass of immutable objects, equal and hashed by their fields.

    Only the type checker refuses changes. A frozen dataclass sets each field
    by a call, which makes creating an operation ten times slower. Source: ADR 0013.
    """
    made_class = dataclass(slots=True, eq=False, repr=False, init=False)(kind)
    # `dataclass` compiles each method when the class is created, which would slow down the start
    # for hundreds of classes. These methods are as fast without compilation; the
    # constructor is compiled with the first object.
    names = [field.name for field in fields(made_class) if field.compare]  # type: ignore[arg-type]
    read = attrgetter(*names) if names else _nothing

    def equal(one: object, other: object) -> object:
        return read(one) == read(other) if other.__class__ is one.__class__ else NotImplemented

    def hashed(one: object) -> int:
        return hash(read(one))

    def begin(one: object, *given: object, **named: object) -> None:
        made_class.__init__ = _init_of(made_class)  # type: ignore[method-assign]
        made_class.__init__(one, *given, **named)

    own = {"__init__": begin, "__eq__": equal, "__hash__": hashed, "__repr__": _repr}
    for name, method in own.items():
        if name not in kind.__dict__:
            setattr(made_class, name, method)
    return made_class


class Word(Enum):
    """An enumeration of words with a fast hash; Enum's own hash is written in Python."""

    __hash__ = object.__hash__


def replace(record: _R, **changes: object) -> _R:
    """Return a copy of a record with other values in some fields.

    The same as `dataclasses.replace` in less than half the time: an operation has 28 fields, and
    one request for work creates eight new values. Only for dataclasses with positional fields.

    Raises:
        KeyError: the record has no such field.
    """
    kind = type(record)
    read, places = _KNOWN.get(kind) or _fields_of(kind)
    values = list(read(record))
    for name, new in changes.items():
        values[places[name]] = new
    return kind(*values)


def _init_of(kind: type[object]) -> Callable[..., None]:
    """Return the constructor that `dataclass` would have generated."""
    scope: dict[str, object] = {"_left_out": _LEFT_OUT}
    parameters, lines = ["self"], ["pass"]
    for each in fields(kind):  # type: ignore[arg-type]
        assert not each.kw_only, each
        if not each.init:
            assert each.default is each.default_factory, each  # both texts are missing
            continue
        name = value = each.name
        parameter = name
        if each.default is not MISSING:
            parameter, scope[f"_of_{name}"] = f"{name}=_of_{name}", each.default
        elif each.default_factory is not MISSING:
            parameter, scope[f"_of_{name}"] = f"{name}=_left_out", each.default_factory
            value = f"_of_{name}() if {name} is _left_out else {name}"
        parameters.append(parameter)
        lines.append(f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines)
    exec(text, scope)  # noqa: S102 - of our own names
    init: Callable[..., None] = scope["__init__"]  # type: ignore[assignment]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _nothing(_: object) -> None:
    """Read the fields of a value without any."""


@recursive_repr()
def _repr(one: object) -> str:
    """Return a value's text as `dataclass` shows it: its class, and its fields by name."""
    shown = ", ".join(
        f"{each.name}={getattr(one, each.name)!r}"
        for each in fields(one)  # type: ignore[arg-type]
        if each.repr
    )
    return f"{one.__class__.__qualname__}({shown})"


def _fields_of(kind: type[object]) -> _Fields:
    """Return a getter of all fields and their positions; cached."""
    positional = [field for field in fields(kind) if field.init]  # type: ignore[arg-type]
    assert len(positional) > 1, kind  # a getter of one field returns no tuple
    assert not any(field.kw_only for field in positional), kind
    names = [field.name for field in positional]
    known = _KNOWN[kind] = attrgetter(*names), {name: n for n, name in enumerate(names)}
    return known
