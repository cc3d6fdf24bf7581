"""The waits that no rule has: for consent, drivers, people, or a maintenance's own conditions."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_core.rules.blockers import (
    EVERYWHERE,
    NOT_AT_ADMISSION,
    UNTIL_START,
    Blocker,
    Code,
    Judge,
    Meaning,
)
from forewarn_core.rules.site import Earliest, Phase, Site

UNKNOWN_HOST = Code(
    "unknown-host",
    Meaning(
        "{who} is not in the fleet",
        "A maintenance names a host that has left the fleet.",
        "The host is added again, or the maintenance is cancelled.",
        UNTIL_START,
    ),
)
HOST_FAILED = Code(
    "host-failed",
    Meaning(
        "{who} has failed; repair it first, then it is planned again",
        "The host has failed, or its VMs would move to a failed host.",
        "An operator repairs the host: `forewarn host repair`.",
        EVERYWHERE,
    ),
)
DEADLINE = Code(
    "deadline",
    Meaning(
        "{who} cannot be done before the deadline because of {subject}",
        "The host cannot be done before the maintenance's deadline.",
        "A maintenance with a later deadline is created.",
        NOT_AT_ADMISSION,
        never_clears=True,
        prevents_start=True,
    ),
)
EARLIEST_START = Code(
    "earliest-start",
    Meaning(
        "{who} waits for the earliest start of the maintenance",
        "The maintenance has an earliest start.",
        "That time comes.",
        UNTIL_START,
    ),
)
APPROVAL = Code(
    "approval",
    Meaning(
        "{name} waits for group {subject} to approve",
        "A group has not approved its event.",
        "The group or an operator (`forewarn operation approve`) approves, or NotBefore passes.",
    ),
)
COUPLED = Code(
    "coupled",
    Meaning(
        "{name} waits until {subject}, from the same request, is approved",
        "Another deletion of the same request is not approved.",
        "That deletion is approved, or NotBefore is reached.",
    ),
)
TIME = Code(
    "time",
    Meaning(
        "{name} waits for its NotBefore",
        "NotBefore, or an earliest start, is not reached.",
        "That time comes.",
    ),
)
DRIVER = Code(
    "driver",
    Meaning(
        "the driver works on {subject}",
        "The driver is at work.",
        "The driver reports that the work has ended.",
    ),
)
OPERATOR = Code(
    "operator",
    Meaning(
        "{name} waits for an operator: {subject}",
        "The driver has failed, is missing or waits for an operator, or the maintenance is halted.",
        "An operator acts on the operation, the driver or the maintenance.",
        frozenset({Judge.START}),
    ),
)
PLANNING = Code(
    "planning",
    Meaning(
        "a plan of {subject} is being made",
        "A plan is being made, or could not be made.",
        "The plan comes into force; after a failure, planning is tried again within a minute.",
        frozenset({Judge.ADMISSION, Judge.START}),
    ),
)
GATE = Code(
    "gate",
    Meaning(
        "gate {subject} is being checked",
        "The gate after the last wave is being checked, up to `tries` times.",
        "The gate passes; if its last try fails, the maintenance is stopped.",
    ),
)
UNSEEN = Code(
    "unseen",
    Meaning(
        "{name} waits until {subject} can see its notice",
        "A metadata node is cut off, so VMs cannot be shown the notice of the work.",
        "The node shows the notice, somebody approves for the VMs, or a new policy is applied.",
    ),
)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start before that of the maintenance. Source: T-2."""
    if site.start_ms < site.earliest_ms:
        yield Blocker(EARLIEST_START, "", site.since_ms, text="the maintenance begins later")


def earliest(_: object, site: Site) -> Iterator[Earliest]:
    """Yield the earliest start that the maintenance asks for."""
    yield Phase.START, site.earliest_ms, EARLIEST_START, ""
