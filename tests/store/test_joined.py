"""Steps that are committed together have the result of the same steps one by one."""

from contextlib import suppress

import pytest

from forewarn_base.errors import CallerError
from forewarn_core.fleet.document import View
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Entry, State
from forewarn_core.fleet.step import StepResult, joined, take
from forewarn_core.fleet.stimulus import PlaneStimulus
from forewarn_store import open_store
from tests.store.random_work import RandomWork
from tests.store.story import Story, begin, live_records, replayed

COMMITS = 100


def decide(story: Story, drafts: list[Draft], stimulus: PlaneStimulus) -> None:
    """Add one step, if the stimulus is not refused."""
    terms = Terms(NoticePolicy(), "operator", lambda: story.ids.guid("event"))
    with suppress(CallerError):
        drafts.append(take(story.state, stimulus, now_ms=story.now_ms, terms=terms))


def commit(story: Story, drafts: list[Draft]) -> StepResult | None:
    """Commit steps; None: there are none."""
    result = joined(drafts) if drafts else None
    if result is not None and result.changes:
        story.store.commit(result.changes)
    story.state.keep()
    return result


def records(state: State) -> dict[str, object]:
    """Return all live records, without the incarnations of documents."""
    events = {key: view.document.events for key, view in state.views.items()}
    return {**live_records(state), "document": events}


def told(story: Story) -> list[Entry]:
    """Return the history, without the entries of documents."""
    entries = [recorded.entry for recorded in story.store.entries()]
    return [each for each in entries if each.action != "document.updated"]


def grown(before: dict[str, View], after: dict[str, View]) -> set[int]:
    """Return by how much the incarnations of changed documents have grown."""
    return {
        view.document.incarnation - before[key].document.incarnation
        for key, view in after.items()
        if key in before and before[key] != view
    }


@pytest.mark.parametrize("seed", range(8))
def test_joined_steps_are_stored_as_single_ones(seed: int) -> None:
    """State, history and effects are the same, refused steps between them too.

    Only documents change once instead of several times. Source: L-7, A-6, D-1.
    """
    alone, together = begin(open_store("sqlite::memory:")), begin(open_store("sqlite::memory:"))
    work, shared, follower = RandomWork(seed), 0, together.state.copy()
    for _ in range(COMMITS):
        passed_ms = work.wait_ms()
        alone.now_ms += passed_ms
        together.now_ms += passed_ms
        stimuli, begun, before = [], [], dict(together.state.views)
        drafts: list[Draft] = []
        for stimulus in work.several(together.state):
            decide(together, drafts, stimulus)
            single: list[Draft] = []
            decide(alone, single, stimulus)
            one = commit(alone, single)
            begun += [each.number for each in one.begin] if one else []
            stimuli.append(stimulus)
        result = commit(together, drafts)
        assert records(together.state) == records(alone.state)
        assert grown(before, together.state.views) <= {1}
        if result is None:
            continue
        shared += len(stimuli) > 1
        follower.adopt(result.changes)
        assert follower == together.state
        running = together.state.operations
        still = tuple(running[n] for n in dict.fromkeys(begun) if n in running)
        assert result.begin == still
        assert {each.number for each in result.abort} <= together.state.aborts.keys()
    assert shared > COMMITS / 4
    assert told(together) == told(alone)
    assert together.store.load() == together.state
    assert replayed(together.store)["document"] == dict(together.state.views)
