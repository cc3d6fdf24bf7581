"""A service for each test of the operator API, and one that many share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.live import FLEET, Live


@pytest.fixture
def live() -> Iterator[Live]:
    """An empty service of the test's own."""
    service = Live()
    yield service
    service.stop()


@pytest.fixture
def fleet(live: Live) -> Live:
    """A service with two hosts and three VMs that ask for their documents."""
    live.fleet(**FLEET)
    live.enable("web-0", "db-0")
    return live


@pytest.fixture(scope="session")
def shared() -> Iterator[Live]:
    """A service for tests that change nothing, or nothing that others look at."""
    service = Live()
    service.fleet(**FLEET)
    service.enable("web-0", "db-0")
    yield service
    service.stop()
