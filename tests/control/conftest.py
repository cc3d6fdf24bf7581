"""What holds for every test of the control plane: it goes through no bug that is only logged."""

from collections.abc import Iterator

import pytest

from tests.control.rig import Running


@pytest.fixture(autouse=True)
def _no_bugs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where something went on after a bug; a test that wants one clears what was logged."""
    yield
    bugs = [each.getMessage() for each in caplog.get_records("call") if each.exc_info]
    assert bugs == []


@pytest.fixture
def running() -> Iterator[Running]:
    """A run loop with one VM on one host."""
    made = Running()
    yield made
    made.loop.stop()
    made.store.close()
