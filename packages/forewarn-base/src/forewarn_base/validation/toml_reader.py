"""TOML parser for settings, fleets and scenarios, with limits on complexity.

Other modules check the values.
"""

from __future__ import annotations

import tomllib
from typing import Any

from forewarn_base.validation.complexity import check_toml, checkpoint


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        ValueError: the text is not TOML.
        FileTooComplex: the text has too many names.
    """
    check_toml(text)
    checkpoint()
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("the text is nested too deeply") from error
