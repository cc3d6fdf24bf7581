"""`forewarn doctor` names the cause of each fault. Source: U-4."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from forewarn_base import exit_codes
from forewarn_base.clock import SystemClock
from forewarn_base.settings import FeedSettings, LifecycleSettings, NamedTable, OutboxSettings
from forewarn_core.fleet.stimulus import ApplyPolicy
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import Window
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.doctor import Doctor
from forewarn_store import open_store
from forewarn_store.sqlite_file import file_system_of
from tests.api.live import FLEET, SETTINGS, Live
from tests.cli.conftest import Run
from tests.clock import VirtualClock
from tests.pgbouncer import PGBOUNCER, pooled
from tests.postgres import PostgresServer
from tests.waiting import LIMIT_S, wait_until

#: Marks a store that has lost commits.
MARKED = "UPDATE service SET epoch = 'e', lost_epoch = 'e', lost_commit = '7 node n1'"
UNREACHABLE = "http://127.0.0.1:9"
Fault = Callable[[Path, Path], None]


def settings_file(folder: Path, store: str, more: str = "") -> Path:
    """A settings file with a store."""
    file = folder / "forewarn.toml"
    listen = '[listen]\nmetadata = ["127.0.0.1:0"]\noperator = "127.0.0.1:0"\n'
    file.write_text(f'{listen}[store]\nurl = "{store}"\n{more}')
    file.chmod(0o600)
    return file


def named(file: Path, server: str, *, ahead_ms: int = 0, token: str = "") -> dict[str, str]:
    """The code of each problem that the doctor finds, by the check's name."""
    clock = SystemClock() if not ahead_ms else VirtualClock(SystemClock().now_ms() + ahead_ms)
    doctor = Doctor([file], clock, lambda _: ApiClient(server, token), lease_s_max=0)
    return {each.name: each.code for each in doctor.checks() if each.result == "problem"}


def misspell(file: Path, _store: Path) -> None:
    """A setting that does not exist."""
    file.write_text("[stor]\n")


def lose_driver(file: Path, _store: Path) -> None:
    """A driver that nobody has set up."""
    file.write_text(file.read_text() + '[drivers]\ndefault = "libvrt"\n')


def expose(file: Path, _store: Path) -> None:
    """A secret that everybody can read."""
    file.write_text(file.read_text() + f'[audit]\nkey = "{"k" * 32}"\n')
    file.chmod(0o644)


def lose(_file: Path, store: Path) -> None:
    """A store that is gone."""
    store.unlink()


def damage(_file: Path, store: Path) -> None:
    """A file with something else."""
    store.write_bytes(b"x" * 4096)


def know_more(_file: Path, store: Path) -> None:
    """A file that names a later commit than the store's."""
    with closing(sqlite3.connect(store)) as database:
        database.execute("UPDATE service SET epoch = 'e'")
        database.commit()
    store.with_name(f"{store.name}.commit").write_text("e/9/digest")


def run_on_store(statement: str) -> Fault:
    """A statement of SQL that was run on the store."""

    def act(_file: Path, store: Path) -> None:
        with closing(sqlite3.connect(store)) as database:
            database.execute(statement)
            database.commit()

    return act


@pytest.mark.parametrize(
    ("fault", "check", "code"),
    [
        (misspell, "settings", "setting-invalid"),
        (lose_driver, "start", "driver-unknown"),
        (expose, "files", "settings-exposed"),
        (lose, "store", "store-missing"),
        (damage, "store", "store-damaged"),
        (run_on_store("INSERT INTO migration VALUES (99, 'x', 'y')"), "schema", "store-too-new"),
        (run_on_store("DELETE FROM migration"), "schema", "store-schema-old"),
        (run_on_store("INSERT INTO backup VALUES (1, 1)"), "backup", "backup-old"),
        (run_on_store("UPDATE migration SET checksum = 'z'"), "schema", "store-schema-differs"),
    ],
)
def test_fault_is_named(
    fault: Fault,
    check: str,
    code: str,
    live: Live,
    tmp_path: Path,
) -> None:
    """Each fault has one problem with its own code; without it nothing is wrong."""
    store = tmp_path / "store.db"
    open_store(f"sqlite://{store}").close()
    file = settings_file(tmp_path, f"sqlite://{store}")
    assert named(file, live.url) == {}
    fault(file, store)
    assert named(file, live.url) == {check: code}


