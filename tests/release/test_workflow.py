"""The workflow files: what they run exists, and they may do no more than they need.

Whether GitHub accepts it is not tested: there is no schema offline.
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = [
    yaml.safe_load(path.read_text("utf-8")) for path in ROOT.glob(".github/workflows/*.yaml")
]
JOBS = {name: job for workflow in WORKFLOWS for name, job in workflow["jobs"].items()}


def test_workflow_runs_what_the_repository_has() -> None:
    """CI runs the commands that people type."""
    runs = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in runs
    targets = {name for run in runs for name in re.findall(r"\bmake (\S+)", run)}
    makefile = ROOT.joinpath("Makefile").read_text("utf-8")
    assert targets == {"book", "chaos", "nightly", "release", "setup"}
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in targets)


def test_workflow_tests_every_supported_python() -> None:
    """What the package says it supports is what is tested."""
    project = ROOT.joinpath("pyproject.toml").read_text("utf-8")
    supported = re.findall(r"Python :: (3\.\d+)", project)
    assert JOBS["check"]["strategy"]["matrix"]["python"] == supported


def test_workflow_may_write_only_to_release() -> None:
    """A pull request's code runs with a token that can only read."""
    assert all(each["permissions"] == {"contents": "read"} for each in WORKFLOWS)
    assert [name for name, job in JOBS.items() if "permissions" in job] == ["release"]
    assert "refs/tags/v" in JOBS["release"]["if"]


def test_workflow_names_actions_by_digest() -> None:
    """A tag that is moved to other code does not run here."""
    used = [step["uses"] for job in JOBS.values() for step in job["steps"] if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each)] == []
