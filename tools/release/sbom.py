"""The bill of materials of a release in CycloneDX: the tested packages of the server side.

The module reads only each `pyproject.toml` and `requirements/runtime.txt`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
Projects: TypeAlias = dict[str, dict[str, Any]]
_NAME = re.compile(r"([A-Za-z0-9._-]+)(?:\[([A-Za-z0-9._-]+)\])?")


def bill(projects: Projects, requirements: str, time: datetime) -> dict[str, object]:
    """Return the document, which marks the packages' indirect dependencies as unknown.

    Args:
        projects: the table `project` of Forewarn and of its other packages, by name.
        requirements: the pinned packages of the server side.
        time: time of the document.
    """
    name = "forewarn"
    project, own = projects[name], sorted({*projects} - {name})
    version = str(project["version"])
    reference = f"pkg:pypi/{name}@{version}"
    parts = {(each, version): list[str]() for each in own} | pinned_packages(requirements)
    wanted = _needed(projects, name, "server") | _needed(projects, name, "azure")
    assert wanted <= {name for name, _ in parts}, "every dependency of the server is pinned"
    references = {name: f"pkg:pypi/{name}@{number}" for name, number in parts}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference + requirements)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [_component(package, hashes) for package, hashes in parts.items()],
        "dependencies": [
            {"ref": reference, "dependsOn": [references[name] for name in sorted(wanted)]}
        ],
        "compositions": [{"aggregate": "incomplete_first_party_only", "dependencies": [reference]}],
    }


def _needed(projects: Projects, package: str, extra: str) -> set[str]:
    """Return the packages that a package and its extra require, with those that ours require."""
    found, left = set[tuple[str, str]](), [(package, extra)]
    while left:
        name, inner = each = left.pop()
        if each in found:
            continue
        found.add(each)
        if name in projects:
            table = projects[name]
            lines = [*table["dependencies"], *table.get("optional-dependencies", {}).get(inner, ())]
            named = (match.groups("") for line in lines if (match := _NAME.match(line)))
            left += [(_normal(one), more) for one, more in named]
    return {name for name, _ in found} - {package}


def pinned_packages(requirements: str) -> dict[tuple[str, str], list[str]]:
    """Return names, versions and file hashes of the server side's packages."""
    parts: dict[tuple[str, str], list[str]] = {}
    for line in requirements.splitlines():
        if pin := re.match(r"([\w.-]+)==([^\s;]+)", line):
            parts[_normal(pin[1]), pin[2]] = []
        elif file := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            parts[list(parts)[-1]].append(file[1])
    return parts


def _component(package: tuple[str, str], hashes: list[str]) -> dict[str, object]:
    name, version = package
    page = f"https://pypi.org/project/{name}/{version}/"
    files = [
        {"type": "distribution", "url": page, "hashes": [{"alg": "SHA-256", "content": each}]}
        for each in hashes
    ]
    reference = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "scope": "optional",  # agent and SDK need no packages
        "externalReferences": files,
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Write the document to the given file."""
    parser = argparse.ArgumentParser(description="Write the bill of materials.")
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    files = (ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml")))
    tables = [tomllib.loads(each.read_text("utf-8"))["project"] for each in files]
    projects = {each["name"]: each for each in tables}
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    document = bill(projects, (ROOT / "requirements" / "runtime.txt").read_text("utf-8"), time)
    output.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
