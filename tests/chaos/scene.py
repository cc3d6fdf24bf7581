"""The machines of a campaign: network namespaces on one switch, and the programs in them.

Everything here runs inside namespaces of the run itself (see `__main__`): the kernel ends every
process, and removes every mount and cable, when the run ends, however it ends.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from forewarn_core.access.roles import Role
from forewarn_store.backup import restore
from tests.access import seed_token
from tests.chaos.databases import fill, make_database
from tests.chaos.http_call import ask
from tests.e2e.certificates import make_certificates
from tests.e2e.cloud import run
from tests.waiting import wait_until

PREFIX = "10.99.0"
#: Where packets for a machine go that is cut off: no machine has this address.
NOWHERE = "02:00:00:00:00:ff"
PLANES, NODES = ("c1", "c2", "c3"), ("n1", "n2")
#: This control plane has its VMs answered by workers, which answer also while it may be outdated.
WITH_WORKERS = "c3"
#: This control plane writes its log into a pipe.
WITH_PIPE = "c2"
#: Size of that pipe, in bytes: the smallest.
PIPE_BYTES = 4096
#: The machine of a node's clone.
CLONE = "x1"
ADDRESSES = {
    **{name: f"{PREFIX}.{11 + at}" for at, name in enumerate(PLANES)},
    **{f"p{at}": f"{PREFIX}.{20 + at}" for at in (1, 2, 3)},
    **{name: f"{PREFIX}.{31 + at}" for at, name in enumerate(NODES)},
    "b1": f"{PREFIX}.41",
    CLONE: f"{PREFIX}.61",
}
OPERATOR, FEED, METADATA = 8470, 8471, 80
STARTED_S_MAX = 120.0
#: Step-downs until a certain control plane leads.
STEP_DOWNS_MAX = 20
#: How often a supervisor looks for programs that have ended, in seconds.
LOOK_S = 0.1
#: Size of the disk of a metadata node.
NODE_DISK = "8m"
#: Size of the disk of the control planes' logs.
LOG_DISK = "32m"

HOSTS = {f"h{n}": {"fault_domain": (n - 1) // 2} for n in range(1, 10)}
#: Spot VMs come and go here, and nothing else is done.
SPOT_HOSTS = ("h7", "h8")
#: VMs here, each in a group of its own, poll only for a rush, in which all approve at once.
RUSH_HOST, RUSH_VMS = "h9", tuple(f"rush{n}_0" for n in range(60))
WORK_HOSTS = tuple(each for each in HOSTS if each not in {*SPOT_HOSTS, RUSH_HOST})
#: A node serves h1 and h2, and h3 and h4, and h8; other VMs ask the control planes.
SERVED = {"h1": "n1", "h2": "n1", "h3": "n2", "h4": "n2", "h8": "n2"}
VMS = {
    "web_0": "h1",
    "web_1": "h3",
    "web_2": "h5",
    "db_0": "h2",
    "db_1": "h4",
    "db_2": "h6",
    "solo_0": "h3",
    "lone_0": "h5",
}
PLACES = {**VMS, **dict.fromkeys(RUSH_VMS, RUSH_HOST)}
FLEET = {
    "hosts": HOSTS,
    "groups": {name.partition("_")[0]: {} for name in PLACES},
    "vms": {name: {"host": host, "group": name.partition("_")[0]} for name, host in PLACES.items()},
}
SERVE = """
[store]
url = "{store}"
last_commit_file = "{directory}/{name}.commit"
[metadata]
vm_by_query = true
rate_per_s = 0
[listen]
metadata = ["{metadata}:80"]
operator = "{address}:8470"
workers = {workers}
[feed]
listen = "{address}:8471"
client_ca = "{directory}/ca.pem"
certificate = "{directory}/{name}.pem"
key = "{directory}/{name}.key"
hosts = ["n1=h1,h2", "n2=h3,h4,h8"]
[lifecycle]
show_timeout_s = 2.0
[drivers]
default = "counted"
[drivers.counted]
kind = "command"
begin = ["{directory}/begin"]
poll_s = 0.3
"""
NODE = "[metadata]\nvm_by_query = true\nrate_per_s = 0\n"
#: Writes a line when it begins and one when it ends; the task has no line break.
BEGIN = """#!/bin/sh
task=$(cat)
echo "begin $(date +%s%3N) $task" >> {log}
sleep 1
echo "end $(date +%s%3N) $task" >> {log}
"""


@dataclass
class Program:
    """A program on a machine, which is started again when it ends, unless it is held down."""

    machine: str
    words: Sequence[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    held: bool = False
    #: Whether it writes its log into a pipe, and the program that reads it.
    piped: bool = False
    reader: subprocess.Popen[bytes] | None = None
    #: Status of each end.
    ends: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start it."""
        with self._output() as output:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.machine, *self.words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                cwd=self.log.parent,
                start_new_session=True,
            )

    def _output(self) -> IO[bytes]:
        """Open its log, or a pipe into it."""
        file = self.log.open("ab")
        if not self.piped:
            return file
        with file:
            self.reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
        assert self.reader.stdin is not None
        fcntl.fcntl(self.reader.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return self.reader.stdin

    def keep(self) -> None:
        """Start it if it has ended and is not held down."""
        if self.process is not None and self.process.poll() is not None:
            self.ends.append(self.process.returncode)
            self.process = None
        if self.process is None and not self.held:
            self.start()

    @property
    def pid(self) -> int:
        """Its process; 0: it does not run."""
        return self.process.pid if self.process is not None else 0

    def children(self) -> list[int]:
        """Return the processes that it has started and keeps."""
        with suppress(OSError):
            path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
            return [int(word) for word in path.read_text().split()]
        return []

    def signal(self, sign: signal.Signals, pids: Iterable[int] = ()) -> None:
        """Send a signal to it, or to these of its processes."""
        for pid in pids or ((self.pid,) if self.pid else ()):
            with suppress(ProcessLookupError):
                os.kill(pid, sign)


ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


class Scene:
    """Control planes, nodes, a database and who leads."""

    def __init__(
        self, directory: Path, kind: str, *, nodes: Sequence[str] = NODES, metadata: str = ""
    ) -> None:
        """Lay the cables; start nothing yet.

        Args:
            directory: where everything is kept.
            kind: of the database.
            nodes: which metadata nodes there are.
            metadata: where control planes listen for VMs; empty: at their own addresses.
        """
        self.directory, self.kind, self._metadata = directory, kind, metadata
        self.begins = directory / "begins"
        self.token = ""
        #: Spans in which commits were made that the database has lost, in ms since the epoch UTC.
        self.lost_ms: list[tuple[int, int]] = []
        #: Whether the database has gone back, and is not repaired yet.
        self.gone_back = False
        #: What a fault noticed that must not be.
        self.problems: list[str] = []
        #: Lets many VMs approve at once; the campaign sets it.
        self.rush: Callable[[Callable[[], object]], object] = lambda _: None
        self._cuts: set[tuple[str, str]] = set()
        self.logs = directory / "logs"
        self.logs.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={LOG_DISK}", "none", str(self.logs))
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "sw", "type", "bridge")
        run("ip", "link", "set", "sw", "up")
        run("ip", "address", "add", f"{PREFIX}.1/24", "dev", "sw")
        for name, address in ADDRESSES.items():
            self._connect(name, address)
        self.database = make_database(kind, directory, ADDRESSES)
        self.nodes = {name: self._node(name) for name in nodes}
        #: A second machine with the name of a node, and with a copy of its store.
        self.clone: Program | None = None
        self.planes: dict[str, Program] = {}
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    @staticmethod
    def _connect(name: str, address: str) -> None:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "eth0", "netns", name)
        run("ip", "link", "set", f"v-{name}", "master", "sw", "up")
        inside = ("ip", "-n", name)
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "address", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")

    # --- start and end ----------------------------------------------------------------------

    def start(self) -> None:
        """Start everything, in order, and describe the fleet."""
        directory = self.directory
        names = {each: f"DNS:{each},IP:{ADDRESSES[each]}" for each in (*PLANES, *self.nodes)}
        make_certificates(directory, 30, **names)
        self.begins.touch()
        begin = directory / "begin"
        begin.write_text(BEGIN.format(log=self.begins))
        begin.chmod(0o755)
        (directory / "node.toml").write_text(NODE)
        self.database.start()
        self.token = seed_token(self.database.address, "chaos", Role.ADMIN)
        for name in PLANES:
            self.planes[name] = self._plane(name)
        self._supervisor.start()
        wait_until(self.leader, what="a leader", limit_s=STARTED_S_MAX, every_s=0.1)
        status, answer = self.ask(self.leader(), "PUT", "/v1/topology", FLEET)
        assert status == 200, answer

    def ready(self) -> bool:
        """Whether every control plane and node answers, and one leads."""
        leader = self.leader()
        planes = (self.ask(name, "GET", "/live")[0] == 200 for name in PLANES)
        serving = ((leader, "lone_0"), ("n1", "web_0"), ("n2", "web_1"))
        return bool(leader) and all(planes) and all(_serves(*each) for each in serving)

    def stop(self) -> None:
        """End every program."""
        self._stopping.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        for program in self._programs():
            program.signal(signal.SIGCONT)
            program.signal(signal.SIGTERM)
        self.database.stop()

    def _supervise(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for program in self._programs():
                program.keep()

    def _programs(self) -> tuple[Program, ...]:
        others = (self.clone,) if self.clone else ()
        return (*others, *self.planes.values(), *self.nodes.values())

    def _plane(self, name: str) -> Program:
        config, skew = self.directory / f"{name}.toml", self.directory / f"{name}.skew"
        config.write_text(
            SERVE.format(
                store=self.database.address,
                address=ADDRESSES[name],
                metadata=self._metadata or ADDRESSES[name],
                directory=self.directory,
                name=name,
                workers=1 if name == WITH_WORKERS else 0,
            )
        )
        skew.write_text("0")
        piped = name == WITH_PIPE
        log = (self.directory if piped else self.logs) / f"{name}.log"
        words = [*skewed(skew), "serve", "--config", str(config)]
        return Program(name, words, log, ENVIRONMENT, piped=piped)

    def _node(self, name: str) -> Program:
        store = self.directory / f"store-{name}"
        store.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={NODE_DISK}", "none", str(store))
        (store / "node").mkdir()
        return self._node_at(name, name, store)

    def _node_at(self, name: str, machine: str, store: Path) -> Program:
        skew = self.directory / f"{machine}.skew"
        skew.write_text("0")
        feeds = ",".join(f"{ADDRESSES[each]}:{FEED}" for each in PLANES)
        words = [
            *(*skewed(skew), "node", "run", "--config", "node.toml"),
            *("--follow", feeds, "--store", str(store / "node"), "--name", name, "--ca", "ca.pem"),
            *("--certificate", f"{name}.pem", "--key", f"{name}.key"),
            *("--listen", f"{ADDRESSES[machine]}:{METADATA}"),
        ]
        return Program(machine, words, self.directory / f"{machine}.log", ENVIRONMENT)

    # --- faults -----------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Lose every packet between two machines."""
        for here, there in ((one, other), (other, one)):
            self._cuts.add((here, there))
            words = ("neigh", "replace", ADDRESSES[there], "lladdr", NOWHERE, "dev", "eth0")
            run("ip", "-n", here, *words, "nud", "permanent")

    def heal(self) -> None:
        """Heal every cut."""
        for here, there in self._cuts:
            run("ip", "-n", here, "neigh", "del", ADDRESSES[there], "dev", "eth0")
        self._cuts.clear()

    def skew(self, machine: str, seconds: int) -> None:
        """Put the system's clock of a control plane or node ahead by these seconds."""
        (self.directory / f"{machine}.skew").write_text(str(seconds))

    def bring_to_lead(self, plane: str) -> bool:
        """Ask for step-downs until a control plane leads; return whether it does."""
        for _ in range(STEP_DOWNS_MAX):
            leader = self.leader()
            if leader == plane:
                return True
            if leader:
                self.ask(leader, "POST", "/v1/leader/step-down", {})
        return self.leader() == plane

    def clone_node(self, name: str) -> None:
        """Start a copy of a node's machine: the same name, certificate and store."""
        store = self.directory / "store-clone"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        node = self.directory / f"store-{name}" / "node"
        # A file that goes away meanwhile is left out.
        subprocess.run(["cp", "-a", str(node), str(store)], check=False, capture_output=True)
        self.clone = self._node_at(name, CLONE, store)

    def end_clone(self) -> None:
        """Switch the clone off."""
        clone, self.clone = self.clone, None
        if clone is not None and clone.process is not None:
            clone.signal(signal.SIGKILL)
            clone.process.wait()

    def clone_is_known(self, name: str) -> bool:
        """Whether a control plane tells operators of two machines with the name of a node."""
        healths = [self.ask(each, "GET", "/v1/health")[1] for each in PLANES]
        texts = [text for each in healths for text in each.get("nodes_refused", ())]
        return any(name in each for each in texts)

    def hold_planes(self, *, held: bool) -> None:
        """Kill every control plane and keep it down, or start them again."""
        for program in self.planes.values():
            program.held = held
            if held:
                program.signal(signal.SIGKILL)
        if held:
            planes = self.planes.values()
            down = lambda: not any(each.pid for each in planes)  # noqa: E731 - one line
            wait_until(down, what="the end of the control planes", limit_s=STARTED_S_MAX)

    def finish_restore(self) -> None:
        """Do what an operator must do with a database that has gone back, unless it is done."""
        if not self.gone_back:
            return
        self.gone_back = False
        noticed = lambda: any(map(self._has_noticed, PLANES))  # noqa: E731 - one line
        wait_until(noticed, what="a control plane that notices", limit_s=STARTED_S_MAX)
        self.hold_planes(held=True)
        restore(None, self.database.direct(), now_ms=time.time_ns() // 1_000_000)
        # A restore suspends tokens; a request of before is not done again with the new one (P-10).
        self.token = seed_token(
            self.database.direct(), f"chaos{len(self.lost_ms)}", Role.ADMIN, principal="chaos"
        )
        self.hold_planes(held=False)

    def _has_noticed(self, plane: str) -> bool:
        return "has gone back" in str(self.ask(plane, "GET", "/v1/health")[1].get("reason"))

    def fill_disk(self, node: str, *, full: bool) -> None:
        """Fill the disk of a node's store, or free it."""
        self._fill(self.directory / f"store-{node}" / "filler", full=full)

    def fill_logs(self, *, full: bool) -> None:
        """Fill the disk of the control planes' logs, or free it."""
        self._fill(self.logs / "filler", full=full)

    @staticmethod
    def _fill(filler: Path, *, full: bool) -> None:
        if full:
            fill(filler)
        else:
            filler.unlink(missing_ok=True)

    # --- questions --------------------------------------------------------------------------

    def ask(
        self, plane: str, method: str, path: str, body: object = None, *, key: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Ask one control plane, as an operator; status 0: no answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        text = None if body is None else json.dumps(body)
        return ask(ADDRESSES[plane], OPERATOR, method, path, text, headers=headers)

    def leader(self) -> str:
        """Return the control plane that leads; empty: none does."""
        for name in PLANES:
            if ask(ADDRESSES[name], OPERATOR, "GET", "/leader", limit_s=0.5)[0] == 200:
                return name
        return ""

    def await_ready(self, limit_s: float) -> bool:
        """Wait until everything answers; whether it does in time."""
        ends_s = time.monotonic() + limit_s
        while not self.ready():
            if time.monotonic() > ends_s:
                return False
            self._stopping.wait(0.1)
        return True


def skewed(skew: Path) -> tuple[str, ...]:
    """Return the command line of `forewarn` with a clock of its own, without its words."""
    return (sys.executable, "-m", "tests.chaos.skewed", str(skew))


def _serves(machine: str, vm: str) -> bool:
    """Whether a VM is answered there."""
    path = f"/metadata/scheduledevents?api-version=2020-07-01&vm={vm}"
    return ask(ADDRESSES[machine], METADATA, "GET", path, limit_s=1)[0] == 200
