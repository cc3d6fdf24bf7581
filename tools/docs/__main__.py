"""`python -m tools.docs` rewrites every generated page; `tests/test_docs.py` compares them.

Other modules define the contents of pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.docs.clone import LINES, address, with_clone
from tools.docs.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Rewrite the pages that differ, and print their names; add the command that clones."""
    for path, render in PAGES.items():
        target, text = ROOT / path, render()
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print(f"docs: wrote {path}")
    known = address()
    for path in LINES:
        page = ROOT / path
        text = page.read_text(encoding="utf-8")
        if (changed := with_clone(path, text, known)) != text:
            page.write_text(changed, encoding="utf-8")
            print(f"docs: wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
