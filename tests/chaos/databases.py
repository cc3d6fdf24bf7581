"""The databases of a campaign: one PostgreSQL, the same behind PgBouncer, or three with Patroni.

With Patroni replication is synchronous, or it is not and a replica that is promoted may lack
commits.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.http_call import ask
from tests.e2e.cloud import run
from tests.postgres import INIT_OPTIONS, SETTINGS, programs_of_postgres
from tests.waiting import wait_until

PORT, POOLER, PATRONI, ETCD = 5432, 6432, 8008, 2379
STARTED_S_MAX = 90.0
AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
TRUST = "host all all 10.99.0.0/24 trust\nhost replication all 10.99.0.0/24 trust\n"
POOLED = """[databases]
* = host={server} port=5432
[pgbouncer]
listen_addr = {address}
listen_port = 6432
auth_type = trust
auth_file = {directory}/users
pool_mode = session
default_pool_size = 50
server_login_retry = 1
tcp_keepidle = 5
tcp_keepintvl = 2
tcp_keepcnt = 3
ignore_startup_parameters = extra_float_digits
unix_socket_dir =
"""
#: Size of the disk of a single server.
DISK = "384m"
#: An asynchronous replica loses approvals that were answered (`synchronous_mode`), and more than a
#: megabyte of log (`maximum_lag_on_failover`).
MEMBER = """scope: forewarn
name: {name}
restapi: {{listen: "{address}:8008", connect_address: "{address}:8008"}}
etcd3: {{hosts: [{etcds}]}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    maximum_lag_on_failover: 104857600
    synchronous_mode: {synchronous}
    postgresql: {{use_pg_rewind: true, use_slots: true}}
  initdb: [{{encoding: UTF8}}, data-checksums, no-sync, {{auth-local: trust}}, {{auth-host: trust}}]
  pg_hba:
  - host all all 10.99.0.0/24 trust
  - host replication all 10.99.0.0/24 trust
  - local all all trust
postgresql:
  listen: "{address}:5432"
  connect_address: "{address}:5432"
  data_dir: {directory}/{name}-data
  bin_dir: {bin}
  pgpass: {directory}/pgpass-{name}
  parameters: {{unix_socket_directories: "", max_connections: 60}}
  authentication:
    superuser: {{username: postgres, password: x}}
    replication: {{username: replicator, password: x}}
    rewind: {{username: postgres, password: x}}
watchdog: {{mode: "off"}}
"""


class Database:
    """One PostgreSQL at p1."""

    machines: tuple[str, ...] = ("p1",)

    def __init__(self, directory: Path, addresses: Mapping[str, str]) -> None:
        """Choose where its files are."""
        self.directory = directory / "database"
        self.directory.mkdir()
        self.disk = self.directory / "disk"
        shutil.chown(self.directory, "postgres", "postgres")
        self.addresses = addresses
        self.bin = programs_of_postgres()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """Where the control planes find it."""
        return self.direct()

    def start(self) -> None:
        """Start it, with an empty database."""
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(self.disk))
        shutil.chown(self.disk, "postgres", "postgres")
        cluster = str(self.disk / "cluster")
        initdb = [*AS_POSTGRES, f"{self.bin}/initdb", "-D", cluster, *INIT_OPTIONS]
        subprocess.run(initdb, check=True, capture_output=True, cwd=self.directory)
        with (self.disk / "cluster" / "pg_hba.conf").open("a") as file:
            file.write(TRUST)
        self._serve()
        self.run("CREATE DATABASE forewarn", "postgres")

    def _serve(self) -> None:
        settings = {**SETTINGS, "listen_addresses": self.addresses["p1"]}
        settings["max_wal_size"] = "64MB"  # its disk is small
        options = [word for name, text in settings.items() for word in ("-c", f"{name}={text}")]
        cluster = ["-D", str(self.disk / "cluster"), "-k", str(self.directory)]
        self.launch("p1", "postgres", [*AS_POSTGRES, f"{self.bin}/postgres", *cluster, *options])
        wait_until(self.answers, what="PostgreSQL", limit_s=STARTED_S_MAX, every_s=0.1)

    def launch(self, machine: str, name: str, words: Sequence[str]) -> None:
        """Run a program on a machine."""
        with (self.directory / f"{machine}-{name}.log").open("ab") as output:
            self._running[f"{machine} {name}"] = subprocess.Popen(
                ["ip", "netns", "exec", machine, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                env={
                    "PATH": f"/usr/bin:/bin:/usr/sbin:{self.bin}",
                    "HOME": str(self.directory),
                    "LC_ALL": "C",
                },
            )

    def kill(self, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """End a program that was launched."""
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(sign)
            process.wait()

    def stop(self) -> None:
        """End everything."""
        for name in tuple(self._running):
            self.kill(name)

    def direct(self) -> str:
        """Where the server that takes writes is found, without a pooler."""
        return f"postgresql://forewarn@{self.addresses['p1']}:{PORT}/forewarn?connect_timeout=3"

    def run(self, statement: str, database: str = "forewarn") -> list[tuple[Any, ...]]:
        """Run a statement."""
        address = self.direct().replace("/forewarn?", f"/{database}?")
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        """Whether it takes writes."""
        with suppress(psycopg.Error):
            return not self.run("SELECT pg_is_in_recovery()", "postgres")[0][0]
        return False

    def primary(self) -> str:
        """Return the machine whose server takes writes; empty: none does."""
        return "p1" if self.answers() else ""

    def cut_sessions(self) -> str:
        """End every session of the control planes, at the server; return whether it answered."""
        try:
            self.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'forewarn' AND pid <> pg_backend_pid()"
            )
        except psycopg.Error:  # an earlier fault has not healed
            return "no server answers"
        return "every session"

    def crash(self) -> None:
        """Kill the server that takes writes, as a power cut would; `revive` starts it again."""
        self.kill("p1 postgres")
        for pid in _processes_in(self.disk / "cluster"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self) -> None:
        """Start what `crash` has killed."""
        cluster = self.disk / "cluster"
        wait_until(lambda: not _processes_in(cluster), what="its end", limit_s=STARTED_S_MAX)
        self._serve()

    def fill_disk(self) -> None:
        """Fill the server's disk; `free_disk` frees it."""
        fill(self.disk / "filler")

    def free_disk(self) -> None:
        """Free the disk, and start the server if it gave up."""
        (self.disk / "filler").unlink(missing_ok=True)  # two faults may fill it at once
        if self._running["p1 postgres"].poll() is not None:
            self.revive()


def fill(filler: Path) -> None:
    """Fill the disk on which a file is."""
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))


