"""Train a model with PyTorch that saves and consents before scheduled events.

    torchrun --nproc-per-node 8 --max-restarts 100 jobs-pytorch.py STEPS

Rank 0 saves into the file that CHECKPOINT names. Each start continues from there.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from forewarn.job import Job, NotAcknowledged

CHECKPOINT = Path(os.environ.get("CHECKPOINT", "checkpoint.pt"))
START = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
INPUTS, BATCH = 16, 8


def network():
    """Return the model before its first step."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def batch(step, rank, world):
    """Return the inputs and targets of a rank at a step, also after a restart."""
    dice = torch.Generator().manual_seed(step * world + rank)
    inputs = torch.randn(BATCH, INPUTS, generator=dice)
    return inputs, inputs.sum(1, keepdim=True)


def descend(model):
    """Return the optimizer of a model."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def save(step, model, optimizer):
    """Replace the checkpoint; it is on disk when this returns."""
    fresh = CHECKPOINT.with_suffix(".new")
    with fresh.open("wb") as file:
        form = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(form, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(CHECKPOINT)
    directory = os.open(CHECKPOINT.absolute().parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def main(steps):
    """Train this rank's part until the last step."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    plain, step = network(), 0
    optimizer = descend(plain)
    if CHECKPOINT.exists():
        form = torch.load(CHECKPOINT)
        plain.load_state_dict(form["model"])
        optimizer.load_state_dict(form["optimizer"])
        step = form["step"]
    model = DistributedDataParallel(plain)
    with Job.from_environment() as job:
        while step < steps:
            if job.poll(step):
                print(f"start {START}: rank {rank} stopped at step {step}", flush=True)
                if rank == 0:
                    save(step, plain, optimizer)
                    try:
                        job.acknowledge(checkpoint=f"{CHECKPOINT} at step {step}")
                    except NotAcknowledged as error:
                        print(error, flush=True)
                job.wait()
            inputs, targets = batch(step, rank, world)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            step += 1
        if rank == 0:
            save(step, plain, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
