"""`forewarn explain`: explain the code of an error or a blocker offline."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated

from cyclopts import Parameter

from forewarn.cli.application import noun_app
from forewarn.cli.output import show_record
from forewarn.cli.parameters import (
    PRINTED,
    OutputOptions,
)
from forewarn.errors import CallerError, every_error, nearest
from forewarn.rules.blockers import MEANINGS, Code

explain = noun_app("explain")


class CodeUnknown(CallerError):
    """No error or blocker has this code."""

    code = "code-unknown"
    status = 404
    message = "This release has no error or blocker with the code {code_asked}."
    advice = "Copy the code in brackets from an error message, or from `operation why`."


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
    blocker = next((each for each in Code if each.value == code), None)
    if blocker is None:
        return show_record(printed, _error(code))
    described = MEANINGS[blocker]
    blocker_facts = {
        "code": blocker.value,
        "meaning": described.meaning,
        "what ends it": described.end,
    }
    return show_record(printed, blocker_facts)


def _error(code: str) -> dict[str, object]:
    import forewarn  # noqa: PLC0415 - all of it, so only here

    for module in pkgutil.walk_packages(forewarn.__path__, "forewarn.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # the module belongs to the server side, which is not installed
    kind = next((each for each in every_error() if each.code == code), None)
    if kind is None:
        known = [each.value for each in Code] + [each.code for each in every_error()]
        raise CodeUnknown(code_asked=code, near=nearest(code, known))
    return {
        "code": kind.code,
        "status": kind.status,
        "meaning": (kind.__doc__ or "").partition("\n")[0],
        "message": kind.message,
        "advice": kind.advice,
    }
