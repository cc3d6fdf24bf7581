"""Measure the work that a training job loses to a reboot: `make bench-lost-work`.

A job of eight ranks in virtual time saves a checkpoint now and then. A reboot of one of its VMs is
announced, and ends all ranks when it starts. The same reboots are played in five ways: the job does
not know of them; it knows and saves at once, or just in time, or waits after it has saved; or it
saves at once and consents, so that the reboot starts. Only this last way runs the agent's own
coordinator and ranks, with messages that take time, and with a death of a rank, of a connection or
of the agent in a share of the runs. The other ways have no faults, and signals that arrive at once.
"""

from __future__ import annotations

import math
import platform
import random
import statistics
import sys
from collections.abc import Callable

from bench.sizes import Parser
from forewarn_base.values import value
from tests.agent.job_world import World

RANKS = 8
STEP_MS = 5_000
APART_MS = 100  # by how much the ranks' times for a step differ at most
#: Time between checkpoints; the optimum of Young and Daly for a failure in 7.5 hours.
EVERY_MS = 30 * 60_000
#: Median and spread of the log-normal time of a checkpoint.
SAVE_MS, SAVE_SIGMA = 60_000, 0.5
#: Time from the last approval to the start of the reboot.
START_MS = 2_000
GIVES_UP_MS = 2_000  # how long before NotBefore an acknowledgement counts no more
RESTART_MS = 180_000  # from a rank's death until all ranks have started again
FAULTS = ("rank", "agent", "hook", "link")
FAULTS_SHARE = 0.1
#: Of the normal distribution; with it, just in time is as long before as 99 of 100 saves take.
QUANTILE_99 = 2.326


@value
class Reboot:
    """One announced reboot of a VM of the job."""

    seed: int
    #: Time from the notice to NotBefore.
    notice_ms: int
    #: Training time at the notice since the last checkpoint.
    age_ms: int
    save_ms: int
    #: Time after the notice, and kind of a fault while the job prepares; None without one.
    fault: tuple[int, str] | None

    @property
    def deadline_ms(self) -> int:
        """Until when an acknowledgement counts, after the notice."""
        return max(0, self.notice_ms - GIVES_UP_MS)


@value
class Cost:
    """What a reboot cost, in milliseconds of each rank."""

    #: Training that must be repeated.
    lost_ms: int
    #: Time for which the rank neither trained nor was disturbed: it saved or waited.
    waited_ms: int
    #: Whether the job's last checkpoint is that of the notice.
    saved: bool


def unaware(reboot: Reboot) -> Cost:
    """Lose everything since the last checkpoint, like a job that is killed and queued again."""
    return Cost((reboot.age_ms + reboot.notice_ms) % EVERY_MS, 0, saved=False)


def at_once(reboot: Reboot) -> Cost:
    """Save at the notice, and train on until the reboot."""
    return _saved_from(reboot, 0)


def in_time(reboot: Reboot) -> Cost:
    """Train on, and save so early that 99 of 100 checkpoints are in time."""
    before_ms = round(SAVE_MS * math.exp(QUANTILE_99 * SAVE_SIGMA))
    return _saved_from(reboot, max(0, reboot.notice_ms - before_ms))


def waiting(reboot: Reboot) -> Cost:
    """Save at the notice, and wait for the reboot."""
    cost = _saved_from(reboot, 0)
    return Cost(0, reboot.notice_ms, saved=True) if cost.saved else cost


def _saved_from(reboot: Reboot, begun_ms: int) -> Cost:
    """Return the cost with a save that begins at a time after the notice."""
    left_ms = reboot.notice_ms - begun_ms - reboot.save_ms
    if left_ms < 0:
        return Cost(reboot.age_ms + begun_ms, reboot.notice_ms - begun_ms, saved=False)
    return Cost(left_ms, reboot.save_ms, saved=True)


