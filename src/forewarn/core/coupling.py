"""Coupled deletions: whose approvals a deletion waits for besides those of its own groups.

Source: SPEC L-2, A-8, B-3. Reads the draft; what it has seen decided it remembers there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import Impact
from forewarn.core.indexes import deletion_key
from forewarn.core.lifecycle import EventState, Operation, OperationState

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def is_coupled(draft: Draft, operation: Operation) -> bool:
    """Whether an approved deletion waits for another of its request. Source: A-8."""
    if operation.impact is not Impact.TERMINATE:
        return False
    return not _all_decided(draft, deletion_key(operation))


def wake_coupled(draft: Draft, operation: Operation, key: tuple[int, int]) -> None:
    """Have the deletions looked at that waited for one's approval, once they wait for none.

    As long as one is undecided the others would wait on; so each is looked at once, however many
    of them start in one step. Source: A-8.
    """
    if operation.impact is not Impact.TERMINATE or key in draft.uncoupled:
        return
    if _all_decided(draft, key):
        draft.uncoupled.add(key)
        for sibling in draft.operations(("deletion", key)):
            draft.look_at(sibling.number)


def undecided_siblings(draft: Draft, operation: Operation) -> list[Operation]:
    """Deletions of the same request that must be approved first. Source: A-8."""
    if operation.impact is not Impact.TERMINATE:
        return []
    key = deletion_key(operation)
    return [
        sibling
        for sibling in draft.operations(("deletion", key))
        if sibling.number != operation.number and _is_undecided(draft, sibling, key)
    ]


def _all_decided(draft: Draft, key: tuple[int, int]) -> bool:
    """Whether no deletion of a request is undecided; each that is not is looked at once a step."""
    left = draft.undecided.get(key)
    if left is None:
        left = draft.undecided[key] = draft.numbers(("deletion", key))
    while left:
        sibling = draft.operation(left[-1])
        if sibling is not None and _is_undecided(draft, sibling, key):
            return False
        left.pop()
    return True


def _is_undecided(draft: Draft, sibling: Operation, key: tuple[int, int]) -> bool:
    return (
        sibling.state is OperationState.ANNOUNCED
        and deletion_key(sibling) == key
        and any(
            event.state is EventState.SCHEDULED and draft.enabled(event.group)
            for event in draft.events_of(sibling)
        )
    )
