"""TOML as people write settings, fleets and scenarios in it, with limits on what it may build.

What a text means is not decided in here.
"""

from __future__ import annotations

import tomllib
from typing import Any

from forewarn.validation.complexity import check_toml, checkpoint


def read_toml(text: str) -> dict[str, Any]:
    """Return what a TOML text says.

    Raises:
        ValueError: it is not TOML.
        FileTooComplex: it would build too much.
    """
    check_toml(text)
    checkpoint()
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
