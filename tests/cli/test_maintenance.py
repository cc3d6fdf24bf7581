"""`forewarn maintenance` for people: what a draft, a report and a list say."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("words", [("--deadline", "+10m"), ("--start", "--deadline", "+10m")])
def test_draft_that_can_never_be_done_says_so(run: Run, words: tuple[str, ...]) -> None:
    """A deadline that cannot be met is said of the draft, and refuses its start. Source: F-4."""
    made = run("maintenance", "create", "h1", "h2", *words)
    assert made.status == ("--start" in words)
    assert "host h1 cannot be done before the deadline" in made.err
    assert run("maintenance", "start", "m-1").status == 1
    assert "draft" in run("maintenance", "list").out
    assert "before the deadline" in run("why", "m-1").out
