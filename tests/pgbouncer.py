"""A real PgBouncer before a test's PostgreSQL, on a Unix socket."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import PostgresServer
from tests.waiting import LIMIT_S, wait_until

#: Its path; None: there is none on this machine.
PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")


@contextmanager
def pooled(server: PostgresServer, database: str, mode: str) -> Iterator[str]:
    """Start a pooler, and yield the address of a database through it; then stop it."""
    assert PGBOUNCER is not None
    folder = Path(tempfile.mkdtemp(prefix="pooler-", dir=server.folder))
    users, settings = folder / "users", folder / "pgbouncer.ini"
    users.write_text('"forewarn" ""\n')
    settings.write_text(
        f"[databases]\n* = host={server.folder}\n[pgbouncer]\nlisten_port = 6432\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {users}\npool_mode = {mode}\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    shutil.chown(folder, "postgres")
    command = [PGBOUNCER, "-q", "-u", "postgres", str(settings)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until((folder / ".s.PGSQL.6432").exists)
        yield database.replace(f"host={server.folder}", f"host={folder}&port=6432")
    finally:
        process.terminate()
        process.wait(timeout=LIMIT_S)
