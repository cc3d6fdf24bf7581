"""Every transcript tells what happens, line for line; `make transcripts UPDATE=1` rewrites them."""

import os
import re
from pathlib import Path

import pytest

from tests.simulator.transcripts.transcript import parse, play, rewritten

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
FILES = sorted(HERE.glob("*.txt"))
TRANSCRIPTS_MIN = 40
STATEMENTS = re.compile(r"\((([A-Z]-\d+)(, [A-Z]-\d+)*)\)\.$")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript_tells_what_happens(path: Path) -> None:
    """A story comes out as it is written, and no invariant is violated. Source: L-1."""
    text = path.read_text(encoding="utf-8")
    transcript = parse(text)
    now = rewritten(transcript, list(play(transcript)))
    if os.environ.get("UPDATE"):
        path.write_text(now, encoding="utf-8")
    else:
        assert now.splitlines() == text.splitlines()


def test_each_story_has_a_title_of_its_own() -> None:
    """There are at least forty stories, and no two have the same title. Source: L-1."""
    titles = [parse(path.read_text(encoding="utf-8")).title for path in FILES]
    assert len(set(titles)) == len(titles) >= TRANSCRIPTS_MIN


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_title_names_its_statement(path: Path) -> None:
    """A title ends with the statements its story is about, that of the file's name among them."""
    title = parse(path.read_text(encoding="utf-8")).title
    found = STATEMENTS.search(title)
    assert found is not None, title
    assert "-".join(path.stem.split("-")[:2]) in found[1].split(", ")


def test_page_begins_with_a_story() -> None:
    """The example on the page is a story that is played."""
    example = PAGE.read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    assert example in {path.read_text(encoding="utf-8") for path in FILES}
