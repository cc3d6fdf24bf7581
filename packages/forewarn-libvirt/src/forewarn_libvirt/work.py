"""The work of each operation on libvirt hosts: moves, reboots and removals of guests.

`guests.py` contains the actions on one guest. `driver.py` handles threads and calls of the control
plane.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from forewarn_base.clock import SystemClock
from forewarn_base.errors import PeerError
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_drivers import Task
from forewarn_drivers.host_command import HostCommand
from forewarn_libvirt.connection import HypervisorAway, HypervisorFailed
from forewarn_libvirt.guests import GuestMissing, Guests
from forewarn_libvirt.migration import Stopped
from forewarn_libvirt.records import BEGUN, ENDED, DomainRecords

#: Minimum time for the shutdown of a removed guest, even after its notice, in seconds.
FAREWELL_S = 5
#: Interval between attempts to reach a host, in seconds.
TRY_EVERY_S = 1.0


class WorkUnsupported(PeerError):
    """The driver does not support this operation."""

    code = "work-unsupported"
    message = "The libvirt driver cannot carry out {cause} with impact {impact}: {reason}."
    advice = "Do the work by hand and run `forewarn operation complete`, or fail the operation."


class HostAway(PeerError):
    """A host did not return after its reboot or failure."""

    code = "host-away"
    message = "Host {host} is not back after {seconds} s: {reason}"
    advice = "Check the host; then retry or fail the operation."


class GuestWork:
    """The work of one task, continued from the current state."""

    def __init__(
        self,
        task: Task,
        guests: Guests,
        records: DomainRecords,
        *,
        stopped: threading.Event,
        until_known: Callable[[], None],
    ) -> None:
        """Store the arguments; `until_known` waits until the destinations are known."""
        self._task = task
        self._until_known = until_known
        self._guests = guests
        self._connections = guests.connections
        self._config = guests.config
        self._records = records
        self._clock = SystemClock()
        self._stopped = stopped
        #: Time at which a hypervisor became unavailable, ms since the epoch UTC; 0: all answer.
        self._away_ms = 0

    def carry_out(self) -> None:
        """Execute the task to its end.

        Raises:
            ForewarnError: the task failed.
            Stopped: the task was aborted.
        """
        operation = self._task.operation
        vms = operation.vms
        fault = TRAITS[operation.cause].fault
        if operation.impact in {Impact.PREEMPT, Impact.TERMINATE}:
            self._remove()
        elif fault and operation.impact is Impact.REDEPLOY:
            self._bring_up_elsewhere()
        elif fault:
            self._start_again()
        elif operation.impact is Impact.REDEPLOY:
            self._move(self._guests.move_cold)
        elif operation.impact is Impact.FREEZE and TRAITS[operation.cause].moves:
            self._move(self._guests.move_alive)
        elif operation.impact is Impact.FREEZE:
            self._update()
        elif operation.cause is Cause.REIMAGE:
            raise self._unsupported("the driver does not know the guest's image")
        elif operation.of_vm or not self._config.reboot_command:
            self._each(vms, self._guests.reboot)
        else:
            self._reboot_host()

    @property
    def interruption_ms(self) -> int:
        """The longest measured interruption of a guest, in ms; -1: not measured."""
        return self._guests.interruption_ms

    def called_off(self) -> None:
        """Resume the guests that this operation suspended."""
        for vm in self._task.operation.vms:
            self._guests.leave(vm)
            self._guests.resume(vm)

    def _each(self, vms: tuple[str, ...], act: Callable[[str], None]) -> None:
        """Execute an action on every guest; raise the first failure, with its VM, at the end."""
        failed: PeerError | None = None
        for vm in vms:
            if self._stopped.is_set():
                raise Stopped
            try:
                self._while_away(act, vm)
            except HypervisorFailed as error:
                facts = error.facts
                failed = failed or type(error)(
                    host=facts["host"], reason=f"vm {vm}: {facts['reason']}"
                )
            except PeerError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _while_away(self, act: Callable[[str], None], vm: str) -> None:
        """Execute an action on a guest; repeat it while a hypervisor is away or busy.

        Raises:
            HypervisorAway: no action has succeeded for `unreachable_timeout_s`.
        """
        while True:
            try:
                act(vm)
            except HypervisorAway as error:
                now_ms = self._clock.now_ms()
                self._away_ms = self._away_ms or now_ms
                if now_ms - self._away_ms > self._config.unreachable_timeout_s * 1000:
                    raise
                self._guests.say(f"waiting for {error.facts['host']}: {error.clause}", 0)
            else:
                self._away_ms = 0
                return
            if self._stopped.wait(TRY_EVERY_S):
                raise Stopped

    def _move(self, act: Callable[[str], None]) -> None:
        """Move every guest once the control plane knows the destinations.

        M-1.
        """
        vms = self._task.operation.vms
        with contextlib.suppress(PeerError):  # the move raises the same error
            self._each(vms, self._guests.choose_destination)
        self._until_known()
        self._each(vms, act)

    def _remove(self) -> None:
        operation = self._task.operation
        not_before_ms, started_ms = operation.notice.not_before_ms, operation.execution.started_ms
        left_s = ((not_before_ms or 0) - (started_ms or 0)) / 1000
        grace_s = max(left_s, FAREWELL_S)
        self._each(operation.vms, lambda vm: self._guests.remove(vm, grace_s))

    def _update(self) -> None:
        """Run the update command; suspend the guests if an interruption is announced."""
        operation = self._task.operation
        if not self._config.update_command:
            raise self._unsupported("update_command is not set")
        quiet = operation.duration_s != 0
        try:
            if quiet:
                self._each(operation.vms, self._guests.suspend)
            self._command_once("update_command", self._config.update_command)
        finally:
            if quiet:
                self._each(operation.vms, self._guests.resume)

    def _reboot_host(self) -> None:
        operation = self._task.operation
        key = self._command_key("reboot_command")
        if self._records.task(key) != ENDED:
            self._each(
                operation.vms, self._guests.ask_to_stop
            )  # request all shutdowns first, so that the grace periods overlap
            self._each(operation.vms, self._guests.stop)
            self._command_once("reboot_command", self._config.reboot_command)
        self._connections.forget(operation.host)
        self._wait_for_host()
        self._each(operation.vms, self._guests.start)

    def _start_again(self) -> None:
        """Start the guests of a failed host once the host has returned."""
        self._wait_for_host()
        self._each(self._task.operation.vms, self._start_if_there)

    def _start_if_there(self, vm: str) -> None:
        domain = self._guests.find(vm)
        definition = self._records.definition(vm)
        if domain is None and definition is None:
            raise GuestMissing(vm=vm)
        if domain is None:
            assert definition is not None, vm
            self._connections.define(self._task.operation.host, definition)
        self._guests.bring_up(vm, definition)

    def _bring_up_elsewhere(self) -> None:
        """Start the guests of a lost host on other hosts, after ensuring that the host is off."""
        operation = self._task.operation
        if not self._config.fence_command:
            raise self._unsupported("fence_command is not set, so the host may still be running")
        self._command("fence_command", self._config.fence_command)
        self._guests.lost.add(operation.host)
        self._each(
            operation.vms, lambda vm: self._guests.bring_up(vm, self._records.definition(vm))
        )

    def _wait_for_host(self) -> None:
        host, limit_s = self._task.operation.host, self._config.reboot_timeout_s
        ends_ms = self._clock.now_ms() + limit_s * 1000
        while True:
            try:
                self._connections.to(host)
            except HypervisorFailed as error:
                if self._clock.now_ms() > ends_ms:
                    raise HostAway(host=host, seconds=limit_s, reason=error) from error
            else:
                return
            if self._stopped.wait(TRY_EVERY_S):
                raise Stopped

    def _command_once(self, setting: str, command: tuple[str, ...]) -> None:
        """Run a command at most once per attempt."""
        key = self._command_key(setting)
        state = self._records.task(key)
        if state == ENDED:
            return
        if state == BEGUN:
            problem = "began before the service ended; the result is unknown"
            raise self._host_command(setting, command).failed(self._task.operation.host, problem)
        self._records.note_task(key, BEGUN)
        self._command(setting, command)
        self._records.note_task(key, ENDED)

    def _command_key(self, setting: str) -> str:
        """Return a name of a command's run that is unique among stores."""
        return f"{self._task.id}@{self._task.operation.created_ms}:{setting}"

    def _command(self, setting: str, command: tuple[str, ...]) -> None:
        host = self._task.operation.host
        commands = self._config.hosts.get(host)
        self._host_command(setting, command).run(host, {"uri": commands.uri if commands else ""})

    def _host_command(self, setting: str, command: tuple[str, ...]) -> HostCommand:
        return HostCommand(setting, command, self._config.command_timeout_s)

    def _unsupported(self, reason: str) -> WorkUnsupported:
        operation = self._task.operation
        return WorkUnsupported(
            cause=operation.cause.value, impact=operation.impact.value, reason=reason
        )
