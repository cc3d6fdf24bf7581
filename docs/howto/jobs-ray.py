"""Train with Ray Train so that a drained node costs no step.

    python jobs-ray.py STEPS WORKERS

Before an event, all workers save at the same step, and rank 0 consents. Ray then drains the node,
and the run continues on other nodes from this checkpoint. STORAGE names a directory that all nodes
share; the agent's job socket is that of FOREWARN_JOB_ADDRESS and FOREWARN_JOB_TOKEN_FILE.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ray
import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from forewarn.job import Job, NotAcknowledged


class NodeDrains(Exception):
    """A node of the run is drained; Ray Train starts the run again on the others."""


def work(step, value):
    """Return the model after a step; a sum stands for it here."""
    return value + sum(number * step for number in range(20_000))


def save(step, value, rank):
    """Report a checkpoint with each worker's part; all are in STORAGE when this returns."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, f"rank-{rank}.json").write_text(json.dumps({"step": step, "value": value}))
        ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(directory))


def saved(rank):
    """Return step and model of the last checkpoint, or those of the start."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0, 0
    with checkpoint.as_directory() as directory:
        form = json.loads(Path(directory, f"rank-{rank}.json").read_text())
    return form["step"], form["value"]


def leave(job):
    """Wait until the event is over, or end the workers as soon as Ray drains a node of theirs."""
    while broadcast_from_rank_zero(job.state == "stopped"):
        if ray.train.get_preemption_info():
            raise NodeDrains
        time.sleep(1)


def train(config):
    """Train one worker's part."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    step, value = saved(rank)
    node = ray.get_runtime_context().get_node_id()
    with Job("ray", rank=rank, world=world, vms=world, **config["agent"]) as job:
        print(f"rank {rank} starts at step {step} on node {node}", flush=True)
        while step < config["steps"]:
            if job.poll(step):
                print(f"rank {rank} stopped at step {step}", flush=True)
                save(step, value, rank)
                if rank == 0:
                    try:
                        job.acknowledge(checkpoint=f"step {step}")
                    except NotAcknowledged as error:
                        print(error, flush=True)
                leave(job)
            value = work(step, value)
            step += 1
    save(step, value, rank)


if __name__ == "__main__":
    steps, workers = int(sys.argv[1]), int(sys.argv[2])
    agent = {
        "address": os.environ["FOREWARN_JOB_ADDRESS"],
        "token_file": os.environ.get("FOREWARN_JOB_TOKEN_FILE", ""),
    }
    ray.init()
    DataParallelTrainer(
        train,
        train_loop_config={"steps": steps, "agent": agent},
        scaling_config=ScalingConfig(num_workers=workers, placement_strategy="SPREAD"),
        run_config=RunConfig(
            name="ray",
            storage_path=os.environ["STORAGE"],
            failure_config=FailureConfig(max_failures=100),
        ),
    ).fit()
