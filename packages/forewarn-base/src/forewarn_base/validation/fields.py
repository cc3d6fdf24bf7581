"""Types of input values, which parse values and return their schemas.

The parsers of requests and the OpenAPI document use the same types. Lists and forms of values are
in `forms.py`.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.names import NAME_PATTERN, TEXT_LENGTH_MAX
from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.validation.durations import (
    DURATION_PATTERN,
    TIME_PATTERN,
    read_duration_s,
    read_time_ms,
)
from forewarn_base.values import value

Schema: TypeAlias = dict[str, object]
Values: TypeAlias = Mapping[str, Any]

#: Largest integer that all JSON parsers read exactly.
WHOLE_MAX = 2**53 - 1
#: Pattern of canonical IPv4 addresses below 224.0.0.0, which machines can have.
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_UNICAST_V4 = re.compile(
    rf"(?:22[0-3]|2[01][0-9]|1[0-9]{{2}}|[1-9][0-9]?)(?:\.{_OCTET}){{3}}"
).fullmatch

#: Longest text of an IPv6 address, with an IPv4 address at its end.
ADDRESS_LENGTH_MAX = 45

#: Suffixes of member names whose values may be secrets.
_SECRET = re.compile(r"(?:secret|token|password|key|url)s?(?:_file)?(?:\[\d+\])*$")


#: Longest value in a message, in characters.
SHOWN_LENGTH_MAX = 60
#: Bits of the largest number, and members of the largest list, that fit.
_BITS_SHOWN, _MEMBERS_SHOWN = 200, 20


class ValidationFailed(CallerError):
    """A member of a form, file or query is unknown, missing or invalid."""

    code = "validation-failed"
    status = 422
    message = "{where} {problem}."
    advice = "Correct the value, and try again; nothing was changed."

    def without(self, place: str) -> str:
        """Return the problem without the prefix `place`."""
        return str(self).removeprefix(place).strip(" .")


class ValueType(Protocol):
    """A type of input values."""

    def read(self, value: object, where: str) -> object:
        """Return the parsed value, or raise `ValidationFailed`."""

    def read_text(self, text: str, where: str) -> object:
        """Parse the text of a query parameter."""

    def schema(self) -> Schema:
        """Return the JSON schema of the values that `read` accepts."""


def wrong(where: str, value: object, wanted: str) -> ValidationFailed:
    """Return the error for a value of the wrong type; hide values that may be secrets."""
    shown = shown_value(value)
    if _SECRET.search(where) or "://" in shown:
        return ValidationFailed(where=where, problem=f"must be {wanted}")
    return ValidationFailed(where=where, problem=f"must be {wanted}, not {shown}")


def shown_value(value: object) -> str:
    """Return the beginning of a value for a message; O(1), however large the value is."""
    if isinstance(value, list):
        shown = f"[{', '.join(map(_beginning, value[:_MEMBERS_SHOWN]))}]"
    elif isinstance(value, dict):
        members = itertools.islice(value.items(), _MEMBERS_SHOWN)
        pairs = (f"{_beginning(name)}: {_beginning(member)}" for name, member in members)
        shown = f"{{{', '.join(pairs)}}}"
    else:
        shown = _beginning(value)
    return shown if len(shown) <= SHOWN_LENGTH_MAX else shown[: SHOWN_LENGTH_MAX - 1] + "…"


def _beginning(value: object) -> str:
    """Return a value, or at least as many of its characters as a message shows."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str | bytes):
        return repr(value[:SHOWN_LENGTH_MAX])
    if isinstance(value, int) and value.bit_length() > _BITS_SHOWN:
        return "a number of more than 60 digits"
    if isinstance(value, list | dict):
        return "[…]" if isinstance(value, list) else "{…}"
    return repr(value)


