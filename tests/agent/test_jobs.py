"""A job stops at one step and consents once: the pure parts in virtual time."""

import timeit
from collections import defaultdict
from functools import partial

import pytest

from forewarn.agent.jobs.rank import FAR, RankState
from forewarn.job import Job
from tests.agent.job_world import World

RUNS = 2_000


def judged(world: World) -> None:
    """Check a finished run against what the contract promises."""
    assert not world.undurable
    for at_ms, jobs in world.approved.values():
        assert jobs, "a VM was approved although the job had not consented"
        assert set(jobs) == {"train"}
        step = world.saved_at[jobs["train"]]
        ends = [number for _, number, at in world.stopped if at == step]
        assert set(ends) == set(range(world.size)), "consent without all ranks at the step"
        acknowledged = [
            form["at_ms"] for job in [*world.disk["jobs"]] for form in job["acknowledged"].values()
        ]
        assert all(one_ms < world.until_ms for one_ms in acknowledged)
        assert at_ms < world.until_ms + 200  # the message that was under way
    assert len({jobs["train"] for _, jobs in world.approved.values()}) <= 1
    first = min(process.step for process in world.processes)
    assert all(process.state.gate == FAR for process in world.processes)
    assert first > 0, "the ranks go on after the event"


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(1, 4))]
)
def test_ranks_stop_at_one_step_and_consent_once_whatever_dies(part: int) -> None:
    """No VM is approved without the durable consent of all ranks at one step. Source: J-1."""
    approved = 0
    for seed in range(part * RUNS // 4, (part + 1) * RUNS // 4):
        world = World(seed, faults=seed % 5)
        world.run()
        judged(world)
        approved += bool(world.approved)
    assert approved > RUNS // 8  # most jobs consent in spite of the faults


def test_poll_without_a_notice_is_cheap() -> None:
    """It costs no more than a few calls of an empty method. Source: J-1."""

    class Empty:
        def poll(self, step: int | None = None) -> int | None:
            return step

    state, empty = RankState("train", 0, 1), Empty()
    job = Job.__new__(Job)
    job._state = state
    plain_s, poll_s = (
        min(timeit.repeat(partial(poll, 7), number=20_000, repeat=9))
        for poll in (empty.poll, job.poll)
    )
    assert poll_s < 8 * plain_s


def test_all_ranks_stop_at_the_same_step_without_faults() -> None:
    """The ranks stop at the greatest gate, also if they are apart. Source: J-1."""
    for seed in range(100):
        world = World(seed, faults=0)
        world.run()
        steps = defaultdict(set)
        for number, _, step in world.stopped:
            steps[number].add(step)
        assert all(len(one) == 1 for one in steps.values()), steps
        assert world.approved.keys() == set(world.vms), world.held
