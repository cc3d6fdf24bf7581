"""The data that decides about time zones: the machine's, or the package `tzdata`. Source: F-7."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from forewarn_base.time_zones import ZONES_MAX, zone_of

#: Longest line with the version of the machine's data, in characters.
_VERSION_LINE_MAX = 200


@functools.lru_cache(ZONES_MAX)
def source_of(name: str) -> str:
    """Return the data that decides about a zone, such as `system 2026a` or `tzdata 2026.1`.

    Empty if the zone is unknown. As `zoneinfo`, the machine's data comes first.
    """
    from zoneinfo import TZPATH  # noqa: PLC0415 - only where there are windows

    if zone_of(name) is None:
        return ""
    for folder in map(Path, TZPATH):
        if (folder / name).is_file():
            return f"system {_system_version(folder)}".strip()
    from importlib.metadata import version  # noqa: PLC0415 - the same

    return f"tzdata {version('tzdata')}"


def sources_text(names: Iterable[str]) -> str:
    """Return the data that decides about zones: `system 2026a`, or each with its zones.

    Empty for UTC alone, which needs no data.
    """
    zones: dict[str, set[str]] = {}
    for name in names:
        if name != "UTC":
            zones.setdefault(source_of(name) or "no data", set()).add(name)
    if len(zones) == 1 and "no data" not in zones:
        return next(iter(zones))
    return ", ".join(f"{source} ({', '.join(sorted(zones[source]))})" for source in sorted(zones))


def _system_version(folder: Path) -> str:
    """Return the version of a folder's data, such as `2026a`; empty if the folder does not say."""
    for file, start in (("tzdata.zi", "# version "), ("+VERSION", "")):
        try:
            with (folder / file).open(encoding="ascii", errors="replace") as lines:
                line = lines.readline(_VERSION_LINE_MAX)
        except OSError:
            continue
        if line.startswith(start):
            return line.removeprefix(start).strip()
    return ""
