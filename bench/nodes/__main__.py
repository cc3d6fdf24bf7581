"""Measures metadata nodes on loopback: the delay of the last node, and the cost of one node.

The feed, the clients and their files are the real ones; nodes share child processes, but for
the one whose memory and CPU are measured, which is `forewarn node run`. `--child` is one of those
processes. `region.py` measures thousands of simulated nodes. Only loopback.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from pathlib import Path

from bench.nodes.region import CONCERNED
from bench.sizes import Parser
from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.feed_client import FeedClient, NodeIdentity
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication, read_part
from forewarn_metadata.replication.node_files import NodeDirectory
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_metadata.replication.scopes import Scopes
from forewarn_metadata.replication.server import FeedServer
from forewarn_server.api.feed_endpoint import FeedPort
from tests.metadata.live import FREEZE, Control

CHILDREN, NODE_VMS = 4, 100
WAIT_S = 300.0
TOKEN = "a-token-of-every-node"
GROUP_VMS = 20
#: Options of one control plane without TLS.
ALONE = ("--planes", "1", "--proof", "token")


def fleet(nodes: int, vms: int) -> DocumentChange:
    """Return a fleet with one host for each node.

    A group has 20 VMs on 20 hosts, `all` a VM on each host.
    """
    facts = {"vmSize": "Standard_D2s_v5", "osType": "Linux", "location": "north", "zone": "1"}
    groups = [f"group-{number // GROUP_VMS}" for number in range(vms)]
    callers = tuple(
        Caller(
            f"vm-{number}",
            group,
            group,
            (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",),
            instance=facts,
            host=f"n{number % nodes}",
        )
        for number, group in enumerate(groups)
    )
    everywhere = tuple(
        Caller(f"all-{host}", "all", "all", host=f"n{host}") for host in range(nodes)
    )
    views = tuple(
        Publication(group, enabled=True, document=Document(1)) for group in dict.fromkeys(groups)
    )
    shown = (*views, Publication("all", enabled=True, document=Document(1)))
    return DocumentChange(1, whole=True, callers=(*callers, *everywhere), publications=shown)


async def child(address: str, directory: Path, names: list[str]) -> None:
    """Run some nodes until standard input ends; print a line once all nodes follow."""
    nodes = []
    for name in names:
        store = NodeStore(NodeDirectory(directory / name))
        client = FeedClient(
            address, lambda _: None, identity=NodeIdentity(name, token=TOKEN), store=store
        )
        client.start()
        nodes.append(client)
    for node in nodes:
        await node.followed.wait()
    print("followed", flush=True)
    await asyncio.to_thread(sys.stdin.read)


class Nodes:
    """A feed and its nodes."""

    def __init__(self, directory: Path, count: int) -> None:
        """Create the benchmark without starting nodes."""
        self._directory = directory
        access = NodeAccess(["*"], lambda _, token: token == TOKEN)
        self.server = FeedServer(Control(), epoch="bench", access=access)
        self._port = FeedPort()
        self._names = [f"n{number}" for number in range(count)]
        self._children: list[asyncio.subprocess.Process] = []

    async def start(self, whole: DocumentChange) -> float:
        """Start the feed and all nodes; return the seconds until the last node follows."""
        self.server.apply(whole)
        await self._port.start(self.server, "127.0.0.1:0")
        address = self._port.address
        begun = time.perf_counter()
        for number in range(CHILDREN):
            self._children.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bench.nodes", "--child", address),
                    *(str(self._directory), *self._names[number::CHILDREN]),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            )
        for process in self._children:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), WAIT_S) == b"followed\n"
        return time.perf_counter() - begun

    async def change(self, sequence: int) -> float:
        """Send all nodes a change; return ms until the last node has confirmed."""
        document = Document(sequence, (FREEZE,))
        begun = time.perf_counter()
        concerned = self.server.apply(
            DocumentChange(
                sequence, publications=(Publication("all", enabled=True, document=document),)
            )
        )
        assert concerned is not None
        assert len(concerned) == len(self._names)
        assert await self.server.confirmed(sequence, WAIT_S, concerned) == ()
        return (time.perf_counter() - begun) * 1000

    async def stop(self) -> None:
        """End the nodes and the feed."""
        for process in self._children:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
        await self.server.stop()
        await self._port.stop()


async def latency(count: int, changes: int) -> None:
    """Print the delay until the last node shows a change."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = Nodes(Path(directory), count)
        await nodes.start(fleet(count, count * NODE_VMS))
        times = [await nodes.change(sequence) for sequence in range(2, changes + 2)]
        await nodes.stop()
    cuts = statistics.quantiles(times, n=100)
    print(
        f"commit to the last of {count} nodes, durable there, {changes} changes:"
        f" median {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, max {max(times):.1f} ms"
    )


