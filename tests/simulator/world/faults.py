"""Faults: which kinds there are, how often they come, and what each does to a world.

All of them are drawn from the world's seed, each kind from a stream of its own, so that leaving
one kind out changes nothing about the others. What is counted is what they did, not that they
were tried. No promise may be checked here.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from forewarn_core.fleet.lifecycle import Operation
from forewarn_drivers.simulated import duration_s
from tests.simulator.checkers.state_checker import RATE_PPM_MAX
from tests.simulator.world.crash_points import POINTS
from tests.simulator.world.dice import Dice
from tests.simulator.world.driver import MODES, NOT_HEARD
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.simulator.world.network import NetworkFaultRates
from tests.simulator.world.node_faults import NODE_EFFECTS
from tests.simulator.world.people import People
from tests.simulator.world.random_fleet import RandomFleet
from tests.simulator.world.simulated_store import TROUBLES

#: How often in a thousand a crash is followed by another, in the recovery or soon after it.
AGAIN_PERMILLE = 200
#: How often a time server puts a clock right between two faults of it.
CORRECTIONS = 3
#: Longest bad time of a disk, where hardly anything is written.
STORE_MS_MAX = 4 * HOUR_MS


#: What an odd service answers once in a while: nothing usable, or documents of nobody's.
ODD_BODIES = (
    None,
    b'{"DocumentIncarnation":0,"Events":[]}',
    b'{"DocumentIncarnation":1,"Events":[]}',
    b'{"Events":[]}',
    b'{"DocumentIncarnation":1000000,"Events":[]}',
)
#: How many odd answers in a row, a second apart.
ODD_MAX = 12


class Faults:
    """Hurts a world until it is stopped."""

    def __init__(self, world: RandomFleet, people: People, without: frozenset[str]) -> None:
        """Plan the first fault of each kind that is not left out."""
        self.world = world
        self.people = people
        self._over = False
        self._dice = {kind: Dice(world.seed, f"fault/{kind}") for kind in KINDS}
        self._crashes = "crash" not in without
        #: Whether the next host that is worked on fails under that.
        self.fail_next_begun = False
        for kind in KINDS:
            if kind not in without:
                self._plan(kind)

    def stop(self) -> None:
        """Let no further fault come; those under way end by themselves."""
        self._over = True
        self.fail_next_begun = False

    def crashed(self) -> None:
        """The service's process has ended: it may end again before it is up, or soon after."""
        dice = self._dice["crash"]
        if self._crashes and not self._over and dice.chance(AGAIN_PERMILLE):
            self.world.crash_point.arm(dice.pick(POINTS))

    def begun(self, operation: Operation) -> None:
        """A driver begins: the host may fail in the middle of it."""
        if not self.fail_next_begun or operation.of_vm:
            return
        self.fail_next_begun = False
        dice = self._dice["host"]
        fails = partial(self.people.host_fails, operation.host, lost=dice.chance(200))
        self.world.queue.after(dice.between(1, duration_s(operation) * SECOND_MS), fails)

    def effects(self) -> dict[tuple[str, str], int]:
        """Return how often each fault did something: (kind, what it did) -> times."""
        world = self.world
        elsewhere: dict[str, Mapping[str, int]] = {
            "crash": world.crash_point.hits,
            "store": world.disk_fault_rates.fault_counts,
            "slow": {"requests together": world.service.batches},
            "wire": world.network.fault_counts,
            "drivers": world.driver.fault_counts,
            "cut": {"change missed": world.missed},
            "lag": {"shown late": world.shown_late},
            "publish": {"not handed on": world.not_handed_on},
            "node": sum((node.disk.counts for node in world.nodes_by_host), Counter()),
        }
        return {
            (kind, effect): world.fault_counts[kind, effect]
            + elsewhere.get(kind, {}).get(effect, 0)
            for kind, effects in EFFECTS.items()
            for effect in effects
        }

    def _plan(self, kind: str) -> None:
        every_ms, _ = KINDS[kind]
        every_ms //= self.world.plan.rate
        delay_ms = self._dice[kind].between(every_ms // 10, 2 * every_ms)
        self.world.queue.after(delay_ms, lambda: self._strike(kind))

    def _strike(self, kind: str) -> None:
        if self._over:
            return
        KINDS[kind][1](self, self._dice[kind])
        self._plan(kind)


def _crash(faults: Faults, dice: Dice) -> None:
    """Kill the control plane now, or in the middle of what it does next."""
    world = faults.world
    if dice.chance(200):
        if world.service.up:
            world.fault_counts["crash", "killed"] += 1
            world.service.crash()
    else:
        world.crash_point.arm(dice.pick(POINTS))


def _failover(faults: Faults, dice: Dice) -> None:
    """Pause the service, or cut it off from its store, for a second or for long."""
    world = faults.world
    back_ms = dice.pick((5 * SECOND_MS, MINUTE_MS, 20 * MINUTE_MS))
    cut = dice.chance(500)
    if world.fail_over(cut=cut, back_ms=dice.between(SECOND_MS, back_ms)):
        world.fault_counts["failover", "cut off" if cut else "paused"] += 1


def _store(faults: Faults, dice: Dice) -> None:
    """Give the disk a bad time: until this many writes have met it, or for hours."""
    world = faults.world
    rates = world.disk_fault_rates
    rates.kinds = tuple(dice.some(TROUBLES, dice.between(1, len(TROUBLES))))
    rates.permille = dice.pick((50, 300, 900, 1000))
    rates.left = dice.pick((1, 2, 5, 20, 200))

    def clear() -> None:
        rates.permille = 0

    world.queue.after(STORE_MS_MAX, clear)


def _slow(faults: Faults, dice: Dice) -> None:
    """Make the disk slow for a while: requests wait for each other."""
    world = faults.world
    service = world.service
    service.slow_ms = dice.pick((300, 2 * SECOND_MS, 8 * SECOND_MS))

    def clear() -> None:
        service.slow_ms = 0

    world.queue.after(dice.between(MINUTE_MS, HOUR_MS), clear)


def _wire(faults: Faults, dice: Dice) -> None:
    """Make the network between machines and nodes lossy."""
    world = faults.world
    rates = NetworkFaultRates(
        lost=dice.pick((20, 100, 500)),
        answer_lost=dice.pick((0, 100, 300)),
        late=dice.pick((0, 100, 300)),
        twice=dice.pick((0, 100, 300)),
        answer_late=dice.pick((0, 100, 300)),
    )
    world.network.set_fault_rates(rates)

    def clear() -> None:
        world.network.set_fault_rates(NetworkFaultRates())

    world.queue.after(dice.between(MINUTE_MS, 4 * HOUR_MS), clear)


def _cut(faults: Faults, dice: Dice) -> None:
    """Cut a follower off, and connect it again."""
    world = faults.world
    node = dice.pick(world.nodes[1:])
    world.fault_counts["cut", "cut off"] += not node.is_cut
    world.cut(node)
    world.queue.after(dice.between(MINUTE_MS, 6 * HOUR_MS), lambda: world.join(node))


def _lag(faults: Faults, dice: Dice) -> None:
    """Make the service's own node slow to show what it is given."""
    world = faults.world
    world.publish_lag_ms = dice.pick((1, 50, 400, 2500, 30_000))

    def clear() -> None:
        world.publish_lag_ms = 0

    world.queue.after(dice.between(MINUTE_MS, HOUR_MS), clear)


def _publish(faults: Faults, dice: Dice) -> None:
    """Let no change reach any node for a while."""
    world = faults.world
    world.publish_fails = True

    def clear() -> None:
        world.publish_fails = False
        world.note_trouble()

    world.queue.after(dice.between(1, MINUTE_MS), clear)


def _node(faults: Faults, dice: Dice) -> None:
    """Hurt a node away from the service that serves some hosts, where there is one."""
    faults.world.node_faults.strike(dice)


def _clock(faults: Faults, dice: Dice) -> None:
    """Step the wall clock of the service's machine; a time server puts it right again."""
    world = faults.world
    service = world.service
    world.fault_counts["clock", "stepped"] += 1
    service.set_wall(dice.pick((-6 * HOUR_MS, -MINUTE_MS, MINUTE_MS, 6 * HOUR_MS)))

    def correct() -> None:
        """By a step, and from then on by another rate, as a time server does."""
        world.fault_counts["clock", "corrected"] += 1
        service.set_wall(dice.between(-50, 50))
        service.run_at(dice.between(-RATE_PPM_MAX, RATE_PPM_MAX))

    for _ in range(CORRECTIONS):
        world.queue.after(dice.between(HOUR_MS, 20 * HOUR_MS), correct)


def _host(faults: Faults, dice: Dice) -> None:
    """Let a host fail: any, one that is or was worked on, or the next that is worked on."""
    if dice.chance(400):
        faults.fail_next_begun = True
        return
    world = faults.world
    state = world.checker.state
    asked = [o.host for o in state.operations.values() if not o.of_vm]
    asked += [each.host for each in state.targets.values()]
    hosts = asked if asked and dice.chance(600) else list(world.topology.hosts)
    faults.people.host_fails(dice.pick(hosts), lost=dice.chance(200))


def _silence(faults: Faults, dice: Dice) -> None:
    """Let a group fall silent for longer than a day."""
    world = faults.world
    group = dice.pick(list(world.topology.groups))
    world.fault_counts["silence", "fallen silent"] += group in world.checker.state.enrolments
    world.mute(group)
    world.queue.after(dice.between(20 * HOUR_MS, 60 * HOUR_MS), lambda: world.unmute(group))


def _drivers(faults: Faults, dice: Dice) -> None:
    """Let drivers fail in any mode, for a while."""
    world = faults.world
    world.driver.faulty = True

    def clear() -> None:
        world.driver.faulty = False

    world.queue.after(dice.between(HOUR_MS, 24 * HOUR_MS), clear)


def _full(faults: Faults, dice: Dice) -> None:
    """Fill the disks of some machines for seconds, or for ten minutes."""
    world = faults.world
    machines = dice.some(tuple(world.machines), dice.between(1, 4))
    back_ms = dice.pick((20 * SECOND_MS, MINUTE_MS, 10 * MINUTE_MS))
    for name in machines:
        machine = world.machines[name]
        machine.fill_disk()
        world.queue.after(back_ms, machine.free_disk)


def _odd(faults: Faults, dice: Dice) -> None:
    """Answer some machines with what no service should: empty, of another count, or nothing."""
    world = faults.world
    for name in dice.some(tuple(world.machines), dice.between(1, 4)):
        machine = world.machines[name]
        machine.odd_bodies = [dice.pick(ODD_BODIES) for _ in range(dice.between(1, ODD_MAX))]
        machine.plan_poll()


#: Every kind of fault, how often it comes on average in ms, and what it does.
KINDS: dict[str, tuple[int, Callable[[Faults, Dice], None]]] = {
    "crash": (6 * HOUR_MS, _crash),
    "failover": (20 * HOUR_MS, _failover),
    "store": (16 * HOUR_MS, _store),
    "slow": (2 * HOUR_MS, _slow),
    "wire": (10 * HOUR_MS, _wire),
    "cut": (12 * HOUR_MS, _cut),
    "lag": (12 * HOUR_MS, _lag),
    "publish": (12 * HOUR_MS, _publish),
    "clock": (20 * HOUR_MS, _clock),
    "host": (10 * HOUR_MS, _host),
    "silence": (20 * HOUR_MS, _silence),
    "drivers": (12 * HOUR_MS, _drivers),
    "disk": (8 * HOUR_MS, _full),
    "odd": (4 * HOUR_MS, _odd),
    "node": (2 * HOUR_MS, _node),
}

#: What each kind of fault can do; each is counted where it is done.
EFFECTS: dict[str, tuple[str, ...]] = {
    "crash": ("killed", *POINTS, "in recovery"),
    "failover": ("paused", "cut off", "taken over"),
    "store": TROUBLES,
    "slow": ("requests together",),
    "wire": ("request lost", "request late", "request twice", "answer lost", "answer late"),
    "cut": ("cut off", "change missed"),
    "lag": ("shown late",),
    "publish": ("not handed on",),
    "clock": ("stepped", "stepped while down", "corrected"),
    "host": ("failed", "failed under work"),
    "silence": ("fallen silent", "disabled"),
    "disk": ("not written",),
    "odd": ("odd answer",),
    "node": NODE_EFFECTS,
    "drivers": (*(mode for mode, permille in MODES if permille), NOT_HEARD),
}
