"""Simulates a busy fleet for a day in virtual time; prints what grows and what does not.

    python -m bench.growth [--quick] [--smoke] [--hours N] [--hosts N] [--operations N]
        [--max-bytes N] [--folder PATH]

The real control plane, store (SQLite on disk) and retention run under a clock that jumps from one
request to the next. Hosts are rebooted one after the other: an operator asks with an
Idempotency-Key, the notice is shown, each group approves, and the driver begins and ends. All
groups poll each minute, and the keeper of history looks once an hour. At intervals the process is
stopped, and another process starts on its store.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.sizes import Parser
from forewarn_base.audit_chain import CallRecord
from forewarn_base.clock import Clock
from forewarn_base.ids import Ids
from forewarn_base.settings import Settings, StoreSettings
from forewarn_base.values import replace, value
from forewarn_core.fleet.draft import Terms
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.step import take
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    DriverBegun,
    DriverDone,
    Enable,
    GroupsPolled,
    NoticeShown,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control.history_keeper import HistoryKeeper
from forewarn_server.control.plane import ControlPlane
from forewarn_server.service.service_files import retention_of
from forewarn_store import Store, open_store
from forewarn_store.answers import KeptAnswer

START_MS = 1_800_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
#: VMs on a host, each of another group, and hosts of a group.
VMS_A_HOST, HOSTS_A_GROUP = 10, 20
#: Interval of measurements, in virtual hours.
MEASURED_H = 3.0
PAGE_BYTES = 4096


class JumpingClock(Clock):
    """A clock that the simulation moves."""

    at_ms = START_MS

    def now_ms(self) -> int:
        """Return the virtual time."""
        return self.at_ms

    def wait_s(self, until_ms: int) -> float:
        """Return the virtual seconds until a time."""
        return max(until_ms - self.at_ms, 0) / 1000


@value
class Load:
    """The fleet and its work."""

    hours: float = 24.0
    hosts: int = 1000
    #: Operations in 24 hours.
    operations: int = 50_000
    #: Limit of the past in bytes; 0: the default.
    max_bytes: int = 0
    #: Interval in which the keeper of history looks, in ms.
    look_ms: int = HOUR_MS


@value
class Measured:
    """One measurement."""

    hours: float
    operations: int
    #: Resident memory of the process, of which the writer is the largest part.
    resident_bytes: int
    #: Files of the store, with its log.
    file_bytes: int
    #: The past by its own estimate, its part that stays for a week, and the exports on disk.
    past_bytes: int
    week_bytes: int
    exported_bytes: int
    #: Processor time of another process for its start on the store, and its resident memory.
    start_s: float
    start_bytes: int

    @property
    def line(self) -> str:
        """The measurement as a line."""
        mib = [
            f"{size / 2**20:9.1f}"
            for size in (
                self.resident_bytes,
                self.file_bytes,
                self.past_bytes,
                self.exported_bytes,
                self.start_bytes,
            )
        ]
        return f"{self.hours:6.1f}{self.operations:12}{''.join(mib)}{self.start_s:9.2f}"


HEAD = (
    f"{'hours':>6}{'operations':>12}{'memory':>9}{'file':>9}{'past':>9}{'exports':>9}"
    f"{'start':>9}{'start':>9}\n"
    f"{'':18}{'MiB':>9}{'MiB':>9}{'MiB':>9}{'MiB':>9}{'MiB':>9}{'cpu s':>9}"
)


class BusyFleet:
    """A control plane at work on a store."""

    def __init__(self, path: Path, load: Load) -> None:
        """Create the fleet, and enable its groups."""
        self.path, self.load = path, load
        self.clock = JumpingClock()
        self.operations = 0
        self._ids = Ids(1)
        self._open()
        self._plane.commit(fleet(load.hosts), actor="bench", now_ms=self.clock.at_ms)
        self._groups = tuple(self._plane.state.topology.groups)
        for group in self._groups:
            self._plane.commit(Enable(group), actor="bench", now_ms=self.clock.at_ms)
        self._polled_ms = self._kept_ms = START_MS

    def _open(self) -> None:
        self.store: Store = open_store(str(self.path))
        new_guid = partial(self._ids.guid, "event")
        self._plane = ControlPlane(self.store, NoticePolicy(), new_guid)
        self._plane.recover(self.clock.at_ms)
        retention = retention_of(Settings(store=StoreSettings(url=f"sqlite://{self.path}")))
        if self.load.max_bytes:
            retention = replace(retention, max_bytes=self.load.max_bytes)
        self.keeper = HistoryKeeper(self.store, retention, self.clock, record=self._record)

    def _record(self, call: CallRecord) -> None:
        self.store.write_calls([call])

    def run(self, until_ms: int) -> None:
        """Work until a virtual time."""
        between_ms = 24 * HOUR_MS / self.load.operations
        while self.clock.at_ms < until_ms:
            self._reboot(f"h{self.operations % self.load.hosts}")
            self.operations += 1
            self.clock.at_ms = START_MS + int(self.operations * between_ms)
            if self.clock.at_ms - self._polled_ms >= MINUTE_MS:
                self._polled_ms = self.clock.at_ms
                self._commit(GroupsPolled(frozenset(self._groups)), "metadata")
            if self.clock.at_ms - self._kept_ms >= self.load.look_ms:
                self._kept_ms = self.clock.at_ms
                self.keeper.trim()

    def _commit(self, stimulus: PlaneStimulus, actor: str) -> None:
        self._plane.commit(stimulus, actor=actor, now_ms=self.clock.at_ms)

    def _reboot(self, host: str) -> None:
        now_ms, key = self.clock.at_ms, f"key-{self.operations}"
        call = CallRecord(
            now_ms,
            "anna",
            "192.0.2.1",
            "POST /v1/operations",
            host,
            key=key,
            key_owner="anna",
            fingerprint=key,
        )
        state = self._plane.state
        terms = Terms(NoticePolicy(), "operator anna", partial(self._ids.guid, "event"))
        work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=(host,))
        self._plane.write([take(state, work, now_ms=now_ms, terms=terms)], call)
        self.store.answers.keep(replace(KeptAnswer.begun(call), status=202, answer="{}"))
        number = state.last_number
        self._commit(NoticeShown((number,)), "clock")
        approvals = []  # those of one moment are one commit
        for event_id in state.operations[number].events:
            vm = state.events[event_id].resources[0]
            terms = Terms(NoticePolicy(), f"vm {vm}", partial(self._ids.guid, "event"))
            asked = ApprovalRequest(vm, (event_id,), "")
            approvals.append(take(state, asked, now_ms=now_ms, terms=terms))
        self._plane.write(approvals)
        attempt = state.operations[number].execution.attempt
        self._commit(DriverBegun(number, attempt), "simulated")
        self._commit(DriverDone(number, attempt), "simulated")

    def measure(self) -> Measured:
        """Stop, let another process start on the store, and go on."""
        gc.collect()
        resident = resident_bytes()
        past = self.store.past_size()
        files = sum(each.stat().st_size for each in self.path.parent.glob(f"{self.path.name}*"))
        exports = self.path.parent / "history"
        exported = sum(each.stat().st_size for each in exports.glob("*")) if exports.exists() else 0
        self.store.close()
        start_s, start_bytes = started(self.path)
        self._open()
        return Measured(
            (self.clock.at_ms - START_MS) / HOUR_MS,
            self.operations,
            resident,
            files,
            past.total,
            past.work + past.audit,
            exported,
            start_s,
            start_bytes,
        )

    def close(self) -> None:
        """Stop."""
        self.store.close()


def fleet(hosts: int) -> ChangeTopology:
    """Return hosts with VMs of several groups."""
    groups = -(-hosts // HOSTS_A_GROUP)
    return ChangeTopology(
        hosts=tuple(Host(f"h{n}", fault_domain=n % 5) for n in range(hosts)),
        groups=tuple(Group(f"g{n}-{place}") for n in range(groups) for place in range(VMS_A_HOST)),
        vms=tuple(
            Vm(f"v{n}-{place}", f"h{n}", f"g{n // HOSTS_A_GROUP}-{place}")
            for n in range(hosts)
            for place in range(VMS_A_HOST)
        ),
    )


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def started(path: Path) -> tuple[float, int]:
    """Return the processor time of a start in another process, and its resident memory."""
    words = [sys.executable, "-m", "bench.growth", "--start", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds, size = done.stdout.split()
    return float(seconds), int(size)


def start(path: Path) -> None:
    """Start on a store as a service does; print the processor time and the memory."""
    began_s = time.process_time()
    store = open_store(str(path))
    plane = ControlPlane(store, NoticePolicy(), partial(Ids().guid, "event"))
    plane.recover(int(time.time() * 1000))
    plane.whole()
    print(time.process_time() - began_s, resident_bytes())
    store.close()


def measured(folder: Path, load: Load, *, every_h: float = MEASURED_H) -> list[Measured]:
    """Return the measurements of a run."""
    busy = BusyFleet(folder / "store.db", load)
    measurements = [busy.measure()]
    print(measurements[-1].line, flush=True)
    while measurements[-1].hours < load.hours - 0.01:
        hours = min(measurements[-1].hours + every_h, load.hours)
        busy.run(START_MS + int(hours * HOUR_MS))
        measurements.append(busy.measure())
        print(measurements[-1].line, flush=True)
    busy.close()
    return measurements


def main() -> None:
    """Run, and print the measurements."""
    parser = Parser("bench.growth", __doc__.splitlines()[0])
    parser.add_size("--hours", Load().hours, 0.5, 0.1, "virtual hours")
    parser.add_size("--hosts", Load().hosts, 100, 20, "hosts")
    parser.add_size("--operations", Load().operations, 50_000, 20_000, "operations in 24 hours")
    parser.add_size("--max-bytes", 0, 2_000_000, 1_000_000, "limit of the past; 0: the service's")
    parser.add_size("--look-min", HOUR_MS // MINUTE_MS, 2, 2, "minutes between looks at the past")
    parser.add_size("--every-hours", MEASURED_H, 0.1, 0.05, "hours between measurements")
    parser.add_argument("--folder", type=Path, help="where the store is")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    arguments = parser.sized()
    if arguments.start:
        start(arguments.start)
        return
    load = Load(
        hours=arguments.hours,
        hosts=arguments.hosts,
        operations=arguments.operations,
        max_bytes=arguments.max_bytes,
        look_ms=arguments.look_min * MINUTE_MS,
    )
    machine = f"Python {platform.python_version()}, {os.cpu_count()} processors"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    print(f"{load.hosts} hosts, {load.hosts * VMS_A_HOST} VMs, {load.operations} operations a day")
    print(HEAD)
    began_s, cpu_s = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="forewarn-growth-", dir=arguments.folder) as folder:
        last = measured(Path(folder), load, every_h=arguments.every_hours)[-1]
    each = last.week_bytes / max(last.operations, 1)
    print(f"{each:.0f} bytes of each operation stay for a week, without indexes and history")
    print(f"{time.monotonic() - began_s:.0f} s, {time.process_time() - cpu_s:.0f} s of a processor")


if __name__ == "__main__":
    main()
