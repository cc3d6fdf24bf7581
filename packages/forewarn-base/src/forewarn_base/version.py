"""The version of the installed package."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions
from importlib.metadata import version as version_of


@cache  # the import reads files
def version() -> str:
    """Return the version of the installed package; `unknown` if not installed."""
    try:
        return version_of("forewarn-base")
    except PackageNotFoundError:
        return "unknown"


#: Names of Forewarn's packages, as they are and as older metadata writes them.
_OWN = re.compile(r"forewarn([-_.][a-z0-9]+)*", re.IGNORECASE)


def installed_packages() -> dict[str, str]:
    """Return the installed packages of Forewarn, and others named so, with their versions."""
    names = ((each.metadata["Name"], each.version) for each in distributions())
    own = {
        name.replace("_", "-").lower(): at for name, at in names if name and _OWN.fullmatch(name)
    }
    return dict(sorted(own.items()))
