#!/usr/bin/env python3
"""Builds `forewarn-agent.pyz`, the agent as one file for any Python 3.11 or later.

Nothing outside the standard library may go into the file. The same sources give
the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import marshal
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2] / "packages"
#: Packages with parts of the agent; the version is that of the first one.
BASE, AGENT = PACKAGES / "forewarn-base", PACKAGES / "forewarn-agent"
PARTS = (
    "forewarn/__init__.py",
    "forewarn/agent/**/*.py",
    "forewarn_base/__init__.py",
    "forewarn_base/clock.py",
    "forewarn_base/errors.py",
    "forewarn_base/exit_codes.py",
    "forewarn_base/host_port.py",
    "forewarn_base/http_client.py",
    "forewarn_base/ids.py",
    "forewarn_base/time_zones.py",
    "forewarn_base/untrusted_text.py",
    "forewarn_base/urls.py",
    "forewarn_base/values.py",
    "forewarn_base/version.py",
    "forewarn_base/kubernetes/*.py",
    "forewarn_base/protocol/*.py",
    "forewarn_base/validation/__init__.py",
    "forewarn_base/validation/complexity.py",
    "forewarn_base/validation/toml_reader.py",
)
MAIN = """\
import sys
if sys.version_info < (3, 11):
    sys.exit("The forewarn agent needs Python 3.11 or newer; this is %d.%d." % sys.version_info[:2])
from forewarn.agent.main import main
sys.exit(main(sys.argv[1:]))
"""
SHEBANG = b"#!/usr/bin/env -S python3 -S -I\n"
EPOCH = (1980, 1, 1, 0, 0, 0)
UNCHECKED = 0b01  # a hash-based .pyc that is not compared with its source


def build(output: Path) -> None:
    """Write the archive: sources, and their bytecode for this Python, uncompressed.

    Compression would have every agent load zlib; without bytecode every start would compile.
    Another version of Python falls back to the sources.
    """
    files = dict(sorted(_sources()))
    files["__main__.py"] = MAIN.encode()
    project = tomllib.loads((BASE / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            _add(archive, name, text)
            _add(archive, f"{name}c", _bytecode(name, text))
        info = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info/METADATA"
        _add(archive, info, metadata.encode())  # for --version
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(SHEBANG + buffer.getvalue())
    output.chmod(0o755)


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield each file's name in the archive, and its text."""
    for source in (BASE / "src", AGENT / "src"):
        for path in {path for part in PARTS for path in source.glob(part)}:
            yield path.relative_to(source).as_posix(), path.read_bytes()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def _bytecode(name: str, text: bytes) -> bytes:
    code = compile(_without_docstrings(text), name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + UNCHECKED.to_bytes(4, "little")
    return head + importlib.util.source_hash(text) + marshal.dumps(code)


def _without_docstrings(text: bytes) -> ast.Module:
    """Return a module without docstrings, which the running agent would keep in memory."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            known = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if known and isinstance(first.value.value, str):
                node.body = node.body[1:] or [ast.copy_location(ast.Pass(), first)]
    return tree


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the agent as one file.")
    parser.add_argument("output", nargs="?", type=Path, default=Path("forewarn-agent.pyz"))
    target = parser.parse_args().output
    build(target)
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes\n")
