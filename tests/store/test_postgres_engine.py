"""PostgreSQL as the store's engine: its sessions, its connections, and what its errors mean."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.state import Changes
from forewarn_store import Store, open_store, postgres
from forewarn_store.errors import (
    StoreContradiction,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from tests.postgres import PostgresServer
from tests.store.story import begin, entry

pytestmark = pytest.mark.postgres
Opener = Callable[[str], Store]


@pytest.mark.parametrize(
    ("state", "meaning"),
    [
        ("53100", StoreFull),
        ("25006", StoreFull),
        ("08006", StoreUnavailable),
        ("40001", StoreUnavailable),
        ("53300", StoreUnavailable),
        ("55P03", StoreUnavailable),
        ("57014", StoreUnavailable),
        ("58030", StoreUnavailable),
        ("25P03", StoreUnavailable),
        ("28000", StoreUnavailable),
        ("42501", StoreUnavailable),
        ("XX001", StoreDamaged),
        ("XX002", StoreDamaged),
        ("23505", StoreContradiction),
        ("25001", StoreContradiction),
        ("42601", StoreContradiction),
    ],
)
def test_error_of_the_server_says_who_must_act(
    postgres_address: str, opened: Opener, state: str, meaning: type[ForewarnError]
) -> None:
    """Each of PostgreSQL's states is one of the store's own errors. Source: L-7, A-6."""
    engine = opened(postgres_address)._engine
    with pytest.raises(ForewarnError) as refused, engine.writing() as transaction:
        transaction.run_text(f"DO $$ BEGIN RAISE 'so. So.\nMore' USING ERRCODE = '{state}'; END $$")
    assert type(refused.value) is meaning
    assert refused.value.facts["reason"] == "PostgreSQL says: so. So"
    with engine.writing() as transaction:
        assert transaction.rows("lease") == [("", 0, "")]


def test_every_session_has_the_terms_it_needs(postgres_address: str, opened: Opener) -> None:
    """A database that stops answering is given up in time, on every connection. Source: L-7."""
    engine = opened(postgres_address)._engine
    wanted = {
        "application_name": "forewarn",
        "client_encoding": "UTF8",
        "lock_timeout": "5s",
        "statement_timeout": "1min",
        "idle_in_transaction_session_timeout": "10s",
    }
    for begin_one in (engine.writing, engine.reading, engine.lease_reading, engine.lease_writing):
        with begin_one() as transaction:
            for name, word in wanted.items():
                found = transaction._connection.execute(f"SHOW {name}").fetchall()
                assert found == [(word,)], name


def test_large_table_is_copied_without_a_time_limit(postgres_address: str, opened: Opener) -> None:
    """A backup may take longer than any other statement. Source: L-7."""
    engine = begin(opened(postgres_address)).store._engine
    with engine.reading() as transaction:
        assert list(engine.portions(transaction, "host"))
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            assert transaction._connection.execute(f"SHOW {name}").fetchall() == [("0",)], name


def test_address_may_set_other_terms(postgres_address: str, opened: Opener) -> None:
    """The operator's word on a connection wins over ours."""
    engine = opened(f"{postgres_address}&application_name=mine")._engine
    with engine.writing() as transaction:
        assert transaction._connection.execute("SHOW application_name").fetchall() == [("mine",)]


def test_question_only_reads(postgres_address: str, opened: Opener) -> None:
    """Nothing can be written by a reader, and it sees one state throughout. Source: L-7."""
    story = begin(opened(postgres_address))
    engine = story.store._engine
    for begin_one in (engine.reading, engine.lease_reading):
        with begin_one() as transaction:
            before = transaction.rows("service")
            story.store.commit(Changes(last_number=story.state.last_number, entries=[entry()]))
            assert transaction.rows("service") == before
        with pytest.raises(StoreFull, match="read-only"), begin_one() as transaction:
            transaction.run("mark", boot="b", ahead_ms=1)


def test_heir_ends_a_session_that_keeps_a_row_and_says_nothing(
    postgres_address: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process stopped or cut off in the midst of a transaction keeps nobody waiting. H-2, H-3."""
    monkeypatch.setattr(postgres, "SILENT_MS", 0)
    stopped, heir = opened(postgres_address), opened(postgres_address)
    seen = stopped.move_lease(stopped.lease(), "stopped")
    assert seen is not None
    with suppress(ForewarnError), stopped._engine.lease_writing() as transaction:
        transaction.run_text("UPDATE lease SET beat = beat")
        transaction.rows("lease")
        assert heir.move_lease(seen, "heir") is not None
    with suppress(ForewarnError), stopped._engine.writing() as transaction:
        transaction.rows("claim", writer="stopped", key="")
        heir.load()
    assert heir.lease().holder == "heir"
    heir.confirm()


def test_place_names_the_server(server: PostgresServer, postgres_address: str) -> None:
    """People are told which database it is."""
    store = open_store(f"{postgres_address}&port=5432")
    database = postgres_address.partition("@/")[2].partition("?")[0]
    assert store.place == f"postgresql://{server.folder}:5432/{database}"
    store.close()
    with pytest.raises(StoreUnavailable, match=r"postgresql://127\.0\.0\.1:1/none"):
        open_store("postgresql://127.0.0.1:1/none")


def test_closed_store_opens_no_connection(postgres_address: str, opened: Opener) -> None:
    """A thread that begins after the stop does not wait in the database."""
    store = opened(postgres_address)
    store.close()
    with pytest.raises(StoreUnavailable, match="has closed the store"):
        store.load()
