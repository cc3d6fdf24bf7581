"""The PyTorch example of the how-to under Debian's torchrun, with ranks that are killed."""

import functools
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agent.making import event
from tests.agent.programs import free_port, program, running
from tests.agent.service import Service
from tests.agent.test_job_processes import FAR_MS, ROOT, agent_of, durable, registered
from tests.waiting import LIMIT_S, wait_until
from tools.product import PYTHONPATH

pytestmark = pytest.mark.slow

#: Events; `make test-jobs` plays 20, with eight ranks.
RUNS = int(os.environ.get("TORCH_RUNS", "1"))
WORLD = 8 if RUNS > 1 else 2
EXAMPLE = ROOT / "docs/howto/jobs-pytorch.py"
PYTHON = "/usr/bin/python3"
#: Longest wait for ranks: each imports PyTorch.
STARTED_S = 4 * LIMIT_S
#: torchrun writes a line and its end apart, so that another rank's line may be in between.
STOPPED = re.compile(r"start (\d+): rank \d+ stopped at step (\d+)(?=\n|\[default)")


def test_killed_pytorch_ranks_stop_at_one_step_and_lose_none(tmp_path: Path) -> None:
    """One consent for each event, and the weights of a run without events. Source: J-1."""
    torchrun, dice, log = program("torchrun"), random.Random(RUNS), tmp_path / "ranks.log"
    checkpoint, limit_s = tmp_path / "checkpoint.pt", STARTED_S
    command = [torchrun, f"--nproc_per_node={WORLD}", "--max_restarts=100", "--monitor_interval=1"]
    command += ["--redirects=1", "--tee=1", f"--log_dir={tmp_path}"]  # Debian 12 fails without
    command += ["--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}"]
    env = {
        "PYTHONPATH": PYTHONPATH,
        "FOREWARN_JOB_ADDRESS": str(tmp_path / "jobs.sock"),
        "CHECKPOINT": str(checkpoint),
        "OMP_NUM_THREADS": "1",
    }

    def stops(event_begins: int) -> list[tuple[str, str]]:
        return STOPPED.findall(log.read_text()[event_begins:])

    def have_stopped(count: int, event_begins: int) -> bool:
        return len(stops(event_begins)) >= count

    def all_stopped(step: str, event_begins: int) -> bool:
        at = stops(event_begins)
        return any(at.count((start, step)) == WORLD for start, _ in at)

    def approved(count: int) -> bool:
        return len(service.approvals) >= count

    with (
        Service() as service,
        agent_of(tmp_path, service) as agent,
        running(*command, str(EXAMPLE), "1000000000", log=log, env=env) as launcher,
    ):
        first = tmp_path / "state/jobs.json"
        wait_until(lambda: first.exists() or launcher.poll(), what="a rank", limit_s=limit_s)
        assert launcher.poll() is None, log.read_text()
        for run in range(RUNS):
            registered(tmp_path, agent, WORLD, limit_s=limit_s)
            begins = len(log.read_text())
            service.show(event(f"E{run}", not_before_ms=FAR_MS))
            stopped = functools.partial(have_stopped, dice.randint(0, WORLD), begins)
            wait_until(stopped, what="stops")
            ranks = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
            os.kill(int(dice.choice(ranks)), signal.SIGKILL)
            wait_until(lambda: durable(tmp_path), what="the consent", limit_s=limit_s)
            [consent] = durable(tmp_path)
            step = consent.rpartition(" ")[2]
            service.until(functools.partial(approved, run + 1), "the approval")
            whole = functools.partial(all_stopped, step, begins)
            wait_until(whole, what="the log of every rank, which torchrun copies", limit_s=limit_s)
            at = stops(begins)
            starts = {start for start, _ in at}
            assert len(set(at)) == len(starts), "ranks of one start stopped at several steps"
            if run < RUNS - 1:
                service.show()
                wait_until(lambda: not durable(tmp_path), what="the end of the notice")
        assert service.approvals == [f"E{run}" for run in range(RUNS)]
        replay = [PYTHON, str(Path(__file__).with_name("torch_replay.py")), str(EXAMPLE)]
        done = subprocess.run(
            [*replay, str(checkpoint), str(WORLD)],
            env={**os.environ, **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
