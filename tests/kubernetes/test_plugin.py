"""The command line as a plugin of kubectl."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.agent.programs import program
from tests.api.live import Live
from tests.waiting import LIMIT_S

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_kubectl_runs_the_command_line(tmp_path: Path) -> None:
    """A plugin is a program named `kubectl-NAME`; kubectl passes the words on unchanged."""
    scripts = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["scripts"]
    module, _, function = scripts["kubectl-forewarn"].partition(":")
    plugin = tmp_path / "kubectl-forewarn"
    code = f"import sys; from {module} import {function}; sys.exit({function}())"
    plugin.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    plugin.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    with Live() as live:
        live.fleet(hosts={"h1": {}})
        words = [program("kubectl"), "forewarn", "host", "list", "-o", "name"]
        done = subprocess.run(
            [*words, "--server", live.url],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert (done.returncode, done.stdout.split()) == (0, ["h1"]), done.stderr
