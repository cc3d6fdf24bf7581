"""The tests that are run for each room, and how pytest is called for them."""

from __future__ import annotations

AGENT = (
    "core core_documents core_together core_undoing coordination rules journal core_worlds doubt "
    "wild_documents"
)
TESTS: dict[str, tuple[str, ...]] = {
    "core": ("tests/core", "tests/transcripts", "tests/planning"),
    "agent/core": (
        *(f"tests/agent/test_{name}.py" for name in AGENT.split()),
        "tests/transcripts",
    ),
    "control": ("tests/control", "tests/transcripts"),
    "metadata": ("tests/metadata", "tests/protocol"),
    "store": ("tests/store",),
}
"""What may notice a breakage of a room."""
EXPLORED = {"core"}
"""Rooms whose breakages the exploration of small worlds could notice."""
SIMULATED = {"core", "agent/core", "control"}
"""Rooms whose breakages a random world could notice."""
OPTIONS = (
    *("-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"),
    "--assert=plain",  # pytest would load the product itself, unbroken, to rewrite its assertions
    *("-m", "not slow and not postgres"),
)
