"""Faults: which kinds there are, how often they come, and what each does to a world.

All of them are drawn from the world's seed, each kind from a stream of its own, so that leaving
one kind out changes nothing about the others. No promise may be checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.sim.archive import TROUBLES
from forewarn.sim.crash import POINTS
from forewarn.sim.dice import Dice
from forewarn.sim.wires import Weather

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.sim.world import World

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS


class Faults:
    """Hurts a world until it is told to stop."""

    def __init__(self, world: World, without: frozenset[str]) -> None:
        """Plan the first fault of each kind that is not left out."""
        self._world = world
        self._over = False
        self._dice = {kind: Dice(world.seed, f"fault/{kind}") for kind in KINDS}
        self.counts = dict.fromkeys(KINDS, 0)
        for kind in KINDS:
            if kind not in without:
                self._plan(kind)

    def stop(self) -> None:
        """Let no further fault come; those under way end by themselves."""
        self._over = True

    def _plan(self, kind: str) -> None:
        every_ms, _ = KINDS[kind]
        every_ms //= self._world.plan.rate
        delay_ms = self._dice[kind].between(every_ms // 10, 2 * every_ms)
        self._world.agenda.after(delay_ms, lambda: self._strike(kind))

    def _strike(self, kind: str) -> None:
        if self._over:
            return
        self.counts[kind] += 1
        KINDS[kind][1](self._world, self._dice[kind])
        self._plan(kind)


def _crash(world: World, dice: Dice) -> None:
    """Kill the control plane now, or in the middle of what it does next."""
    if dice.chance(200):
        if world.service.up:
            world.service.crash()
    else:
        world.fuse.arm(dice.pick(POINTS))


def _failover(world: World, dice: Dice) -> None:
    """Pause the service, or cut it off from its store, for a second or for long."""
    back_ms = dice.pick((5 * SECOND_MS, MINUTE_MS, 20 * MINUTE_MS))
    world.fail_over(cut=dice.chance(500), back_ms=dice.between(SECOND_MS, back_ms))


def _store(world: World, dice: Dice) -> None:
    """Give the disk a bad time."""
    weather = world.disk_weather
    weather.kinds = tuple(dice.some(TROUBLES, dice.between(1, len(TROUBLES))))
    weather.permille = dice.pick((50, 300, 900, 1000))
    world.agenda.after(dice.between(SECOND_MS, 5 * MINUTE_MS), weather_clears(world))


def weather_clears(world: World) -> Callable[[], None]:
    """The end of a bad time for the disk."""

    def clear() -> None:
        world.disk_weather.permille = 0

    return clear


def _wire(world: World, dice: Dice) -> None:
    """Make the network between machines and nodes lossy."""
    weather = Weather(
        lost=dice.pick((20, 100, 500)),
        answer_lost=dice.pick((0, 100, 300)),
        late=dice.pick((0, 100, 300)),
        twice=dice.pick((0, 100, 300)),
    )
    world.wires.turn(weather)

    def clear() -> None:
        world.wires.turn(Weather())

    world.agenda.after(dice.between(MINUTE_MS, 4 * HOUR_MS), clear)


def _cut(world: World, dice: Dice) -> None:
    """Cut a follower off, and connect it again."""
    node = dice.pick(world.nodes[1:])
    world.cut(node)
    world.agenda.after(dice.between(MINUTE_MS, 6 * HOUR_MS), lambda: world.join(node))


def _lag(world: World, dice: Dice) -> None:
    """Make the service's own node slow to show what it is given."""
    world.show_lag_ms = dice.pick((1, 50, 400, 2500, 30_000))

    def clear() -> None:
        world.show_lag_ms = 0

    world.agenda.after(dice.between(MINUTE_MS, HOUR_MS), clear)


def _clock(world: World, dice: Dice) -> None:
    """Step the wall clock of the service's machine; a time server puts it right again."""
    world.service.wall_offset_ms = dice.pick((-6 * HOUR_MS, -MINUTE_MS, MINUTE_MS, 6 * HOUR_MS))


def _host(world: World, dice: Dice) -> None:
    """Let a host fail; best of all one that is worked on."""
    worked_on = [o.host for o in world.judge.mirror.operations.values() if not o.of_vm]
    hosts = worked_on if worked_on and dice.chance(600) else list(world.topology.hosts)
    world.people.host_fails(dice.pick(hosts), lost=dice.chance(200))


def _silence(world: World, dice: Dice) -> None:
    """Let a group fall silent for longer than a day."""
    group = dice.pick(list(world.topology.groups))
    world.mute(group)
    world.agenda.after(dice.between(20 * HOUR_MS, 40 * HOUR_MS), lambda: world.unmute(group))


def _drivers(world: World, dice: Dice) -> None:
    """Put drivers into whatever mood, for a while."""
    world.driver.moody = True

    def clear() -> None:
        world.driver.moody = False

    world.agenda.after(dice.between(HOUR_MS, 24 * HOUR_MS), clear)


KINDS: dict[str, tuple[int, Callable[[World, Dice], None]]] = {
    "crash": (6 * HOUR_MS, _crash),
    "failover": (20 * HOUR_MS, _failover),
    "store": (16 * HOUR_MS, _store),
    "wire": (10 * HOUR_MS, _wire),
    "cut": (12 * HOUR_MS, _cut),
    "lag": (12 * HOUR_MS, _lag),
    "clock": (20 * HOUR_MS, _clock),
    "host": (10 * HOUR_MS, _host),
    "silence": (20 * HOUR_MS, _silence),
    "drivers": (12 * HOUR_MS, _drivers),
}
"""Every kind of fault, how often it comes on average in ms, and what it does."""
