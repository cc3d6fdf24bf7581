"""What stands or changes between a store and its database: poolers, replicas, lost sessions."""

from collections.abc import Callable, Iterator

import pytest

from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.state import Changes
from forewarn_store import Store, open_store
from forewarn_store.errors import StorePooled, StoreUncertain
from tests.pgbouncer import PGBOUNCER, pooled
from tests.postgres import PostgresServer, running_postgres, running_replica
from tests.store.story import Story, begin, entry
from tests.waiting import wait_until

pytestmark = pytest.mark.postgres
needs_pooler = pytest.mark.skipif(PGBOUNCER is None, reason="there is no PgBouncer")
Opener = Callable[[str], Store]


def commit(story: Story) -> int:
    """Commit one entry, again while the database is away; return its number in history."""
    store, before = story.store, story.store.history_bounds()[1]

    def durable() -> bool:
        try:
            store.commit(Changes(last_number=story.state.last_number, entries=[entry()]))
        except StoreUncertain:
            settled(store)
            return store.history_bounds()[1] > before
        except ForewarnError:
            return False
        return True

    wait_until(durable, every_s=0.1, what="a commit")
    assert store.history_bounds()[1] == before + 1
    return before + 1


def settled(store: Store) -> None:
    """Wait until the store knows whether its last commit happened."""

    def known() -> bool:
        try:
            store.settle()
        except ForewarnError:
            return False
        return True

    wait_until(known, every_s=0.1, what="the end of a commit")


@needs_pooler
def test_pooler_in_transaction_mode_is_refused_at_the_start(
    server: PostgresServer, postgres_address: str
) -> None:
    """The sentence names the pooler, before anything is prepared or claimed. Source: H-9."""
    with pooled(server, postgres_address, "transaction") as address:
        with pytest.raises(StorePooled, match="pooler in transaction mode") as refused:
            open_store(address)
        assert "pool_mode = session" in refused.value.advice_text()


@needs_pooler
def test_pooler_in_session_mode_is_used(
    server: PostgresServer, postgres_address: str, opened: Opener
) -> None:
    """Statements, notices and the lease work through it, also after it lost its sessions. H-9."""
    with pooled(server, postgres_address, "session") as address:
        story, other = begin(opened(address)), opened(address)
        assert other.wait_for_commit(0)
        commit(story)
        assert other.wait_for_commit(5)
        lose_sessions(server, postgres_address)
        commit(story)
        assert story.store.lease() == other.lease()


def test_lost_sessions_are_made_again(
    server: PostgresServer, postgres_address: str, opened: Opener
) -> None:
    """An administrator ends every backend: reads, writes and notices go on. Source: H-9."""
    story = begin(opened(postgres_address))
    lose_sessions(server, postgres_address)
    commit(story)
    assert story.store.lease() == story.store.lease()


def lose_sessions(server: PostgresServer, address: str) -> None:
    """End every backend of a database."""
    name = address.partition("@/")[2].partition("?")[0]
    server.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    )


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server of its own, and a replica that follows it."""
    with running_postgres(on_disk=True) as primary, running_replica(primary) as replica:
        yield primary, replica


@pytest.mark.slow
def test_promoted_replica_is_followed(pair: tuple[PostgresServer, PostgresServer]) -> None:
    """An address of several hosts finds the primary, before and after a failover. Source: H-9."""
    primary, replica = pair
    hosts = f"host={replica.folder},{primary.folder}&target_session_attrs=read-write"
    store = open_store(f"postgresql://forewarn@/postgres?{hosts}")
    story = begin(store)
    seq = commit(story)
    newest = "SELECT max(seq) FROM history"
    wait_until(lambda: replica.run("SELECT to_regclass('history') IS NOT NULL") == [(True,)])
    wait_until(lambda: replica.run(newest) == [(seq,)], what="the replica")
    primary.stop()
    replica.run("SELECT pg_promote()")
    assert commit(story) == seq + 1
    assert replica.run(newest) == [(seq + 1,)]
    store.close()
