"""Lists, tables and forms of input values, composed of the types in `fields.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from forewarn_base.errors import nearest
from forewarn_base.validation.fields import (
    NAME,
    Schema,
    Text,
    ValidationFailed,
    ValueType,
    shown_value,
    wrong,
)
from forewarn_base.values import value

#: Longest misspelt member for which the error suggests a known one, in characters.
MISSPELT_MAX = 64

_T = TypeVar("_T")


@value
class ListOf:
    """A list of values of one type."""

    kind: ValueType
    most: int
    least: int = 0

    def read(self, value: object, where: str) -> tuple[object, ...]:
        """Return the values in order."""
        if not isinstance(value, list):
            raise wrong(where, value, "a list")
        if not self.least <= len(value) <= self.most:
            problem = f"has {len(value)} members; give {self.least} to {self.most}"
            raise ValidationFailed(where=where, problem=problem)
        read, values = self.kind.read, []
        for each in value:
            try:
                values.append(read(each, where))
            except ValidationFailed:  # parse again, to give the exact location in the error
                read(each, f"{where}[{len(values)}]")
                raise
        return tuple(values)

    def read_text(self, text: str, where: str) -> tuple[object, ...]:
        """Return the comma-separated values in a query parameter."""
        return self.read(text.split(","), where)

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {
            "type": "array",
            "items": self.kind.schema(),
            "minItems": self.least,
            "maxItems": self.most,
        }


@value
class OneOrMore:
    """A value of one type, or a list of such values."""

    kind: ValueType
    most: int

    def read(self, value: object, where: str) -> tuple[Any, ...]:
        """Return the values in order."""
        several = value if isinstance(value, list) else [value]
        return ListOf(self.kind, self.most, 1).read(several, where)

    def read_text(self, text: str, where: str) -> tuple[Any, ...]:
        """Return the comma-separated values in a query parameter."""
        return self.read(text.split(","), where)

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"anyOf": [self.kind.schema(), ListOf(self.kind, self.most, 1).schema()]}


@value
class Named:
    """Values of one type, by name."""

    kind: ValueType
    most: int
    name: Text = NAME

    def read(self, value: object, where: str) -> dict[str, Any]:
        """Return the values by name, in order."""
        if not isinstance(value, dict):
            raise wrong(where, value, "a table of names")
        if len(value) > self.most:
            problem = f"has {len(value)} members; give at most {self.most}"
            raise ValidationFailed(where=where, problem=problem)
        read_name, read = self.name.read, self.kind.read
        values = {}
        for name, each in value.items():
            try:
                values[read_name(name, where)] = read(each, where)
            except ValidationFailed:  # parse again, to give the exact location in the error
                read_name(name, f"a name in {where}")
                read(each, f"{where}.{name}")
                raise
        return values

    def read_text(self, text: str, where: str) -> object:
        """Raise an error, because a query parameter cannot be a table."""
        raise wrong(where, text, "a table of names")

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.kind.schema(),
            "maxProperties": self.most,
        }


@value
class Field:
    """One member of a form or one parameter of a query."""

    name: str
    kind: ValueType
    meaning: str
    required: bool = False


@value
class Form:
    """A JSON object with only known members."""

    name: str
    meaning: str
    fields: tuple[Field, ...] = ()
    _readers: dict[str, Callable[[object, str], object]] = field(
        init=False, repr=False, compare=False
    )
    _required: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create an index of the members by name."""
        readers = {each.name: each.kind.read for each in self.fields}
        required = frozenset(each.name for each in self.fields if each.required)
        object.__setattr__(self, "_readers", readers)
        object.__setattr__(self, "_required", required)

    def read(self, value: object, where: str = "the body") -> dict[str, Any]:
        """Return the parsed members of an object."""
        values = self.read_members(value, where)
        if not self._required <= values.keys():
            lacks = next(
                each.name for each in self.fields if each.required and each.name not in values
            )
            raise ValidationFailed(where=where, problem=f"lacks the member {lacks!r}")
        return values

    def read_members(self, value: object, where: str = "the body") -> dict[str, Any]:
        """Return the parsed members of an object that may lack required members."""
        if not isinstance(value, dict):
            raise wrong(where, value, "an object")
        readers, values = self._readers, {}
        for name, each in value.items():
            read = readers.get(name)
            if read is None:
                raise unknown_member(where, name, readers)
            try:
                values[name] = read(each, where)
            except ValidationFailed:  # parse again, to give the exact location in the error
                read(each, name if where == "the body" else f"{where}.{name}")
                raise
        return values

    def read_text(self, text: str, where: str) -> object:
        """Raise an error, because a query parameter cannot be an object."""
        raise wrong(where, text, "an object")

    def schema(self) -> Schema:
        """Return a reference to the schema in `definition`."""
        return {"$ref": f"#/components/schemas/{self.name}"}

    def definition(self) -> Schema:
        """Return the schema of the form."""
        return {
            "type": "object",
            "description": self.meaning,
            "properties": {
                each.name: {**each.kind.schema(), "description": each.meaning}
                for each in self.fields
            },
            "required": [each.name for each in self.fields if each.required],
            "additionalProperties": False,
        }


def unknown_member(where: str, name: str, known: Iterable[str]) -> ValidationFailed:
    """Return the error for an unknown member."""
    names = list(known)
    problem = f"has the unknown member {shown_value(name)}; known: {', '.join(names) or 'none'}"
    near = nearest(name, names) if len(name) <= MISSPELT_MAX else ""
    return ValidationFailed(where=where, problem=problem, near=near)


def form_of(kind: type[object]) -> Form:
    """Return the form of a settings table whose options are the fields of a dataclass.

    Each option is annotated `Annotated[TYPE, VALUE_TYPE]`, where a text for the reference may
    follow. Options without a default are required. Other fields are not options.
    """
    hints = get_type_hints(kind, include_extras=True)
    options = []
    annotated = (each for each in fields(kind) if get_origin(hints[each.name]) is Annotated)  # type: ignore[arg-type]
    for each in annotated:
        value_type, *meaning = hints[each.name].__metadata__
        required = each.default is each.default_factory is MISSING
        options.append(Field(each.name, value_type, "".join(meaning), required))
    return Form(kind.__name__, (kind.__doc__ or "").strip(), tuple(options))


def read_table(kind: type[_T], table: Mapping[str, object], where: str) -> _T:
    """Parse a settings table into an object of a class for `form_of`.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    return kind(**form_of(kind).read(dict(table), where))
