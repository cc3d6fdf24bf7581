"""The version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of


@cache  # the import reads files
def version() -> str:
    """Return the version of the installed package; `unknown` if not installed."""
    try:
        return version_of("forewarn-base")
    except PackageNotFoundError:
        return "unknown"
