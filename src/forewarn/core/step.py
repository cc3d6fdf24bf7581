"""One step of the control plane: a stimulus comes in, and everything that follows goes out.

`step` is pure: it reads the state and returns changes, what to publish and what to begin. The
host process does these in a fixed order, which is a contract: **commit, publish, begin**
(L-7). After a crash it loads the state, steps `Recover`, and repeats publish and begin.
No single stimulus's own rules may live here: they are in `acts.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import acts, planner, work
from forewarn.core import stimulus as stimuli
from forewarn.core.document import refreshed, visible
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.state import Changes, Draft, State, Terms
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.core.policy import Policy
    from forewarn.core.stimulus import Stimulus

#: More rounds than this until nothing changes would be a bug: each round starts or admits work.
ROUNDS_MAX = 10_000


@value
class Outcome:
    """What a step comes to. The order of effects is: commit, publish, begin (and abort)."""

    #: To be committed in one transaction, and only then adopted.
    changes: Changes
    #: Operations the stimulus created or was about, in order.
    operations: tuple[int, ...] = ()
    #: Documents that changed, by view key.
    publish: tuple[str, ...] = ()
    #: Operations to begin, or to begin again, once that is published.
    begin: tuple[int, ...] = ()
    #: Operations whose driver must be told that they ended without it, or be told again.
    abort: tuple[int, ...] = ()


def step(state: State, stimulus: Stimulus, *, now_ms: int, terms: Terms) -> Outcome:
    """Return what follows from a stimulus; the state is not touched.

    Args:
        state: what is true now.
        stimulus: what happens.
        now_ms: the service's time, ms since the epoch UTC.
        terms: policy, actor and ids.

    Raises:
        CallerError: the stimulus is refused; nothing follows.
    """
    draft = Draft(state, now_ms, terms)
    about = _act(draft, stimulus)
    _settle(draft)
    _refresh(draft)
    publish = tuple(sorted(key for key, view in draft.changes.views.items() if view))
    assert all(draft.operation(number) for number in draft.begin), draft.begin
    return Outcome(draft.changes, about, publish, tuple(draft.begin), tuple(draft.abort))


def next_deadline_ms(state: State, policy: Policy, now_ms: int) -> int | None:
    """When the next thing happens by itself, ms since the epoch UTC; None if nothing will.

    Deadlines already past are not named: whoever waits has stepped `Tick` since.
    """
    found = []
    for operation in state.operations.values():
        if operation.state is OperationState.NOTICED:
            found.append(operation.not_before_ms)
        elif operation.state is OperationState.RUNNING and not operation.alerted:
            found.append(operation.overdue_ms(policy.overdue_after_s))
    oldest_ms = state.oldest_poll_ms()
    if oldest_ms is not None:
        found.append(acts.disabled_ms(oldest_ms, policy.disable_after_s))
    return min((at_ms for at_ms in found if at_ms > now_ms), default=None)


# --- what each stimulus does ---------------------------------------------------------------


def _act(draft: Draft, stimulus: Stimulus) -> tuple[int, ...]:  # noqa: C901, PLR0912
    """Do what a stimulus asks for; a flat table that the type checker keeps complete."""
    match stimulus:
        case stimuli.Ask():
            return acts.ask(draft, stimulus)
        case stimuli.Approve():
            return acts.approve(draft, stimulus)
        case stimuli.Acknowledge():
            return acts.acknowledge(draft, stimulus)
        case stimuli.Cancel():
            return acts.cancel(draft, stimulus)
        case stimuli.Complete():
            return acts.complete(draft, stimulus)
        case stimuli.Retry():
            return acts.retry(draft, stimulus)
        case stimuli.Repair():
            return acts.repair(draft, stimulus)
        case stimuli.Begun():
            return acts.begun(draft, stimulus)
        case stimuli.Done():
            return acts.done(draft, stimulus)
        case stimuli.Broke():
            return acts.broke(draft, stimulus)
        case stimuli.Aborted():
            return acts.aborted(draft, stimulus)
        case stimuli.Shown():
            return acts.shown(draft, stimulus)
        case stimuli.Marked():
            return acts.marked(draft, stimulus)
        case stimuli.Enable():
            return acts.enable(draft, stimulus)
        case stimuli.Polled():
            return acts.polled(draft, stimulus)
        case stimuli.Change():
            return acts.change(draft, stimulus)
        case stimuli.Tick():
            return acts.tick(draft)
        case _:
            assert isinstance(stimulus, stimuli.Recover), stimulus
            return acts.recover(draft)


# --- what follows from anything ------------------------------------------------------------


def _settle(draft: Draft) -> None:
    """Apply the joint rules until nothing more follows. Source: L-1, L-2, G-1."""
    running: planner.Disturbed | None = None
    for _ in range(ROUNDS_MAX):
        if draft.freed:
            draft.freed = False
            running = None
            _admit(draft)
            draft.candidates.update(
                operation.number
                for operation in draft.operations()
                if operation.state is OperationState.NOTICED
            )
        if not draft.candidates:
            return
        number = min(draft.candidates)
        draft.candidates.remove(number)
        operation = draft.operation(number)
        if operation is None or operation.state is not OperationState.NOTICED:
            continue
        running = running or planner.running(draft.topology, draft.operations())
        reason = _may_start(draft, operation, running)
        if reason:
            running.add(draft.topology, work.start(draft, operation, reason))
    raise AssertionError("the joint rules do not settle")  # pragma: no cover


def _admit(draft: Draft) -> None:
    """Announce every planned operation that nothing stands in the way of any more.

    Only routine work waits to be announced; other work is announced at once (N-2, N-3) and may
    have to wait before it starts.
    """
    planned = [o for o in draft.operations() if o.state is OperationState.PLANNED]
    if not planned:
        return
    disturbed = planner.announced(draft.topology, draft.operations())
    for operation in planned:
        if not operation.routine:
            work.notice(draft, operation)
        elif planner.obstacle(draft.topology, operation, disturbed) is None:
            disturbed.add(draft.topology, work.notice(draft, operation))


def _may_start(draft: Draft, operation: Operation, running: planner.Disturbed) -> str:
    """Say why a noticed operation starts now; empty if it does not."""
    if planner.obstacle(draft.topology, operation, running) is not None:
        return ""
    if operation.shown_ms and operation.not_before_ms <= draft.now_ms:
        return "NotBefore is reached"
    asked = [e for e in draft.events_of(operation) if draft.enabled(e.group)]
    if not asked:
        return "nobody is to be asked" if operation.asked_ms <= draft.now_ms else ""
    if not planner.approved_by_all(draft, operation):
        return ""
    return "" if planner.undecided_siblings(draft, operation) else "everybody approved"


def _refresh(draft: Draft) -> None:
    """Bring the documents of every touched group up to date. Source: D-1."""
    for group in sorted(draft.touched_groups):
        if not draft.enabled(group) or group not in draft.topology.groups:
            continue
        live = draft.live_events_in(group)
        for view in draft.views_in(group):
            after = refreshed(view, visible(view, live))
            if after is not view:
                incarnation = after.document.incarnation
                draft.put("document.moved", f"document {view.key} is at {incarnation}", after)
