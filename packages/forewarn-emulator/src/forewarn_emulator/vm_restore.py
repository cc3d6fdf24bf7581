"""Restores evicted and deleted VMs, so that users can continue with the same fleet.

VMs removed by an operator remain removed.
"""

from __future__ import annotations

import asyncio
import logging

from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Vm
from forewarn_emulator.acting_control import ActingControl, copied_topology
from forewarn_emulator.default_fleet import ACTOR
from forewarn_server.control.run_loop import ControlLoop

log = logging.getLogger("forewarn.emulator")

#: Time between the removal of a VM and its return, in ms of the emulator's clock.
AWAY_MS = 60_000


class VmRestore:
    """The times at which removed VMs return; used only on the event loop."""

    def __init__(self, control: ControlLoop, clock: Clock) -> None:
        self._control = ActingControl(control, ACTOR)
        self._clock = clock
        self._away: dict[str, tuple[int, Vm]] = {}
        self._moved = asyncio.Event()
        self._resting = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def waits_until_ms(self) -> int | None:
        """Return the time of the next return, ms since the epoch UTC."""
        return min((at_ms for at_ms, _ in self._away.values()), default=None)

    @property
    def quiet(self) -> bool:
        """Whether all due VMs are restored."""
        at_ms = self.waits_until_ms
        due = at_ms is not None and at_ms <= self._clock.now_ms()
        return self._resting and not self._moved.is_set() and not due

    def away(self, vm: Vm) -> None:
        """Restore a VM after `AWAY_MS`."""
        self._away[vm.name] = (self._clock.now_ms() + AWAY_MS, vm)
        self.wake()

    async def restore_now(self, name: str) -> None:
        """Restore a VM now, because a scenario needs the VM."""
        if name in self._away:
            _, vm = self._away[name]
            self._away[name] = (self._clock.now_ms(), vm)
            await self._bring_back()

    def wake(self) -> None:
        """Check the clock again."""
        self._moved.set()

    def stop(self) -> None:
        """Stop restoring VMs."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._moved.clear()
            await self._bring_back()
            at_ms = self.waits_until_ms
            self._resting = True
            try:
                async with asyncio.timeout(None if at_ms is None else self._clock.wait_s(at_ms)):
                    await self._moved.wait()
            except TimeoutError:
                pass
            finally:
                self._resting = False

    async def _bring_back(self) -> None:
        now_ms = self._clock.now_ms()
        for name, (at_ms, vm) in list(self._away.items()):
            if at_ms > now_ms:
                continue
            del self._away[name]
            try:
                topology = await self._control.read(copied_topology)
                if name in topology.vms:
                    continue
                await self._control.submit(ChangeTopology(vms=(vm,)))
            except (
                ForewarnError
            ) as error:  # the VM's host or group was removed, or the VM's address is in use
                log.info("%s cannot be restored: %s", name, error)
