"""Measures many simulated nodes of one or more control planes, with tokens or with mutual TLS.

This process is the active control plane, on the service's event loop and with the service's garbage
collection. Further processes are followers, which report over the real relay, and programs with
the real clients of a quarter of the nodes, each node with an address of its own. Only loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import functools
import ipaddress
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench.sizes import Parser
from forewarn_base.garbage import freeze_garbage
from forewarn_base.host_port import host_and_port
from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication import pace
from forewarn_metadata.replication.access import NodeAccess, TlsFiles
from forewarn_metadata.replication.feed_client import FeedClient, FeedRoute, NodeIdentity
from forewarn_metadata.replication.messages import Caller, DocumentChange, Publication
from forewarn_metadata.replication.pace import FeedPace
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.tls import client_context, server_context
from forewarn_server.api import feed_endpoint
from forewarn_server.api.feed_endpoint import FeedPort
from forewarn_server.api.relay import Relay, RelayEndpoint
from forewarn_server.api.server import start_operator
from forewarn_server.api.standby import ActiveProcess
from forewarn_server.service.process import run
from tests.metadata.live import FREEZE, Control

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forewarn_metadata.replication.http_stream import Streams

#: Programs of nodes, and nodes that a program lets connect at a time.
PROGRAMS, AT_A_TIME = 4, 64
#: Number of nodes with VMs of a group whose document changes.
CONCERNED = 20
WAIT_S, FDS = 600.0, 20_000
PROOFS = ("token", "certificate")
TOKEN, LEASE = "a-token-of-every-node", "a-lease"
PATIENT_S = 600.0
#: Pace at which no long poll ends during a measurement but for a change.
PATIENT = FeedPace(wait_s=PATIENT_S, report_s=PATIENT_S)


class Shape(NamedTuple):
    """Size of a measurement."""

    nodes: int
    vms: int
    planes: int
    tls: bool
    #: Whether nodes ask as rarely as possible, instead of at the service's pace.
    patient: bool


class Usage(NamedTuple):
    """What a control plane uses."""

    cpu_s: float
    mib: float
    #: Connected nodes.
    nodes: int


def usage(server: FeedServer) -> Usage:
    """Return what this process uses now."""
    status = Path("/proc/self/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
    return Usage(time.process_time(), int(line.split()[1]) / 1024, server.connected)


def be_patient(shape: Shape) -> None:
    """Permit this process waits beyond the service's limit, for a measurement of changes alone."""
    if shape.patient:
        for module in (pace, feed_endpoint):
            vars(module)["WAIT_S_MAX"] = PATIENT_S


def feed_of(shape: Shape) -> FeedServer:
    """Return a feed of a fleet with one host for each node, and a view that all nodes share."""
    be_patient(shape)
    access = NodeAccess(["*"], lambda _, token: token == TOKEN)
    timely = functools.partial(pace.pace_for, is_tls=shape.tls)
    pace_of = (lambda _: PATIENT) if shape.patient else timely
    server = FeedServer(Control(), epoch="bench", access=access, pace=pace_of)
    callers = [
        Caller(f"vm-{n}", f"g{n // CONCERNED}", f"g{n // CONCERNED}", host=f"n{n % shape.nodes}")
        for n in range(shape.vms)
    ]
    callers += [Caller(f"all-{n}", "all", "all", host=f"n{n}") for n in range(shape.nodes)]
    views = dict.fromkeys(caller.view for caller in callers)
    shown = tuple(Publication(view, enabled=True, document=Document(1)) for view in views)
    server.apply(DocumentChange(1, whole=True, callers=tuple(callers), publications=shown))
    return server


def change_of(sequence: int, view: str) -> DocumentChange:
    """Return a change of one view's document."""
    publication = Publication(view, enabled=True, document=Document(sequence, (FREEZE,)))
    return DocumentChange(sequence, publications=(publication,))


class Region:
    """The active control plane, its followers, and their nodes."""

    def __init__(self, shape: Shape, server: FeedServer) -> None:
        """Start nothing yet."""
        self.shape = shape
        self.server = server
        #: Time until the last node followed.
        self.start_s = 0.0
        #: What this process used before its first node connected.
        self.before = usage(server)
        self.followers: list[asyncio.subprocess.Process] = []
        self._sequence = 1

    async def change(self, view: str, nodes: int) -> float:
        """Change a document; return the seconds until all its nodes show it."""
        self._sequence += 1
        begun = time.perf_counter()
        for each in self.followers:
            assert each.stdin is not None
            each.stdin.write(f"{self._sequence} {view}\n".encode())
        concerned = self.server.apply(change_of(self._sequence, view))
        assert concerned is not None
        assert len(concerned) == nodes
        left = await self.server.confirmed(self._sequence, WAIT_S, concerned)
        assert left == (), left[:5]
        return time.perf_counter() - begun

    async def usages(self) -> list[Usage]:
        """Return what each control plane uses, this one first."""
        answers = [usage(self.server)]
        for each in self.followers:
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.write(b"usage\n")
            answers.append(Usage(*json.loads(await each.stdout.readline())))
        return answers