async def bootstrap(count: int, vms: int) -> None:
    """Print the time until every node has its VMs."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = Nodes(Path(directory), count)
        whole_s = await nodes.start(fleet(count, vms))
        await nodes.stop()
    print(f"{vms:,} VMs over {count} nodes: all nodes follow after {whole_s:.1f} s")


def part(vms: int) -> None:
    """Print what a change of one group costs a node with many VMs."""
    scopes = Scopes()
    scopes.apply(fleet(1, vms))
    feed = scopes.open("n0", frozenset({"n0"}))
    scopes.part(feed)
    publication = Publication("group-0", enabled=True, document=Document(2, (FREEZE,)))
    scopes.apply(DocumentChange(2, publications=(publication,)))
    before_s = time.process_time()
    body = scopes.part(feed).body
    encoded_s = time.process_time()
    read_part(body)
    print(
        f"a change at a node with {vms:,} VMs: {len(body):,} bytes, encoded in"
        f" {(encoded_s - before_s) * 1000:.1f} ms and read in"
        f" {(time.process_time() - encoded_s) * 1000:.1f} ms of a processor",
        flush=True,
    )


def fan_out(counts: list[int], changes: int) -> None:
    """Print the cost of a change for 20 nodes with few and with many connected nodes."""
    times = {}
    for nodes in counts:
        sizes = ("--nodes", str(nodes), "--vms", str(nodes), "--changes", str(changes))
        times[nodes] = float(region("--cost", *ALONE, *sizes))
        print(
            f"a change for {CONCERNED} of {nodes:,} nodes:"
            f" {times[nodes]:.2f} ms of the control plane's processor"
        )
    print(f"ratio: {times[counts[-1]] / times[counts[0]]:.2f}", flush=True)


def region(*options: str) -> str:
    """Return what a measurement of simulated nodes prints, in fresh processes."""
    command = (sys.executable, "-m", "bench.nodes.region", *options)
    return subprocess.check_output(command, text=True)


async def one_node(seconds: int) -> None:
    """Print the cost of one node with 100 VMs that poll once a second."""
    with tempfile.TemporaryDirectory() as directory:
        server = FeedServer(
            Control(), epoch="bench", access=NodeAccess(["*"], lambda _, token: token == TOKEN)
        )
        callers = tuple(
            Caller(f"vm-{number}", f"g-{number}", f"g-{number}", (address_of(number),), host="n0")
            for number in range(NODE_VMS)
        )
        shown = tuple(
            Publication(each.view, enabled=True, document=Document(1, (FREEZE,)))
            for each in callers
        )
        server.apply(DocumentChange(1, whole=True, callers=callers, publications=shown))
        port_of_feed = FeedPort()
        await port_of_feed.start(server, "127.0.0.1:0")
        address = port_of_feed.address
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "forewarn_server.cli.main", "node", "run", "--follow", address),
            *("--store", f"{directory}/n0", "--name", "n0"),
            *("--listen", "127.0.0.1:0"),
            env={**os.environ, "FOREWARN_NODE_TOKEN": TOKEN},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        port = 0
        while not port:
            line = (await asyncio.wait_for(process.stderr.readline(), WAIT_S)).decode()
            assert line, "the node has ended"
            port = int(line.rpartition(":")[2]) if "serving VMs" in line else 0
        used, memory = await polled(process.pid, port, seconds)
        process.terminate()
        await process.wait()
        await server.stop()
        await port_of_feed.stop()
    bare = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.nodes.bare"), stdout=asyncio.subprocess.PIPE
    )
    assert bare.stdout is not None
    least, _ = await polled(bare.pid, int(await bare.stdout.readline()), seconds)
    bare.terminate()
    await bare.wait()
    print(
        f"a node with {NODE_VMS} VMs, each polling once a second over {seconds} s:"
        f" {memory:.1f} MiB, {used:.2%} of a core;"
        f" a loop that only receives and sends: {least:.2%}"
    )


async def polled(pid: int, port: int, seconds: int) -> tuple[float, float]:
    """Return the fraction of a core that a polled process uses, and its memory in MiB."""
    await asyncio.to_thread(poll, port, 1)  # exclude the cost of first polls
    before_s = cpu_s(pid)
    await asyncio.to_thread(poll, port, seconds)
    return (cpu_s(pid) - before_s) / seconds, resident_mib(pid)


def poll(port: int, seconds: int) -> None:
    """Poll as 100 VMs, each over its own connection."""
    connections = [
        http.client.HTTPConnection("127.0.0.1", port, source_address=(address_of(number), 0))
        for number in range(NODE_VMS)
    ]
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    begun = time.perf_counter()
    for second in range(seconds):
        for number, connection in enumerate(connections):
            due = begun + second + number / NODE_VMS
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request("GET", path, headers={"Metadata": "true"})
            assert connection.getresponse().read()


def address_of(number: int) -> str:
    """Return the loopback address of a VM."""
    return f"127.0.1.{number + 1}"


def cpu_s(pid: int) -> float:
    """Return the processor time of a process with all its threads, in seconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Run all measurements."""
    parser = Parser("bench.nodes", __doc__)
    what = "numbers of simulated nodes that connect"
    parser.add_size("--nodes", (3000, 10_000), (600,), (40,), what)
    what = "numbers of simulated nodes whose changes are compared"
    parser.add_size("--fan-out", (100, 3000, 10_000), (100, 600), (20, 40), what)
    parser.add_size("--large-nodes", 1000, 100, 20, "number of simulated nodes of all --vms")
    parser.add_size("--planes", 3, 3, 2, "number of control planes of the simulated nodes")
    parser.add_size("--real-nodes", 100, 100, 8, "number of nodes with stored files")
    parser.add_size(
        "--vms", 1_000_000, 100_000, 400, "number of VMs of the nodes with stored files"
    )
    parser.add_size("--region-vms", 100_000, 20_000, 400, "number of VMs of the simulated nodes")
    parser.add_size("--node-vms", 10_000, 10_000, 100, "number of VMs of one large node")
    parser.add_size("--changes", 500, 100, 2, "number of changes for a group")
    parser.add_size("--region-changes", 20, 10, 2, "number of changes for all nodes")
    parser.add_size("--node-s", 20, 5, 1, "time of the polls of one node, in seconds")
    parser.add_size("--idle-s", 10, 5, 1, "time of heartbeats alone, in seconds")
    parser.add_argument("--child", nargs="+", help=SUPPRESS)
    options = parser.sized()
    if options.child:
        address, directory, *names = options.child
        asyncio.run(child(address, Path(directory), names))
        return
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
    asyncio.run(one_node(options.node_s))
    asyncio.run(latency(options.real_nodes, options.changes))
    asyncio.run(bootstrap(options.real_nodes, options.vms))
    part(options.node_vms)
    fan_out(options.fan_out, options.changes)
    sizes = ("--vms", str(options.region_vms), "--changes", str(options.region_changes))
    idle = ("--idle-s", str(options.idle_s))
    large = ("--nodes", str(options.large_nodes), "--vms", str(options.vms))
    print(region(*large, *ALONE, *sizes[2:], *idle), end="", flush=True)
    for nodes in options.nodes:
        count = ("--nodes", str(nodes), *sizes, *idle)
        print(region(*count, *ALONE), end="", flush=True)
        print(region(*count, "--planes", str(options.planes)), end="", flush=True)


if __name__ == "__main__":
    main()
