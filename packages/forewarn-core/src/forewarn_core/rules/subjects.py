"""The subjects of limits: the fleet, a zone, a rack, a label, an owner or a group."""

from __future__ import annotations

from typing import TypeAlias

from forewarn_base.values import Word


class Scope(Word):
    """The scope of a budget, which counts hosts in the first four, VMs in the others."""

    FLEET = "fleet"
    ZONE = "zone"
    RACK = "rack"
    LABEL = "label"
    OWNER = "owner"
    GROUP = "group"


#: Scope and name of the subject of a limit, such as `("rack", "r7")`.
Subject: TypeAlias = tuple[Scope, str]


def subject_text(subject: Subject) -> str:
    """Return the subject of a limit as text: `fleet`, `rack r7`."""
    return f"{subject[0].value} {subject[1]}".strip()
