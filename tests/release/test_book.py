"""The book has every document once, in the order of the contents; `make book` builds it."""

import json
from pathlib import Path

import pytest

from tools.book.__main__ import BUILD, main
from tools.book.pages import documents, linked, nav, prepared

ROOT = Path(__file__).resolve().parents[2]


def pages_of(parts: object) -> list[str]:
    """Return the pages of a part of the order, and of what is below it."""
    waiting, found = [parts], []
    for part in waiting:  # grows while it is walked
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found


def test_every_document_is_in_the_book_once() -> None:
    """What a reader can reach in the repository has its place in the book."""
    found = pages_of(nav(ROOT))
    assert sorted(found) == sorted(set(found))
    assert set(found) == set(documents(ROOT))


def test_sections_are_those_of_the_contents() -> None:
    """The order of the book is that of the list that people read."""
    names = [next(iter(section)) for section in nav(ROOT)]
    assert names == [
        "Forewarn",
        "Tutorials",
        "How-to guides",
        "Reference",
        "Explanation",
        "Decisions",
        "More",
    ]


def test_how_tos_are_grouped() -> None:
    """A heading below a section is a group of its pages."""
    [guides] = [section["How-to guides"] for section in nav(ROOT) if "How-to guides" in section]
    assert isinstance(guides, list)
    assert {"Start", "Operate", "Extend"} <= {next(iter(part)) for part in guides}


def test_text_is_given_the_space_that_markdown_wants(tmp_path: Path) -> None:
    """A list begins after an empty line; what belongs to a number is indented by four."""
    page = tmp_path / "page.md"
    page.write_text("So:\n- one\n\n1. Do:\n\n   ```\n   x\n   ```\nEnd\n")
    wanted = "So:\n\n- one\n\n1. Do:\n\n    ```\n    x\n    ```\nEnd\n"
    assert prepared(tmp_path, "page.md") == wanted


def test_links_to_other_files_are_plain_text(tmp_path: Path) -> None:
    """A link that leads nowhere in the book is none; documents and the web stay."""
    tmp_path.joinpath("a.md").touch()
    line = "[a](a.md#x), [b](b.toml), [c](tests), [d](https://example.org)"
    wanted = "[a](a.md#x), b, c, [d](https://example.org)"
    assert linked(tmp_path, "page.md", line) == wanted


@pytest.mark.slow
@pytest.mark.skipif(
    not (BUILD / "venv/bin/zensical").exists(), reason="`make book` installs Zensical"
)
def test_site_has_every_document_and_finds_its_words() -> None:
    """The site is built without a warning; its search has sections of every page."""
    assert main() == 0
    search = json.loads((BUILD / "site/search.json").read_text("utf-8"))
    pages = {each["location"].partition("#")[0] for each in search["items"]}
    built = {str(Path(name).with_suffix(".html")) for name in documents(ROOT)}
    built = {name.replace("README.html", "index.html") for name in built}
    assert built <= pages
    assert all((BUILD / "site" / name).is_file() for name in built)
