"""Adds the man pages and shell completion of `make release` to the wheel.

A build from a plain checkout has no such files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShareHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `build/share` to the wheel as data for `share`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the existing files to the wheel."""
        if version == "standard" and Path(self.root, "build", "share").is_dir():
            build_data["shared_data"]["build/share"] = "share"
