"""A policy as JSON text, for the store and for history.

`api/policy_file.py` reads the policy files that people write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from forewarn.planning.plan_text import budgets_text, read_budgets
from forewarn.planning.policy import ConfirmedAct, MaintenancePolicy
from forewarn.planning.windows import Unit, Window

#: Number of a window's members before periods and tags were added.
_WINDOW_BASE = 10
#: Members with plain numbers.
_NUMBERS = (
    "pause_s",
    "owner_rest_s",
    "canary_count",
    "notice_s",
    "max_failures",
    "postpone_max_s",
    "confirm_within_s",
    "confirm_above",
    "confirm_period_s",
)
#: Acts that the release before knows. It cannot read a policy with others in the same member.
#: Source: H-8.
_FIRST_ACTS = frozenset({"answer", "fail-host", "start-maintenance", "apply-policy"})


def policy_text(policy: MaintenancePolicy) -> str:
    """Encode a policy; equal policies give equal text."""
    acts = [each.value for each in policy.confirm]
    form = {
        "budgets": json.loads(budgets_text(policy.budgets)),
        "windows": [_window_members(each) for each in policy.windows],
        "freezes": policy.freezes,
        "confirm": [each for each in acts if each in _FIRST_ACTS],
        **({} if _FIRST_ACTS.issuperset(acts) else {"confirm_all": acts}),
        "wait_until_shown": policy.wait_until_shown,
        **{name: getattr(policy, name) for name in _NUMBERS},
    }
    return json.dumps(form, separators=(",", ":"), ensure_ascii=False)


def _window_members(window: Window) -> list[object]:
    """Return a window's members; without a period and tags those of earlier versions alone."""
    members = [getattr(window, name) for name in window.__match_args__]
    plain = members[_WINDOW_BASE:] == [1, Unit.WEEK, (), ()]
    return members[:_WINDOW_BASE] if plain else [_plain(each) for each in members]


def _plain(member: object) -> object:
    return member.value if isinstance(member, Unit) else member


def _period(
    every: int = 1,
    unit: str = Unit.WEEK.value,
    month_days: Iterable[str] = (),
    tags: Iterable[tuple[str, str]] = (),
) -> tuple[int, Unit, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the members that earlier versions did not store."""
    return every, Unit(unit), tuple(month_days), tuple((name, text) for name, text in tags)


def read_policy(text: str) -> MaintenancePolicy:
    """Decode a policy; missing numbers have their defaults."""
    form = json.loads(text)
    return MaintenancePolicy(
        budgets=read_budgets(json.dumps(form["budgets"])),
        windows=tuple(
            Window(
                name,
                zone,
                tuple(days),
                from_min,
                to_min,
                tuple(dates),
                tuple(hosts),
                None if groups is None else tuple(groups),
                first,
                last,
                *_period(*period),
            )
            for name, zone, days, from_min, to_min, dates, hosts, groups, first, last, *period in (
                form["windows"]
            )
        ),
        freezes=tuple((start_ms, end_ms) for start_ms, end_ms in form["freezes"]),
        confirm=tuple(map(ConfirmedAct, form.get("confirm_all", form.get("confirm", ())))),
        wait_until_shown=tuple(form.get("wait_until_shown", MaintenancePolicy().wait_until_shown)),
        **{name: form[name] for name in _NUMBERS if name in form},
    )


assert {*_NUMBERS, "budgets", "windows", "freezes", "confirm", "wait_until_shown"} == {
    *MaintenancePolicy.__match_args__
}, "read_policy reads every member"
