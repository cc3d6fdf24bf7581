#!/usr/bin/env python3
"""Builds `forewarn-agent.pyz`, the agent as one file for any Python 3.11 or later.

Nothing outside the standard library may go into the file. Usage: build.py [OUTPUT]. The same
sources give the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PARTS = (
    "forewarn/__init__.py",
    "forewarn/clock.py",
    "forewarn/errors.py",
    "forewarn/exit_codes.py",
    "forewarn/ids.py",
    "forewarn/protocol/*.py",
    "forewarn/agent/**/*.py",
)
MAIN = "import sys\nfrom forewarn.agent.main import main\nsys.exit(main(sys.argv[1:]))\n"
SHEBANG = b"#!/usr/bin/env -S python3 -S -I\n"
EPOCH = (1980, 1, 1, 0, 0, 0)
UNCHECKED = 0b01  # a hash-based .pyc that is not compared with its source


def build(output: Path) -> None:
    """Write the archive: sources, and their bytecode for this Python, uncompressed.

    Compression would have every agent load zlib; without bytecode every start would compile.
    Another version of Python falls back to the sources.
    """
    files = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in _sources()}
    files["__main__.py"] = MAIN.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            _add(archive, name, text)
            _add(archive, f"{name}c", _bytecode(name, text))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(SHEBANG + buffer.getvalue())
    output.chmod(0o755)


def _sources() -> list[Path]:
    return sorted({path for part in PARTS for path in SOURCE.glob(part)})


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def _bytecode(name: str, text: bytes) -> bytes:
    code = compile(text, name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + UNCHECKED.to_bytes(4, "little")
    return head + importlib.util.source_hash(text) + marshal.dumps(code)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("forewarn-agent.pyz")
    build(target)
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes\n")
