"""What the store's tests share: every test that asks for a store runs on each engine."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from forewarn_store import Store, open_store
from tests.postgres import PostgresServer
from tests.store.proxy import Proxy, running_proxy
from tests.store.story import Story, begin

Open = Callable[[], Store]


@pytest.fixture(
    params=[
        pytest.param("sqlite", id="sqlite"),
        pytest.param("postgresql", id="postgresql", marks=pytest.mark.postgres),
    ]
)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store, on each engine in turn."""
    if request.param == "sqlite":
        yield f"sqlite://{tmp_path}/store.db"
        return
    yield request.getfixturevalue("postgres_address")


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Opens stores and closes them after the test."""
    with ExitStack() as stack:

        def opener(where: str) -> Store:
            store = open_store(where)
            stack.callback(store.close)
            return store

        yield opener


@pytest.fixture
def store(address: str, opened: Callable[[str], Store]) -> Store:
    """An empty store, loaded: this process is its writer."""
    found = opened(address)
    found.load()
    return found


@pytest.fixture
def memory(opened: Callable[[str], Store]) -> Store:
    """An empty SQLite store in memory, loaded."""
    found = opened("sqlite::memory:")
    found.load()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def story(path: Path, opened: Callable[[str], Store]) -> Story:
    """A fleet in a file."""
    return begin(opened(str(path)))


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    """A line to the server that can be cut."""
    folder = Path(tempfile.mkdtemp(prefix="fw-px-", dir="/tmp"))
    with running_proxy(folder, server.folder) as found:
        yield found
    shutil.rmtree(folder)
