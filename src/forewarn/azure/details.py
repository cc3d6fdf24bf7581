"""What a request says of a resource beyond what the fleet knows: kept, or refused. Pure.

A `PUT` or `PATCH` may repeat what is shown. What it says otherwise is carried out by the route, or
is a detail: the emulator keeps details and shows them again, the service refuses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from forewarn.api.responses import encoded
from forewarn.azure.refusals import ArmNotSupported
from forewarn.validation.fields import ValidationFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from forewarn.azure.json_values import JsonObject

#: Names of members, one inside the other.
Path: TypeAlias = tuple[str, ...]
#: Values by where they stand.
Details: TypeAlias = dict[Path, object]
#: Longest details of one resource, in bytes of JSON, and how deep they go.
DETAILS_BYTES_MAX, DEPTH_MAX = 65_536, 20


def paths(prefix: str, names: str) -> frozenset[Path]:
    """Return paths written with dots, all below the same one."""
    return frozenset(tuple(f"{prefix}{name}".split(".")) for name in names.split())


#: What the server sets itself, and passwords, which nothing here could use and no answer shows.
IGNORED = (
    paths("", "id name type etag systemData resources instanceId")
    | paths("properties.", "provisioningState vmId timeCreated instanceView uniqueId statuses")
    | paths("properties.", "latestModelApplied virtualMachines osProfile.adminPassword")
    | paths("properties.virtualMachineProfile.", "timeCreated osProfile.adminPassword")
)


def details(given: JsonObject, shown: JsonObject, applied: Collection[Path]) -> Details:
    """Return what a body says beyond what is shown already and what is carried out.

    Raises:
        ValidationFailed: it is nested too deeply.
    """
    members: Details = {}
    left: list[tuple[Path, object, object]] = [((), given, shown)]
    while left:
        path, value, now = left.pop()
        if value is None or path in IGNORED or path in applied:
            continue
        if len(path) > DEPTH_MAX:
            raise ValidationFailed(where=".".join(path)[:200], problem="is nested too deeply")
        if isinstance(value, dict):
            known = now if isinstance(now, dict) else {}
            left += [((*path, name), each, known.get(name)) for name, each in value.items()]
        elif not _same(value, now):
            members[path] = value
    return members


def check_size(members: Details) -> None:
    """Refuse details that are too long to be kept, or lists that are too deep.

    Raises:
        ValidationFailed: they are.
    """
    try:
        size = len(encoded(list(members.items())))
    except RecursionError:
        size = DETAILS_BYTES_MAX + 1
    if size > DETAILS_BYTES_MAX:
        problem = f"says more than the {DETAILS_BYTES_MAX} bytes that can be kept"
        raise ValidationFailed(where="The body", problem=problem)


def refuse(members: Details, name: str, reason: str, *, only: Collection[Path] = ((),)) -> None:
    """Refuse details, or those below some paths, naming the first.

    Raises:
        ArmNotSupported: there are some.
    """
    for path in sorted(members):
        if any(path[: len(each)] == each for each in only):
            action = f"A change of {'.'.join(path)[:200]}"
            raise ArmNotSupported(action=action, name=name, reason=reason)


def put_details(shown: JsonObject, more: Mapping[Path, object]) -> JsonObject:
    """Put details where they belong in a resource; returns it."""
    for path, value in more.items():
        at = shown
        for name in path[:-1]:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        at[path[-1]] = value
    return shown


def _same(value: object, now: object) -> bool:
    """Whether a value says what is shown; names and ids are compared without case."""
    left = [(value, now)]
    while left:
        value, now = left.pop()
        if isinstance(value, dict) and isinstance(now, dict):
            left += [(each, now.get(name)) for name, each in value.items() if each is not None]
        elif isinstance(value, list) and isinstance(now, list) and len(value) == len(now):
            left += zip(value, now, strict=True)
        elif isinstance(value, str) and isinstance(now, str):
            if value.lower() != now.lower():
                return False
        elif value != now and not (value in ("", []) and not now):
            return False
    return True
