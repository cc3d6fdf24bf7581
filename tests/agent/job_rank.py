"""A rank of a job: plain Python that steps, saves and acknowledges as the how-to says.

`python -m tests.agent.job_rank DIRECTORY ADDRESS RANK WORLD`; rank 0 acknowledges. With `all` as
RANK, the process is a launcher: it runs all ranks, and starts all again when one was killed.
"""

import os
import signal
import sys
import threading
from itertools import count
from pathlib import Path

from forewarn.job import Job, NotAcknowledged

STEP_S = 0.002


def saved(directory: Path) -> int:
    """Return the step of the last acknowledged checkpoint."""
    path = directory / "checkpoint"
    return int(path.read_text()) if path.exists() else 0


def save(directory: Path, step: int) -> None:
    """Replace the checkpoint, so that a killed rank leaves the old one or the new one."""
    fresh = directory / "checkpoint.new"
    fresh.write_text(str(step))
    fresh.replace(directory / "checkpoint")


def main(directory: Path, address: str, rank: int, world: int, generation: str = "") -> None:
    """Step until the file `finish` exists; save a shard at the step of each notice.

    A shard has the generation of the launcher's ranks that saved it.
    """
    pause, step = threading.Event(), saved(directory)

    def shards() -> int:
        return sum(path.read_text() == generation for path in directory.glob(f"shard-{step}-*"))

    with Job("train", rank=rank, world=world, address=address) as job:
        while not (directory / "finish").exists():
            if job.poll(step):
                (directory / f"shard-{step}-{rank}").write_text(generation)
                try:
                    if rank == 0:
                        while shards() < world and job.state != "running":
                            pause.wait(STEP_S)
                        job.acknowledge(checkpoint=str(step))
                        save(directory, step)
                except NotAcknowledged as error:
                    (directory / f"refused-{step}").write_text(str(error))
                job.wait()
            pause.wait(STEP_S)
            step += 1


def launch(directory: Path, address: str, world: int) -> None:
    """Run all ranks as forked processes, and all again after a death, as torchrun does.

    The file `ranks` has their process ids.
    """
    for generation in count():
        ranks = []
        for rank in range(world):
            process = os.fork()
            if process == 0:
                main(directory, address, rank, world, str(generation))
                os._exit(0)
            ranks.append(process)
        fresh = directory / "ranks.new"
        fresh.write_text(" ".join(map(str, ranks)))
        fresh.replace(directory / "ranks")
        failed = False
        while ranks:
            process, status = os.wait()
            ranks.remove(process)
            if status and not failed:
                failed = True
                for other in ranks:
                    os.kill(other, signal.SIGKILL)
        if not failed:
            return


if __name__ == "__main__":
    if sys.argv[3] == "all":
        launch(Path(sys.argv[1]), sys.argv[2], int(sys.argv[4]))
    else:
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
