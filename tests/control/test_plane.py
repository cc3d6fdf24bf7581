"""The control plane believes only what is durable."""

from contextlib import closing

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import RequestMaintenance
from forewarn_server.control.plane import ControlPlane
from forewarn_store import open_store
from forewarn_store.errors import StoreContradiction
from tests.core.invariants import everything_in
from tests.core.rig import small_fleet


def test_commit_that_fails_leaves_the_state_as_it_was() -> None:
    """What the store cannot hold is undone, and the next request is decided without it. L-7."""
    ids = iter(["\ud800", "A", "B", "C"])
    ask = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h2",))
    with closing(open_store("sqlite::memory:")) as store:
        plane = ControlPlane(store, NoticePolicy(), lambda: next(ids))
        plane.commit(small_fleet(), actor="operator", now_ms=1)
        before = everything_in(plane.state)
        with pytest.raises(StoreContradiction):
            plane.commit(ask, actor="operator", now_ms=2)
        assert everything_in(plane.state) == before
        assert plane.commit(ask, actor="operator", now_ms=2).operations[0].events == ("A",)
