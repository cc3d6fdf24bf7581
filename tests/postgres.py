"""A real PostgreSQL server for tests, started and stopped by themselves on a Unix socket.

Nothing of Forewarn is known here but what a template database is filled with by the caller.
"""

import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import psycopg

from tests.waiting import LIMIT_S

FAST, SLOW = Path("/dev/shm"), Path("/tmp")  # both short, as a socket's path must be
ROOM_BYTES_MIN = 2**30
READY = re.compile("database system is ready to accept (read-only )?connections")
STOP_S_MAX = 20
LOG_LINES_KEPT = 200
#: PostgreSQL refuses to run as root; the first of these that exists runs it instead.
UNPRIVILEGED = ("postgres", "nobody")

# Full durability as in production, everything else small: tests are many and short.
INIT_OPTIONS = ("-U", "forewarn", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "timezone": "UTC",
    "log_statement": "none",
}


MEASURED = {"shared_buffers": "128MB"}

# Ends the server and removes its folder when its standard input ends: however the tests end, even
# killed, nothing is left behind. SIGINT asks PostgreSQL for a "fast" shutdown.
KEEPER = '"$@" </dev/null & read _; kill -INT $!; wait $!; cd / && rm -rf "$0"'


class PostgresMissingError(AssertionError):
    """There is no PostgreSQL to test with; that is a failure, never a skip."""

    def __init__(self) -> None:
        super().__init__(
            "no `initdb` and `postgres` on PATH or in /usr/lib/postgresql/*/bin: install"
            " Debian's `postgresql` (or Homebrew's), or put its programs on PATH"
        )


