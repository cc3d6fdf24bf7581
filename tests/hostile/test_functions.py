"""Functions of the product that take a text, or read a file, need time in proportion to its length.

They are found by the types of their parameters.
"""

import contextlib
import inspect
import io
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.hostile.growth import is_slow
from tests.hostile.texts import texts
from tools.product import modules

pytestmark = pytest.mark.slow

SIZE = 16 * 1024
#: Processor time after which a function gets no more texts than `TEXTS_MIN`: some do much else.
BUDGET_S = 0.5
#: Pieces that differ come first.
TEXTS_MIN = 20
TEXTS = {"str", "bytes", "bytes | str", "str | bytes", "bytes | bytearray", "object"}
PATH, FILE = "Path", "file"
THERE = Path("there")
#: Annotation of a parameter -> its value while another one is hostile.
OTHERS: dict[str, object] = {
    "int": 1,
    "int | None": 1,
    "float": 1.0,
    "bool": True,
    "str | None": "a",
    "Values": {},
    "JsonObject": {},
    "Sequence[str]": (),
    "Iterable[str]": (),
    "Mapping[str, str]": {},
    "tuple[str, ...]": (),
    PATH: THERE,
}
#: Modules that are not called: their functions act on more than their arguments.
ACTING = {
    "forewarn.agent.operator_requests": "removes files",
    "forewarn.agent.preparations.pacemaker": "starts processes",
    "forewarn.agent.preparations.slurm": "starts processes",
    "forewarn.agent.startup": "starts processes",
    "forewarn.agent.undo_commands": "changes the user",
    "forewarn_libvirt.connection": "opens connections; the library keeps the last error",
    "forewarn_emulator.attested_documents": "makes keys",
    "forewarn_base.openssl": "makes keys",
    "forewarn_server.api.listener": "opens sockets",
    "forewarn_server.service.process": "ends the process",
    "forewarn_store": "opens stores",
    "forewarn_store.backup": "opens stores",
    "forewarn_store.sqlite_file": "opens stores",
    "forewarn_base.programs": "starts processes",
}


def functions() -> Iterator[Callable[..., object]]:
    """Yield every function of the product with a text as argument, in each of its places."""
    for module in modules():
        if module.__name__ in ACTING:
            continue
        for each in vars(module).values():
            if inspect.isfunction(each) and each.__module__ == module.__name__:
                yield each


def calls(function: Callable[..., object]) -> Iterator[tuple[str, Callable[[object], object]]]:
    """Yield the type of each argument that takes a text, and the call with only it open."""
    required = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    kinds = {each.name: str(each.annotation) for each in required}
    if inspect.iscoroutinefunction(function) or set(kinds.values()) - TEXTS - OTHERS.keys():
        return
    if any(each.kind is each.POSITIONAL_ONLY for each in required):
        return
    usual = {
        name: OTHERS.get(kind, b"a" if "bytes" in kind else "a") for name, kind in kinds.items()
    }
    for name, kind in kinds.items():
        if kind in TEXTS:
            yield kind, partial(call_with, function, usual, name)
        if kind == PATH or (kind == "str" and name == "path"):
            yield FILE, partial(call_with_file, function, usual, name)


def call_with_file(
    function: Callable[..., object], usual: dict[str, object], name: str, text: object
) -> object:
    """Call a function with the path of a file that has the text."""
    path = Path("file.toml").resolve()
    path.write_text(str(text), "utf-8")
    return call_with(function, usual, name, path if usual[name] == THERE else str(path))


def call_with(
    function: Callable[..., object], usual: dict[str, object], name: str, text: object
) -> object:
    """Call a function with its usual arguments but one."""
    return function(**usual | {name: text})


FOUND = {
    f"{function.__module__}.{function.__name__}-{number}": call
    for function in functions()
    for number, call in enumerate(calls(function))
}


@pytest.mark.parametrize("name", FOUND)
def test_function_needs_linear_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No repeated piece makes a function look at the same characters again and again."""
    monkeypatch.chdir(tmp_path)
    kind, call = FOUND[name]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        every, begun_s = [*texts()], time.thread_time()
        spread = [text_of for first in range(TEXTS_MIN) for text_of in every[first::TEXTS_MIN]]
        for count, text_of in enumerate(spread):
            if count >= TEXTS_MIN and time.thread_time() - begun_s > BUDGET_S:
                break
            made = partial(encoded, text_of) if "bytes" in kind else text_of
            assert not is_slow(call, made, SIZE), text_of(40)


@pytest.mark.parametrize(
    ("read", "slow"),
    [
        (re.compile(r" +x").search, True),
        (lambda text: [text.count(each) for each in text[:4000]], False),
        (lambda text: [text[at:].strip() for at in range(0, len(text), 2)], True),
    ],
)
def test_quadratic_time_is_seen(read: Callable[[str], object], slow: bool) -> None:
    """A function that looks again from each place is told from one that is only slow."""
    assert is_slow(read, lambda size: " " * size, SIZE) == slow


def encoded(text_of: Callable[[int], str], size: int) -> bytes:
    """Return a text as bytes."""
    return text_of(size).encode()


def test_functions_are_found() -> None:
    """The readers of each format are among them."""
    assert "forewarn_base.validation.complexity.check_toml-0" in FOUND
    assert "forewarn_metadata.endpoint.http.request.parse_head-0" in FOUND
    files = {
        "forewarn_server.settings_loader.read_settings_file-0",
        "forewarn.agent.config.read_config-1",
        "forewarn.agent.sdk.discovery._lines-1",
    }
    assert files <= FOUND.keys()
    assert "forewarn_libvirt.config.read_config-0" in FOUND
    assert len(FOUND) > 300
