"""Runs a maintenance of a whole fleet with approving VMs; prints times and costs.

A real `forewarn emulate` on a store on disk, its clock ahead of the real one by a factor. Each
group has one VM that polls with `wait` from an address of its own and approves what it sees.
The policy has windows, budgets for the fleet, for racks and for owners, and a canary wave. In the
end everything that ran is read from the store and judged by `judge.py`, which shares nothing with
the planner.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from bench.maintenance.guests import Guests
from bench.maintenance.judge import Limits, judge
from bench.sizes import Parser
from forewarn_core.fleet.impact import Cause
from forewarn_store import OperationPage, open_store

if TYPE_CHECKING:
    from forewarn_core.fleet.lifecycle import Operation

#: Number of hosts in a block with common groups, of VMs on a host, and of hosts in a rack.
BLOCK, VMS_A_HOST, RACK = 20, 2, 40
FAULT_DOMAINS = 5
#: Maximum percentage of the fleet at once, and maximum number of a rack's hosts at once.
AT_ONCE_PERCENT, RACK_AT_ONCE = 10, 8
DURATION_S = 600
ANSWER_S_MAX = 600


def topology(hosts: int) -> dict[str, object]:
    """Return a fleet in the form of a topology file."""
    groups = hosts // BLOCK * VMS_A_HOST
    return {
        "hosts": {
            f"h{n}": {
                "fault_domain": n % BLOCK * FAULT_DOMAINS // BLOCK,
                "labels": {"rack": f"r{n // RACK}"},
            }
            for n in range(hosts)
        },
        "groups": {f"g{n}": {"owner": f"o{n // 10}"} for n in range(groups)},
        "vms": {
            f"v{n}-{place}": {
                "host": f"h{n}",
                "group": group_of(n, place),
                **({"addresses": [address_of(n, place)]} if n % BLOCK == 0 else {}),
            }
            for n in range(hosts)
            for place in range(VMS_A_HOST)
        },
    }


def group_of(host: int, place: int) -> str:
    """Return the group of a VM."""
    return f"g{host // BLOCK * VMS_A_HOST + place}"


def address_of(host: int, place: int) -> str:
    """Return the source address of a group's approving VM."""
    number = host // BLOCK * VMS_A_HOST + place + 1
    return f"127.1.{number >> 8}.{number & 255}"


def policy(from_hour: int, to_hour: int) -> dict[str, object]:
    """Return the policy, in the form of its file."""
    return {
        "canary": 2,
        "windows": {"days": {"from": f"{from_hour:02}:00", "to": f"{to_hour:02}:00"}},
        "budgets": [
            {"for": "fleet", "limit": f"{AT_ONCE_PERCENT}%"},
            {"for": "rack", "limit": RACK_AT_ONCE},
        ],
    }


class Emulator:
    """A running `forewarn emulate`."""

    def __init__(self, folder: Path, speed: int) -> None:
        """Start the emulator, and wait until it answers."""
        self.store = folder / "maintenance.db"
        words = ["emulate", "--json", "--listen", "127.0.0.1:0", "--speed", str(speed)]
        more = ["--operator-listen", "127.0.0.1:0", "--store", str(self.store)]
        program = str(Path(sys.executable).with_name("forewarn"))
        self._told = (folder / "emulate.out").open("w+")
        self._process = subprocess.Popen([program, *words, *more], stdout=self._told)
        while not (line := (folder / "emulate.out").read_text("utf-8")).endswith("\n"):
            assert self._process.poll() is None, "the emulator has ended"
            time.sleep(0.05)
        told = json.loads(line.partition("\n")[0])
        self.metadata = str(told["metadata"][0])
        self.operator = str(told["operator"])

    def call(self, method: str, path: str, form: object = None) -> dict[str, Any]:
        """Call the operator API."""
        body = None if form is None else json.dumps(form).encode()
        asked = Request(self.operator + path, body, method=method)
        asked.add_header("Content-Type", "application/json")
        with urlopen(asked, timeout=ANSWER_S_MAX) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
            return found

    def resident_mib(self) -> float:
        """Return the memory of the process."""
        text = Path(f"/proc/{self._process.pid}/statm").read_text("ascii")
        return int(text.split()[1]) * resource.getpagesize() / 2**20

    def processor_s(self) -> float:
        """Return the processor time of the process without planning processes."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text("ascii").rpartition(")")[2]
        return sum(map(int, text.split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the emulator."""
        self._process.terminate()
        self._process.wait(ANSWER_S_MAX)
        self._told.close()


def put_fleet(emulator: Emulator, hosts: int) -> None:
    """Send the fleet to the emulator in parts."""
    whole = topology(hosts)
    portion = {"hosts": 20_000, "groups": 20_000, "vms": 10_000}
    for kind, count in portion.items():
        records = whole[kind]
        assert isinstance(records, dict)
        names = list(records)
        for first in range(0, len(names), count):
            part = {name: records[name] for name in names[first : first + count]}
            emulator.call("PUT", "/v1/topology", {kind: part})


