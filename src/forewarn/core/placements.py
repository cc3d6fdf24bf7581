"""Who is where: the names of the VMs of each host, or of each group.

Neither hosts nor groups themselves are known in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Host or group -> names of its VMs, sorted.
Placements: TypeAlias = "dict[str, tuple[str, ...]]"
_V = TypeVar("_V")
_NOBODY: frozenset[str] = frozenset()


def update_placements(
    placements: Placements,
    place: Callable[[_V], str],
    *,
    left: Mapping[str, _V],
    come: Mapping[str, _V],
) -> None:
    """Index VMs under their new host or group instead of the old; costs the VMs there."""
    gone: dict[str, set[str]] = {}
    for name, vm in left.items():
        gone.setdefault(place(vm), set()).add(name)
    new: dict[str, list[str]] = {}
    for name, vm in come.items():
        new.setdefault(place(vm), []).append(name)
    for key, names in new.items():
        there, without = placements.get(key, ()), gone.pop(key, _NOBODY)
        placements[key] = tuple(sorted({*there} - without | {*names} if there else names))
    for key, without in gone.items():
        rest = tuple(each for each in placements[key] if each not in without)
        if rest:
            placements[key] = rest
        else:
            del placements[key]
