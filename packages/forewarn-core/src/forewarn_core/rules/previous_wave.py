"""Previous wave: the waves of a maintenance follow one another. Source: F-3."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_core.rules.blockers import IN_PLANS, Blocker, Code, Meaning
from forewarn_core.rules.site import Earliest, Phase, Site

PREVIOUS_WAVE = Code(
    "previous-wave",
    Meaning(
        "{who} waits for {subject} to end",
        "An earlier wave is not over.",
        "The last host of that wave is done.",
        IN_PLANS,
    ),
)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start that is too near another wave. Source: T-2."""
    if site.meets_other_wave:
        text = "other work is planned around that time"
        yield Blocker(PREVIOUS_WAVE, "", site.since_ms, text=text)
    elif site.meets_other_domain:
        text = "another failure domain is worked on then; choose another time for this host"
        yield Blocker(PREVIOUS_WAVE, "", site.since_ms, text=text)


def earliest(_: object, site: Site) -> Iterator[Earliest]:
    """Yield the end of the last wave."""
    if site.last_wave_ends_ms:
        yield Phase.ANNOUNCE, site.last_wave_ends_ms, PREVIOUS_WAVE, site.last_wave
