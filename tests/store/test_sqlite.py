"""What only SQLite can do wrong: full disks, second processes, damaged files, relaxed settings."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import LIVE_OPERATION, OperationState
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.stimulus import ChangeTopology, CreateMaintenance, StartMaintenance
from forewarn_core.fleet.topology import Host
from forewarn_store import HistoryPage, Store, open_store
from forewarn_store.concurrent_records import ConcurrentRecords
from forewarn_store.errors import (
    StoreAddressInvalid,
    StoreDamaged,
    StoreDriverMissing,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
)
from forewarn_store.migrations import every_step
from forewarn_store.reading import _HISTORY_FILTERS, _OPERATION_FILTERS, _in_states
from forewarn_store.sqlite import LOG_INITIAL_BYTES, SqliteEngine
from tests.store.story import Story, begin, entry, live_records, replayed

Opener = Callable[[str], Store]
ROOT = Path(__file__).resolve().parents[2]


def writer_of(store: Store) -> sqlite3.Connection:
    """The connection a store writes on."""
    assert isinstance(store._engine, SqliteEngine)
    return store._engine._writer


def large(story: Story) -> Changes:
    """A change of half a MiB."""
    return Changes(last_number=story.state.last_number, entries=[entry("x" * 2**19)])


def test_full_disk_changes_nothing(story: Story) -> None:
    """A commit that finds no room says so and can be repeated when there is. Source: A-6, L-7."""
    writer = writer_of(story.store)
    before = story.store.load()
    count = len(story.store.history(HistoryPage()))
    [(pages,)] = writer.execute("PRAGMA page_count").fetchall()
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreFull, match="full") as full:
        story.store.commit(large(story))
    assert "free space" in full.value.advice_text()
    assert story.store.load() == before
    writer.execute(f"PRAGMA max_page_count = {pages + 10_000}")
    assert story.store.commit(large(story)) == count + 1


def test_read_only_store_cannot_be_written(story: Story) -> None:
    """A database that may only be read is reported like a full one. Source: A-6."""
    writer = writer_of(story.store)
    writer.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreFull, match="readonly"):
        story.store.commit(large(story))
    writer.execute("PRAGMA query_only = OFF")
    story.reboot("h0")


def test_locked_store_is_unavailable(story: Story, path: Path) -> None:
    """A person's open transaction delays a commit, then it fails whole. Source: L-7."""
    writer_of(story.store).execute("PRAGMA busy_timeout = 1")
    with sqlite3.connect(path, isolation_level=None) as person:
        person.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            story.store.commit(large(story))
    person.close()
    story.reboot("h0")


def test_second_process_is_refused(story: Story, path: Path) -> None:
    """One process writes a file; the second is told which one has it. Source: L-7."""
    command = "import sys; from forewarn_store import open_store; open_store(sys.argv[1])"
    second = subprocess.run(
        [sys.executable, "-c", command, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert "StoreInUse: Another forewarn process uses the store" in second.stderr
    with pytest.raises(StoreInUse, match=r"pid \d+"):
        open_store(str(path))
    story.reboot("h0")


def test_closed_store_can_be_opened_again(story: Story, path: Path) -> None:
    """Closing lets the file go, with nothing left in the log beside it. Source: L-7."""
    story.store.close()
    assert not path.with_name("store.db-wal").exists()
    again = open_store(str(path))
    assert again.load() == story.state
    again.close()


@pytest.mark.parametrize("cut", [0, 1, 1000, 5000, 40_000])
def test_log_is_read_to_its_last_whole_step(story: Story, path: Path, cut: int) -> None:
    """A log that a crash has cut off gives whole steps, at its full length again. Source: L-7."""
    story.reboot("h0")
    log = path.with_name("store.db-wal").read_bytes()
    assert len(log) >= LOG_INITIAL_BYTES
    used = log.rstrip(b"\0")
    torn = path.with_name("torn.db")
    torn.write_bytes(path.read_bytes())
    torn.with_name("torn.db-wal").write_bytes(used[: len(used) - cut])
    again = open_store(str(torn))
    assert torn.with_name("torn.db-wal").stat().st_size >= LOG_INITIAL_BYTES
    state = again.load()
    assert replayed(again) == live_records(state)
    assert cut or state == story.state
    again.close()


#: What the program `sqlite3` does with a file and a statement.
def test_file_that_is_no_database_is_damage(path: Path) -> None:
    """What is not a database is left as it is. Source: L-7."""
    path.write_bytes(b"no database at all " * 100)
    with pytest.raises(StoreDamaged):
        open_store(str(path))
    assert path.read_bytes().startswith(b"no database at all")


def test_damaged_pages_are_reported(story: Story, path: Path) -> None:
    """A file whose pages were overwritten is not loaded as if it were whole. Source: L-7, D-1."""
    for _ in range(5):
        story.reboot("h0")
    story.store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)  # the first page, the schema, stays
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(StoreDamaged) as damaged:
        open_store(str(path)).load()
    assert "backup" in damaged.value.advice_text()


def test_commit_is_durable(story: Story) -> None:
    """Each commit reaches the disk before it returns, also on macOS. Source: A-6."""
    wanted = {"synchronous": 2, "journal_mode": "wal", "fullfsync": 1, "foreign_keys": 1}
    writer = writer_of(story.store)
    for name, word in wanted.items():
        assert writer.execute(f"PRAGMA {name}").fetchone() == (word,), name


@pytest.mark.parametrize("address", ["sqlite::memory:", ":memory:"])
def test_memory_store_leaves_no_file(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opener
) -> None:
    """A store in memory is a whole store that nobody else sees. Source: B-4."""
    monkeypatch.chdir(tmp_path)
    story = begin(opened(address))
    story.reboot("h0")
    assert story.store.load() == story.state
    assert begin(opened(address)).state.last_number == 0
    assert list(tmp_path.iterdir()) == []
    facts = story.store._engine.examine()
    assert (facts.unsafe, facts.is_replica) == (("a store in memory",), False)


def test_drivers_records_beside_a_store_in_memory_are_in_a_file() -> None:
    """Another process opens them there; they have all tables. Source: B-4."""
    records = ConcurrentRecords("sqlite::memory:")
    assert len(records.rows("schema_steps")) == len(every_step())
    assert Path(records.shared_address()).is_file()
    records.close()


@pytest.mark.parametrize("form", ["{path}", "sqlite://{path}", "sqlite:{path}"])
def test_address_names_a_file(form: str, path: Path, opened: Opener) -> None:
    """A path may be written plainly or as an address."""
    opened(form.format(path=path))
    assert path.exists()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "mysql://host/db",
        "sqlite:",
        "postgresql:x://",
        "postgres:x",
        "file:store.db",
        "host:5432",
    ],
)
def test_address_that_means_nothing_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no engine understands makes no file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreAddressInvalid, match="is not the address"):
        open_store(address)
    assert list(tmp_path.iterdir()) == []