@pytest.mark.parametrize("fault", [run_on_store(MARKED), know_more])
def test_store_that_has_lost_commits_is_named(fault: Fault, tmp_path: Path) -> None:
    """By its mark, or by what the service on this machine has noted. Source: H-10, U-4."""
    store = tmp_path / "store.db"
    open_store(f"sqlite://{store}").close()
    file = settings_file(tmp_path, f"sqlite://{store}")
    fault(file, store)
    assert named(file, UNREACHABLE)["commits"] == "store-went-back"


def test_start_is_not_promised_beside_a_problem_of_the_store(live: Live, tmp_path: Path) -> None:
    """A start uses the store, so its check has no result without one."""
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/none.db", "must_exist = true\n")
    doctor = Doctor([file], SystemClock(), lambda _: ApiClient(live.url), lease_s_max=0)
    results = {each.name: each.result for each in doctor.checks()}
    assert (results["store"], results["start"]) == ("problem", "skipped")


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes certificates")
def test_certificate_near_its_end_is_named(live: Live, tmp_path: Path) -> None:
    """A certificate of ten days is named, one of twenty is not. Source: U-4."""
    open_store(f"sqlite://{tmp_path}/store.db").close()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    table = f'[operator]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db", table)
    request = f"req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout {key} -out {certificate}"
    for days, expected in ((10, {"certificates": "certificate-expires"}), (20, {})):
        command = ["openssl", *request.split(), "-days", str(days)]
        subprocess.run(command, check=True, capture_output=True)
        assert named(file, live.url) == expected


def test_service_that_refuses_the_caller_may_hold_its_ports(live: Live, tmp_path: Path) -> None:
    """Its own addresses are in use, which does not prevent a start."""
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db")
    file.write_text(file.read_text().replace("127.0.0.1:0", live.url.removeprefix("http://")))
    open_store(f"sqlite://{tmp_path}/store.db").close()
    assert named(file, live.url, token="wrong") == {"service": "token-wrong"}


def test_service_that_is_away_is_named(live: Live, tmp_path: Path) -> None:
    """Nobody answers; or another program does."""
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db")
    open_store(f"sqlite://{tmp_path}/store.db").close()
    assert named(file, UNREACHABLE) == {"service": "server-unreachable"}
    assert named(file, f"http://{live.metadata_url}") == {"service": "server-foreign"}