@contextlib.asynccontextmanager
async def region_of(shape: Shape, directory: Path, *, at_a_time: int) -> AsyncIterator[Region]:
    """Run control planes and nodes, until all nodes follow."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FDS, FDS))
    server = feed_of(shape)
    freeze_garbage()
    async with contextlib.AsyncExitStack() as stack:
        port = FeedPort()
        await port.start(server, "127.0.0.1:0", tls_of(shape, directory))
        stack.push_async_callback(port.stop)
        stack.push_async_callback(server.stop)
        endpoint = RelayEndpoint(
            Control(), lambda: server, lambda: server.generation, token=lambda: LEASE
        )
        relay = await start_operator(endpoint, f"unix:{directory}/relay")
        stack.push_async_callback(relay.stop)
        region, addresses = Region(shape, server), [port.address]
        for _ in range(shape.planes - 1):
            follower = await started(stack, "follower", shape, str(directory))
            region.followers.append(follower)
            assert follower.stdout is not None
            addresses.append((await follower.stdout.readline()).decode().strip())
        programs = [
            await started(stack, "clients", shape, str(directory), first, at_a_time, addresses)
            for first in range(PROGRAMS)
        ]
        await all_say(programs, b"ready\n")
        begun = time.perf_counter()
        for each in programs:
            assert each.stdin is not None
            each.stdin.write(b"go\n")
        await all_say(programs, b"followed\n")
        region.start_s = time.perf_counter() - begun
        yield region


async def started(stack: contextlib.AsyncExitStack, *words: object) -> asyncio.subprocess.Process:
    """Start a process of this benchmark, which ends with the stack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.nodes.region", "--part", json.dumps(words)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    async def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process


async def all_say(processes: list[asyncio.subprocess.Process], line: bytes) -> None:
    """Wait for a line of each process."""
    for each in processes:
        assert each.stdout is not None
        assert await asyncio.wait_for(each.stdout.readline(), WAIT_S) == line


async def lines_in() -> asyncio.StreamReader:
    """Return standard input."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


async def follower(shape: Shape, directory: Path) -> int:
    """Run a follower: it shows the changes of its input, and reports to the active process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FDS, FDS))
    server, port, lines = feed_of(shape), FeedPort(), await lines_in()
    freeze_garbage()
    await port.start(server, "127.0.0.1:0", tls_of(shape, directory))
    relay = Relay(ActiveProcess(lambda: f"unix:{directory}/relay", lambda: LEASE))
    relay.start(server)
    print(port.address, flush=True)
    while line := (await lines.readline()).split():
        if line == [b"usage"]:
            print(json.dumps(usage(server)), flush=True)
        else:
            server.apply(change_of(int(line[0]), line[1].decode()))
    return 0


