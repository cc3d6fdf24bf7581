"""Every value type of every form and query needs time in proportion to the value."""

import gc
import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from forewarn_base.validation.fields import ValueType
from forewarn_base.validation.forms import Field, Form, ListOf, Named, OneOrMore
from forewarn_base.validation.json_reader import read_json
from forewarn_server.api.file_process import POLICY_FILE, TOPOLOGY_FILE, read_file
from forewarn_server.api.topology_file import JSON, TOML, YAML
from tests.hostile.growth import GROWTH_MAX, growth, is_slow
from tests.hostile.texts import texts
from tools.product import modules

pytestmark = pytest.mark.slow

SIZE = 16 * 1024

VALUES: dict[str, Callable[[int], object]] = {
    "numbers": lambda size: [0] * size,
    "lists": lambda size: [[]] * size,
    "texts": lambda size: ["a"] * size,
    "different texts": lambda size: [f"a{number}" for number in range(size)],
    "long texts": lambda size: ["a" * 1000] * (size // 1000),
    "table": lambda size: {f"a{number}": 0 for number in range(size)},
    "table of tables": lambda size: {f"a{number}": {} for number in range(size)},
    "pairs": lambda size: [{"a": 0}] * size,
    "long name": lambda size: {"a" * size: 0},
    "long number": lambda size: 1 << (4 * size),
}


def written(name: str, size: int) -> str:
    """Return one of the values as JSON."""
    return json.dumps(VALUES[name](size // 8))


BODIES: dict[str, Callable[[int], str]] = {
    **{f"JSON of {name}": partial(written, name) for name in VALUES if name != "long number"},
    "deep lists": lambda size: "[" * size,
    "deep tables": lambda size: '{"a":' * (size // 5),
    "TOML tables": lambda size: "".join(f"[a{number}]\n" for number in range(size // 8)),
    "TOML names": lambda size: "".join(f"a{number} = 0\n" for number in range(size // 10)),
    "TOML names of parts": lambda size: "".join(
        f"a.b.c{number} = 0\n" for number in range(size // 14)
    ),
    "TOML lists of tables": lambda size: "[[a]]\n" * (size // 6),
    "TOML tables inline": lambda size: "a = [" + "{b = 1}, " * (size // 9) + "]",
    "TOML strings": lambda size: "a = '''" + "\\n'" * (size // 3) + "'''",
    "YAML names": lambda size: "".join(f"a{number}: 0\n" for number in range(size // 9)),
    "YAML anchors": lambda size: "".join(f"- &a{number} 0\n" for number in range(size // 10)),
    "YAML tags": lambda size: (
        "".join(f"%TAG !a{number}! a\n" for number in range(size // 14)) + "--- 1"
    ),
    "YAML deep": lambda size: "".join(" " * n + "a:\n" for n in range(int((2 * size) ** 0.5))),
    "YAML number": lambda size: "1" + ":1" * (size // 2),
    "YAML tagged number": lambda size: "!!float 1" + ":1" * (size // 2) + ".0",
}


def kinds() -> dict[str, ValueType]:
    """Return every value type of a form, a query or the settings, by its first place."""
    product = [*modules()]
    assert product
    found: dict[str, ValueType] = {}
    gc.unfreeze()  # frozen objects are not among those below
    for each in gc.get_objects():
        if type(each) is Field:
            found.setdefault(f"{type(each.kind).__name__} {each.name}", each.kind)
        elif type(each) is Form:
            found.setdefault(f"Form {each.name}", each)
    gc.freeze()
    return dict(sorted(found.items()))


def shaped(kind: ValueType, text: str) -> dict[str, object]:
    """Return values with a text as deep as a type takes one."""
    if isinstance(kind, ListOf | OneOrMore):
        return {"text": text, "list": [text]}
    if isinstance(kind, Named):
        return {"text": text, "name": {text: text}, "value": {"a": text}}
    return {"text": text}


def slow_values(kind: ValueType) -> Iterator[object]:
    """Yield the values that a type needs more than linear time to read."""

    def read(value: object) -> object:
        return kind.read(value, "a")

    def read_text(text: object) -> object:
        return kind.read_text(str(text), "a")

    for text_of in texts():
        for shape in shaped(kind, ""):
            if is_slow(read, partial(shape_of, kind, text_of, shape), SIZE):
                yield text_of(40)
        if is_slow(read_text, text_of, SIZE):
            yield text_of(40)
    for title, value_of in VALUES.items():
        if is_slow(read, value_of, SIZE):
            yield title


def shape_of(kind: ValueType, text_of: Callable[[int], str], shape: str, size: int) -> object:
    """Return a value of a shape with a text."""
    return shaped(kind, text_of(size))[shape]


def test_every_value_type_needs_linear_time() -> None:
    """A hostile text, list or table is read or refused without a second look."""
    found = kinds()
    assert len(found) > 150
    slow = {name: [*slow_values(kind)] for name, kind in found.items()}
    assert not {name: values for name, values in slow.items() if values}


@pytest.mark.parametrize("media", [JSON, TOML, YAML])
@pytest.mark.parametrize("title", BODIES)
def test_body_needs_linear_time(title: str, media: str) -> None:
    """A body of any format in any format's reader needs time in proportion to its length."""

    def read(text: object) -> object:
        assert isinstance(text, str)
        if media == JSON:
            return read_json(text.encode())
        return read_file(TOPOLOGY_FILE if len(text) % 2 else POLICY_FILE, text.encode(), media)

    assert growth(read, BODIES[title], SIZE) <= GROWTH_MAX
