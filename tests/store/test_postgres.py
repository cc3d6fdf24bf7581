"""What only a database behind a line can do: vanish, and leave a commit in doubt."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from forewarn_core.fleet.state import Changes
from forewarn_store import HistoryPage, Store, open_store
from forewarn_store.errors import (
    StoreAddressInvalid,
    StoreFull,
    StoreLost,
    StorePooled,
    StoreUnavailable,
    StoreUncertain,
)
from tests.postgres import PostgresServer
from tests.store.proxy import ADVANCED, COMMITTED, Proxy
from tests.store.story import Story, begin, entry

pytestmark = pytest.mark.postgres
Opener = Callable[[str], Store]


@pytest.fixture
def database(postgres_address: str) -> str:
    """The name of an empty store's database."""
    return postgres_address.partition("@/")[2].partition("?")[0]


@pytest.fixture
def story(proxy: Proxy, database: str, opened: Opener) -> Story:
    """A fleet in a store behind the proxy."""
    return begin(opened(proxy.address(database)))


def one_entry(story: Story) -> Changes:
    """A small change."""
    return Changes(last_number=story.state.last_number, entries=[entry()])


def last_seq(server: PostgresServer, database: str) -> object:
    """How far the history of a database has come, asked beside the store."""
    return server.run("SELECT max(seq) FROM history", database)[0][0]


def terminate(server: PostgresServer, database: str) -> None:
    """End every backend of a database, as an administrator or a restart would."""
    server.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        f" WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    )


def test_commit_outlives_a_restart_between_steps(
    postgres_address: str, server: PostgresServer, database: str, opened: Opener
) -> None:
    """A connection lost while nothing was happening is made again, unnoticed. Source: L-7."""
    story = begin(opened(postgres_address))
    before = story.store.history(HistoryPage())
    terminate(server, database)
    assert story.store.history(HistoryPage()) == before
    terminate(server, database)
    assert story.store.commit(one_entry(story)) == len(before) + 1
    assert story.store.load() == story.state


def collect(story: Story, failures: list[Exception]) -> None:
    """Commit, and keep the error for the thread that wants it."""
    try:
        story.store.commit(one_entry(story))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        failures.append(error)


def test_lost_answer_to_commit_is_settled(
    story: Story, proxy: Proxy, server: PostgresServer, database: str
) -> None:
    """COMMIT happened, its answer was lost: the store finds out by itself. Source: A-6, L-7."""
    before = last_seq(server, database)
    proxy.swallow, proxy.once = COMMITTED, True
    assert story.store.commit(one_entry(story)) == last_seq(server, database) != before
    story.reboot("h0")
    assert story.store.load() == story.state


def test_commit_that_never_arrived_is_settled(
    story: Story, proxy: Proxy, server: PostgresServer, database: str
) -> None:
    """COMMIT was lost on its way: the store finds out, and nothing happened. Source: A-6, L-7."""
    before = last_seq(server, database)
    proxy.deaf_after, proxy.once = ADVANCED, True
    with pytest.raises(StoreUnavailable) as failed:
        story.store.commit(one_entry(story))
    assert not isinstance(failed.value, StoreUncertain)
    assert last_seq(server, database) == before
    story.reboot("h0")
    assert story.store.load() == story.state


@pytest.mark.parametrize("happened", [True, False])
def test_uncertain_commit_waits_until_it_is_known(
    story: Story, proxy: Proxy, happened: bool, database: str, server: PostgresServer
) -> None:
    """While nobody answers, the store says that it does not know. Source: A-6, L-7."""
    before = last_seq(server, database)
    proxy.swallow = COMMITTED if happened else b""
    proxy.deaf_after = b"" if happened else ADVANCED
    proxy.reachable = False
    changes = one_entry(story)
    with pytest.raises(StoreUncertain):
        story.store.commit(changes)
    with pytest.raises(StoreUncertain):
        story.store.settle()
    proxy.swallow = proxy.deaf_after = b""
    proxy.reachable = True
    assert story.store.settle() is (changes if happened else None)
    assert story.store.settle() is None
    assert (last_seq(server, database) != before) is happened
    story.reboot("h0")
    assert story.store.load() == story.state


def hold_commits(server: PostgresServer, database: str) -> None:
    """Have every commit with history wait for the advisory lock 1, in the middle of COMMIT."""
    server.run(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$",
        database,
    )
    server.run(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON history DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION pause()",
        database,
    )


