"""Pause: some time passes between the end of a wave and the start of the next one. Source: F-3."""

from __future__ import annotations

from dataclasses import field

from forewarn.rules.blockers import UNTIL_START, Code, Meaning, describe
from forewarn.rules.members import SecondsKind, member, members

describe(
    Code.PAUSE,
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
        metadata=member("pause", SecondsKind(), "Minimum time between two waves (default: none)."),
    )
