"""What a request says of a resource beyond what the fleet knows: kept, or refused. Pure.

A `PUT` or `PATCH` may repeat what is shown. What it says otherwise is carried out by whoever calls
this, or is a detail: the emulator keeps details and shows them again, the service refuses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from forewarn.operator_api.arm.refusals import ArmNotSupported
from forewarn.operator_api.responses import encoded
from forewarn.validation.fields import ValidationFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from forewarn.operator_api.arm.json_values import JsonObject

#: Names of members, one inside the other.
Path: TypeAlias = tuple[str, ...]
#: Longest details of one resource, in bytes of JSON, and how deep they go.
DETAILS_BYTES_MAX, DEPTH_MAX = 65_536, 20


def paths(prefix: str, names: str) -> frozenset[Path]:
    """Return paths written with dots, all below the same one."""
    return frozenset(tuple(f"{prefix}{name}".split(".")) for name in names.split())


#: What the server sets itself, and passwords, which nobody here could use and nobody is shown.
IGNORED = (
    paths("", "id name type etag systemData resources instanceId")
    | paths("properties.", "provisioningState vmId timeCreated instanceView uniqueId statuses")
    | paths("properties.", "latestModelApplied virtualMachines osProfile.adminPassword")
    | paths("properties.virtualMachineProfile.", "timeCreated osProfile.adminPassword")
)


def details(given: JsonObject, shown: JsonObject, applied: Collection[Path]) -> JsonObject:
    """Return what a body says beyond what is shown already and what is carried out.

    Raises:
        ValidationFailed: it is too much to be kept.
    """
    found: JsonObject = {}
    for path, value in _differing(given, shown, (), applied):
        at = found
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    check_size(found)
    return found


def check_size(found: JsonObject) -> None:
    """Refuse details that are too long to be kept, or lists that are too deep.

    Raises:
        ValidationFailed: they are.
    """
    try:
        size = len(encoded(found))
    except RecursionError:
        size = DETAILS_BYTES_MAX + 1
    if size > DETAILS_BYTES_MAX:
        problem = f"says more than the {DETAILS_BYTES_MAX} bytes that can be kept"
        raise ValidationFailed(where="The body", problem=problem)


def refuse(found: JsonObject, name: str, reason: str, only: Collection[Path] = ((),)) -> None:
    """Refuse details, or those of some paths, naming the first.

    Raises:
        ArmNotSupported: there are some.
    """
    for path, _ in _differing(found, {}, (), ()):
        if any(path[: len(each)] == each for each in only):
            action = f"A change of {'.'.join(path)[:200]}"
            raise ArmNotSupported(action=action, name=name, reason=reason)


def merged(shown: Any, more: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with the members of other JSON put into it."""
    if not isinstance(shown, dict) or not isinstance(more, dict):
        return more
    return shown | {name: merged(shown.get(name), value) for name, value in more.items()}


def _differing(
    given: JsonObject, shown: JsonObject, path: Path, applied: Collection[Path]
) -> Iterator[tuple[Path, object]]:
    for name, value in given.items():
        here, now = (*path, name), shown.get(name)
        if value is None or here in IGNORED or here in applied:
            continue
        if len(here) > DEPTH_MAX:
            raise ValidationFailed(where=".".join(here)[:200], problem="is nested too deeply")
        if isinstance(value, dict):
            yield from _differing(value, now if isinstance(now, dict) else {}, here, applied)
        elif not _same(value, now):
            yield here, value


def _same(value: object, now: object) -> bool:
    """Whether a value says what is shown; names and ids are compared without case."""
    if isinstance(value, str) and isinstance(now, str):
        return value.lower() == now.lower()
    try:
        return value == now or (value in ("", []) and not now)
    except RecursionError:  # lists in lists
        return False
