"""Parser of scenario files (TOML), and lookup of built-in scenarios."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from forewarn_base.errors import CallerError, nearest
from forewarn_base.validation.complexity import FileTooComplex
from forewarn_base.validation.fields import (
    Boolean,
    Choice,
    Duration,
    Integer,
    Text,
    ValidationFailed,
    wrong,
)
from forewarn_base.validation.forms import OneOrMore, unknown_member
from forewarn_base.validation.toml_reader import read_toml
from forewarn_base.values import value
from forewarn_core.fleet.impact import DURATION_UNKNOWN_S, Cause, Impact, Source
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_emulator.scenario import (
    Act,
    Approval,
    Cancellation,
    Completion,
    DeclaredMachines,
    Labelled,
    Maintain,
    Pause,
    Recommendation,
    Remark,
    Repairing,
    RequestedWork,
    Resumption,
    Scenario,
    ScenarioStep,
    Until,
    Wait,
)
from forewarn_server.api.policy_file import read_policy_table

#: Scenarios for the option `--preview`, and scenarios for `emulator play-aks`. Source: Z-9, K-6.
PREVIEW, AKS = "preview", "aks"
UNLISTED = (PREVIEW, AKS)
#: Most steps of a scenario.
FILE_BYTES_MAX = 256 * 1024
STEPS_MAX = 1000
MACHINES_MAX = 1000
TIMES_MAX = 1000
TEXT_LENGTH_MAX = 2000
#: Default longest wait of a step, in seconds; exceeds the notices except for predicted failures.
WITHIN_S = 3600
#: Default duration of a maintenance's work on each host, in seconds.
DURATION_S = 300

#: Default time of a recommendation, in seconds.
RECOMMENDATION_S = 600

_DURATION = Duration()
_TEXT = Text(TEXT_LENGTH_MAX, lines=True)
_NAMES = OneOrMore(_TEXT, MACHINES_MAX)

_T = TypeVar("_T", bound=Enum)
Table = Mapping[str, object]


class ScenarioInvalid(CallerError):
    """The scenario is invalid."""

    code = "scenario-invalid"
    status = 422
    message = "Scenario {name} is invalid: {problem}."
    advice = "See 'Scenarios' in the documentation for the format."


class ScenarioUnknown(CallerError):
    """No scenario has this name."""

    code = "scenario-unknown"
    status = 404
    message = "Scenario {name} does not exist."
    advice = "Use a name from `forewarn emulator scenario list`, or a file that ends in .toml."


def read_scenario(name: str, text: str) -> Scenario:
    """Parse the text of a scenario.

    Raises:
        ScenarioInvalid: the text is invalid.
    """
    if len(text) > FILE_BYTES_MAX:
        raise ScenarioInvalid(
            name=name, problem=f"the text is longer than {FILE_BYTES_MAX} characters"
        )
    try:
        return _scenario(name, read_toml(text))
    except (ValueError, _Wrong, ValidationFailed, FileTooComplex) as error:
        raise ScenarioInvalid(name=name, problem=str(error).rstrip(".")) from error


def shipped() -> tuple[str, ...]:
    """Return the names of the built-in scenarios, sorted."""
    files = _folder().iterdir()
    return tuple(sorted(p.name.removesuffix(".toml") for p in files if p.name.endswith(".toml")))


def unlisted() -> tuple[str, ...]:
    """Return the names of the built-in scenarios that need an option or a program, sorted."""
    return tuple(sorted(name for folder in UNLISTED for name in listed_if(folder)))


def listed_if(folder: str) -> tuple[str, ...]:
    """Return the names of the built-in scenarios of one of `UNLISTED`, sorted."""
    files = _folder().joinpath(folder).iterdir()
    return tuple(sorted(p.name.removesuffix(".toml") for p in files if p.name.endswith(".toml")))


def find_scenario(name: str) -> Scenario:
    """Return a built-in scenario, or the scenario in a file.

    Raises:
        ScenarioUnknown: neither the scenario nor the file exists.
        ScenarioInvalid: the text is invalid.
    """
    if name in {*shipped(), *unlisted()}:
        return read_scenario(name, shipped_text(name))
    path = Path(name)
    if path.suffix != ".toml":
        raise ScenarioUnknown(name=name, near=nearest(name, shipped()))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioUnknown(name=name) from error
    return read_scenario(path.stem, text)


def shipped_text(name: str) -> str:
    """Return the text of a built-in scenario.

    Raises:
        ScenarioUnknown: the scenario does not exist.
    """
    folder = _folder()
    special = next((each for each in UNLISTED if name in listed_if(each)), "")
    if special:
        folder = folder.joinpath(special)
    elif name not in shipped():
        raise ScenarioUnknown(name=name)
    return folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return resources.files("forewarn_emulator").joinpath("scenarios")


class _Wrong(Exception):
    """A problem of a scenario, as a clause."""


def _scenario(name: str, written: Table) -> Scenario:
    _check_keys(
        written, {"title", "about", "hosts", "groups", "vms", "policy", "steps"}, "the scenario"
    )
    tables = _tables(written, "steps", STEPS_MAX)
    if not tables:
        raise _Wrong("the scenario has no [[steps]]")
    steps: list[ScenarioStep] = []
    labels: dict[str, Labelled] = {}
    for number, table in enumerate(tables, start=1):
        where = f"step {number}"
        step = _step(table, where, labels)
        if isinstance(step.act, RequestedWork | Maintain) and step.act.label:
            if step.act.label in labels:
                raise _Wrong(f"{where}: {step.act.label!r} is the label of two steps")
            labels[step.act.label] = step.act
        steps.append(step)
    return Scenario(
        name=name,
        title=_text(written, "title", name),
        about=_text(written, "about", "").strip(),
        steps=tuple(steps),
        machines=DeclaredMachines(
            hosts=_machines(written, "hosts"),
            groups=_machines(written, "groups"),
            vms=_machines(written, "vms"),
        ),
        labels=labels,
        policy=_policy(written),
    )


def _policy(written: Table) -> Table:
    """Check the policy of a scenario, and return the written table."""
    table = written.get("policy", {})
    if not isinstance(table, dict):
        raise wrong("policy", table, "a table, written as [policy]")
    policy_at(table, 0)
    return table


def _machines(written: Table, kind: str) -> Mapping[str, Table]:
    tables = written.get(kind, {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise wrong(kind, tables, f"a table of tables, written as [{kind}.NAME]")
    if len(tables) > MACHINES_MAX:
        raise wrong(kind, len(tables), f"at most {MACHINES_MAX}")
    return tables


@value
class _Place:
    """The table of a step, and the location for errors."""

    table: Table
    where: str
    labels: Mapping[str, Labelled]

    def label(self, key: str, *, maintenance: bool = False) -> str:
        """Return the label of an earlier step, or with `maintenance`, of an earlier maintenance."""
        name = _text(self.table, key, "", self.where)
        if name not in self.labels:
            raise wrong(f"{self.where}: {key}", name, "the label (`as`) of an earlier step")
        if maintenance and not isinstance(self.labels[name], Maintain):
            raise wrong(f"{self.where}: {key}", name, "the label of a `maintain` step")
        return name

    def ms(self, key: str, default_s: int = 0) -> int:
        """Return a duration in ms."""
        return _DURATION.read(self.table.get(key, default_s), f"{self.where}: {key}") * 1000


def _step(table: Table, where: str, labels: Mapping[str, Labelled]) -> ScenarioStep:
    kinds = [key for key in _ACTS if key in table]
    if len(kinds) > 1:
        raise _Wrong(f"{where} has both {kinds[0]!r} and {kinds[1]!r}; make two steps of them")
    kind = kinds[0] if kinds else ""
    keys, read = _ACTS[kind] if kind else (frozenset[str](), lambda _: Pause())
    _check_keys(table, {"at", "after", *keys} | ({kind} if kind else set()), where)
    if not kind and not {"at", "after"} & table.keys():
        raise _Wrong(f"{where} has no action: add one of {', '.join(_ACTS)}")
    if "at" in table and "after" in table:
        raise _Wrong(f"{where} has both 'at' and 'after'")
    place = _Place(table, where, labels)
    at_ms = place.ms("at") if "at" in table else None
    return ScenarioStep(read(place), at_ms=at_ms, after_ms=place.ms("after"))


def _work(place: _Place) -> RequestedWork:
    table, where = place.table, place.where
    text = partial(_text, table, where=where)
    times = Integer(1, TIMES_MAX).read(table.get("times", 1), f"{where}: times")
    duration_s: int | None = None
    if "duration" in table:
        unknown = table["duration"] == "unknown"
        duration_s = DURATION_UNKNOWN_S if unknown else place.ms("duration") // 1000
    return RequestedWork(
        cause=_member(Cause, table["do"], f"{where}: do"),
        on=_names(table, "on", where),
        label=text("as", ""),
        impact=_member(Impact, table["impact"], f"{where}: impact") if "impact" in table else None,
        source=_member(Source, table["source"], f"{where}: source") if "source" in table else None,
        description=text("description", "") if "description" in table else None,
        duration_s=duration_s,
        started_for_s=place.ms("started_for") // 1000,
        further=_further(place),
        notice_ms=place.ms("notice"),
        destination=text("to", ""),
        times=times,
        every_ms=place.ms("every"),
        jitter_ms=place.ms("jitter"),
    )


def _further(place: _Place) -> tuple[tuple[int, int], ...]:
    """Return further interruptions of work, written as `[{ after = "4m", duration = "2s" }]`."""
    key = "further"
    if key not in place.table:
        return ()
    further = []
    for number, table in enumerate(_tables(place.table, key, TIMES_MAX), start=1):
        where = f"{place.where}: {key} {number}"
        _check_keys(table, {"after", "duration"}, where)
        one = _Place(table, where, place.labels)
        further.append((one.ms("after") // 1000, one.ms("duration") // 1000))
    return tuple(sorted(further))


def _maintain(place: _Place) -> Maintain:
    table, where = place.table, place.where
    cause = table.get("cause", Cause.HOST_REBOOT.value)
    numbers = Integer(0, MACHINES_MAX)
    return Maintain(
        hosts=_names(table, "maintain", where),
        cause=_member(Cause, cause, f"{where}: cause"),
        duration_s=place.ms("duration", DURATION_S) // 1000,
        label=_text(table, "as", "", where),
        reason=_text(table, "reason", "", where),
        canary=_names(table, "canary", where) if "canary" in table else (),
        max_at_once=numbers.read(table.get("max_at_once", 0), f"{where}: max_at_once"),
        max_failures=numbers.read(table.get("max_failures", 0), f"{where}: max_failures"),
    )


def _wait(place: _Place) -> Wait:
    until = _member(Until, place.table["wait"], f"{place.where}: wait")
    label = place.label("for", maintenance=until is Until.STOPPED)
    return Wait(until, label, place.ms("within", WITHIN_S))


def _approval(place: _Place) -> Approval:
    only = _names(place.table, "only", place.where) if "only" in place.table else ()
    return Approval(place.label("approve"), _names(place.table, "by", place.where), only)


def _cancellation(place: _Place) -> Cancellation:
    return Cancellation(place.label("cancel"), _text(place.table, "reason", "", place.where))


def _completion(place: _Place) -> Completion:
    failed = Boolean().read(place.table.get("failed", False), f"{place.where}: failed")
    reason = _text(place.table, "reason", "", place.where)
    return Completion(place.label("complete"), failed=failed, reason=reason)


def _recommendation(place: _Place) -> Recommendation:
    vm = _text(place.table, "recommend", "", place.where)
    return Recommendation(vm, place.ms("lasts", RECOMMENDATION_S))


#: Kinds of steps, each with its other keys and its parser.
_ACTS: dict[str, tuple[frozenset[str], Callable[[_Place], Act]]] = {
    "do": (
        frozenset(
            {
                *("on", "as", "impact", "source", "description", "duration", "notice", "to"),
                *("times", "every", "jitter", "started_for", "further"),
            }
        ),
        _work,
    ),
    "maintain": (
        frozenset({"as", "cause", "duration", "reason", "canary", "max_at_once", "max_failures"}),
        _maintain,
    ),
    "wait": (frozenset({"for", "within"}), _wait),
    "approve": (frozenset({"by", "only"}), _approval),
    "cancel": (frozenset({"reason"}), _cancellation),
    "complete": (frozenset({"failed", "reason"}), _completion),
    "resume": (frozenset(), lambda place: Resumption(place.label("resume", maintenance=True))),
    "repair": (
        frozenset(),
        lambda place: Repairing(_names(place.table, "repair", place.where)),
    ),
    "recommend": (frozenset({"lasts"}), _recommendation),
    "say": (frozenset(), lambda place: Remark(_text(place.table, "say", "", place.where))),
}


def _check_keys(table: Table, keys: set[str], where: str) -> None:
    for strange in sorted(table.keys() - keys):
        raise unknown_member(where, strange, sorted(keys))


def _tables(written: Table, key: str, most: int) -> tuple[Table, ...]:
    tables = written.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise wrong(key, tables, f"a list of tables, written as [[{key}]]")
    if len(tables) > most:
        raise wrong(key, len(tables), f"at most {most}")
    return tuple(tables)


def _text(table: Table, key: str, default: str, where: str = "the scenario") -> str:
    return _TEXT.read(table.get(key, default), f"{where}: {key}")


def _names(table: Table, key: str, where: str) -> tuple[str, ...]:
    return _NAMES.read(table.get(key, []), f"{where}: {key}")


def _member(kind: type[_T], value: object, where: str) -> _T:
    word: Any = Choice({each.value: each for each in kind}).read(value, where)
    return word  # type: ignore[no-any-return]


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
        name: _resolve_window(each, begun_ms, f"the policy.windows.{name}")
        for name, each in windows.items()
    }
    return read_policy_table({**table, "windows": resolved})


def _resolve_window(window: object, begun_ms: int, where: str) -> object:
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
