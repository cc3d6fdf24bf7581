"""The Slurm preparation against Debian's real slurmctld and slurmd."""

import os
import random
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.slurm_cluster import Cluster, cluster
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

RUNS = int(os.environ.get("SLURM_RUNS", "4"))
#: Jobs of one random run; slurmctld keeps no more than 10,000.
#: Random runs; `make test-jobs` runs 200.
JOBS_MAX = 40

FOREIGN = "disk is being replaced"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run one cluster for all tests of this file."""
    if os.geteuid() != 0:
        pytest.skip("slurmd and its jobs need root")
    with cluster(tmp_path_factory.mktemp("slurm")) as one:
        yield one


@pytest.fixture(scope="module")
def delays_ms() -> Iterator[list[int]]:
    """Collect the times from a notice to its reservation; `pytest -s` shows them at the end."""
    collected: list[int] = []
    yield collected
    if collected:
        middle, last = statistics.median(collected), max(collected)
        print(f"\nnotice to reservation: {middle:.0f} ms median, {last} ms at most")


def result(process: subprocess.Popen[str]) -> str:
    """Return the output of a phase that must succeed."""
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output
    return output.strip()


def recovered(slurm: Cluster, state: Path, event: str) -> str:
    """Undo a preparation, and return what it says."""
    return result(slurm.start("recover", state, event=event, not_before_s=0, deadline_s=60))


def test_long_job_waits_and_short_job_runs_before_the_window(
    slurm: Cluster, tmp_path: Path
) -> None:
    """From the notice on, only jobs start that end before NotBefore. Source: J-2."""
    process = slurm.start("prepare", tmp_path / "s", event="E1", not_before_s=600, deadline_s=40)
    wait_until(slurm.reservations, what="the reservation")
    assert "Flags=MAINT,IGNORE_JOBS" in slurm.reservations()
    assert "DRAIN" not in slurm.state()
    long, short = slurm.submit(60), slurm.submit(1)

    def ended() -> list[str]:
        return [job["JobId"] for job in slurm.jobs() if job["JobState"] == "COMPLETED"]

    wait_until(lambda: short in ended(), what="the short job", every_s=0.2)
    assert result(process) == "node-1 is idle and drained"
    assert (slurm.state() & {"IDLE", "DRAIN"}, slurm.reason()) == (
        {"IDLE", "DRAIN"},
        "forewarn: Reboot E1",
    )
    assert long not in ended()
    assert recovered(slurm, tmp_path / "s", "E1") == "node-1 is resumed"
    assert (slurm.reservations(), "DRAIN" in slurm.state()) == ("", False)
    wait_until(lambda: long in ended(), what="the long job", every_s=0.2)


def test_node_that_is_not_idle_in_time_fails(slurm: Cluster, tmp_path: Path) -> None:
    """A running job is left alone, and nobody approves. Source: J-2."""
    job = slurm.submit(60, "sleep 600")
    wait_until(lambda: "IDLE" not in slurm.state(), what="the job", every_s=0.2)
    process = slurm.start("prepare", tmp_path / "s", event="E2", not_before_s=30, deadline_s=8)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, "no job occupies node-1" in output) == (1, True), output
    assert recovered(slurm, tmp_path / "s", "E2") == "node-1 is resumed"
    slurm.run("scancel", job)
    wait_until(lambda: "IDLE" in slurm.state(), what="an idle node", every_s=0.2)


@pytest.mark.parametrize("seed", range(RUNS))
def test_no_job_starts_into_a_window_and_no_foreign_drain_is_undone(
    seed: int, slurm: Cluster, delays_ms: list[int], tmp_path: Path
) -> None:
    """Whatever is submitted, and whenever an administrator drains the node. Source: J-2."""
    dice = random.Random(seed)
    known = {job["JobId"] for job in slurm.jobs()}
    window_s, event = dice.choice([90, 300, 1200]), f"R{seed}"
    foreign = dice.choice(["before", "after", "never", "never"])
    if foreign == "before":
        slurm.run("scontrol", "update", "NodeName=node-1", "State=DRAIN", f"Reason={FOREIGN}")
    noticed_ms = slurm.clock.now_ms()
    opens_s = noticed_ms / 1000 + window_s
    process = slurm.start(
        "prepare", tmp_path / "s", event=event, not_before_s=window_s, deadline_s=8
    )
    wait_until(slurm.reservations, what="the reservation")
    delays_ms.append(slurm.clock.now_ms() - noticed_ms)
    for _ in range(JOBS_MAX):
        if process.poll() is not None:
            break
        slurm.submit(dice.choice([1, 1, 3, 10, 60]), f"sleep {dice.random():.2f}")
    output, _ = process.communicate(timeout=LIMIT_S)
    if foreign == "after":
        slurm.run("scontrol", "update", "NodeName=node-1", "State=DRAIN", f"Reason={FOREIGN}")
    started = [
        job for job in slurm.jobs() if job["JobId"] not in known and job["JobState"] != "PENDING"
    ]
    for job in started:
        hours, minutes, _ = job["TimeLimit"].rpartition("-")[2].split(":")
        limit_s = 3600 * int(hours) + 60 * int(minutes)
        assert int(job["StartTime"]) + limit_s <= opens_s + 2, job
    assert process.returncode == 0 or "no job occupies" in output, output
    recovered(slurm, tmp_path / "s", event)
    assert slurm.reservations() == ""
    if foreign == "never":
        assert "DRAIN" not in slurm.state()
    else:
        assert ("DRAIN" in slurm.state(), slurm.reason()) == (True, FOREIGN)
        slurm.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
    slurm.run("scancel", "--user=root")
    wait_until(lambda: "IDLE" in slurm.state(), what="an idle node", every_s=0.2)