def plan_of(store: Store, name: str, **fills: str) -> str:
    """How SQLite finds the rows of a statement."""
    statement = store._engine.statements.named(name, **fills)
    wanted = [1] * len(statement.names)
    explained = writer_of(store).execute(f"EXPLAIN QUERY PLAN {statement.text}", wanted)
    return " ".join(str(row[-1]) for row in explained.fetchall())


@pytest.mark.parametrize("filters", _HISTORY_FILTERS.values(), ids=_HISTORY_FILTERS)
def test_history_is_found_through_an_index(memory: Store, filters: str) -> None:
    """No question gets slower with the years of history it does not ask for. Source: A-6."""
    plan = plan_of(memory, "history", images="images", filters=filters, direction="DESC")
    assert plan.startswith("SEARCH history USING")
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("filters", _OPERATION_FILTERS.values(), ids=_OPERATION_FILTERS)
def test_operations_are_found_through_an_index(memory: Store, filters: str) -> None:
    """Ended work does not slow the search for some of it. Source: L-5."""
    assert plan_of(memory, "operations", filters=filters).startswith("SEARCH operation USING")


@pytest.mark.parametrize("kind", ["operation", "event"])
def test_loading_reads_only_live_work(memory: Store, kind: str) -> None:
    """A restart costs the same after years as on the first day. Source: L-7."""
    assert f"USING INDEX {kind}_live" in plan_of(memory, f"load_{kind}")


@pytest.mark.parametrize("states", [LIVE_OPERATION, frozenset({OperationState.RUNNING})])
def test_live_operations_are_found_by_their_own_index(
    memory: Store, states: frozenset[OperationState]
) -> None:
    """What is asked for most does not get slower with the years. Source: L-5."""
    assert "INDEX operation_live" in plan_of(memory, "operations", filters=_in_states(states))


def test_notice_wakes_another_thread(memory: Store) -> None:
    """Threads of the writing process hear of its commits."""
    story = begin(memory)
    assert memory.wait_for_commit(0.0)
    assert not memory.wait_for_commit(0.0)
    told: list[bool] = []
    thread = threading.Thread(target=lambda: told.append(memory.wait_for_commit(30.0)))
    thread.start()
    story.reboot("h0")
    thread.join()
    assert told == [True]


def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the refusal says what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "forewarn_store.postgres", raising=False)
    with pytest.raises(StoreDriverMissing, match="psycopg") as missing:
        open_store("postgresql:///forewarn")
    assert "forewarn[server]" in missing.value.advice_text()


def test_progress_of_a_maintenance_writes_none_of_its_hosts(story: Story) -> None:
    """What an operator's word changes is written, and not thousands of hosts. Source: F-1."""
    names = tuple(f"host-{n:05}" for n in range(5_000))
    story.tell(ChangeTopology(hosts=tuple(map(Host, names))))
    written: list[str] = []
    writer_of(story.store).set_trace_callback(written.append)
    story.tell(CreateMaintenance(Cause.HOST_REBOOT, names, 600))
    [number] = story.state.maintenances
    described = len("".join(written))
    written.clear()
    story.tell(StartMaintenance(number))
    assert described > len("".join(names))
    assert len("".join(written)) < 4096
    assert story.store.load().maintenances[number].hosts == names
