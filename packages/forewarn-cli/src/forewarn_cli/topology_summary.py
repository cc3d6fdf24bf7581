"""Summary of the changes of a topology: by zone and rack, and by owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from forewarn_server.cli.listing import natural
from forewarn_server.cli.output import listed, print_table

#: Verb -> the changed records, each with kind, name, zone, rack and owner.
Changes: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]

SIGNS = {"added": "+", "changed": "~", "removed": "-"}
#: Most racks of a zone that the summary names.
RACKS_MAX = 3
#: Name of the zone of hosts without a zone, and of the owner of groups without an owner.
UNNAMED = "(none)"


def print_summary(changes: Changes) -> None:
    """Print how many hosts and VMs change in each zone, and how many groups and VMs of each owner.

    A server of 0.1.0 sends no zones and owners; then nothing is printed.
    """
    sections = [
        (("zone", "racks", "hosts", "VMs"), _rows(changes, "zone", ("host", "vm"), racks=True)),
        (("owner", "groups", "VMs"), _rows(changes, "owner", ("group", "vm"))),
    ]
    for headings, rows in sections:
        if rows:
            print()
            print_table(headings, rows)


def _rows(
    changes: Changes, member: str, kinds: Collection[str], *, racks: bool = False
) -> list[tuple[str, ...]]:
    """Return a row for each value of a member, with the counts of each kind."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    racks_of: dict[str, set[str]] = {}
    for verb, records in changes.items():
        for each in records:
            if each["kind"] in kinds and member in each:
                place = each[member] or UNNAMED
                counts.setdefault(place, Counter())[each["kind"], verb] += 1
                racks_of.setdefault(place, set()).update([each["rack"]] if each["rack"] else ())
    return [
        (
            place,
            *([listed(sorted(racks_of[place], key=natural), RACKS_MAX)] if racks else ()),
            *(_signed(counts[place], kind) for kind in kinds),
        )
        for place in sorted(counts, key=natural)
    ]


def _signed(count: Counter[tuple[str, str]], kind: str) -> str:
    """Return the numbers of added, changed and removed records of a kind: `+40 ~2 -1`."""
    return " ".join(
        f"{sign}{count[kind, verb]}" for verb, sign in SIGNS.items() if count[kind, verb]
    )
