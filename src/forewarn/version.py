"""The version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of


@cache  # it reads files
def version() -> str:
    """Return the version of the installed package; `unknown` in a tree never installed."""
    try:
        return version_of("forewarn")
    except PackageNotFoundError:
        return "unknown"