def test_settling_waits_for_a_commit_under_way(
    story: Story, proxy: Proxy, server: PostgresServer, database: str
) -> None:
    """A commit the server still works on is not called lost while it may succeed. Source: A-6."""
    hold_commits(server, database)
    before = last_seq(server, database)
    failures: list[Exception] = []
    with psycopg.connect(server.address(database), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1)")
        thread = threading.Thread(target=collect, args=(story, failures))
        thread.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype"
        while thread.is_alive() and not server.run(f"{waiting} = 'advisory'"):
            pass  # the server is in the middle of COMMIT
        proxy.cut()
        while thread.is_alive() and not server.run(f"{waiting} <> 'advisory'"):
            pass  # the store has come back and waits for what becomes of it
        other.execute("SELECT pg_advisory_unlock(1)")
        thread.join()
    assert failures == []
    assert last_seq(server, database) != before


def test_uncertain_commit_of_a_deposed_writer_is_lost(
    story: Story, proxy: Proxy, postgres_address: str, opened: Opener
) -> None:
    """Once another process writes, only that one knows what happened. Source: L-7."""
    proxy.swallow = COMMITTED
    proxy.reachable = False
    with pytest.raises(StoreUncertain):
        story.store.commit(one_entry(story))
    proxy.swallow, proxy.reachable = b"", True
    other = begin(opened(postgres_address))
    with pytest.raises(StoreLost):
        story.store.settle()
    other.reboot("h0")
    assert story.store.load() == other.state


def test_server_that_is_away_is_unavailable(story: Story, proxy: Proxy) -> None:
    """Without a server every question fails with a sentence, and works again later. Source: L-7."""
    proxy.reachable = False
    proxy.cut()
    questions: tuple[Callable[[], object], ...] = (
        lambda: story.store.commit(one_entry(story)),
        lambda: story.store.history(HistoryPage()),
        story.store.load,
        story.store.lease,
        lambda: story.store.wait_for_commit(0.0),
    )
    for question in questions:
        with pytest.raises(StoreUnavailable, match="The store postgresql://"):
            question()
    proxy.reachable = True
    story.reboot("h0")
    assert story.store.load() == story.state


def test_read_only_server_cannot_be_written(
    server: PostgresServer, postgres_address: str, database: str, opened: Opener
) -> None:
    """A standby database, or one made read-only, takes no commit. Source: A-6."""
    story = begin(opened(postgres_address))
    server.run(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    terminate(server, database)
    with pytest.raises(StoreFull, match="read-only"):
        story.store.commit(one_entry(story))
    server.run(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    terminate(server, database)
    story.reboot("h0")


def test_asynchronous_commit_is_not_accepted(
    server: PostgresServer, postgres_address: str, database: str, opened: Opener
) -> None:
    """A server told to commit lazily is told otherwise for our sessions. Source: A-6."""
    server.run(f"ALTER DATABASE {database} SET synchronous_commit = off")
    store = opened(postgres_address)
    with store._engine.writing() as transaction:
        cursor = transaction._connection.execute("SHOW synchronous_commit")
        assert cursor.fetchall() == [("on",)]


def test_notice_tells_of_a_commit(postgres_address: str, opened: Opener) -> None:
    """A standby hears of the writer's commits, and of nothing else."""
    writer = begin(opened(postgres_address))
    standby = opened(postgres_address)
    assert standby.wait_for_commit(0.0)  # a new listener looks for itself first
    assert not standby.wait_for_commit(0.0)
    writer.store.commit(one_entry(writer))
    assert standby.wait_for_commit(30.0)
    assert not standby.wait_for_commit(0.0)


def test_place_holds_no_password(server: PostgresServer, database: str) -> None:
    """Neither errors nor the place show the password of an address."""
    address = f"postgresql://forewarn:s3cret@/{database}?host={server.folder}"
    store = open_store(address)
    assert "s3cret" not in store.place
    store.close()
    for wrong in (
        f"postgresql://forewarn:s3cret@/nowhere?host={server.folder}",
        "postgresql://forewarn:s3cret@/x?hosst=y",
    ):
        with pytest.raises((StoreUnavailable, StoreAddressInvalid)) as refused:
            open_store(wrong)
        assert "s3cret" not in str(refused.value)


def test_pooler_in_transaction_mode_is_named(postgres_address: str, opened: Opener) -> None:
    """What was prepared is on another connection, as behind a pooler. Source: H-9."""
    store = opened(postgres_address)
    begin(store)
    with (
        pytest.raises(StorePooled, match="pooler in transaction mode") as refused,
        store._engine.writing() as transaction,
    ):
        transaction.run_text("DEALLOCATE ALL")
    assert refused.value.status == 503
