"""Details: members of a request that the fleet does not model. Pure.

A `PUT` or `PATCH` may repeat shown values. The route applies some changes. All other changes are
details: the emulator stores and shows them, and the service refuses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from forewarn_azure.json_values import JsonObject
from forewarn_azure.refusals import ArmNotSupported
from forewarn_base.validation.fields import ValidationFailed
from forewarn_server.api.responses import encoded

#: A path of nested member names.
Path: TypeAlias = tuple[str, ...]
#: Values by path.
Details: TypeAlias = dict[Path, object]
#: Maximum size of a resource's details in bytes of JSON, and maximum nesting.
DETAILS_BYTES_MAX, DEPTH_MAX = 65_536, 20


def paths(prefix: str, names: str) -> frozenset[Path]:
    """Return dotted paths below a common prefix."""
    return frozenset(tuple(f"{prefix}{name}".split(".")) for name in names.split())


#: Ignored members: members that the server sets, and passwords.
IGNORED = (
    paths("", "id name type etag systemData resources instanceId")
    | paths("properties.", "provisioningState vmId timeCreated instanceView uniqueId statuses")
    | paths("properties.", "latestModelApplied virtualMachines osProfile.adminPassword")
    | paths("properties.virtualMachineProfile.", "timeCreated osProfile.adminPassword")
)


def details(given: JsonObject, shown: JsonObject, applied: Collection[Path]) -> Details:
    """Return the new values of a body that the route does not apply.

    Raises:
        ValidationFailed: the body is nested too deeply.
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
    """Refuse details that are too large, or lists that are nested too deeply.

    Raises:
        ValidationFailed: a limit is exceeded.
    """
    try:
        size = len(encoded(list(members.items())))
    except RecursionError:
        size = DETAILS_BYTES_MAX + 1
    if size > DETAILS_BYTES_MAX:
        problem = f"has more than {DETAILS_BYTES_MAX} bytes of details"
        raise ValidationFailed(where="The body", problem=problem)


def refuse(members: Details, name: str, reason: str, *, only: Collection[Path] = ((),)) -> None:
    """Refuse all details, or the details below some paths; the error names the first.

    Raises:
        ArmNotSupported: such details exist.
    """
    for path in sorted(members):
        if any(path[: len(each)] == each for each in only):
            action = f"A change of {'.'.join(path)[:200]}"
            raise ArmNotSupported(action=action, name=name, reason=reason)


def put_details(shown: JsonObject, more: Mapping[Path, object]) -> JsonObject:
    """Insert details into a resource; return it."""
    for path, value in more.items():
        at = shown
        for name in path[:-1]:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        at[path[-1]] = value
    return shown


def _same(value: object, now: object) -> bool:
    """Return whether a value equals the shown value; names and ids ignore case."""
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
