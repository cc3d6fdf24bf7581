"""Host busy: one piece of work at a time on a host and on a VM. Source: G-1, L-10.

VMs on their way to a host keep it busy too.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Judge, Meaning
from forewarn_core.rules.site import Earliest, OccupiedPlace, Phase, Site

HOST_BUSY = Code(
    "host-busy",
    Meaning(
        "{who} waits for {subject} to end",
        "Other work is announced or runs on the host.",
        "That work ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
    ),
)
VM_BUSY = Code(
    "vm-busy",
    Meaning(
        "{name} waits for {subject} to end",
        "Other work runs on the VM.",
        "That work ends.",
        frozenset({Judge.START}),
    ),
)
ARRIVALS = Code(
    "arrivals",
    Meaning(
        "VMs are about to arrive on {who} with {subject}",
        "Work moves VMs to the host.",
        "That work ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
    ),
)
_CODES = {
    OccupiedPlace.HOST: HOST_BUSY,
    OccupiedPlace.VM: VM_BUSY,
    OccupiedPlace.DESTINATION: ARRIVALS,
}


def blockers(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker for each piece of work."""
    for each in site.work_there():
        yield Blocker(
            _CODES[each.place], each.operation, site.since_ms, text=each.text, wakes=each.wakes
        )


def earliest(_: object, site: Site) -> Iterator[Earliest]:
    """Yield the latest end of each piece of work; 0: unknown."""
    for each in site.work_there():
        yield Phase.ANNOUNCE, each.ends_ms, _CODES[each.place], each.operation
