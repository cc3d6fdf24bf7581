"""Builds the book in `.build/book/site` with Zensical; a warning is an error.

Zensical reads the settings of its predecessor, mkdocs-material. It has a separate environment with
the packages of `requirements/book.txt`. `pages.py` defines the content of the book.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.book.pages import documents, nav, prepared, targets

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build" / "book"
REQUIREMENTS = ROOT / "requirements" / "book.txt"
EXTENSIONS: list[object] = [
    "admonition",
    "attr_list",
    "md_in_html",
    "pymdownx.superfences",
    "pymdownx.highlight",
    "sane_lists",
    "tables",
    {"toc": {"permalink": True, "slugify": "SLUGIFY"}},
]


def configuration() -> dict[str, object]:
    """Return the settings of the site."""
    palette = [
        {
            "media": f"(prefers-color-scheme: {kind})",
            "scheme": scheme,
            "toggle": {"icon": "material/brightness-6", "name": f"Switch to {other} mode"},
        }
        for kind, scheme, other in (("light", "default", "dark"), ("dark", "slate", "light"))
    ]
    checked = {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"}
    return {
        "site_name": "Forewarn",
        "site_description": "Scheduled Events for any cloud",
        "docs_dir": "pages",
        "site_dir": "site",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,  # the site loads no external files
            "palette": palette,
            "features": ["navigation.tabs", "navigation.top", "search.highlight"],
        },
        "plugins": ["search"],
        "markdown_extensions": EXTENSIONS,
        "validation": {"nav": {"omitted_files": "warn", "not_found": "warn"}, "links": checked},
        "nav": nav(ROOT),
    }


def stage() -> None:
    """Write the pages and their pictures to the same paths in one directory."""
    pages = BUILD / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for name in documents(ROOT):
        for shown in targets(ROOT, name):
            if shown.endswith((".png", ".svg")):
                put = pages / shown
                put.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / shown, put)
        page = pages / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(prepared(ROOT, name), "utf-8")
    text = json.dumps(configuration(), indent=2)  # JSON is valid YAML, except for Python names
    slugify = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    BUILD.joinpath("mkdocs.yml").write_text(text.replace('"SLUGIFY"', slugify), "utf-8")


def zensical() -> str:
    """Return the path of Zensical; install it if necessary."""
    home = BUILD / "venv"
    stamp = home / REQUIREMENTS.name
    if not stamp.exists() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
        venv.create(home, with_pip=True, clear=True)
        install = f"{home}/bin/python -m pip install --quiet --no-deps --require-hashes -r".split()
        subprocess.run([*install, str(REQUIREMENTS)], check=True)
        shutil.copy(REQUIREMENTS, stamp)
    return str(home / "bin" / "zensical")


def main() -> int:
    """Build the book."""
    BUILD.mkdir(parents=True, exist_ok=True)
    stage()
    command = [zensical(), "build", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=BUILD, check=False)
    if not done.returncode:
        print(f"book: {BUILD / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
