"""A rank of a job: plain Python that steps, saves and acknowledges as the how-to says.

`python -m tests.agent.job_rank DIRECTORY ADDRESS RANK WORLD`; rank 0 acknowledges.
"""

import sys
import threading
from pathlib import Path

from forewarn.job import Job, NotAcknowledged

STEP_S = 0.002


def saved(directory: Path) -> int:
    """Return the step of the last acknowledged checkpoint."""
    path = directory / "checkpoint"
    return int(path.read_text()) if path.exists() else 0


def main(directory: Path, address: str, rank: int, world: int) -> None:
    """Step until the file `finish` exists; save a shard at the step of each notice."""
    pause, step = threading.Event(), saved(directory)
    with Job("train", rank=rank, world=world, address=address) as job:
        while not (directory / "finish").exists():
            if job.poll(step):
                (directory / f"shard-{step}-{rank}").write_text("saved")
                shards = directory.glob(f"shard-{step}-*")
                try:
                    if rank == 0:
                        while len(list(shards)) < world and job.state != "running":
                            pause.wait(STEP_S)
                            shards = directory.glob(f"shard-{step}-*")
                        job.acknowledge(checkpoint=str(step))
                        (directory / "checkpoint").write_text(str(step))
                except NotAcknowledged as error:
                    (directory / f"refused-{step}").write_text(str(error))
                job.wait()
            pause.wait(STEP_S)
            step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