async def clients(
    shape: Shape, directory: Path, *, first: int, at_a_time: int, addresses: list[str]
) -> int:
    """Run every fourth node until the process ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FDS, FDS))
    be_patient(shape)
    nodes = []
    for number in range(first, shape.nodes, PROGRAMS):
        name, turn = f"n{number}", number % len(addresses)
        identity = NodeIdentity(name, token="" if shape.tls else TOKEN)
        if shape.tls:
            identity = NodeIdentity(name, tls=client_tls(directory, name))
        source = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        route = FeedRoute(functools.partial(connect_from, source))
        own = ",".join((*addresses[turn:], *addresses[:turn]))
        nodes.append(FeedClient(own, lambda _: None, identity=identity, route=route))
    freeze_garbage()
    print("ready", flush=True)
    await (await lines_in()).readline()
    turns = asyncio.Semaphore(at_a_time or len(nodes))

    async def start(node: FeedClient) -> None:
        async with turns:
            node.start()
            await node.followed.wait()

    await asyncio.gather(*map(start, nodes))
    print("followed", flush=True)
    await asyncio.Event().wait()
    return 0


async def connect_from(source: str, address: str, tls: ssl.SSLContext | None = None) -> Streams:
    """Open a stream to `HOST:PORT` from the address of a node."""
    host, port = host_and_port(address)
    return await asyncio.open_connection(host, port, ssl=tls, local_addr=(source, 0))


# Certificates.


def tls_of(shape: Shape, directory: Path) -> ssl.SSLContext | None:
    """Return the TLS context of a control plane; the first call creates the authority."""
    if not shape.tls:
        return None
    if not (directory / "ca.pem").exists():
        key = ec.generate_private_key(ec.SECP256R1())
        certify(directory, "ca", key, issuer_key=key)
    files = certified(directory, "control")
    return server_context(files)


def client_tls(directory: Path, name: str) -> ssl.SSLContext:
    """Return the TLS context of a node; OpenSSL has read its files."""
    files = certified(directory, name)
    context = client_context(files)
    for each in (files.certificate, files.key):
        Path(each).unlink()
    return context


def certified(directory: Path, name: str) -> TlsFiles:
    """Create a key and a certificate."""
    issuer_key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    unique = name if name != "control" else f"control-{os.getpid()}"
    certify(directory, unique, ec.generate_private_key(ec.SECP256R1()), issuer_key=issuer_key)
    pem, key, ca = (str(directory / each) for each in (f"{unique}.pem", f"{unique}.key", "ca.pem"))
    return TlsFiles(pem, key, ca)


def certify(
    directory: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> None:
    """Write a certificate and its key; the name `ca` is the authority."""
    now = dt.datetime.now(dt.UTC)
    subject, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, "ca")
    )
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / f"{name}.key").write_bytes(secret)


# Measurements.


async def follow_and_change(
    shape: Shape, directory: Path, *, changes: int, idle_s: int, at_a_time: int
) -> int:
    """Print the time in which all nodes connect, and in which they show a change for all."""
    async with region_of(shape, directory, at_a_time=at_a_time) as region:
        after = await region.usages()
        times = [await region.change("all", shape.nodes) for _ in range(changes)]
        begun = await region.usages()
        await asyncio.sleep(idle_s)
        ended = await region.usages()
    kib = (after[0].mib - region.before.mib) * 1024 / max(after[0].nodes, 1)
    used = [f"{each.cpu_s:.1f}" for each in after]
    idle = sum(each.cpu_s for each in ended) - sum(each.cpu_s for each in begun)
    print(
        f"{shape.vms:,} VMs over {shape.nodes:,} nodes, {shape.planes} control planes,"
        f" {'mutual TLS' if shape.tls else 'plain'}: all nodes follow after {region.start_s:.1f} s"
        f" (processor of each control plane since its start: {', '.join(used)} s);"
        f" a change for all, {changes} times: median {statistics.median(times):.2f} s,"
        f" max {max(times):.2f} s; waiting: {idle / idle_s:.0%} of a core,"
        f" {kib:.1f} KiB a node; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return 0


async def cost_of_change(shape: Shape, directory: Path, *, changes: int) -> int:
    """Print ms of processor time of a change that 20 nodes confirm, while no other poll ends."""
    async with region_of(shape, directory, at_a_time=AT_A_TIME) as region:
        await asyncio.sleep(1)
        before_s = time.process_time()
        for turn in range(changes):
            await region.change(f"g{turn % (shape.nodes // CONCERNED)}", CONCERNED)
        used_s = time.process_time() - before_s
    print(f"{used_s / changes * 1000:.3f}", flush=True)
    return 0


def main() -> None:
    """Run one measurement, or a part of one."""
    parser = Parser("bench.nodes.region", __doc__)
    parser.add_size("--nodes", 10_000, 3000, 40, "number of nodes")
    parser.add_size("--vms", 100_000, 30_000, 400, "number of VMs")
    parser.add_size("--planes", 3, 3, 2, "number of control planes")
    parser.add_size("--changes", 30, 10, 2, "number of changes for all nodes")
    parser.add_size("--idle-s", 10, 5, 1, "time of waiting alone, in seconds")
    what = "what proves nodes' names"
    parser.add_argument("--proof", nargs="+", choices=PROOFS, default=PROOFS, help=what)
    what = "let waits end only by changes, on a machine that is too busy for the service's pace"
    parser.add_argument("--patient", action="store_true", help=what)
    parser.add_argument("--cost", action="store_true", help="print ms of a change for 20 nodes")
    what = "nodes that each of four programs lets connect at a time; 0: all"
    parser.add_argument("--at-a-time", type=int, default=AT_A_TIME, help=what)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.sized()
    if options.part:
        part, shape, directory, *more = json.loads(options.part)
        if part == "follower":
            run(lambda: follower(Shape(*shape), Path(directory)))
        else:
            names = ("first", "at_a_time", "addresses")
            some = dict(zip(names, more, strict=True))
            run(lambda: clients(Shape(*shape), Path(directory), **some))
        return
    if len(options.proof) > 1:  # in fresh processes, whose memory can be compared
        for proof in options.proof:
            again = (sys.executable, "-m", "bench.nodes.region", *sys.argv[1:], "--proof", proof)
            subprocess.run(again, check=True)
        return
    is_tls = options.proof == ["certificate"]
    is_patient = options.cost or options.patient
    shape = Shape(options.nodes, options.vms, options.planes, is_tls, is_patient)
    changes = options.changes
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if options.cost:
            run(lambda: cost_of_change(shape, place, changes=changes))
        else:
            sizes = {"idle_s": options.idle_s, "at_a_time": options.at_a_time}
            run(lambda: follow_and_change(shape, place, changes=changes, **sizes))


if __name__ == "__main__":
    main()
