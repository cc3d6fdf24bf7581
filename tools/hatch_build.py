"""Puts man pages and shell completion into the wheel where `make release` has made them.

Nothing is made in here: a build from a plain checkout has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShareHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `build/share` as data that is installed into `share`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files, where there are any."""
        if version == "standard" and Path(self.root, "build", "share").is_dir():
            build_data["shared_data"]["build/share"] = "share"