def _processes_in(folder: Path) -> list[int]:
    """Return the processes whose working folder is this: a server's processes in its cluster."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                pids.append(int(process.name))
    return pids


class PooledDatabase(Database):
    """One PostgreSQL behind PgBouncer in session mode."""

    machines = ("p1", "b1")

    @property
    def address(self) -> str:
        """Where the control planes find it."""
        return f"postgresql://forewarn@{self.addresses['b1']}:{POOLER}/forewarn?connect_timeout=3"

    def start(self) -> None:
        """Start both."""
        super().start()
        (self.directory / "users").write_text('"forewarn" ""\n')
        text = POOLED.format(
            server=self.addresses["p1"], address=self.addresses["b1"], directory=self.directory
        )
        (self.directory / "pgbouncer.ini").write_text(text)
        self.revive_pooler()

    def crash_pooler(self) -> None:
        """Kill the pooler."""
        self.kill("b1 pgbouncer")

    def revive_pooler(self) -> None:
        """Start it again."""
        words = ["pgbouncer", "-q", str(self.directory / "pgbouncer.ini")]
        self.launch("b1", "pgbouncer", [*AS_POSTGRES, *words])
        wait_until(self._pools, what="PgBouncer", limit_s=STARTED_S_MAX, every_s=0.1)

    def _pools(self) -> bool:
        with suppress(psycopg.Error), psycopg.connect(self.address):
            return True
        return False


class PatroniDatabase(Database):
    """Three members, each with Patroni, etcd and PostgreSQL; one is a synchronous replica."""

    machines = ("p1", "p2", "p3")
    #: Roles of the members while all run.
    roles = ("leader", "replica", "sync_standby")

    @property
    def address(self) -> str:
        """Where the control planes find the member that takes writes."""
        places = ",".join(f"{self.addresses[each]}:{PORT}" for each in self.machines)
        words = "connect_timeout=3&target_session_attrs=read-write"
        return f"postgresql://forewarn@{places}/forewarn?{words}"

    def direct(self) -> str:
        """Where the member that takes writes is found."""
        return self.address.replace("forewarn@", "postgres@")

    def start(self) -> None:
        """Start all members and wait until two replicas follow."""
        etcds = ",".join(f'"{self.addresses[each]}:{ETCD}"' for each in self.machines)
        for name in self.machines:
            member = MEMBER.format(
                name=name,
                address=self.addresses[name],
                etcds=etcds,
                directory=self.directory,
                bin=self.bin,
                synchronous=str("sync_standby" in self.roles).lower(),
            )
            (self.directory / f"{name}.yml").write_text(member)
            self._start_etcd(name)
        for name in self.machines:
            self._start_patroni(name)
        wait_until(self.whole, what="three members", limit_s=STARTED_S_MAX, every_s=0.5)
        self.run("CREATE ROLE forewarn LOGIN SUPERUSER", "postgres")
        self.run("CREATE DATABASE forewarn OWNER forewarn", "postgres")

    def _start_etcd(self, name: str) -> None:
        peers = ",".join(f"{each}=http://{self.addresses[each]}:2380" for each in self.machines)
        here = f"http://{self.addresses[name]}"
        words = [
            *("etcd", "--name", name, "--data-dir", str(self.directory / f"etcd-{name}")),
            *(
                "--listen-client-urls",
                f"{here}:{ETCD}",
                "--advertise-client-urls",
                f"{here}:{ETCD}",
            ),
            *(
                "--listen-peer-urls",
                f"{here}:2380",
                "--initial-advertise-peer-urls",
                f"{here}:2380",
            ),
            *("--initial-cluster", peers, "--unsafe-no-fsync"),
        ]
        self.launch(name, "etcd", [*AS_POSTGRES, *words])

    def _start_patroni(self, name: str) -> None:
        words = ["patroni", str(self.directory / f"{name}.yml")]
        self.launch(name, "patroni", [*AS_POSTGRES, *words])

    def members(self) -> dict[str, str]:
        """Return the role of each member that runs."""
        for name in self.machines:
            answer = ask(self.addresses[name], PATRONI, "GET", "/cluster", limit_s=2)[1]
            if answer:
                running = ("running", "streaming")
                return {
                    str(each["name"]): str(each["role"])
                    for each in answer["members"]
                    if each["state"] in running
                }
        return {}

    def whole(self) -> bool:
        """Whether one leads, and two follow, as they must."""
        return sorted(self.members().values()) == [*self.roles]

    def primary(self) -> str:
        """Return the member that leads; empty: none does."""
        return next((name for name, role in self.members().items() if role == "leader"), "")

    def crash(self) -> None:
        """Kill the server that takes writes; its Patroni starts it again, or another leads."""
        name = self.primary()
        pid = self.directory / f"{name}-data" / "postmaster.pid"
        with suppress(OSError, ValueError):
            os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)

    def revive(self) -> None:
        """Patroni does that."""

    def switch_over(self) -> str:
        """Promote a replica, the synchronous one if there is one; return how that was answered."""
        roles = self.members()
        leader = next((each for each, role in roles.items() if role == "leader"), "")
        other = next((each for each, role in roles.items() if role == self.roles[-1]), "")
        if not (leader and other):
            return "no candidate"
        body = f'{{"leader": "{leader}", "candidate": "{other}"}}'
        return str(ask(self.addresses[leader], PATRONI, "POST", "/switchover", body, limit_s=30)[0])

    def fail_over(self) -> str:
        """Kill the machine of the member that leads: Patroni, its server, etcd; return which."""
        name = self.primary()
        if name:
            self.kill(f"{name} patroni")
            pid = self.directory / f"{name}-data" / "postmaster.pid"
            with suppress(OSError, ValueError):
                os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)
            self.kill(f"{name} etcd")
        return name

    def revive_member(self, name: str) -> None:
        """Start what `fail_over` has killed."""
        if name:
            self._start_etcd(name)
            self._start_patroni(name)


class AsynchronousPatroniDatabase(PatroniDatabase):
    """Three members, whose replicas may lack the last commits when they are promoted."""

    roles = ("leader", "replica", "replica")

    def __init__(self, directory: Path, addresses: Mapping[str, str]) -> None:
        """Choose where its files are."""
        super().__init__(directory, addresses)
        self._senders: list[int] = []

    def await_replicas(self) -> int:
        """Wait until two replicas have all commits before a time; return that, 0: not in time.

        In ms since the epoch UTC.
        """
        with suppress(AssertionError, psycopg.Error):
            wait_until(self.whole, what="two replicas", limit_s=STARTED_S_MAX, every_s=0.5)
            since_ms = time.time_ns() // 1_000_000
            [[place]] = self.run("SELECT pg_current_wal_lsn()::text")
            count = f"SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{place}'"
            have_it = lambda: self.run(count)[0][0] == 2  # noqa: E731 - one line
            wait_until(have_it, what="replicas", limit_s=STARTED_S_MAX, every_s=0.1)
            return since_ms
        return 0

    def await_primary(self) -> None:
        """Wait until a server takes writes."""
        wait_until(self.answers, what="a promotion", limit_s=STARTED_S_MAX, every_s=0.5)

    def generation(self) -> int:
        """Return the number of the last commit of the control planes."""
        return int(self.run("SELECT generation FROM service")[0][0])

    def hold_back(self) -> None:
        """Send no more commits to replicas, until `fail_over`."""
        self._senders = _processes_titled("walsender")
        for pid in self._senders:
            os.kill(pid, signal.SIGSTOP)

    def fail_over(self) -> str:
        """Kill the machine of the member that leads; return which."""
        name = super().fail_over()
        for pid in self._senders:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return name


def _processes_titled(word: str) -> list[int]:
    """Return the processes of PostgreSQL whose titles have a word."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            title = (process / "cmdline").read_text()
            if title.startswith("postgres:") and f" {word} " in title:
                pids.append(int(process.name))
    return pids


KINDS = {
    "single": Database,
    "pooler": PooledDatabase,
    "patroni": PatroniDatabase,
    "asynchronous": AsynchronousPatroniDatabase,
}


def make_database(kind: str, directory: Path, addresses: Mapping[str, str]) -> Database:
    """Return a database of a kind; nothing of it runs yet."""
    return KINDS[kind](directory, addresses)