def test_part_of_the_state_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A window of an unknown time zone is closed, and nothing else. Source: L-12, U-4."""
    with Live() as service:
        policy = MaintenancePolicy(windows=(Window("night", "Atlantis/Capital"),))
        service.daemon.control.submit(ApplyPolicy(policy), "elsewhere").result(LIMIT_S)
        service.settle()
        open_store(f"sqlite://{tmp_path}/store.db").close()
        file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db")
        assert named(file, service.url)["parts"] == "part-unusable"


def test_nodes_and_destinations_that_are_behind_are_named(tmp_path: Path) -> None:
    """A node that has never connected, and a receiver that does not answer."""
    feed = FeedSettings(listen="127.0.0.1:0", hosts=("n1=h1",))
    table = {"kind": "webhook", "url": f"{UNREACHABLE}/"}
    outbox = OutboxSettings((NamedTable("tickets", table),))
    lifecycle = LifecycleSettings(show_timeout_s=0.1)
    with Live(replace(SETTINGS, feed=feed, outbox=outbox, lifecycle=lifecycle)) as service:
        service.fleet(**FLEET)
        open_store(f"sqlite://{tmp_path}/store.db").close()
        file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db")
        expected = {"nodes": "nodes-behind", "outbox": "destination-behind"}
        wait_until(lambda: named(file, service.url) == expected)


def test_settings_of_another_store_are_named(live: Live, tmp_path: Path) -> None:
    """A command line with other settings than the service would look at the wrong store. U-4."""
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/store.db")
    store = open_store(f"sqlite://{tmp_path}/store.db")
    store.load()
    store.close()
    assert named(file, live.url) == {"same store": "stores-differ"}


@pytest.mark.postgres
def test_lease_clock_and_settings_of_a_database_are_named(
    server: PostgresServer, postgres_address: str, live: Live, tmp_path: Path
) -> None:
    """No process is active; clocks differ by an hour; pages are not written whole."""
    file = settings_file(tmp_path, postgres_address)
    assert named(file, live.url) == {"lease": "leader-absent"}
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("UPDATE lease SET holder = 'x'")
    assert named(file, live.url) == {"lease": "leader-absent"}
    assert named(file, live.url, ahead_ms=3_600_000)["clock"] == "clock-skewed"
    server.run("ALTER SYSTEM SET full_page_writes = off")
    server.run("SELECT pg_reload_conf()")
    try:
        wait_until(lambda: named(file, live.url).get("database") == "store-unsafe")
    finally:
        server.run("ALTER SYSTEM RESET ALL")
        server.run("SELECT pg_reload_conf()")


@pytest.mark.postgres
def test_follower_that_is_away_or_behind_is_named(
    postgres_address: str, live: Live, tmp_path: Path
) -> None:
    """Each follower is listed with its lag; one that stopped without a word is named. U-4."""
    file = settings_file(tmp_path, postgres_address)
    store = open_store(postgres_address)
    store.note_process("x", "http://b", "0.1.0", kept_ms=10**9)
    assert "followers" not in named(file, live.url)
    for change in ("seen_ms = seen_ms - 60000", "generation = 0, seen_ms = seen_ms + 60000"):
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute(f"UPDATE process SET {change}".encode())
            connection.execute("UPDATE service SET generation = 5000")
        assert named(file, live.url)["followers"] == "follower-behind"
    store.close()


@pytest.mark.postgres
@pytest.mark.skipif(PGBOUNCER is None, reason="there is no PgBouncer")
@pytest.mark.parametrize(("mode", "code"), [("transaction", "store-pooled"), ("session", None)])
def test_pooler_is_named(
    mode: str,
    code: str | None,
    server: PostgresServer,
    postgres_address: str,
    live: Live,
    tmp_path: Path,
) -> None:
    """A pooler in transaction mode is named; one in session mode may stay. Source: H-9."""
    with pooled(server, postgres_address, mode) as address:
        file = settings_file(tmp_path, address)
        assert named(file, live.url).get("store") == code


def test_disk_of_a_network_is_known(tmp_path: Path) -> None:
    """The kind of a file system is that of the nearest mount point."""
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nfiler:/x /srv nfs4 rw 0 0\n")
    assert file_system_of(Path("/srv/forewarn/store.db"), mounts) == "nfs4"
    assert file_system_of(Path("/var/lib/store.db"), mounts) == "ext4"


def test_table_ends_with_the_remedy(run: Run, tmp_path: Path) -> None:
    """A person sees every check; a script has the status and the codes."""
    file = settings_file(tmp_path, f"sqlite://{tmp_path}/none.db")
    done = run("doctor", "--config", str(file))
    assert done.status == exit_codes.REFUSED
    assert "store: store-missing" in done.out
    checks = run("--json", "doctor", "--config", str(file)).json["checks"]
    assert [each["name"] for each in checks if each["result"] == "problem"] == ["store"]
