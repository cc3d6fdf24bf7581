"""The SkyPilot task of the how-to: its shell, run for two nodes with SkyPilot's variables.

Where SkyPilot is installed, it reads the task and makes the program that it runs on each node. No
cloud is there to start nodes, and `torchrun` here is a rank without training.
"""

import contextlib
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.making import event
from tests.agent.programs import free_port, program, running
from tests.agent.service import Service
from tests.agent.test_job_processes import FAR_MS, ROOT
from tests.waiting import wait_until

TASK = ROOT / "docs/howto/jobs-skypilot.yaml"
MEMBERS = {"name", "num_nodes", "workdir", "resources", "file_mounts", "envs", "secrets"}
RANK = """#!{python}
import os, sys
from forewarn.job import Job
rank, world = int(os.environ["SKYPILOT_NODE_RANK"]), int(os.environ["SKYPILOT_NUM_NODES"])
environment = {{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)}}
job, step = Job.from_environment(environment), 0
print("registered", sys.argv[1:], flush=True)
while not job.poll(step):
    step += 1
if rank == 0:
    job.acknowledge("step-1")
print("stopped", flush=True)
print(job.wait(), flush=True)
"""


#: Prints the program that SkyPilot runs on a node, and the variables that it takes from the task.
MAKER = """
import json, sys
import sky
from sky.backends.task_codegen import TaskCodeGen, UNSET_RAY_ENV_VARS
from sky.skylet import log_lib
from sky.task import get_plaintext_envs_and_secrets
config = json.load(sys.stdin)
task = sky.Task.from_yaml_config(config, secrets_overrides=[("FOREWARN_TOKEN", "between us")])
prefix = " && ".join(f"unset {name}" for name in UNSET_RAY_ENV_VARS)
run = TaskCodeGen.build_task_bash_script(task.run, env_prefix=prefix)
made = {
    "nodes": task.num_nodes,
    "envs": get_plaintext_envs_and_secrets(task.envs_and_secrets),
    "program": log_lib.make_task_bash_script(run),
}
print("made", json.dumps(made))
"""


def made_by_skypilot(form: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return what SkyPilot makes of a task, or skip the test where it is not installed."""
    python = Path(program("sky")).resolve().parent / "python"
    known = {name: each for name, each in form.items() if name != "file_mounts"}  # needs a cloud
    env = {
        "HOME": str(directory),
        "PATH": "/usr/bin:/bin",
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }
    done = subprocess.run(
        (python, "-c", MAKER),
        input=json.dumps(known),
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [each for each in done.stdout.splitlines() if each.startswith("made ")]
    assert lines, done.stderr
    made: dict[str, Any] = json.loads(lines[-1].removeprefix("made "))
    return made


def task() -> dict[str, Any]:
    """Return the task of the how-to."""
    form: dict[str, Any] = yaml.safe_load(TASK.read_text("utf-8"))
    return form


def said(word: str, *logs: Path) -> None:
    """Wait until each node has printed a word."""
    for log in logs:
        wait_until(functools.partial(_says, log, word), what=log.read_text)


def _says(log: Path, word: str) -> bool:
    return word in log.read_text()


def test_task_has_only_members_that_skypilot_documents() -> None:
    """A misspelt member would be refused by `sky launch`."""
    assert set(task()) <= MEMBERS | {"setup", "run"}


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["the test", "SkyPilot"])
def test_nodes_of_a_skypilot_task_consent_as_one(tmp_path: Path, maker: str) -> None:
    """The shell starts an agent on each node; the first is the rendezvous. Source: J-1."""
    form = task()
    shell, nodes, envs = form["run"], form["num_nodes"], {**form["envs"]}
    envs["FOREWARN_TOKEN"] = "between us"
    if maker == "SkyPilot":
        made = made_by_skypilot(form, tmp_path)
        shell, nodes, envs = made["program"], made["nodes"], made["envs"]
    (tmp_path / "bin").mkdir()
    rank = tmp_path / "bin/torchrun"
    rank.write_text(RANK.format(python=sys.executable))
    rank.chmod(0o755)
    common = {
        **envs,
        "PATH": f"{rank.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "FOREWARN_PORT": str(free_port()),
        "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
        "SKYPILOT_NUM_NODES": str(nodes),
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    }
    logs = [tmp_path / "node-0", tmp_path / "node-1"]
    with Service() as first, Service() as second, contextlib.ExitStack() as ends:
        for number, service in enumerate((first, second)):
            home = tmp_path / f"home-{number}"
            (home / "sky_workdir").mkdir(parents=True)
            env = {
                **common,
                "HOME": str(home),
                "SKYPILOT_NODE_RANK": str(number),
                "FOREWARN_ENDPOINT": service.endpoint,
            }
            ends.enter_context(running("bash", "-c", shell, log=logs[number], env=env))
        said("registered", *logs)
        second.show(event(not_before_ms=FAR_MS))
        second.until(lambda: second.approvals, "the approval")
        assert first.approvals == []
        said("stopped", *logs)
        second.show()
        said("over", *logs)
