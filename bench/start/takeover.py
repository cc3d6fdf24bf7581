"""Measures the waits of VMs while a standby takes over from the active process.

Two real `forewarn serve` run on a PostgreSQL of their own, which the tests' fixture starts. One VM
polls every 20 ms. The active process gets SIGTERM, then the next one SIGKILL. The times until a
poll is answered and until a process leads are measured. With nodes, metadata nodes follow the feed
of both, and the time until all follow again is measured. Only loopback.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.scale.live import fleet
from bench.sizes import Parser
from forewarn_base.clock import SystemClock
from forewarn_base.http_client import new_connection
from forewarn_base.ids import Ids
from forewarn_core.access.roles import Role
from forewarn_core.access.stimulus import AddToken
from forewarn_core.access.tokens import AccessToken, digest_of, written_token
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_metadata.replication.feed_client import FeedClient, NodeIdentity
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store
from tests.agent.programs import free_port
from tests.postgres import running_postgres

WAIT_S_MAX = 120.0
SECRET = "bench"
POLL = "/metadata/scheduledevents?api-version=2020-07-01&vm=vm-0"


class Service:
    """One `forewarn serve`."""

    def __init__(self, address: str, folder: Path, name: str, feed: str) -> None:
        """Start the service, which serves its feed at `feed`."""
        self.port, self.socket = free_port(), f"unix:{folder}/{name}.sock"
        config = folder / f"{name}.toml"
        config.write_text(
            f'[store]\nurl = "{address}"\n[listen]\nmetadata = ["127.0.0.1:{self.port}"]\n'
            f'operator = "{self.socket}"\n'
            "[metadata]\nvm_by_query = true\nrate_per_s = 0\n"
            f'[feed]\nlisten = "{feed}"\n'
        )
        words = [sys.executable, "-m", "forewarn_server.cli.main", "serve", "--config", str(config)]
        self.log = (folder / f"{name}.log").open("w")
        self.process = subprocess.Popen(words, stderr=self.log, stdout=self.log)

    def answers(self) -> bool:
        """Return whether the service returns a VM's document."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{POLL}")
        request.add_header("Metadata", "true")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return "DocumentIncarnation" in json.load(answer)
        except (urllib.error.URLError, OSError):
            return False

    def leads(self) -> bool:
        """Return whether the service says that it is the active process."""
        connection = new_connection(self.socket, "", timeout_s=5)
        try:
            connection.request("GET", "/leader")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait(self, until: Callable[[], bool] | None = None) -> float:
        """Wait until the service answers VMs, or something else; return the time in seconds."""
        began = time.monotonic()
        while not (until or self.answers)():
            if time.monotonic() - began > WAIT_S_MAX:
                raise SystemExit(f"nobody answers: {Path(self.log.name).read_text()}")
            time.sleep(0.02)
        return time.monotonic() - began


class Nodes:
    """Metadata nodes without VMs of their own to serve, on a thread."""

    def __init__(self, feeds: list[str], count: int) -> None:
        """Start the nodes of the first `count` hosts."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._nodes = [
            FeedClient(
                ",".join(feeds),
                lambda _: None,
                identity=NodeIdentity(name, token=written_token(name, SECRET)),
            )
            for name in map(node_of, range(count))
        ]
        for each in self._nodes:
            self._loop.call_soon_threadsafe(each.start)

    def followed(self) -> int:
        """Return the number of nodes that follow a feed."""
        return sum(each.followed.is_set() for each in self._nodes)

    def wait(self) -> float:
        """Wait until all nodes follow; return the time in seconds."""
        began = time.monotonic()
        while self.followed() < len(self._nodes):
            if time.monotonic() - began > WAIT_S_MAX:
                raise SystemExit(f"only {self.followed()} nodes follow")
            time.sleep(0.02)
        return time.monotonic() - began


def node_of(number: int) -> str:
    """Return the name of a node, which is the name of its host."""
    return f"h{number}"


def fill(address: str, vms: int, nodes: int) -> None:
    """Create a fleet, and tokens for its first nodes."""
    store = open_store(address)
    plane = ControlPlane(store, NoticePolicy(), lambda: Ids().guid("event"))
    form: dict[str, dict[str, Any]] = fleet(vms)
    change = ChangeTopology(
        hosts=tuple(Host(name, **each) for name, each in form["hosts"].items()),
        groups=tuple(Group(name) for name in form["groups"]),
        vms=tuple(
            Vm(name, each["host"], each["group"], addresses=tuple(each["addresses"]))
            for name, each in form["vms"].items()
        ),
    )
    now_ms = SystemClock().now_ms()
    plane.commit(change, actor="bench", now_ms=now_ms)
    for name in map(node_of, range(nodes)):
        token = AccessToken(name, name, Role.NODE, "", digest_of(SECRET), now_ms, None)
        plane.commit(AddToken(token), actor="bench", now_ms=now_ms)
    store.close()


def main() -> None:
    """Measure."""
    parser = Parser("bench.start.takeover", __doc__)
    parser.add_size("--vms", 100_000, 10_000, 20, "number of VMs")
    parser.add_size("--nodes", 0, 0, 2, "number of metadata nodes")
    parser.add_size("--settle-s", 15.0, 15.0, 1.0, "time in which a standby starts, in seconds")
    given = parser.sized()
    logging.disable(logging.WARNING)  # nodes report each feed that is not there
    feeds = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    with (
        running_postgres() as server,
        server.database() as address,
        tempfile.TemporaryDirectory() as name,
    ):
        fill(address, given.vms, given.nodes)
        folder = Path(name)
        services = [Service(address, folder, "first", feeds[0])]
        print(f"start with {given.vms} VMs: {services[0].wait():.2f} s", flush=True)
        nodes = Nodes(feeds, given.nodes)
        print(f"{given.nodes} nodes follow after {nodes.wait():.2f} s", flush=True)
        for number, sign in enumerate((signal.SIGTERM, signal.SIGKILL)):
            services.append(Service(address, folder, f"heir-{number}", feeds[number + 1]))
            time.sleep(given.settle_s)  # the second process follows now
            os.kill(services[-2].process.pid, sign)
            load = os.getloadavg()[0]
            print(f"takeover after {sign.name}: {services[-1].wait():.2f} s", flush=True)
            print(f"a leader {services[-1].wait(services[-1].leads):.2f} s later", flush=True)
            print(f"all nodes follow {nodes.wait():.2f} s later; load {load:.1f}", flush=True)
        for each in services:
            each.process.kill()
            each.process.wait()
            each.log.close()
            print(Path(each.log.name).read_text()[-1500:])


if __name__ == "__main__":
    main()
