"""The options of drivers and destinations, declared once in a class."""

from typing import Annotated

import pytest

from forewarn_base.validation.fields import Integer, Text, ValidationFailed
from forewarn_base.validation.forms import form_of, read_table
from forewarn_base.values import value


@value
class Options:
    """Options of a driver."""

    url: Annotated[str, Text(10), "Where it is."]
    tries: Annotated[int, Integer(1, 9)] = 3


def test_table_is_read_with_the_defaults_of_its_class() -> None:
    """An option without a default is required; the class's texts are the reference."""
    assert read_table(Options, {"url": "a"}, "[x]") == Options("a", 3)
    assert [(each.name, each.required, each.meaning) for each in form_of(Options).fields] == [
        ("url", True, "Where it is."),
        ("tries", False, ""),
    ]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"tries": 1}, "[x] lacks the member 'url'"),
        ({"url": "a", "tries": 0}, "[x].tries must be an integer from 1 to 9, not 0"),
        ({"url": "a", "more": 1}, "[x] has the unknown member 'more'; known: url, tries"),
    ],
)
def test_wrong_table_is_refused(table: dict[str, object], problem: str) -> None:
    """The error names the option and the valid values."""
    with pytest.raises(ValidationFailed) as refused:
        read_table(Options, table, "[x]")
    assert problem in str(refused.value)