async def carry_out(
    emulator: Emulator, hosts: int, *, until: int, prepare_s: float
) -> tuple[float, Guests]:
    """Start the maintenance; return its duration in seconds, and the VMs.

    The function returns once `until` hosts are done.
    """
    polling = {
        f"v{n}-{place}": address_of(n, place)
        for n in range(0, hosts, BLOCK)
        for place in range(VMS_A_HOST)
    }
    guests = Guests(emulator.metadata, polling, prepare_s=prepare_s)
    await guests.begin()
    form = {"cause": "host-reboot", "hosts": [f"h{n}" for n in range(hosts)]}
    form["duration"] = f"PT{DURATION_S}S"
    call = asyncio.to_thread
    begun = time.perf_counter()
    made = await call(emulator.call, "POST", "/v1/maintenances", form)
    name = str(made["maintenance"]["id"])
    await call(emulator.call, "POST", f"/v1/maintenances/{name}/start", {})
    shown = ""
    while True:
        told = await call(emulator.call, "GET", f"/v1/maintenances/{name}")
        found = told["maintenance"]
        done = {key: found.get(key) for key in ("state", "done", "failed", "wave", "waves")}
        if str(done) != shown:
            shown = str(done)
            took = time.perf_counter() - begun
            print(f"{took:7.1f} s  {shown}  {guests.approved:,} approved", flush=True)
        if found["state"] not in {"draft", "running"} or 0 < until <= found["done"]:
            break
        await asyncio.sleep(1)
    took_s = time.perf_counter() - begun
    await guests.end()
    assert until or found["state"] == "done", found
    return took_s, guests


def work_of(path: Path) -> list[Operation]:
    """Return the outcome of the maintenance, from the store."""
    store = open_store(str(path))
    found: list[Operation] = []
    page = store.operations(OperationPage(limit=1000))
    while page:
        found += page
        page = store.operations(OperationPage(limit=1000, before=page[-1].number))
    store.close()
    return [each for each in found if each.cause is Cause.HOST_REBOOT]


def main() -> None:
    """Run the maintenance, check its records, and print the results."""
    parser = Parser("bench.maintenance", __doc__)
    parser.add_size("--hosts", 20_000, 1000, 20, "number of hosts")
    parser.add_size("--speed", 600, 600, 3000, "speed of the emulator's clock")
    what = "maximum duration of a VM's preparation, in seconds of the real clock"
    parser.add_size("--prepare", 0.5, 0.5, 0.01, what)
    what = "hours of each day, UTC, in which work may run"
    parser.add_size("--hours", (2, 22), (2, 22), (0, 24), what)
    parser.add_argument(
        "--until", type=int, default=0, help="number of done hosts after which the benchmark ends"
    )
    parser.add_argument("--folder", type=Path, help="directory of the store")
    given = parser.sized()
    hosts, (from_hour, to_hour) = given.hosts, given.hours
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 16_384), hard), hard))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        emulator = Emulator(Path(folder), given.speed)
        try:
            put_fleet(emulator, hosts)
            emulator.call("PUT", "/v1/policy", policy(from_hour, to_hour))
            before_s = emulator.processor_s()
            took_s, guests = asyncio.run(
                carry_out(emulator, hosts, until=given.until, prepare_s=given.prepare)
            )
            resident_mib = emulator.resident_mib()
            processor_s = emulator.processor_s() - before_s
        finally:
            emulator.stop()
        work = work_of(emulator.store)
    limits = Limits(
        fleet=hosts * AT_ONCE_PERCENT // 100,
        racks=RACK_AT_ONCE,
        from_hour=from_hour,
        to_hour=to_hour,
        rack_of={f"h{n}": f"r{n // RACK}" for n in range(hosts)},
        domain_of={f"h{n}": n % BLOCK * FAULT_DOMAINS // BLOCK for n in range(hosts)},
        groups_of={
            f"h{n}": tuple(group_of(n, place) for place in range(VMS_A_HOST)) for n in range(hosts)
        },
    )
    found = [] if given.until else judge(work, limits)
    ends = Counter(each.state.value for each in work)
    times = statistics.quantiles(guests.approval_ms, n=100)
    print(f"\n{hosts:,} hosts in {took_s:.0f} s; operations: {dict(ends)}")
    print(f"the service: {processor_s:.1f} s of a processor, {resident_mib:.0f} MiB")
    print(f"{guests.approved:,} approvals: {times[49]:.1f} ms median, {times[98]:.1f} ms p99")
    times = statistics.quantiles(guests.poll_ms, n=100)
    print(f"{len(guests.poll_ms):,} polls: {times[49]:.1f} ms median, {times[98]:.1f} ms p99")
    broken = "not judged" if given.until else len(found)
    print(f"refused or lost: {guests.refused}; promises broken: {broken}")
    for each in found[:10]:
        print(f"  {each}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