def consenting(reboot: Reboot) -> Cost:
    """Save at the notice, and consent, which starts the reboot; this runs the product's parts."""
    world = World(reboot.seed, size=RANKS, faults=0)
    world.save_ms, world.restart_ms = reboot.save_ms, RESTART_MS
    world.step_ms = (STEP_MS - APART_MS, STEP_MS)
    world.begins_ms, world.deadline_ms = STEP_MS, reboot.deadline_ms
    if reboot.fault is not None:
        world.faults = [(STEP_MS + reboot.fault[0], reboot.fault[1])]
    begun = reboot.age_ms // STEP_MS
    for process in world.processes:
        process.step = begun
    while len(world.approved) < len(world.vms) and world.now_ms < world.until_ms:
        world.turn()
    step = max(process.step for process in world.processes)
    saved = len(world.approved) == len(world.vms)
    assert not saved or step == world.saved
    start_ms = world.now_ms + (START_MS if saved else GIVES_UP_MS)
    trained = step - begun + world.repeated
    lost = world.repeated + (0 if saved else step - world.saved)
    return Cost(lost * STEP_MS, max(0, start_ms - trained * STEP_MS), saved=saved)


#: What the job does about a reboot.
WAYS: dict[str, Callable[[Reboot], Cost]] = {
    "neither": unaware,
    "notice: save at once, go on": at_once,
    "notice: save just in time, go on": in_time,
    "notice: save at once, wait": waiting,
    "notice and consent": consenting,
}

HEAD = (
    "| notice, and way | lost, rank-minutes: mean, 95th percentile | against neither |"
    " lost and waited | against neither | saved |\n|---|---|---|---|---|---|"
)


def reboots(count: int, notice_ms: int, *, seed: int) -> list[Reboot]:
    """Return reboots at any time of the job, with saves of several lengths."""
    dice = random.Random(seed)
    made = []
    for number in range(count):
        save_ms = round(dice.lognormvariate(math.log(SAVE_MS), SAVE_SIGMA))
        fault = (dice.randrange(2 * save_ms), dice.choice(FAULTS))
        made.append(
            Reboot(
                seed=number,
                notice_ms=notice_ms,
                age_ms=dice.randrange(EVERY_MS),
                save_ms=save_ms,
                fault=fault if dice.random() < FAULTS_SHARE else None,
            )
        )
    return made


def row(name: str, costs: list[Cost], neither: list[Cost]) -> str:
    """Return a way's costs as a row of the table."""
    lost = [cost.lost_ms for cost in costs]
    both = statistics.fmean(cost.lost_ms + cost.waited_ms for cost in costs)
    base = statistics.fmean(cost.lost_ms for cost in neither)
    minutes = RANKS / 60_000
    shown = (
        name,
        f"{statistics.fmean(lost) * minutes:.1f}, {quantile(lost) * minutes:.1f}",
        f"{statistics.fmean(lost) / base - 1:+.0%}",
        f"{both * minutes:.1f}",
        f"{both / base - 1:+.0%}",
        f"{statistics.fmean(cost.saved for cost in costs):.1%}",
    )
    return f"| {' | '.join(shown)} |"


def quantile(values: list[int]) -> int:
    """Return the 95th percentile."""
    return sorted(values)[len(values) * 95 // 100]


def main() -> int:
    """Play the reboots, print the table, and return the exit status."""
    parser = Parser("bench.lost_work", __doc__)
    parser.add_size("--runs", 2000, 200, 10, "reboots for each notice")
    parser.add_size("--notices", (900, 300, 30), (900,), (900, 30), "notices, in seconds")
    parser.add_argument("--seed", type=int, default=1, help="seed of the reboots (default: 1)")
    asked = parser.sized()
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(f"{asked.runs:,} reboots for each notice, seed {asked.seed}, {RANKS} ranks\n\n{HEAD}")
    for notice_s in asked.notices:
        played = reboots(asked.runs, notice_s * 1000, seed=asked.seed)
        neither = [unaware(reboot) for reboot in played]
        for name, way in WAYS.items():
            costs = [way(reboot) for reboot in played]
            print(row(f"{notice_s} s, {name}", costs, neither), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
