"""The SkyPilot task of the how-to: its shell, run for two nodes with SkyPilot's variables.

SkyPilot itself, and PyTorch, are stand-ins: `torchrun` here is a rank without training.
"""

import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.making import event
from tests.agent.programs import free_port, running
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
def test_nodes_of_a_skypilot_task_consent_as_one(tmp_path: Path) -> None:
    """The shell starts an agent on each node; the first is the rendezvous. Source: J-1."""
    form = task()
    (tmp_path / "bin").mkdir()
    rank = tmp_path / "bin/torchrun"
    rank.write_text(RANK.format(python=sys.executable))
    rank.chmod(0o755)
    common = {
        **form["envs"],
        "PATH": f"{rank.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "FOREWARN_TOKEN": "between us",
        "FOREWARN_PORT": str(free_port()),
        "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
        "SKYPILOT_NUM_NODES": str(form["num_nodes"]),
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    }
    logs = [tmp_path / "node-0", tmp_path / "node-1"]
    with Service() as first, Service() as second, contextlib.ExitStack() as ends:
        for number, service in enumerate((first, second)):
            home = tmp_path / f"home-{number}"
            home.mkdir()
            env = {
                **common,
                "HOME": str(home),
                "SKYPILOT_NODE_RANK": str(number),
                "FOREWARN_ENDPOINT": service.endpoint,
            }
            ends.enter_context(running("bash", "-c", form["run"], log=logs[number], env=env))
        said("registered", *logs)
        second.show(event(not_before_ms=FAR_MS))
        second.until(lambda: second.approvals, "the approval")
        assert first.approvals == []
        said("stopped", *logs)
        second.show()
        said("over", *logs)
