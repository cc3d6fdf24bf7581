"""Packages of other people, installed for a test: a module, and the metadata that pip writes."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    *,
    code: str,
    entry_points: Mapping[str, str],
) -> None:
    """Put a package on the path of this process; `entry_points`: group -> lines `NAME = TARGET`."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [f"[{group}]\n{lines}\n" for group, lines in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(folder))
