"""`forewarn explain`: explain the code of an error or a blocker offline."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from forewarn_base.errors import CallerError, every_error, nearest
from forewarn_core.rules.blockers import every_code
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.nouns import NOUNS
from forewarn_server.cli.output import show_record
from forewarn_server.cli.parameters import (
    PRINTED,
    OutputOptions,
)

explain = noun_app("explain")


class CodeUnknown(CallerError):
    """No error or blocker has this code."""

    code = "code-unknown"
    status = 404
    message = "This release has no error or blocker with the code {code_asked}."
    advice = "Copy the code in brackets from an error message, or from `operation why`."


class NounExplained(CallerError):
    """The code is a command; its help describes it."""

    code = "noun-explained"
    status = 404
    message = "{noun} is a command, and no code of an error or a blocker."
    advice = "`forewarn {noun} --help` describes it; /v1/docs of the service lists its members."


@explain.default
def _explain(
    code: Annotated[
        str,
        Parameter(name="CODE", help="code that an error message or a blocker shows in brackets"),
    ],
    /,
    *,
    printed: OutputOptions = PRINTED,
) -> int:
    """Explain an error code."""
    blocker = next((each for each in every_code() if each.value == code), None)
    if blocker is None:
        return show_record(printed, _error(code))
    described = blocker.meaning
    blocker_facts = {
        "code": blocker.value,
        "meaning": described.meaning,
        "what ends it": described.end,
    }
    return show_record(printed, blocker_facts)


def _error(code: str) -> dict[str, object]:
    for name in _modules():
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # the module belongs to the server side, which is not installed
    kind = next((each for each in every_error() if each.code == code), None)
    if kind is None:
        known = [each.value for each in every_code()] + [each.code for each in every_error()]
        near = nearest(code, known)
        raise NounExplained(noun=code) if code in NOUNS else CodeUnknown(code_asked=code, near=near)
    return {
        "code": kind.code,
        "status": kind.status,
        "meaning": (kind.__doc__ or "").partition("\n")[0],
        "message": kind.message,
        "advice": kind.advice,
    }


def _modules() -> Iterator[str]:
    """Yield the names of all modules of Forewarn and of its packages that are installed."""
    for package in pkgutil.iter_modules():
        if package.name == "forewarn" or package.name.startswith("forewarn_"):
            place = importlib.util.find_spec(package.name)
            path = place.submodule_search_locations if place else None
            inner = pkgutil.walk_packages(path, f"{package.name}.", onerror=lambda _: None)
            yield from (each.name for each in inner if not each.name.endswith("__main__"))
