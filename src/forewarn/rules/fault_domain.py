"""Fault domain: routine work disturbs one fault domain of a group at a time. Source: G-1."""

from __future__ import annotations

from forewarn.rules.blockers import EVERYWHERE, Code, Meaning, describe

describe(
    Code.FAULT_DOMAIN,
    Meaning(
        "{subject} disturbs a group of {who} in another fault domain",
        "A group on the host is disturbed in another fault domain.",
        "The work there ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
    ),
)
