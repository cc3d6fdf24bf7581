"""Loads settings from files and the environment, merges them and checks their types and ranges.

Each package checks the meaning of its own settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeAlias, get_args, get_origin, get_type_hints

from forewarn_base.errors import CallerError, nearest
from forewarn_base.settings import ENVIRONMENT_PREFIX, FIXED, NamedTable, SettingInvalid, Settings
from forewarn_base.validation.complexity import FileTooComplex
from forewarn_base.validation.fields import (
    WHOLE_MAX,
    Boolean,
    Integer,
    Number,
    Text,
    ValidationFailed,
    ValueType,
)
from forewarn_base.validation.forms import ListOf
from forewarn_base.validation.toml_reader import read_toml

#: Variables with the prefix `FOREWARN_` that are not settings of the service.
ENVIRONMENT_OTHER = frozenset(
    {
        *("FOREWARN_SERVER", "FOREWARN_TOKEN", "FOREWARN_ENDPOINT"),
        *("FOREWARN_CA", "FOREWARN_CERTIFICATE", "FOREWARN_KEY"),
    }
)
#: Required similarity to a section's name before a correction is suggested; `metdata` is similar
#: enough, `service` is not.
MISSPELT = 0.8
#: Maximum size of a settings file.
FILE_BYTES_MAX = 1024 * 1024

#: A day, in seconds, as the maximum of connection and answer times.
DAY_S = 86_400
#: Range of each limited setting: least and greatest allowed value.
RANGES: dict[tuple[str, str], tuple[float, float]] = {
    ("listen", "workers"): (0, 64),
    ("metadata", "rate_per_s"): (0, 1_000_000),
    ("metadata", "rate_burst"): (1, 1_000_000),
    ("metadata", "wait_timeout_s"): (0, DAY_S),
    ("metadata", "max_connections"): (1, 10_000_000),
    ("oidc", "max_session_s"): (60, 30 * DAY_S),
    ("history", "max_age_days"): (0, 36_500),
    ("history", "max_bytes"): (0, 2**60),
    ("node", "max_spooled_approvals"): (0, 100_000),
    ("lifecycle", "show_timeout_s"): (0, DAY_S),
    ("drivers", "call_timeout_s"): (0.1, DAY_S),
    ("drivers", "max_concurrent_calls"): (1, 1000),
    ("drivers", "unanswered_timeout_s"): (0, DAY_S),
}
#: Maximum texts in one list of a setting.
TEXTS_MAX = 10_000
#: Words for true and false in the environment.
_WORDS = {"1": "true", "yes": "true", "0": "false", "no": "false", "true": "true", "false": "false"}
_TEXT = Text(65_536, lines=True)

Input: TypeAlias = dict[str, dict[str, object]]
Setting: TypeAlias = str | int | float | bool | tuple[str, ...] | tuple[NamedTable, ...]
#: Sections with tables of their own, one for each driver, gate or destination.
WITH_TABLES = frozenset({"drivers", "gates", "outbox"})


class SettingsUnreadable(CallerError):
    """A settings file cannot be read."""

    code = "settings-unreadable"
    message = "The settings in {place} cannot be read: {reason}."
    advice = "Correct the file, or name another one with --config."


def load_settings(
    files: Iterable[Path],
    environment: Mapping[str, str] | None = None,
    defaults: Settings | None = None,
) -> Settings:
    """Read settings files in order, then the environment; later sources override earlier ones.

    Beside each file `NAME.toml`, the fragments `NAME.toml.d/*.toml` are read in the order of
    their names.

    Missing settings have the values of `defaults`.

    Raises:
        SettingsUnreadable: a file does not exist or is not TOML.
        SettingInvalid: a setting is unknown or has the wrong type.
    """
    merged: dict[str, dict[str, Setting]] = {}
    for path in files:
        for each in with_fragments(path):
            _merge(merged, read_settings_file(each), place=str(each))
    surrounding = os.environ if environment is None else environment
    _merge(merged, _read_environment(surrounding), place="the environment")
    return _build(merged, defaults or Settings())


def with_fragments(path: Path) -> tuple[Path, ...]:
    """Return a settings file and its fragments, in the order in which they are read."""
    return path, *sorted(path.with_name(f"{path.name}.d").glob("*.toml"))


def read_settings_file(path: Path) -> Input:
    """Return the sections of one file, as written.

    Raises:
        SettingsUnreadable: the file does not exist or is not TOML.
        SettingInvalid: a setting is outside a section.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsUnreadable(place=path, reason=f"it is larger than {FILE_BYTES_MAX} bytes")
        written = read_toml(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsUnreadable(place=path, reason=error.strerror) from error
    except (ValueError, FileTooComplex) as error:
        raise SettingsUnreadable(place=path, reason=error) from error
    for section, values in written.items():
        if not isinstance(values, dict):
            raise SettingInvalid(name=section, place=path, problem="is outside a [section]")
    return written


def _read_environment(environment: Mapping[str, str]) -> Input:
    """Read `FOREWARN_<SECTION>_<NAME>`; lists are separated by spaces."""
    values: Input = {}
    sections = {field.name: field for field in fields(Settings)}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHER:
            continue
        section, _, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
        if section in sections and name:
            values.setdefault(section, {})[name] = _Text(text)
        elif name:
            _refuse_misspelt(variable, section, sections)
    return values


def _refuse_misspelt(variable: str, section: str, sections: Iterable[str]) -> None:
    """Refuse an unknown variable that resembles a section; other programs may use the prefix.

    Kubernetes sets FOREWARN_SERVICE_HOST and similar variables in every container beside a service
    of our name. Hooks of the agent have FOREWARN_EVENT_ID.
    """
    near = nearest(section, sections, MISSPELT)
    if near:
        problem = f"is unknown (perhaps {ENVIRONMENT_PREFIX}{near.upper()}_…)"
        raise SettingInvalid(name=variable, place="the environment", problem=problem)


class _Text(str):
    """A text from the environment, which may represent a value of any type."""

    __slots__ = ()


def _merge(merged: dict[str, dict[str, Setting]], written: Input, *, place: str) -> None:
    sections = get_type_hints(Settings)
    for section, values in written.items():
        if section not in sections:
            raise SettingInvalid(
                name=f"[{section}]", place=place, problem=_unknown(section, sections)
            )
        kinds = get_type_hints(sections[section])
        for name in (*FIXED.get(section, ()), "tables"):
            kinds.pop(name, None)
        for name, value in values.items():
            if section in WITH_TABLES and isinstance(value, dict) and name not in kinds:
                _merge_table(merged.setdefault(section, {}), name, value)
                continue
            if name not in kinds:
                raise SettingInvalid(
                    name=f"{section}.{name}", place=place, problem=_unknown(name, kinds)
                )
            merged.setdefault(section, {})[name] = read_setting(section, name, value, place=place)


def _merge_table(section: dict[str, Setting], name: str, values: Mapping[str, object]) -> None:
    """Add a table `[drivers.NAME]` or further options of it; the driver checks the options."""
    tables = section.get("tables", ())
    assert isinstance(tables, tuple), tables
    known = {each.name: each for each in tables if isinstance(each, NamedTable)}
    before = known[name].values if name in known else {}
    known[name] = NamedTable(name, {**before, **values})
    section["tables"] = tuple([known[each] for each in sorted(known)])


def _build(merged: Mapping[str, Mapping[str, Setting]], defaults: Settings) -> Settings:
    sections = {name: replace(getattr(defaults, name), **values) for name, values in merged.items()}
    built = replace(defaults, **sections)
    if built.store.shared and "serve_outdated" not in merged.get("metadata", {}):
        # Another process may decide and show newer documents. Source: H-3.
        built = replace(built, metadata=replace(built.metadata, serve_outdated=False))
    return built


def _unknown(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"is unknown (perhaps {near})" if near else "is unknown"


def read_setting(section: str, name: str, value: object, *, place: str) -> Setting:
    """Return a value in its setting's type, within its range.

    Raises:
        SettingInvalid: the value has another type, or is out of range.
    """
    hint = get_type_hints(get_type_hints(Settings)[section])[name]
    kind = _kind(hint, RANGES.get((section, name)))
    try:
        if not isinstance(value, _Text):
            return kind.read(list(value) if isinstance(value, tuple) else value, name)  # type: ignore[return-value]
        if get_origin(hint) is tuple:
            return kind.read(value.split(), name)  # type: ignore[return-value]
        return kind.read_text(_WORDS.get(value.lower(), value) if hint is bool else value, name)  # type: ignore[return-value]
    except ValidationFailed as error:
        problem = error.facts["problem"]
        raise SettingInvalid(name=f"{section}.{name}", place=place, problem=problem) from error


def _kind(hint: object, ends: tuple[float, float] | None) -> ValueType:
    if get_origin(hint) is tuple:
        assert get_args(hint) == (str, Ellipsis), hint
        return ListOf(_TEXT, TEXTS_MAX)
    if hint is int:
        least, most = ends or (-WHOLE_MAX, WHOLE_MAX)
        return Integer(int(least), int(most))
    if hint is float:
        return Number(*ends) if ends else Number()
    return Boolean() if hint is bool else _TEXT
