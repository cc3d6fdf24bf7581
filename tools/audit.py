"""Checks installed and allowed versions against PyPI's advisories with pip-audit.

The versions are the pins in `requirements/` and the lower bounds in each `pyproject.toml`. A known
vulnerability fails the check. If the advisories are unreachable, the check passes and reports that
nothing was checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PROJECTS = (ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml")))
REQUIRED = ROOT / ".build" / "required.in"
LOWEST = ROOT / ".build" / "lowest.txt"
REPORT = ROOT / ".build" / "audit.json"
RESOLVE = [
    *("pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--universal"),
    *("--python-version=3.11", "--resolution=lowest", str(REQUIRED)),
]
AUDIT = ["--require-hashes", "--disable-pip", "--progress-spinner=off", "--format=json"]
_NO_ANSWER = re.compile(r"ConnectionError|ProxyError|Could not connect|Failed to fetch|timed out")


class Unreachable(Exception):
    """The index or its advisories cannot be reached."""


def main() -> int:
    """Print the result; return 1 for a known fault, else 0."""
    LOWEST.parent.mkdir(exist_ok=True)
    packages: list[dict[str, Any]] = []
    try:
        REQUIRED.write_text("".join(f"{each}\n" for each in sorted(required())), "utf-8")
        _run("uv", *RESOLVE, f"--output-file={LOWEST}")
        for file in (*sorted((ROOT / "requirements").glob("*.txt")), LOWEST):
            REPORT.unlink(missing_ok=True)
            words = [f"--output={REPORT}", f"--requirement={file}"]
            _run("pip-audit", *AUDIT, *words, report=REPORT)
            packages += json.loads(REPORT.read_text("utf-8"))["dependencies"]
    except Unreachable as error:
        print(f"audit: NOT CHECKED, because PyPI cannot be reached: {error}")
        return 0
    sentence, status = result(packages)
    print(f"audit: {sentence}")
    return status


def required() -> set[str]:
    """Return what the packages require of other people, in extras, too."""
    tables = [tomllib.loads(each.read_text("utf-8"))["project"] for each in PROJECTS]
    extras = [each for table in tables for each in table.get("optional-dependencies", {}).values()]
    lines = {
        line for each in (*(table["dependencies"] for table in tables), *extras) for line in each
    }
    return {line for line in lines if not line.startswith("forewarn")}


def result(packages: list[dict[str, Any]]) -> tuple[str, int]:
    """Return a summary of pip-audit's report, and the exit status."""
    faults = {
        f"{each['name']} {each['version']}: {fault['id']},"
        f" fixed in {' or '.join(fault['fix_versions']) or 'no release yet'}"
        for each in packages
        for fault in each.get("vulns", ())
    }
    unknown = {each["name"] for each in packages if "skip_reason" in each}
    names = {each["name"] for each in packages}
    if faults:
        return "\naudit: ".join(sorted(faults)), 1
    if unknown == names:
        return "NOT CHECKED, because the index in use has no advisories", 0
    beside = f"; not checked: {', '.join(sorted(unknown))}" if unknown else ""
    return f"no known faults in {len(names - unknown)} packages{beside}", 0


def _run(program: str, *words: str, report: Path | None = None) -> None:
    """Run a program of the environment; pip-audit also fails after reporting vulnerabilities."""
    command = [str(BIN / program), *words]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode == 0 or (report and report.exists()):
        return
    if _NO_ANSWER.search(done.stderr):
        raise Unreachable(done.stderr.splitlines()[-1])
    sys.exit(f"audit: {program} failed:\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
