"""Where VMs really are, and so which node answers them: what moves them, and when.

A VM runs where it was put, until an operation has taken it elsewhere: at some moment of that, or
soon after the fleet's record says otherwise. Who serves it there is decided by the product.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn_core.fleet.lifecycle import OperationState
from forewarn_drivers.simulated import duration_s
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import SECOND_MS

if TYPE_CHECKING:
    from forewarn_core.fleet.lifecycle import Operation
    from forewarn_core.fleet.topology import Vm
    from tests.simulator.world.driver import SimDriver
    from tests.simulator.world.random_fleet import RandomFleet

#: Modes of a driver in which it moves nobody.
STAYS = frozenset({"fails at the start", "never returns"})
#: How soon a VM is where the record has it by now: nobody announced that, so it is not sooner.
FOLLOW_MS_MAX = 5000


class VmPlaces:
    """Follows every VM of one world."""

    def __init__(self, world: RandomFleet, driver: SimDriver) -> None:
        """Begin with none."""
        self._world = world
        self._driver = driver
        self._dice = Dice(world.seed, "where VMs are")
        self._host: dict[str, str] = {}

    def build(self, vm: Vm) -> None:
        """A VM is there for the first time, or again."""
        self._host[vm.name] = vm.host
        self._world.network.connect(vm.name, self._world.node_of_host(vm.host))

    def begun(self, operation: Operation) -> None:
        """A driver is about to move VMs: each at some moment until it says that it has."""
        for vm in operation.vms:
            to = dict(operation.execution.placements).get(vm, operation.destination)
            if to and vm in self._host:
                delay_ms = self._dice.between(0, duration_s(operation) * SECOND_MS)
                self._world.queue.after(delay_ms, partial(self._arrive, operation, vm, to))

    def follow(self) -> None:
        """The record says where VMs are: those that are elsewhere by now follow it soon."""
        for vm in sorted(self._world.checker.nodes.moved):
            host = self._host.get(vm)
            if host is not None and host not in self._allowed(vm):
                delay_ms = self._dice.between(1, FOLLOW_MS_MAX)
                self._world.queue.after(delay_ms, partial(self._follow, vm))

    def _allowed(self, vm: str) -> dict[str, int]:
        return self._world.checker.nodes.records.hosts(vm)

    def _arrive(self, operation: Operation, vm: str, to: str) -> None:
        """The driver has it there now, if the operation goes on."""
        known = self._world.checker.state.operations.get(operation.number)
        task = self._driver.tasks.get((operation.number, operation.execution.attempt))
        if task is None or task.over or task.mode in STAYS or known is None:
            return
        if known.state is OperationState.RUNNING and to in self._allowed(vm):
            self._move(vm, to)

    def _follow(self, vm: str) -> None:
        known = self._world.topology.vms.get(vm)
        if known is not None and self._host.get(vm) not in self._allowed(vm):
            self._move(vm, known.host)

    def _move(self, vm: str, host: str) -> None:
        world = self._world
        machine = world.machines.get(vm)
        node = world.node_of_host(host)
        self._host[vm] = host
        if machine is None or world.network.node_of(vm) is node:
            return
        world.checker.premises["M-2: a VM runs where another node answers"] += 1
        world.network.connect(vm, node)
        machine.plan_poll()
