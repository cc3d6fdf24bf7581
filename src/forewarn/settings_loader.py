"""From files and environment to settings: fragments as written, merged inputs, checked settings.

Nothing is decided by what a setting means; each room checks that itself.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args, get_origin, get_type_hints

from forewarn.errors import CallerError
from forewarn.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: `FOREWARN_STORE_URL` sets `url` in `[store]`.
ENVIRONMENT_PREFIX = "FOREWARN_"
#: Variables with that prefix which are no settings of the service.
ENVIRONMENT_OTHER = frozenset({"FOREWARN_SERVER", "FOREWARN_TOKEN", "FOREWARN_ENDPOINT"})
#: How like a section's name a word must be to be meant for it: `metdata` is, `service` is not.
MISSPELT = 0.8
#: A settings file of this size is no settings file.
FILE_BYTES_MAX = 1024 * 1024

Input: TypeAlias = dict[str, dict[str, object]]
Setting: TypeAlias = str | int | float | bool | tuple[str, ...]


class SettingInvalid(CallerError):
    """A setting that is unknown or of the wrong kind."""

    code = "setting-invalid"
    message = "Setting {name} in {place} {problem}."
    advice = "See docs/reference/settings.md for what there is."


class SettingsUnreadable(CallerError):
    """A settings file that cannot be read."""

    code = "settings-unreadable"
    message = "The settings in {place} cannot be read: {reason}."
    advice = "Correct the file, or name another one with --config."


def load_settings(files: Iterable[Path], environment: Mapping[str, str] | None = None) -> Settings:
    """Read settings files in their order, then the environment; the last word wins.

    Beside each file `NAME.toml`, the fragments `NAME.toml.d/*.toml` are read in the order of
    their names.

    Raises:
        SettingsUnreadable: a file is not there or no TOML.
        SettingInvalid: a setting is unknown or of the wrong kind.
    """
    merged: dict[str, dict[str, Setting]] = {}
    for path in files:
        for fragment in (path, *sorted(path.with_name(f"{path.name}.d").glob("*.toml"))):
            _merge(merged, _read_file(fragment), place=str(fragment))
    surrounding = os.environ if environment is None else environment
    _merge(merged, _read_environment(surrounding), place="the environment")
    return _build(merged)


def _read_file(path: Path) -> Input:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsUnreadable(place=path, reason=f"it is larger than {FILE_BYTES_MAX} bytes")
        with path.open("rb") as file:
            written = tomllib.load(file)
    except OSError as error:
        raise SettingsUnreadable(place=path, reason=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsUnreadable(place=path, reason=error) from error
    for section, values in written.items():
        if not isinstance(values, dict):
            raise SettingInvalid(name=section, place=path, problem="stands outside a [section]")
    return written


def _read_environment(environment: Mapping[str, str]) -> Input:
    """Take `FOREWARN_<SECTION>_<NAME>`; lists are separated by spaces."""
    found: Input = {}
    sections = {field.name: field for field in fields(Settings)}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHER:
            continue
        section, _, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
        if section in sections and name:
            found.setdefault(section, {})[name] = _Text(text)
        elif name:
            _refuse_misspelt(variable, section, sections)
    return found


def _refuse_misspelt(variable: str, section: str, sections: Iterable[str]) -> None:
    """Refuse a variable that was meant for a section; others may have the prefix, too.

    Kubernetes gives every container FOREWARN_SERVICE_HOST and the like, where a service has our
    name; hooks of the agent have FOREWARN_EVENT_ID.
    """
    close = difflib.get_close_matches(section, list(sections), n=1, cutoff=MISSPELT)
    if close:
        problem = f"is unknown (perhaps {ENVIRONMENT_PREFIX}{close[0].upper()}_…)"
        raise SettingInvalid(name=variable, place="the environment", problem=problem)


class _Text(str):
    """A value from the environment: text that stands for any kind."""

    __slots__ = ()


def _merge(merged: dict[str, dict[str, Setting]], written: Input, *, place: str) -> None:
    sections = get_type_hints(Settings)
    for section, values in written.items():
        if section not in sections:
            raise SettingInvalid(
                name=f"[{section}]", place=place, problem=_unknown(section, sections)
            )
        kinds = get_type_hints(sections[section])
        for name, value in values.items():
            if name not in kinds:
                raise SettingInvalid(
                    name=f"{section}.{name}", place=place, problem=_unknown(name, kinds)
                )
            read = _from_text(value, kinds[name]) if isinstance(value, _Text) else value
            setting = _checked(read, kinds[name])
            if setting is None:
                problem = f"is {value!r}, which is no {_kind_name(kinds[name])}"
                raise SettingInvalid(name=f"{section}.{name}", place=place, problem=problem)
            merged.setdefault(section, {})[name] = setting


def _build(merged: Mapping[str, Mapping[str, Setting]]) -> Settings:
    sections = get_type_hints(Settings)
    return Settings(**{name: sections[name](**values) for name, values in merged.items()})


def _unknown(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"is unknown (perhaps {close[0]})" if close else "is unknown"


def _from_text(text: str, kind: object) -> object:
    if get_origin(kind) is tuple:
        return text.split()
    if kind is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            text.lower()
        )
    try:
        return int(text) if kind is int else float(text) if kind is float else str(text)
    except ValueError:
        return None


def _checked(value: object, kind: object) -> Setting | None:
    """Return the value as its setting's kind; None if it is of another."""
    if get_origin(kind) is tuple:
        assert get_args(kind) == (str, Ellipsis), kind
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and kind is not bool:
        return None
    return value if isinstance(kind, type) and isinstance(value, kind) else None  # type: ignore[return-value]


def _kind_name(kind: object) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(kind, "list of texts") if isinstance(kind, type) else "list of texts"
