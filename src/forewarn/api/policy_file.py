"""Policy files: conversion of budgets, windows and pauses between TOML, YAML or JSON and values.

The functions take and return bytes; they open no files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from forewarn.api.topology_file import TOML, YAML, toml_key, toml_value
from forewarn.core.impact import Impact
from forewarn.core.naming import SelectorInvalid, read_selector
from forewarn.planning.policy import Budget, ConfirmedAct, MaintenancePolicy, PolicyInvalid, Scope
from forewarn.planning.windows import WEEKDAYS, Span, Unit, Window, WindowInvalid
from forewarn.protocol import timestamps
from forewarn.validation.durations import iso_duration, read_time_ms
from forewarn.validation.fields import (
    NAME,
    Choice,
    Duration,
    Integer,
    Share,
    Text,
    TimeOfDay,
    Timestamp,
    ValidationFailed,
    Values,
)
from forewarn.validation.forms import Field, Form, ListOf, Named

#: Maximum number of budgets, windows, freezes, and excluded dates of one window.
BUDGETS_MAX, WINDOWS_MAX, FREEZES_MAX, DATES_MAX = 1000, 100, 100, 366
#: Maximum number of groups of one window.
GROUPS_MAX = 10_000
#: Maximum number of hosts or VMs in a budget, canary wave or failure limit.
COUNT_MAX = 1_000_000
#: Maximum number of days of the month, and of tags, of one window.
MONTH_DAYS_MAX, TAGS_MAX = 100, 50

_DATE = Text(10, r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date such as 2028-02-29")
_LAST = Text(
    16,
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2})?",
    "a date such as 2028-02-29, or a local time such as 2028-02-29 22:00",
)
_EVERY = Text(
    10, r"([1-9][0-9]{0,2} )?(day|week|month)s?", "a period such as 2 weeks, 3 days or month"
)
_MONTH_DAY = Text(14)

BUDGET = Form(
    "BudgetForm",
    "A budget: the maximum number of hosts or VMs disturbed at once. The strictest budget applies.",
    (
        Field(
            "for",
            Choice({scope.value: scope for scope in Scope}),
            "Counted objects: hosts of the fleet or of each zone, rack or label; VMs of each "
            "owner or group.",
            required=True,
        ),
        Field(
            "limit",
            Share(COUNT_MAX),
            "A number, or a percentage such as `10%`, which allows at least one.",
            required=True,
        ),
        Field(
            "name",
            Text(),
            "Restricts the budget to one zone, rack, owner, group or label such as `tier=db`.",
        ),
    ),
)
WINDOW = Form(
    "WindowForm",
    "A window: times in which work may run. If a host has windows, no work runs on it at other "
    "times.",
    (
        Field(
            "time_zone",
            Text(64),
            "Time zone of the window, an IANA name such as `Europe/Berlin` (default: UTC).",
        ),
        Field(
            "weekdays",
            ListOf(Choice({day: number for number, day in enumerate(WEEKDAYS)}), 7, 1),
            "Days on which the window opens: `mon` to `sun` (default: every day).",
        ),
        Field("from", TimeOfDay(), "Local opening time (default: 00:00)."),
        Field(
            "to",
            TimeOfDay(),
            "Local closing time (default: 24:00); at or before `from`, it is on the next day.",
        ),
        Field("except", ListOf(_DATE, DATES_MAX), "Local dates on which the window stays closed."),
        Field(
            "hosts",
            Text(),
            "Restricts the window to hosts with all of these labels, such as `zone=2,rack=r7`.",
        ),
        Field(
            "groups",
            ListOf(NAME, GROUPS_MAX),
            "Restricts the window to hosts with VMs of one of these groups; an empty list "
            "matches no host.",
        ),
        Field("first", _DATE, "First local date on which the window opens (default: no limit)."),
        Field(
            "last",
            _LAST,
            "Last local date, or local time such as `2028-02-29 22:00`, at which the window opens "
            "(default: no limit).",
        ),
        Field(
            "every",
            _EVERY,
            "Period: `2 weeks`, `3 days` or `month`, counted from the day, the week (from Monday) "
            "or the month of `first` (default: `week`).",
        ),
        Field(
            "days",
            ListOf(_MONTH_DAY, MONTH_DAYS_MAX, 1),
            "With a period of months, the days on which the window opens: `1` to `31`, `last`, "
            "`first mon`, `last sun`, or `last sun-3` for three days before it (default: the day "
            "of `first`). A month without such a day has no window.",
        ),
        Field(
            "tags",
            Named(Text(), TAGS_MAX),
            "Names and texts for other tools, without effect.",
        ),
    ),
)
FREEZE = Form(
    "FreezeForm",
    "A freeze: a time in which no work runs, even in open windows.",
    (
        Field("from", Timestamp(), "Start of the freeze, with UTC offset.", required=True),
        Field("to", Timestamp(), "End of the freeze, with UTC offset.", required=True),
    ),
)
POLICY = Form(
    "PolicyForm",
    "Limits on maintenances, in addition to the guarantees of the contract.",
    (
        Field("pause", Duration(), "Minimum time between two waves (default: none)."),
        Field("owner_rest", Duration(), "Minimum time between two disturbances of an owner."),
        Field(
            "canary", Integer(0, COUNT_MAX), "Number of hosts in the first wave, the canary wave."
        ),
        Field("notice", Duration(), "Minimum notice of all impacts; an impact may require more."),
        Field(
            "max_failures",
            Integer(0, COUNT_MAX),
            "Default number of hosts that may fail before a maintenance stops.",
        ),
        Field(
            "postponing",
            Duration(),
            "Maximum delay of a host after its first planned start (default: none).",
        ),
        Field(
            "budgets",
            ListOf(BUDGET, BUDGETS_MAX),
            "Budgets: maximum numbers of hosts or VMs disturbed at once.",
        ),
        Field(
            "windows", Named(WINDOW, WINDOWS_MAX), "Windows by name: times in which work may run."
        ),
        Field("freezes", ListOf(FREEZE, FREEZES_MAX), "Times in which no work runs."),
        Field(
            "confirm",
            ListOf(Choice({act.value: act for act in ConfirmedAct}), len(ConfirmedAct)),
            "Calls that a second operator must confirm (default: none). `answer`: approving for an "
            "owner, or changing a group's options or owner so that it is asked less. `fail-host`: "
            "marking a host as failed. `start-maintenance`: work, of any kind, that affects more "
            "than `confirm_above` hosts. `apply-policy`: changing this policy. `create-principal`: "
            "granting a role, creating a token, or resuming one. `move-address`: changing which "
            "VMs a listening group has, or an address, interface or instance id of one of them.",
        ),
        Field("confirm_within", Duration(), "Time limit of a confirmation (default: 1 h)."),
        Field(
            "confirm_above",
            Integer(0, COUNT_MAX),
            "Number of hosts that the work of one operator may affect without confirmation: hosts "
            "of live work, and of work that ended within `confirm_period` (default: 0).",
        ),
        Field(
            "confirm_period",
            Duration(),
            "Time for which `confirm_above` counts a host after the end of the work (default: "
            "24 h).",
        ),
        Field(
            "wait_until_shown",
            ListOf(Choice({each.value: each.value for each in Impact}), len(Impact)),
            "Impacts whose work waits until the VMs can read the event (default: `Reboot`, "
            "`Redeploy`). Other work continues after `[lifecycle] show_timeout_s`.",
        ),
    ),
)

#: Member of the file -> attribute of the policy.
_PLAIN = {
    "canary": "canary_count",
    "max_failures": "max_failures",
    "confirm_above": "confirm_above",
}
_DURATIONS = {
    "pause": "pause_s",
    "owner_rest": "owner_rest_s",
    "notice": "notice_s",
    "postponing": "postpone_max_s",
    "confirm_within": "confirm_within_s",
    "confirm_period": "confirm_period_s",
}


def read_policy_table(table: object) -> MaintenancePolicy:
    """Return the policy from the unchecked members of a policy file; raises as `policy_of`."""
    return policy_of(POLICY.read(table, "the policy"))


def policy_of(given: Values) -> MaintenancePolicy:
    """Return the policy from the members of a policy file.

    Raises:
        ValidationFailed: members contradict each other.
    """
    plain_policy = MaintenancePolicy()
    plain = {**_PLAIN, **_DURATIONS}
    return MaintenancePolicy(
        budgets=tuple(_budget(n, each) for n, each in enumerate(given.get("budgets", ()))),
        windows=tuple(_window(name, each) for name, each in given.get("windows", {}).items()),
        freezes=tuple(_freeze(n, each) for n, each in enumerate(given.get("freezes", ()))),
        confirm=tuple(dict.fromkeys(given.get("confirm", ()))),
        wait_until_shown=tuple(
            dict.fromkeys(given.get("wait_until_shown", plain_policy.wait_until_shown))
        ),
        **{plain[name]: given[name] for name in plain if name in given},
    )


def _budget(number: int, given: Values) -> Budget:
    limit, percent = given["limit"]
    where = f"the policy.budgets[{number}]"
    try:
        return Budget(given["for"], limit, percent, given.get("name", ""))
    except PolicyInvalid as error:
        raise ValidationFailed(
            where=where, problem=f"is wrong: {error.facts['problem']}"
        ) from error


def _window(name: str, given: Values) -> Window:
    where = f"the policy.windows.{name}"
    try:
        hosts = read_selector(given["hosts"]) if "hosts" in given else ()
        number, _, unit = given.get("every", "week").rpartition(" ")
        window = Window(
            name,
            given.get("time_zone", "UTC"),
            tuple(sorted(set(given.get("weekdays", range(7))))),
            given.get("from", 0),
            given.get("to", 24 * 60),
            tuple(given.get("except", ())),
            tuple(f"{key}={value}" for key, value in hosts),
            tuple(given["groups"]) if "groups" in given else None,
            given.get("first", ""),
            given.get("last", ""),
            int(number or 1),
            Unit(unit.removesuffix("s")),
            tuple(given.get("days", ())),
            tuple(sorted(given.get("tags", {}).items())),
        )
    except (WindowInvalid, SelectorInvalid) as error:
        raise ValidationFailed(
            where=where, problem=f"is wrong: {error.facts['problem']}"
        ) from error
    if problem := window.contradiction():
        raise ValidationFailed(where=where, problem=f"is wrong: {problem}")
    return window


def _freeze(number: int, given: Values) -> Span:
    where = f"the policy.freezes[{number}]"
    for name in ("from", "to"):
        if given[name].startswith("+"):
            raise ValidationFailed(where=f"{where}.{name}", problem="must be a fixed time")
    start_ms, end_ms = (read_time_ms(given[name], 0) for name in ("from", "to"))
    if start_ms >= end_ms:
        raise ValidationFailed(where=where, problem="ends before it begins")
    return start_ms, end_ms


def policy_form(policy: MaintenancePolicy) -> dict[str, Any]:
    """Return a policy as a form for `PUT`; the form omits defaults."""
    plain = MaintenancePolicy()
    form: dict[str, Any] = {}
    for names, write in ((_DURATIONS, iso_duration), (_PLAIN, int)):
        for name, attribute in names.items():
            value = getattr(policy, attribute)
            if value != getattr(plain, attribute):
                form[name] = write(value)
    if policy.confirm:
        form["confirm"] = [each.value for each in policy.confirm]
    if policy.wait_until_shown != plain.wait_until_shown:
        form["wait_until_shown"] = [*policy.wait_until_shown]
    if policy.budgets:
        form["budgets"] = [_budget_form(each) for each in policy.budgets]
    if policy.windows:
        form["windows"] = {each.name: _window_form(each) for each in policy.windows}
    if policy.freezes:
        form["freezes"] = [
            {"from": timestamps.iso8601(start_ms), "to": timestamps.iso8601(end_ms)}
            for start_ms, end_ms in policy.freezes
        ]
    return form


def _budget_form(budget: Budget) -> dict[str, Any]:
    limit = f"{budget.limit}%" if budget.percent else budget.limit
    form = {"for": budget.scope.value, "limit": limit}
    return {**form, "name": budget.name} if budget.name else form


def _window_form(window: Window) -> dict[str, Any]:
    given: dict[str, Any] = {
        "time_zone": window.time_zone,
        "weekdays": [WEEKDAYS[day] for day in window.weekdays],
        "from": _time_of_day(window.from_min),
        "to": _time_of_day(window.to_min),
    }
    if window.except_dates:
        given["except"] = list(window.except_dates)
    if window.hosts:
        given["hosts"] = ",".join(window.hosts)
    if window.groups is not None:
        given["groups"] = list(window.groups)
    if window.first_date:
        given["first"] = window.first_date
    if window.last_date:
        given["last"] = window.last_date
    if window.every > 1 or window.unit is not Unit.WEEK:
        unit = window.unit.value
        given["every"] = f"{window.every} {unit}s" if window.every > 1 else unit
    if window.unit is not Unit.WEEK:
        del given["weekdays"]
    if window.month_days:
        given["days"] = list(window.month_days)
    if window.tags:
        given["tags"] = dict(window.tags)
    return given


def _time_of_day(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def written_policy(policy: MaintenancePolicy, media: str) -> bytes:
    """Return a policy as a file for `PUT`."""
    form = policy_form(policy)
    if media == YAML:
        from forewarn.validation.yaml_reader import written_yaml  # noqa: PLC0415 - rarely needed

        return bytes(written_yaml(form))
    if media == TOML:
        return "\n".join(_toml_lines(form)).encode()
    return (json.dumps(form, indent=2) + "\n").encode()


def _toml_lines(form: dict[str, Any]) -> Iterable[str]:
    tables = {"budgets", "windows", "freezes"}
    yield from (f"{key} = {toml_value(form[key])}" for key in form if key not in tables)
    for kind in ("budgets", "freezes"):
        for each in form.get(kind, ()):
            yield f"\n[[{kind}]]"
            yield from (f"{key} = {toml_value(value)}" for key, value in each.items())
    for name, window in form.get("windows", {}).items():
        yield f"\n[windows.{toml_key(name)}]"
        yield from (f"{key} = {toml_value(value)}" for key, value in window.items())
    yield ""
