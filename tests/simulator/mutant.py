"""Breakages of the product, each as small edits of its source, and who is expected to notice.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from dataclasses import dataclass

Edit = tuple[str, str, str]
"""Module, a text that stands in it exactly once, and what takes its place."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break the product."""

    name: str
    #: What is broken, for the table.
    what: str
    edits: tuple[Edit, ...]
    #: Who is asked first: `world SEED: INVARIANT`, `exploration WORLD: INVARIANT` or
    #: `transcript NAME`.
    caught_by: str = ""
