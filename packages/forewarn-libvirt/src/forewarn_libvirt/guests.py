"""Repeatable actions on one guest: move, reboot, remove, suspend.

Every action first reads the state of the hypervisors, and is therefore safe after a crash.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError, PeerError
from forewarn_drivers import Task
from forewarn_drivers.task_records import TaskOfLaterWriter
from forewarn_libvirt.config import LibvirtConfig
from forewarn_libvirt.connection import Connections, DomainGone, HypervisorFailed, failing
from forewarn_libvirt.domain import Domain, DomainMark
from forewarn_libvirt.migration import LOOK_EVERY_S, Migration, Stopped

#: Maximum number of searches for a guest that moves between two calls.
LOOKS_MAX = 5


class GuestMissing(PeerError):
    """No host has the VM."""

    code = "guest-missing"
    message = "No host of the libvirt configuration has a domain {vm}."
    advice = "Find or define the domain and retry the operation, or fail the operation."


class NoRoom(PeerError):
    """No host has enough memory for a guest."""

    code = "no-room"
    message = "No other reachable host has {mib} MiB of memory for {vm}."
    advice = "Free memory or name a destination, then retry the operation."


class Guests:
    """The guests of one task."""

    def __init__(
        self,
        task: Task,
        connections: Connections,
        config: LibvirtConfig,
        *,
        stopped: threading.Event,
        say: Callable[[str, float], None],
        take: Callable[[str, str], None],
    ) -> None:
        """`say` receives the current activity and its completed share, 0 to 1."""
        self._task = task
        self.connections = connections
        self._clock = SystemClock()
        self.config = config
        self._stopped = stopped
        self.say = say
        self._take = take
        #: Memory of the guests that will move to each host, in KiB.
        self._promised: dict[str, int] = {}
        #: The last successful attempt of the operation; this attempt repeats the work.
        self.ended = 0
        #: Lost hosts, which the driver does not query.
        self.lost: set[str] = set()
        #: Time limits of guests that are shutting down, ms since the epoch UTC.
        self._grace_ms: dict[str, int] = {}
        #: Times at which this process shut down or suspended guests, in ms of the monotonic clock.
        self._down_ms: dict[str, int] = {}
        #: The longest measured interruption of a guest, in ms; -1: not measured. Source: X-1.
        self.interruption_ms = -1

    # --- find the VM --------------------------------------------------------------------

    def find(self, vm: str) -> Domain | None:
        """Return the domain of a guest, or None, with at most one call per host.

        For a migrating guest on two hosts, return the source's domain.

        Raises:
            HypervisorFailed: the guest may be on an unreachable host.
        """
        for _ in range(LOOKS_MAX - 1):
            with contextlib.suppress(DomainGone):  # the guest has just arrived, or ended
                return self._look(vm)
        return self._look(vm)

    def _look(self, vm: str) -> Domain | None:
        operation = self._task.operation
        first = (operation.host, operation.destination)
        hosts = [each for each in dict.fromkeys((*first, *self.config.hosts)) if each]
        domains: list[Domain] = []
        silent: ForewarnError | None = None
        for host in hosts:
            if host in self.lost:
                continue
            try:
                domain = self.connections.domain(host, vm)
            except HypervisorFailed as error:
                silent = silent or error
                continue
            if domain is not None:
                domains.append(domain)
        if not domains:
            if silent is not None:
                raise silent
            return None
        return max(domains, key=self._rank)

    def needed(self, vm: str) -> Domain:
        """Return the domain of a guest.

        Raises:
            GuestMissing: no host has the guest.
        """
        domain = self.find(vm)
        if domain is None:
            raise GuestMissing(vm=vm)
        return domain

    def _rank(self, domain: Domain) -> tuple[bool, bool]:
        with failing(domain.host):
            mark = domain.mark()
            return domain.active, mark is None or mark.to != domain.host

    # --- actions ------------------------------------------------------------------------

    def choose_destination(self, vm: str) -> None:
        """Choose and report the destination of a guest without a destination."""
        domain = self.needed(vm)
        if self._has_gone(domain):
            return
        mark = self._own_mark(domain, moves=True)
        if mark.to not in {"", domain.host, self._task.operation.destination}:
            self._promised[mark.to] = self._promised.get(mark.to, 0) + domain.memory_kib
            self._take(vm, mark.to)

    def move_alive(self, vm: str) -> None:
        """Migrate a guest live; move a stopped guest without starting the guest."""
        domain = self.needed(vm)
        if self._has_gone(domain):
            return
        mark = self._own_mark(domain, moves=True)
        if not mark.ran:
            self.move_cold(vm)
            return
        while domain.host != mark.to:
            if not domain.active:
                raise HypervisorFailed(
                    host=domain.host, reason=f"{vm} stopped during its migration"
                )
            Migration(domain, mark.to, self.config, stopped=self._stopped, say=self.say).carry_out()
            domain = self.needed(vm)
            self._measured(domain.downtime_ms())
        with failing(domain.host):
            domain.resume()  # post-copy may leave the guest suspended
        self._forget_elsewhere(domain)

    def move_cold(self, vm: str) -> None:
        """Stop a guest, and start it on another host from the same disks. Source: D-4."""
        domain = self.needed(vm)
        if self._has_gone(domain):
            return
        mark = self._own_mark(domain, moves=True)
        if domain.host != mark.to:
            self._stop(domain, self.config.shutdown_timeout_s)
            self.say(f"starting {vm} on {mark.to}", 0.5)
            with failing(domain.host):
                xml = domain.definition()
            self.connections.define(mark.to, xml)
            with failing(domain.host):
                domain.undefine()  # stop before the start, so that the guest never runs twice
        self._start(mark.to, vm, mark)

    def reboot(self, vm: str) -> None:
        """Reboot a running guest by a stop and a start."""
        self.stop(vm)
        self.start(vm)

    def ask_to_stop(self, vm: str) -> None:
        """Request the shutdown of a guest, unless rebooted since the task began."""
        domain = self.needed(vm)
        if self._own_mark(domain).pending:
            self._ask_to_stop(domain, self.config.shutdown_timeout_s)

    def stop(self, vm: str) -> None:
        """Stop a guest, unless rebooted since the task began."""
        domain = self.needed(vm)
        mark = self._own_mark(domain)
        if mark.pending:
            self._stop(domain, self.config.shutdown_timeout_s)

    def start(self, vm: str) -> None:
        """Start a guest that ran when the task began."""
        domain = self.needed(vm)
        self._start(domain.host, vm, self._own_mark(domain))

    def remove(self, vm: str, grace_s: float) -> None:
        """Shut a guest down, after the grace by force, and remove its definition."""
        domain = self.find(vm)
        if domain is None:
            return
        self._own_mark(domain)
        self._stop(domain, grace_s)
        with failing(domain.host):
            domain.undefine()

    def suspend(self, vm: str) -> None:
        """Stop a guest's processors."""
        domain = self.needed(vm)
        self._own_mark(domain)
        with failing(domain.host):
            domain.suspend()
        self._down_ms[vm] = self._clock.elapsed_ms()

    def resume(self, vm: str) -> None:
        """Resume a guest's processors, if this operation has stopped them."""
        domain = self.find(vm)
        if domain is None:
            return
        with failing(domain.host):
            mark = domain.mark()
            if mark and mark.operation == self._key and mark.ran:
                domain.resume()
                self._is_up(vm)

    def bring_up(self, vm: str, definition: str | None) -> None:
        """Start a guest of a lost host on another host, from its last known definition."""
        domain = self.find(vm)
        if domain is None and definition is None:
            raise GuestMissing(vm=vm)
        if domain is None:
            assert definition is not None, vm
            to = self._room(vm, 0)
            self._take(vm, to)
            self.say(f"starting {vm} on {to}", 0)
            self.connections.define(to, definition)
            domain = self.connections.domain(to, vm)
            assert domain is not None, vm
        with failing(domain.host):
            domain.put_mark(self._new_mark(ran=True, to=domain.host))
            domain.create()

    # --- steps --------------------------------------------------------------------------

    def _has_gone(self, domain: Domain) -> bool:
        """Return whether a successful earlier attempt has already moved the guest."""
        return bool(self.ended) and domain.host != self._task.operation.host

    def _own_mark(self, domain: Domain, *, moves: bool = False) -> DomainMark:
        """Return this operation's mark on a guest; add a missing mark.

        A new attempt to move a guest replaces the mark of the attempt before, unless the guest has
        arrived: the new attempt may have another destination.

        Raises:
            TaskOfLaterWriter: a newer writer has put its mark there.
        """
        with failing(domain.host):
            mark, active = domain.mark(), domain.active
            ran = active
            if mark is not None and mark.operation == self._key:
                if mark.generation > self._task.generation:
                    facts = {"generation": self._task.generation, "newest": mark.generation}
                    raise TaskOfLaterWriter(task=self._task.id, **facts)
                arrived = domain.host == mark.to
                if not moves or arrived or mark.attempt == self._task.attempt:
                    return mark
                ran = mark.ran
            to = self._destination(domain) if moves else ""
            new_mark = self._new_mark(ran=ran, to=to, pending=active)
            domain.put_mark(new_mark)
            return new_mark

    def _new_mark(self, *, ran: bool, to: str = "", pending: bool = False) -> DomainMark:
        operation = self._task.operation
        return DomainMark(
            self._key,
            operation.execution.attempt,
            self._task.generation,
            pending=pending,
            to=to,
            ran=ran,
        )

    @property
    def _key(self) -> str:
        """Return the operation's name in marks, which is unique among stores."""
        operation = self._task.operation
        return f"{operation.id}@{operation.created_ms}" + (f"+{self.ended}" if self.ended else "")

    def _destination(self, domain: Domain) -> str:
        """Return a guest's planned destination; on retries, a host with enough memory."""
        operation = self._task.operation
        planned = operation.destination_of(domain.name) if operation.execution.attempt == 1 else ""
        return planned or self._room(domain.name, domain.memory_kib, but=domain.host)

    def _room(self, vm: str, kib: int, but: str = "") -> str:
        """Return the host with the most free memory, with a call per host."""
        operation = self._task.operation
        if operation.destination:
            return operation.destination
        room: dict[str, int] = {}
        for host in self.config.hosts:
            if host not in self.lost and host not in {but, operation.host}:
                try:
                    room[host] = self.connections.free_kib(host) - self._promised.get(host, 0)
                except HypervisorFailed:
                    continue
        best = max(room, key=lambda each: room[each], default="")
        if not best or room[best] < kib:
            raise NoRoom(vm=vm, mib=kib // 1024)
        return best

    def _start(self, host: str, vm: str, mark: DomainMark) -> None:
        domain = self.connections.domain(host, vm)
        if domain is None:
            raise GuestMissing(vm=vm)
        with failing(host):
            if mark.ran:
                domain.create()
                self._is_up(vm)

    def _ask_to_stop(self, domain: Domain, grace_s: float) -> None:
        """Request the shutdown of a guest, and start its grace period once it is requested."""
        begun_ms = self._clock.elapsed_ms()
        with failing(domain.host):
            if domain.run_lasts:
                domain.resume()
                domain.shutdown()
        self._grace_ms[domain.name] = self._clock.now_ms() + int(grace_s * 1000)
        self._down_ms[domain.name] = begun_ms

    def _stop(self, domain: Domain, grace_s: float) -> None:
        """End the current run of a guest, after the grace by force.

        Leave later runs untouched, because a superseded writer may call this.
        """
        self.say(f"shutting {domain.name} down", 0)
        if domain.name not in self._grace_ms:
            self._ask_to_stop(domain, grace_s)
        ends_ms = self._grace_ms.pop(domain.name)
        with failing(domain.host):
            while domain.run_lasts and self._clock.now_ms() < ends_ms:
                self._pause()
            if domain.run_lasts:
                domain.destroy()

    def _is_up(self, vm: str) -> None:
        """Measure the interruption of a guest that this process had stopped or suspended."""
        since_ms = self._down_ms.pop(vm, None)
        if since_ms is not None:
            self._measured(self._clock.elapsed_ms() - since_ms)

    def _measured(self, interruption_ms: int) -> None:
        self.interruption_ms = max(self.interruption_ms, interruption_ms)

    def _forget_elsewhere(self, moved: Domain) -> None:
        """Remove the definitions of a moved guest from other hosts, with one call per host.

        If libvirtd crashes at the end of a migration, the old definition remains, and another start
        could corrupt the disks.

        Raises:
            HypervisorFailed: the source host is unreachable.
        """
        for host in self.config.hosts:
            if host == moved.host or host in self.lost:
                continue
            try:
                other = self.connections.domain(host, moved.name)
            except HypervisorFailed:
                if host == self._task.operation.host:
                    raise
                continue
            if other is None:
                continue
            with failing(host):
                mark = other.mark()
                if mark is not None and mark.operation == self._key and not other.active:
                    other.undefine()

    def _pause(self) -> None:
        if self._stopped.wait(LOOK_EVERY_S):
            raise Stopped

    def leave(self, vm: str) -> None:
        """Put a final mark on a guest, so that no superseded writer begins work on the guest."""
        domain = self.find(vm)
        if domain is None:
            return
        with failing(domain.host):
            mark = domain.mark()
            if mark is None or mark.generation < self._task.generation:
                base = mark or self._new_mark(ran=domain.active)
                domain.put_mark(replace(base, generation=self._task.generation))
