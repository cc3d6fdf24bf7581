"""`forewarn wait`: until work has a state."""

import pytest

from forewarn_base.exit_codes import OK, REFUSED, TIMED_OUT
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("state", "status"), [("announced", OK), ("ended", TIMED_OUT), ("running", TIMED_OUT)]
)
def test_state_is_waited_for_until_the_timeout(run: Run, state: str, status: int) -> None:
    """Work that is announced has no other state in the time."""
    run("host", "update", "h1")
    waited = run("wait", "op-1", "--for", state, "--timeout", "0.2")
    assert (waited.status, waited.err) == (status, "op-1 is announced\n")


def test_work_that_ended_otherwise_is_not_waited_for(run: Run) -> None:
    """Work that is cancelled never succeeds."""
    run("host", "update", "h1")
    run("operation", "cancel", "op-1")
    assert run("wait", "op-1", "--for", "succeeded").status == REFUSED
    assert run("wait", "op-1", "-o", "json").json == {"id": "op-1", "state": "cancelled"}
