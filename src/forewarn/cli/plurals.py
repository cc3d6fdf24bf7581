"""The word for what is counted, for people. No table in here."""

from __future__ import annotations


def noun(number: int, thing: str) -> str:
    """What is counted, as it stands after a number: `world` after 1, else `worlds`."""
    return thing if number == 1 else f"{thing}s"
