"""Previous wave: the waves of a maintenance follow one another. Source: F-3."""

from __future__ import annotations

from forewarn.rules.blockers import IN_PLANS, Code, Meaning, describe

describe(
    Code.PREVIOUS_WAVE,
    Meaning(
        "{who} waits for {subject} to end",
        "An earlier wave is not over.",
        "The last host of that wave is done.",
        IN_PLANS,
    ),
)