@dataclass
class PostgresServer:
    """One running server, its databases, and its last words."""

    folder: Path
    process: subprocess.Popen[str]
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES_KEPT))
    #: What the names of its databases begin with.
    prefix: str = "test"
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _template: str = "template1"

    def address(self, database: str) -> str:
        """The address of a database, as an operator would write it.

        A new database makes the server's other connections wait: long, on a loaded machine.
        """
        return f"postgresql://forewarn@/{database}?host={self.folder}&connect_timeout={LIMIT_S:.0f}"

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement outside any transaction and return its rows."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @cached_property
    def _version(self) -> int:
        return int(str(self.run("SHOW server_version_num")[0][0]))

    def fill_template(self, fill: Callable[[str], None]) -> None:
        """Let `fill` prepare the database, by its address, that new ones are copied from."""
        name = f"{self.prefix}_filled"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        fill(self.address(name))
        self._template = name

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[str]:
        """Yield the address of a fresh database and drop it afterwards."""
        name = f"{self.prefix}_{next(self._numbers)}"
        source = template or self._template
        # Copying files takes a sixth of the time; before version 15 nothing else was done.
        how = " STRATEGY FILE_COPY" if self._version >= 150_000 else ""
        self.run(f"CREATE DATABASE {name} TEMPLATE {source}{how}")
        try:
            yield self.address(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Stop the server; all of its processes have ended then."""
        process = self.process
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            pid = int((self.folder / "cluster" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGQUIT)  # "immediate": takes its children with it
            process.wait(STOP_S_MAX)

    def drop_databases(self) -> None:
        """Drop what a process that was killed has left."""
        for (name,) in self.run("SELECT datname FROM pg_database WHERE datname ~ '_'"):
            self.run(f"DROP DATABASE {name} WITH (FORCE)")


_shared: list[PostgresServer] = []


@contextmanager
def shared_postgres() -> Iterator[None]:
    """Start a server for all the processes that are forked meanwhile, each with its databases."""
    with running_postgres() as server:
        _shared.append(server)
        try:
            yield
        finally:
            _shared.pop()


def drop_shared_databases() -> None:
    """Drop what forked processes have left in the server that they share, if there is one."""
    for server in _shared:
        server.drop_databases()


@contextmanager
def running_postgres(
    *, on_disk: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Start a server in a folder of its own; stop it and remove the folder.

    Its files lie in memory where there is room, since nobody cuts the power here: a fresh
    database for each test then costs a tenth. What is measured wants `on_disk`, and the memory that
    PostgreSQL has by default. `environment` has further variables for the server.

    Raises:
        PostgresMissingError: there is none on this machine.
        AssertionError: it would not start; its log is in the message.
    """
    if _shared and not on_disk:
        yield replace(_shared[-1], prefix=f"p{os.getpid()}")
        return
    programs = programs_of_postgres()
    parent = SLOW if on_disk or not _has_room(FAST) else FAST
    folder = Path(tempfile.mkdtemp(prefix="fw-pg-", dir=parent))
    user = _unprivileged(folder)
    try:
        cluster = ["-D", str(folder / "cluster")]
        _finish(_start([f"{programs}/initdb", *cluster, *INIT_OPTIONS], folder, user))
        settings = SETTINGS | (MEASURED if on_disk else {})
        words = [f"{name}={word}" for name, word in settings.items()]
        options = [word for setting in words for word in ("-c", setting)]
        with _serving(folder, user, options, environment) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_replica(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Start a server that copies another one; `pg_promote()` makes it a primary."""
    folder = Path(tempfile.mkdtemp(prefix="fw-pg-", dir=primary.folder.parent))
    user = _unprivileged(folder)
    try:
        copy = ["-D", str(folder / "cluster"), "-h", str(primary.folder), "-U", "forewarn"]
        copy += ["-R", "--no-sync", "--checkpoint=fast"]
        _finish(_start([f"{programs_of_postgres()}/pg_basebackup", *copy], folder, user))
        words = [f"{name}={word}" for name, word in SETTINGS.items()]
        with _serving(folder, user, [word for each in words for word in ("-c", each)]) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(
    folder: Path,
    user: pwd.struct_passwd | None,
    options: list[str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[PostgresServer]:
    program = [
        f"{programs_of_postgres()}/postgres",
        "-D",
        str(folder / "cluster"),
        "-k",
        str(folder),
    ]
    words = ["/bin/sh", "-c", KEEPER, str(folder), *program, *options]
    process = _start(words, folder, user, environment)
    server = PostgresServer(folder, process)
    try:
        _await_ready(server)
        yield server
    finally:
        server.stop()


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free >= ROOM_BYTES_MIN


def programs_of_postgres() -> Path:
    """Return the folder of the programs of the newest PostgreSQL that is installed."""
    found = [shutil.which("postgres")]
    # Debian keeps the programs of each major version out of PATH; the newest comes first.
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    found += [str(path) for path in sorted(installed, key=_major, reverse=True)]
    for path in found:
        if path is not None and Path(path).resolve().with_name("initdb").exists():
            return Path(path).resolve().parent
    raise PostgresMissingError


def _major(path: Path) -> float:
    version = path.parts[-3]
    return float(version) if version.replace(".", "", 1).isdigit() else 0.0


def _unprivileged(folder: Path) -> pwd.struct_passwd | None:
    """Return whom to run as if we are root, and give them the folder; else None, for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return user
    raise AssertionError(f"root cannot run PostgreSQL, and there is no user of {UNPRIVILEGED}")


def _start(
    command: list[str],
    folder: Path,
    user: pwd.struct_passwd | None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env={
            "PATH": os.environ.get("PATH", ""),
            "LC_ALL": "C",
            "TZ": "UTC",
            **(environment or {}),
        },
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt from the keyboard is for the tests alone
    )


def _finish(process: subprocess.Popen[str]) -> None:
    _, words = process.communicate()
    assert process.returncode == 0, words


def _await_ready(server: PostgresServer) -> None:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.log.append(line.rstrip())
        if READY.search(line):
            break
    else:
        raise AssertionError("PostgreSQL did not start:\n" + "\n".join(server.log))
    threading.Thread(target=_drain, args=(server,), daemon=True).start()


def _drain(server: PostgresServer) -> None:
    assert server.process.stderr is not None
    with server.process.stderr as words:
        for line in words:
            server.log.append(line.rstrip())