@value
class Text:
    """Printable text, limited to one line unless `lines` is set."""

    length_max: int = TEXT_LENGTH_MAX
    pattern: str = ""
    wanted: str = ""
    lines: bool = False
    _matches: Callable[[str], object] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the pattern; without a pattern, any text is valid."""
        matches = re.compile(self.pattern).fullmatch if self.pattern else _any
        object.__setattr__(self, "_matches", matches)

    def read(self, value: object, where: str) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise wrong(where, value, "a string")
        if len(value) > self.length_max:
            raise wrong(where, value, f"at most {self.length_max} characters long")
        if (
            not self.lines and not value.isprintable()
        ):  # also refuses unpaired surrogates, which stores do not accept
            raise wrong(where, value, "printable")
        if not self._matches(value):
            raise wrong(where, value, self.wanted)
        return value

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        form: Schema = {"type": "string", "maxLength": self.length_max}
        return {**form, "pattern": f"^({self.pattern})$"} if self.pattern else form


def _any(_text: str) -> bool:
    """Accept any text."""
    return True


NAME = Text(
    128,
    pattern=NAME_PATTERN.pattern,
    wanted="1 to 128 letters, digits, `_`, `.`, `-`, and begin with a letter, digit or `_`",
)


@value
class Integer:
    """A whole number."""

    least: int = 0
    most: int = WHOLE_MAX

    @property
    def wanted(self) -> str:
        """The permitted values, as a phrase for errors."""
        if self.most < WHOLE_MAX:
            return f"an integer from {self.least} to {self.most}"
        return {0: "a non-negative integer", 1: "a positive integer"}.get(self.least, "an integer")

    def read(self, value: object, where: str) -> int:
        """Return the number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has a single number type, in which 1.0 equals 1
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(where, value, self.wanted)
        if not self.least <= value <= self.most:
            raise wrong(where, value, self.wanted)
        return value

    def read_text(self, text: str, where: str) -> int:
        """Return the number in a query parameter."""
        if not re.fullmatch(r"-?[0-9]{1,16}", text):
            raise wrong(where, text, self.wanted)
        return self.read(int(text), where)

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@value
class Number:
    """A number, possibly with a fraction."""

    least: float = -math.inf
    most: float = math.inf

    @property
    def wanted(self) -> str:
        """The permitted values, as a phrase for errors."""
        ranged = self.least > -math.inf or self.most < math.inf
        return f"a number from {self.least:.12g} to {self.most:.12g}" if ranged else "a number"

    def read(self, value: object, where: str) -> float:
        """Return the number."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong(where, value, self.wanted)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not self.least <= number <= self.most:  # the comparison also refuses NaN
            raise wrong(where, value, self.wanted)
        return number

    def read_text(self, text: str, where: str) -> float:
        """Return the number in a query parameter."""
        try:
            return self.read(float(text), where)
        except ValueError:
            raise wrong(where, text, self.wanted) from None

    def schema(self) -> Schema:
        """Return the JSON schema."""
        form: Schema = {"type": "number"}
        ends = {"minimum": self.least, "maximum": self.most}
        return form | {name: end for name, end in ends.items() if abs(end) < math.inf}


@value
class Boolean:
    """True or false."""

    def read(self, value: object, where: str) -> bool:
        """Return the flag."""
        if not isinstance(value, bool):
            raise wrong(where, value, "true or false")
        return value

    def read_text(self, text: str, where: str) -> bool:
        """Return the flag in a query parameter."""
        if text not in {"true", "false"}:
            raise wrong(where, text, "true or false")
        return text == "true"

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"type": "boolean"}


@value
class Choice:
    """One of several words, which `values` maps to values of the program.

    `meanings` explains each word in the schema.
    """

    values: Mapping[str, object]
    meanings: Mapping[str, str] = field(default_factory=dict)

    def read(self, value: object, where: str) -> object:
        """Return the value of the word."""
        if not isinstance(value, str) or value not in self.values:
            raise wrong(where, value, "one of " + ", ".join(self.values))
        return self.values[value]

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        if self.meanings:
            words = [{"const": word, "description": text} for word, text in self.meanings.items()]
            return {"type": "string", "oneOf": words}
        return {"type": "string", "enum": list(self.values)}


@value
class Duration:
    """A duration in seconds: a number, or text such as `15m` or `PT15M`."""

    least_s: int = 0
    most_s: int = 366 * 86_400

    def read(self, value: object, where: str) -> int:
        """Return seconds."""
        given = value
        if isinstance(value, str):
            try:
                value = read_duration_s(value)
            except ValueError:
                raise wrong(where, value, "a duration such as 90, `15m` or `PT15M`") from None
        number = Integer(-WHOLE_MAX).read(value, where)
        if not self.least_s <= number <= self.most_s:
            wanted = (
                f"a duration from {duration_text(self.least_s)} to {duration_text(self.most_s)}"
            )
            raise wrong(where, given, wanted)
        return number

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        number = Integer(self.least_s, self.most_s).schema()
        return {"anyOf": [number, {"type": "string", "pattern": f"^({DURATION_PATTERN})$"}]}


@value
class Timestamp:
    """A time, as RFC 3339 or as `+` and a duration from now; checked, and returned as text."""

    #: Word that is accepted instead of a time; empty: none.
    word: str = ""

    def read(self, value: object, where: str) -> str:
        """Return the text; `read_time_ms` converts it."""
        if not isinstance(value, str):
            raise wrong(where, value, "a time")
        try:
            if not self.word or value != self.word:
                read_time_ms(value, 0)
        except ValueError:
            wanted = "a time with its zone such as 2026-11-21T18:30:00Z, or +15m from now"
            more = f", or `{self.word}`" if self.word else ""
            raise wrong(where, value, wanted + more) from None
        return value

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        words = f"|{self.word}" if self.word else ""
        return {"type": "string", "pattern": f"^({TIME_PATTERN}{words})$"}


@value
class TimeOfDay:
    """A time of day from 00:00 to 24:00, parsed into minutes after midnight."""

    def read(self, value: object, where: str) -> int:
        """Return minutes after midnight."""
        text = value if isinstance(value, str) else ""
        if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", text):
            raise wrong(where, value, "a time of day such as 22:30, from 00:00 to 24:00")
        return int(text[:2]) * 60 + int(text[3:])

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"type": "string", "pattern": "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"}


@value
class Share:
    """A number, or a percentage such as `10%`, parsed into a number and a flag."""

    most: int = WHOLE_MAX

    def read(self, value: object, where: str) -> tuple[int, bool]:
        """Return the number, and whether the value is a percentage."""
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}%", value):
            percent = int(value[:-1])
            if 1 <= percent <= 100:
                return percent, True
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= self.most:
            return value, False
        raise wrong(where, value, "a non-negative integer, or a percentage from 1% to 100%")

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        percent = {"type": "string", "pattern": "^([1-9]|[1-9][0-9]|100)%$"}
        return {"anyOf": [Integer(0, self.most).schema(), percent]}


@value
class IpAddress:
    """An IPv4 or IPv6 address, parsed into its canonical text."""

    def read(self, value: object, where: str) -> str:
        """Return the canonical text."""
        wanted = "an IPv4 or IPv6 address"
        if not isinstance(value, str) or len(value) > ADDRESS_LENGTH_MAX or "%" in value:
            raise wrong(where, value, wanted)
        if _UNICAST_V4(value):  # fast path for the most common addresses
            return value
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            raise wrong(where, value, wanted) from None
        address = getattr(address, "ipv4_mapped", None) or address
        broadcast = str(address) == "255.255.255.255"
        if address.is_unspecified or address.is_multicast or broadcast:
            raise wrong(where, value, "the address of one machine")
        return str(address)

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}


@value
class Subnet:
    """An IPv4 subnet as `ADDRESS/PREFIX`, parsed into its canonical text."""

    def read(self, value: object, where: str) -> str:
        """Return the canonical text of the subnet, with the host part cleared."""
        text = value if isinstance(value, str) and "/" in value else ""
        try:
            return str(ipaddress.IPv4Network(text, strict=False))
        except ValueError:
            raise wrong(where, value, "a subnet such as 10.0.0.0/24") from None

    read_text = read

    def schema(self) -> Schema:
        """Return the JSON schema."""
        return {"type": "string", "pattern": r"^[0-9.]+/[0-9.]+$"}
