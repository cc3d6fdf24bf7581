"""A metadata service for each test of the agent that asks for one."""

from collections.abc import Iterator

import pytest

from tests.agent.service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """Run a service."""
    with Service() as one:
        yield one
