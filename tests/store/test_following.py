"""A process that follows the writer has the same state, and takes over without loading it."""

from collections.abc import Callable

import pytest

import forewarn_store as stores
from forewarn_base.errors import CallerError
from forewarn_base.ids import Ids
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import NotShown, RequestMaintenance
from forewarn_server.control.plane import ControlPlane
from forewarn_store import Store
from forewarn_store.errors import FollowedTooLate, StoreLost
from tests.store.random_work import RandomWork
from tests.store.story import START_MS, begin

STEPS = 120


def plane_of(store: Store) -> ControlPlane:
    """Return a control plane that becomes the writer."""
    ids = Ids(7)
    return ControlPlane(store, NoticePolicy(), lambda: ids.guid("event"))


@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(3))
def test_follower_has_the_state_of_the_writer(
    postgres_address: str, opened: Callable[[str], Store], seed: int
) -> None:
    """Through random work of every kind; a takeover gives what a load gives, and ends the writer.

    Source: H-1, H-2.
    """
    writer, following = opened(postgres_address), opened(postgres_address)
    plane, work, now_ms = plane_of(writer), RandomWork(seed), START_MS
    followed = following.look()
    for _ in range(STEPS):
        now_ms += work.wait_ms()
        try:
            plane.commit(work.next(plane.state), actor="test", now_ms=now_ms)
        except CallerError:
            continue
        following.catch_up(followed)
        followed.enrolments = dict(plane.state.enrolments)  # polls are taken up at a takeover
        assert followed == plane.state
    heir = following.load(followed)
    assert heir == opened(postgres_address).look() == plane.state
    with pytest.raises(StoreLost):
        writer.confirm()


@pytest.mark.postgres
def test_follower_takes_up_an_entry_that_changes_nothing(
    postgres_address: str, opened: Callable[[str], Store]
) -> None:
    """A node that did not show an operation is reported, and the operation stays as it was. M-4."""
    following = opened(postgres_address)
    story = begin(opened(postgres_address))
    story.tell(RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h0",)))
    followed = following.look()
    story.tell(NotShown((story.state.last_number,), ("n1",), ("h0",)))
    assert following.catch_up(followed) is not None
    assert followed == story.state


@pytest.mark.postgres
def test_follower_that_missed_too_much_loads_again(
    postgres_address: str, opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read more history than the state is worth. Source: H-2."""
    monkeypatch.setattr(stores, "FOLLOWED_MAX", 2)
    following = opened(postgres_address)
    followed = following.look()
    story = begin(opened(postgres_address))
    with pytest.raises(FollowedTooLate):
        following.catch_up(followed)
    assert following.load(followed) == story.state
