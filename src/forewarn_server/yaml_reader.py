"""Strict YAML parser for fleets, without aliases and deep nesting.

Only this module imports the YAML package. Other modules check the values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from forewarn_base.validation.complexity import DEPTH_MAX, check_count
from forewarn_base.validation.fields import shown_value
from forewarn_base.validation.json_reader import double_of

#: Line width of written YAML, large enough for long texts on one line.
YAML_WIDTH = 1_000_000
#: Longest number, date or other value that is not text: Python needs quadratic time for some.
VALUE_LENGTH_MAX = 100
#: Most directives (`%TAG …`); libyaml compares each with all others.
DIRECTIVES_MAX = 100

_DIRECTIVE = re.compile(r"[\n\r\x85\u2028\u2029]%")
_TEXT = "tag:yaml.org,2002:str"


def read_yaml(text: str) -> object:
    """Parse a YAML text; refuse aliases, duplicate names and deep nesting.

    Aliases are refused, because aliases let a small file describe a huge structure.

    Raises:
        ValueError: the text is not YAML, or contains a refused construct or an overlong value.
        FileTooComplex: the text has too many members.
    """
    if sum(1 for _ in _DIRECTIVE.finditer(text)) > DIRECTIVES_MAX:
        raise ValueError(f"the text has more than {DIRECTIVES_MAX} directives")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = yaml.SafeLoader("")
    stack: list[tuple[list[Any], bool]] = [([], False)]
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            check_count(count)
            match event:
                case yaml.AliasEvent():
                    raise ValueError(f"{event.start_mark}: aliases are not supported")
                case yaml.ScalarEvent():
                    stack[-1][0].append(_scalar(plain, event))
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    if len(stack) > DEPTH_MAX:
                        raise ValueError(f"{event.start_mark}: the text is nested too deeply")
                    stack.append(([], isinstance(event, yaml.MappingStartEvent)))
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    members, is_mapping = stack.pop()
                    stack[-1][0].append(_mapping(members) if is_mapping else members)
                case _:
                    pass
    except yaml.YAMLError as error:
        raise ValueError(error) from error
    documents = stack[0][0]
    if len(documents) != 1:
        raise ValueError(f"the text contains {len(documents)} documents instead of one")
    return documents[0]


def written_yaml(form: object) -> bytes:
    """Return a form as YAML text."""
    text: str = yaml.safe_dump(form, sort_keys=False, allow_unicode=True, width=YAML_WIDTH)
    return text.encode()


def _scalar(loader: yaml.SafeLoader, event: yaml.ScalarEvent) -> object:
    kind = yaml.ScalarNode
    tag = event.tag or loader.resolve(kind, event.value, event.implicit)  # type: ignore[no-untyped-call]
    if tag != _TEXT and len(event.value) > VALUE_LENGTH_MAX:
        limit = f"a value longer than {VALUE_LENGTH_MAX} characters must be in quotes"
        raise ValueError(f"{event.start_mark}: {limit}")
    value: object = loader.construct_object(kind(tag, event.value))
    return value


def _mapping(members: list[Any]) -> dict[str, Any]:
    names, values = members[::2], members[1::2]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(  # noqa: TRY004 - it is the file that is wrong
                f"the name {shown_value(name)} is not text; put it in quotes"
            )
    mapping = dict(zip(names, values, strict=True))
    if len(mapping) != len(names):
        raise ValueError(f"the name {shown_value(double_of(names))} is given twice")
    return mapping
