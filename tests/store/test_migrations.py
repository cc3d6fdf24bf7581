"""The schema: from nothing to now, once, whoever else starts at the same time."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_core.fleet.records import KINDS, columns_of
from forewarn_store import Store, inspection, open_store
from forewarn_store.addresses import location_of
from forewarn_store.engine import Transaction
from forewarn_store.errors import (
    StoreContradiction,
    StoreMissing,
    StoreSchemaDiffers,
    StoreSchemaOld,
    StoreTooNew,
)
from forewarn_store.inspection import inspect_store
from forewarn_store.lease import Tenure
from forewarn_store.migrations import SchemaMigration, every_step, migrate, missing_steps
from forewarn_store.statements import APART, TABLE_OF, column
from tests.postgres import PostgresServer
from tests.store.story import begin

Opener = Callable[[str], Store]
NEXT = len(every_step()) + 1
GOOD = SchemaMigration(
    NEXT, f"{NEXT:04}_good", "-- a remark; with a semicolon\nCREATE TABLE extra (a BIGINT);\n"
)
BAD = SchemaMigration(
    NEXT, f"{NEXT:04}_bad", "CREATE TABLE extra (a BIGINT);\nINSERT INTO nowhere VALUES (1);\n"
)


def steps_done(store: Store) -> list[int]:
    """Numbers of the steps the store says were run."""
    with store._engine.reading() as transaction:
        return [int(row[0]) for row in transaction.rows("schema_steps")]


def test_migrate_runs_each_step_once(address: str, opened: Opener) -> None:
    """A new store gets every step; opening it again runs none. Source: L-7."""
    store = opened(address)
    assert steps_done(store) == [step.number for step in every_step()]
    assert migrate(store._engine) == 0
    assert migrate(store._engine, (*every_step(), GOOD), upgrade=True) == 1
    assert migrate(store._engine, (*every_step(), GOOD)) == 0
    assert steps_done(store)[-1] == GOOD.number


def test_migrate_changes_nothing_when_a_step_fails(address: str, opened: Opener) -> None:
    """A step that fails half way leaves the schema as it was. Source: L-7."""
    store = opened(address)
    with pytest.raises(StoreContradiction):
        migrate(store._engine, (*every_step(), BAD), upgrade=True)
    assert len(steps_done(store)) == len(every_step())
    assert migrate(store._engine, (*every_step(), GOOD), upgrade=True) == 1


def test_requests_of_the_schema_before_are_kept(address: str) -> None:
    """The step that lets them be withdrawn makes their table again. Source: T-4."""
    row: list[str | int] = [
        "1/h0/shop",
        1,
        "h0",
        "shop",
        5,
        "alice",
        9,
        "spare parts",
        "refused",
        0,
        0,
        6,
        "bob",
        "",
    ]
    engine = location_of(address).open(must_exist=False)
    try:
        migrate(engine, every_step()[:20])
        with engine.writing() as transaction:
            transaction.insert("owner_deferral", [row])
        migrate(engine, upgrade=True)
        with engine.reading() as transaction:
            assert [*engine.portions(transaction, "owner_deferral")] == [[tuple(row)]]
    finally:
        engine.close()


def test_newer_schema_is_refused(address: str, opened: Opener) -> None:
    """A store that a newer version has migrated is left alone. Source: L-7."""
    store = opened(address)
    migrate(store._engine, (*every_step(), GOOD), upgrade=True)
    with pytest.raises(StoreTooNew, match=f"schema {NEXT}") as refused:
        migrate(store._engine)
    assert "backup" in refused.value.advice_text()
    store.close()
    with pytest.raises(StoreTooNew):
        open_store(address)


def test_version_before_works_beside_an_expanded_schema(address: str, opened: Opener) -> None:
    """A step that only expands the schema stops no process of the version before. Source: H-8."""
    store = opened(address)
    expanding = replace(GOOD, name=f"{NEXT:04}_expand_good")
    migrate(store._engine, (*every_step(), expanding), upgrade=True)
    assert migrate(store._engine) == 0
    store.close()
    again = opened(address)
    again.load()
    assert begin(again).reboot("h0")


@pytest.mark.postgres
def test_start_upgrades_no_store_that_others_may_use(postgres_address: str, opened: Opener) -> None:
    """Only a command upgrades a shared store; it may look first. Source: H-8."""
    store = opened(postgres_address)
    with pytest.raises(StoreSchemaOld, match=f"{NEXT - 1} of the {NEXT} schema steps"):
        migrate(store._engine, (*every_step(), GOOD))
    assert len(steps_done(store)) == len(every_step())
    assert missing_steps(store._engine) == ()


def test_other_steps_are_refused(address: str, opened: Opener) -> None:
    """A store made by other steps than this version's is not touched. Source: L-7."""
    store = opened(address)
    with store._engine.writing() as transaction:
        transaction.run_text("UPDATE migration SET checksum = 'another'")
    store.close()
    with pytest.raises(StoreSchemaDiffers, match="0001_initial"):
        open_store(address)


