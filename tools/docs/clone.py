"""The command that clones the repository, in the pages that begin with a clone.

`pyproject.toml` has the address once, as `Repository` of `[project.urls]`. Without an address the
pages only say that they need a clone. A marker in a page shows where the block of commands is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARKER = "<!-- `make docs` writes the command that clones here, from pyproject.toml. -->"
#: Page -> the line with the command.
LINES = {
    "README.md": "git clone {address} forewarn && cd forewarn",
    "docs/howto/install.md": "git clone {address} forewarn && cd forewarn",
    "docs/tutorial/ci.md": "- run: git clone --depth 1 {address} forewarn",
}
_PLACE = re.compile(rf"({re.escape(MARKER)}\n\n```[a-z]*\n)(?:(?:- run: )?git clone [^\n]*\n)?")


def address() -> str:
    """Return the address to clone; empty: it is not known."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known: str = project.get("urls", {}).get("Repository", "")
    return known


def with_clone(path: str, text: str, known: str) -> str:
    """Return a page with the command for an address; empty: without the command."""
    line = f"{LINES[path].format(address=known)}\n" if known else ""
    page, count = _PLACE.subn(lambda place: place[1] + line, text)
    assert count == 1, f"{path} needs one marker before a block: {MARKER}"
    return page
