"""The policy of a scenario: a policy file with windows relative to the scenario's start.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api.policy_file import read_policy_table
from forewarn.validation.fields import Duration, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.planning.policy import MaintenancePolicy

MINUTE_S, DAY_MIN = 60, 24 * 60


def policy_at(table: Mapping[str, object], begun_ms: int) -> MaintenancePolicy:
    """Return the policy of a scenario that started at `begun_ms`, ms since the epoch UTC.

    `from` and `to` of a window may be relative to the scenario's start, such as `+75m`. Relative
    times are rounded to minutes, in UTC.

    Raises:
        ValidationFailed: the policy is invalid.
    """
    windows = table.get("windows")
    if not isinstance(windows, dict):
        return read_policy_table(dict(table))
    resolved = {
        name: _resolved(each, begun_ms, f"the policy.windows.{name}")
        for name, each in windows.items()
    }
    return read_policy_table({**table, "windows": resolved})


def _resolved(window: object, begun_ms: int, where: str) -> object:
    if not isinstance(window, dict):
        return window
    relative = {
        key: _time_of_day(written, begun_ms, f"{where}.{key}")
        for key in ("from", "to")
        if isinstance(written := window.get(key), str) and written.startswith("+")
    }
    if relative and "time_zone" in window:
        raise wrong(
            f"{where}.time_zone", window["time_zone"], "omitted, because relative times are in UTC"
        )
    return {**window, **relative}


def _time_of_day(written: str, begun_ms: int, where: str) -> str:
    after_s = Duration().read(written[1:], where)
    minutes = (begun_ms // 1000 + after_s) // MINUTE_S % DAY_MIN
    return f"{minutes // 60:02}:{minutes % 60:02}"
