"""Parts of the state that this process cannot use, although they were valid when accepted.

Settings, packages and data of a machine may change between two starts, and differ between the
processes of a store. A time zone, a driver or a gate that is missing here affects only the work
that needs it; the service starts, and names it in the log, in its health and in `forewarn doctor`.
Source: L-12.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forewarn_drivers.registry import AbsentDriver
from forewarn_server.control.zone_sources import sources_text

if TYPE_CHECKING:
    from forewarn_core.fleet.state import Changes, State
    from forewarn_core.fleet.step import StepResult
    from forewarn_core.fleet.topology import Host
    from forewarn_drivers import Driver
    from forewarn_server.control.gate_checks import Gate

log = logging.getLogger("forewarn")


class DegradedParts:
    """The parts that cannot be used, each with a sentence; read on any thread."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        default: str,
        *,
        gates: Mapping[str, Gate],
        unsent: Callable[[], Mapping[str, str]],
    ) -> None:
        """Compare states with these parts, which a reload may change.

        Args:
            drivers: the drivers by name.
            default: the driver of hosts that name none.
            gates: the gates by name.
            unsent: returns the destinations that cannot be used, with the reason.
        """
        self._drivers, self._default, self._gates, self._unsent = drivers, default, gates, unsent
        self._lock = threading.Lock()
        self._state: State | None = None
        #: Hosts whose driver is missing, with its name.
        self._hosts: dict[str, str] = {}
        self._sentences: tuple[str, ...] = ()
        #: The data that decided about time zones last.
        self._zones = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return a sentence about each part."""
        return self._sentences

    def missing_driver(self, name: str) -> str:
        """Return why a driver is missing, by its name or an empty text; empty if it is there."""
        name = name or self._default
        driver = self._drivers.get(name)
        if driver is None:
            return f"[drivers.{name}] is not in the settings"
        return driver.reason if isinstance(driver, AbsentDriver) else ""

    def look(self, state: State, changes: Changes | None = None) -> None:
        """Compare a state, and log each part that is missing, and each that is there again.

        Costs the changed records; without `changes`, or with another state, the whole state.
        """
        with self._lock:
            if changes is None or state is not self._state:
                self._state = state
                self._hosts.clear()
                self._note_hosts(state.topology.hosts)
            elif changes.of_fleet or changes.policies or changes.maintenances:
                self._note_hosts(changes.hosts)
            else:
                return
            self._log_zone_sources(state)
            self._log_differences(state)

    def look_at_commit(self, committed: StepResult) -> None:
        """Compare the state that `look` has seen, after a commit."""
        if self._state is not None:
            self.look(self._state, committed.changes)

    def _note_hosts(self, hosts: Mapping[str, Host | None]) -> None:
        for name, host in hosts.items():
            if host is not None and self.missing_driver(host.driver):
                self._hosts[name] = host.driver or self._default
            else:
                self._hosts.pop(name, None)

    def _log_differences(self, state: State) -> None:
        before, self._sentences = self._sentences, tuple(self._missing_parts(state))
        for sentence in self._sentences:
            if sentence not in before:
                log.error("%s", sentence, extra={"action": "degraded"})
        for sentence in before:
            if sentence not in self._sentences:
                log.info("no longer: %s", sentence, extra={"action": "degraded.over"})

    def _missing_parts(self, state: State) -> list[str]:
        """Return a sentence for each part of the state that this process cannot use."""
        windows = state.applied_policy.policy.windows if state.applied_policy else ()
        sentences = [
            f"Window {each.name} is closed: this machine does not know the time zone "
            f"{each.time_zone}."
            for each in windows
            if not each.is_readable
        ]
        for driver, count in sorted(Counter(self._hosts.values()).items()):
            hosts = "host uses" if count == 1 else "hosts use"
            reason = self.missing_driver(driver)
            sentences.append(f"{count} {hosts} driver {driver}, whose work waits: {reason}.")
        sentences += [
            f"Maintenance {each.id} stops after its next wave: gate {each.gate} is missing."
            for each in state.maintenances.values()
            if each.live and each.gate and each.gate not in self._gates
        ]
        sentences += [
            f"Gate {name} fails each maintenance: {gate.absent.clause}."
            for name, gate in self._gates.items()
            if gate.absent is not None
        ]
        unsent = self._unsent().items()
        sentences += [
            f"Destination {name} receives nothing: it {reason}." for name, reason in unsent
        ]
        return sentences

    def _log_zone_sources(self, state: State) -> None:
        windows = state.applied_policy.policy.windows if state.applied_policy else ()
        zones = sources_text(each.time_zone for each in windows)
        if zones not in {"", self._zones}:
            self._zones = zones
            log.info("time zones of windows are by %s", zones, extra={"action": "time-zones"})