@pytest.mark.postgres
def test_processes_starting_at_once_share_the_work(server: PostgresServer) -> None:
    """Of several that meet an empty database one makes the schema."""
    failures = []

    def start(where: str) -> None:
        try:
            open_store(where).close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shall show it
            failures.append(error)

    with server.database("template0") as empty:
        threads = [threading.Thread(target=start, args=(empty,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        store = open_store(empty)
        assert steps_done(store) == [step.number for step in every_step()]
        store.close()


@pytest.mark.postgres
def test_database_that_must_hold_a_store_is_not_filled(server: PostgresServer) -> None:
    """An empty database in place of the store is no reason to start over. Source: L-7."""
    with server.database("template0") as empty:
        for _ in range(2):  # the first left nothing behind
            with pytest.raises(StoreMissing, match="no store at"):
                open_store(empty, must_exist=True)
        open_store(empty).close()
        open_store(empty, must_exist=True).close()


@pytest.mark.postgres
def test_schema_is_changed_under_terms_of_its_own(
    server: PostgresServer, postgres_address: str, opened: Opener
) -> None:
    """One process at a time changes it, for as long as that takes; then all is as before. L-7."""
    asked = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    engine = opened(postgres_address)._engine

    def terms(transaction: Transaction) -> list[object]:
        return [transaction._connection.execute(f"SHOW {each}").fetchall()[0][0] for each in asked]

    with engine.writing() as transaction:
        before = terms(transaction)
    with engine.writing() as transaction:
        engine.lock_schema(transaction)
        assert terms(transaction) == ["2min", "0", "0"]
        assert server.run(locks) == [(1,)]
    with engine.writing() as transaction:
        assert terms(transaction) == before == ["5s", "1min", "10s"]
    assert server.run(locks) == [(0,)]


@pytest.mark.postgres
def test_store_that_was_just_made_is_used(server: PostgresServer) -> None:
    """The connection that has made the schema goes on to write. Source: L-7."""
    with server.database("template0") as empty:
        store = open_store(empty)
        number = begin(store).reboot("h0")
        assert store.operation(number) is not None
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_table_has_the_columns_of_its_records(store: Store, kind: str) -> None:
    """A field added to a record without a migration is found here first."""
    with store._engine.reading() as transaction:
        cursor = transaction._connection.execute(f"SELECT * FROM {TABLE_OF[kind]}")
        cursor.fetchall()
        found = [each[0] for each in cursor.description]  # type: ignore[attr-defined]
    apart = APART[kind][:1] if kind in APART else ()
    assert sorted([*found, *apart]) == sorted(map(column, columns_of(kind)))


def test_inspection_finds_an_earlier_schema(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service upgrades a file when it starts. Source: L-7."""
    opened(str(path)).close()
    assert not inspect_store(str(path), must_exist=True).outdated
    monkeypatch.setattr(inspection, "every_step", lambda: (*every_step(), GOOD))
    assert inspect_store(str(path), must_exist=True).outdated


def test_inspection_finds_the_lease_of_a_shared_store(address: str) -> None:
    """It says whether a store is there, and who holds its lease, and changes neither."""
    missing = inspect_store(address, must_exist=False).missing
    assert missing is address.startswith("sqlite")  # the database has its tables already
    store = open_store(address)
    assert Tenure(store, 30_000).attempt(0)
    lease = store.lease()
    store.close()
    facts = inspect_store(address, must_exist=True)
    assert facts.lease == (None if address.startswith("sqlite") else lease)
