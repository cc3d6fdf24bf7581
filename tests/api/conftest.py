"""A service for each test of the operator API, and one that many share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.live import FLEET, Live


@pytest.fixture
def live() -> Iterator[Live]:
    """An empty service of the test's own."""
    with Live() as service:
        yield service


@pytest.fixture
def fleet(live: Live) -> Live:
    """A service with two hosts and three VMs that ask for their documents."""
    live.fleet(**FLEET)
    live.enable("web-0", "db-0")
    return live


@pytest.fixture(scope="session")
def shared() -> Iterator[Live]:
    """A service for tests that change nothing, or nothing that others look at."""
    with Live() as service:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        yield service


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the boundary values unless they run: making them takes seconds in each worker."""
    nightly = "not nightly" not in config.option.markexpr
    return None if nightly or collection_path.name != "test_boundary_values.py" else True
