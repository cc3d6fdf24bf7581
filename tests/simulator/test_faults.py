"""What single faults do to a world in which nothing else happens."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.simulator.world.deployment import REPUBLISHED_MS
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS
from tests.simulator.world.faults import KINDS
from tests.simulator.world.network import NetworkFaultRates
from tests.simulator.world.people import OPTIONAL
from tests.simulator.world.world import World, WorldPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT = NetworkFaultRates(lost=1000)
DELAYED = NetworkFaultRates(answer_late=1000)


@pytest.fixture
def world() -> Iterator[World]:
    """A small world, an hour old, where nobody asks for anything and nothing breaks."""
    made = World(WorldPlan(1, 4, 12, 1.0, without=frozenset((*KINDS, *OPTIONAL))))
    with closing(made.disk), made.captured_logs():
        pass_ms(made, HOUR_MS)
        yield made


def pass_ms(world: World, by_ms: int) -> None:
    """Let time pass."""
    until_ms = world.queue.now_ms + by_ms
    while world.queue.step(until_ms):
        pass


def test_change_that_was_not_handed_on_is_trouble_until_all_is_published(world: World) -> None:
    """The service tries again after half a minute at most: until then nodes may lack it. M-1."""
    world.publish_fails = True
    world.people.host_fails("h0", lost=False)
    pass_ms(world, 20_000)
    world.publish_fails = False
    pass_ms(world, 1000)
    assert world.sound_since_ms(None) == world.queue.now_ms
    pass_ms(world, REPUBLISHED_MS)
    assert 0 < world.queue.now_ms - world.sound_since_ms(None) < REPUBLISHED_MS


def test_trouble_ends_though_nothing_is_published_again(world: World) -> None:
    """A service that does not try again is found out. Source: M-1."""
    world.publish_fails = True
    world.people.host_fails("h0", lost=False)
    assert world.service.loop is not None
    world.service.loop._publishing.put_by(HOUR_MS)
    world.publish_fails = False
    pass_ms(world, MINUTE_MS)
    assert world.sound_since_ms(None) < world.queue.now_ms


def test_failed_host_is_told_until_it_is_heard(world: World) -> None:
    """A host fails while the service is down: its machines are gone, and it is told later."""
    names = world.topology.vms_on("h0")
    world.service.crash()
    world.people.host_fails("h0", lost=False)
    assert names
    assert not any(world.machines[name].up for name in names)
    assert not world.checker.operations
    pass_ms(world, 2 * HOUR_MS)
    assert [each.host for each in world.checker.operations.values()] == ["h0"]
    assert world.fault_counts["host", "failed"] == 1
    assert all(world.machines[name].up for name in names)


def test_machines_of_a_failed_host_come_back_though_nobody_works_on_it(world: World) -> None:
    """A failure that the service refuses leaves no machine switched off for ever."""
    world.people.host_fails("h0", lost=False)
    world.people.host_fails("h0", lost=False)
    pass_ms(world, HOUR_MS)
    assert world.fault_counts["host", "failed"] == 1
    assert all(machine.up for machine in world.machines.values())


def test_clocks_of_a_machine_run_at_their_own_rate(world: World) -> None:
    """200 millionths are 0.72 s an hour; a time server steps the wall clock only. Source: N-4."""
    service = world.service
    before_ms = service.clock.now_ms() - world.queue.now_ms
    service.run_at(200)
    pass_ms(world, HOUR_MS)
    assert service.clock.now_ms() - world.queue.now_ms - before_ms == 720
    service.set_wall(-5000)
    off_ms = world.queue.now_ms - 5000 - service.clock.now_ms()
    assert service.clock.off_ms() == pytest.approx(off_ms, abs=1)


def test_lost_poll_is_noticed_in_time(world: World) -> None:
    """Without an answer an agent gives its poll up after seconds, and polls again."""
    machine = next(each for each in world.machines.values() if each.core is not None)
    heard: list[bytes | None] = []
    world.network.set_fault_rates(SILENT)
    world.network.poll(machine.profile, heard.append)
    assert not heard
    pass_ms(world, MINUTE_MS)
    assert heard == [None]


def test_late_answer_is_of_when_it_was_asked(world: World) -> None:
    """An answer under way shows what was true when the node gave it. Source: D-1."""
    machine = next(each for each in world.machines.values() if each.core is not None)
    heard: list[bytes | None] = []
    world.network.set_fault_rates(DELAYED)
    world.network.poll(machine.profile, heard.append)
    name = machine.profile.name
    shown = world.nodes[0].snapshot.view(world.topology.view_of(name)).document
    world.people.host_fails(world.topology.vms[name].host, lost=False)
    pass_ms(world, MINUTE_MS)
    assert heard[0] is not None
    assert f'"DocumentIncarnation":{shown.incarnation}'.encode() in heard[0].replace(b" ", b"")
    assert world.checker.state.views[world.topology.view_of(name)].document != shown


def test_crash_may_be_followed_by_another() -> None:
    """A process that has just died may die again in its recovery. Source: L-7."""
    made = World(WorldPlan(1, 4, 12, 1.0, without=frozenset(KINDS) - {"crash"}))
    with closing(made.disk):
        armed = 0
        for _ in range(100):
            made.faults.crashed()
            armed += bool(made.crash_point.armed)
            made.crash_point.armed = ""
    assert 5 < armed < 45
