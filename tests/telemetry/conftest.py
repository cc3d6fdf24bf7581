"""A service that answers scrapes, for each test of its own."""

from collections.abc import Iterator

import pytest

from tests.api.live import FLEET, Live
from tests.telemetry.scraping import with_metrics


@pytest.fixture
def measured() -> Iterator[Live]:
    """A service with two hosts, two enabled groups, and metrics."""
    with Live(with_metrics()) as service:
        service.fleet(**FLEET)
        service.enable("web-0", "db-0")
        yield service
