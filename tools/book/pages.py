"""The documents of the book in order, with their text for the generator of the site.

`__main__.py` runs the generator, which this module does not import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath

#: The page whose lists define the order of the book.
CONTENTS = "docs/README.md"
#: The first page of the book.
HOME = "README.md"
#: Linked files that the book omits; the book shows their names without links.
READABLE = {".md", ".png", ".svg"}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```")
Nav = list[dict[str, object]]


def documents(root: Path) -> list[str]:
    """Return all documents that links from the first page reach, in the order of the links."""
    found, waiting = [], [HOME, CONTENTS]
    for name in waiting:  # the loop below extends this list
        if name in found:
            continue
        found.append(name)
        waiting += [each for each in targets(root, name) if each.endswith(".md")]
    return found


def targets(root: Path, name: str) -> Iterator[str]:
    """Yield the files of the repository that a document links to or shows."""
    text = root.joinpath(name).read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r'(?:src|href)="([^"]+)"', text
    ):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", target):
            joined = normpath(PurePosixPath(name).parent / path)
            if root.joinpath(joined).is_file():
                yield joined


def nav(root: Path) -> Nav:
    """Return the order of the pages: first the lists of the contents, then other linked pages."""
    sections: Nav = [{"Forewarn": HOME}]
    named = {HOME, CONTENTS}
    chapter: Nav = []
    section = chapter
    for line in root.joinpath(CONTENTS).read_text("utf-8").splitlines():
        if heading := re.match(r"## (.+)", line):
            section = chapter = []
            sections.append({heading[1]: chapter})
        elif heading := re.match(r"### (.+)", line):
            section = []
            chapter.append({heading[1]: section})
        for text, target in LINK.findall(line):
            page = normpath(PurePosixPath(CONTENTS).parent / target.partition("#")[0])
            if page.endswith(".md") and page not in named:
                named.add(page)
                section.append({plain(text): page})
    rest = [page for page in documents(root) if page not in named]
    decisions = [page for page in rest if page.startswith("docs/adr/")]
    sections.append({"Decisions": [{title(root, page): page} for page in decisions]})
    others = [page for page in rest if page not in decisions]
    sections.append({"More": [{"Contents": CONTENTS}, *({title(root, p): p} for p in others)]})
    return sections


def title(root: Path, page: str) -> str:
    """Return the heading of a page."""
    first = root.joinpath(page).read_text("utf-8").partition("\n")[0]
    return plain(first.lstrip("# "))


def plain(text: str) -> str:
    """Return a text without markup and with a capital first letter."""
    text = text.replace("`", "").replace("*", "")
    return text[:1].upper() + text[1:]


def prepared(root: Path, name: str) -> str:
    """Return a document with the blank lines that Python's Markdown requires."""
    lines: list[str] = []
    in_list = fenced = False
    for line in root.joinpath(name).read_text("utf-8").splitlines():
        if FENCE.match(line):
            fenced = not fenced
        if re.match(r"\d+\. ", line) and not fenced:
            in_list = True
        elif line and not line.startswith("   ") and not (fenced and in_list):
            in_list = False
        begins = re.match(r"(- |\d+\. )", line) and not fenced
        if begins and lines and lines[-1] and not re.match(r"(- |\d+\. | )", lines[-1]):
            lines.append("")
        lines.append(f" {line}" if in_list and line.startswith("   ") else line)
    kept = [line if fenced else linked(root, name, line) for line, fenced in _fenced(lines)]
    return "\n".join([*kept, ""])


def linked(root: Path, name: str, line: str) -> str:
    """Return a line with plain text instead of links to pages outside the book."""

    def replaced(link: re.Match[str]) -> str:
        path = link[2].partition("#")[0]
        if not path or re.match(r"[a-z]+:", link[2]):
            return link[0]
        target = root / normpath(PurePosixPath(name).parent / path)
        return link[0] if target.is_file() and target.suffix in READABLE else link[1]

    return LINK.sub(replaced, line)


def _fenced(lines: list[str]) -> Iterator[tuple[str, bool]]:
    inside = False
    for line in lines:
        if FENCE.match(line):
            inside = not inside
        yield line, inside
