"""Pause: some time passes between the end of a wave and the start of the next one. Source: F-3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_core.rules.blockers import UNTIL_START, Code, Meaning
from forewarn_core.rules.members import Overridden, SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

PAUSE = Code(
    "pause",
    Meaning(
        "{who} waits for the pause after {subject}",
        "The policy's pause after the last wave is not over.",
        "The pause is over.",
        UNTIL_START,
    ),
)


@members
class PauseMembers:
    """The pause that a policy asks for."""

    __slots__ = ()

    #: Least time between the end of a wave and the start of the next one.
    pause_s: int = field(
        default=0,
        metadata=member(
            "pause",
            SecondsKind(),
            "Minimum time between two waves (default: none).",
            emergency=Overridden(0),
        ),
    )


def after_pause_ms(policy: PauseMembers, ended_ms: int) -> int:
    """Return when the pause after a wave ends, ms since the epoch UTC."""
    return ended_ms + policy.pause_s * 1000


def earliest(policy: PauseMembers, site: Site) -> Iterator[Earliest]:
    """Yield the end of the pause after the last wave of the plan, or of one that has begun."""
    if site.last_wave_ends_ms and policy.pause_s:
        at_ms = after_pause_ms(policy, site.last_wave_ends_ms)
        yield Phase.START, at_ms, PAUSE, site.last_wave
    elif site.paused_until_ms and not site.last_wave_ends_ms:
        yield Phase.START, site.paused_until_ms, PAUSE, site.last_wave
