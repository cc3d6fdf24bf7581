"""One step of the control plane: a stimulus comes in, and everything that follows goes out.

`step` is pure: it reads the state and returns changes, what to publish and what to begin. The
host process does these in a fixed order, which is a contract: **commit, publish, begin**
(L-7). After a crash it loads the state, steps `Recover`, and repeats publish and begin.
No single stimulus's own rules may live here: they are in `handlers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import admission, handlers, transitions
from forewarn.core import stimulus as stimuli
from forewarn.core.document import refreshed, visible
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.state import Changes, Draft, State, Terms
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.core.policy import Policy
    from forewarn.core.stimulus import Stimulus

#: Operations that one step announces or starts; the rest follows in steps of its own, so that
#: approvals are answered in between. Each costs the store about half a millisecond.
PORTION_MAX = 32
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
    #: Operations that may be announced or started, too, but not by this step: see `Proceed`.
    rest: tuple[int, ...] = ()


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
    rest = _settle(draft)
    _refresh(draft)
    publish = tuple(sorted(key for key, view in draft.changes.views.items() if view))
    assert all(draft.operation(number) for number in draft.begin), draft.begin
    begin, abort = tuple(draft.begin), tuple(draft.abort)
    return Outcome(draft.changes, about, publish, begin, abort, rest)


def next_deadline_ms(state: State, policy: Policy, now_ms: int) -> int | None:
    """When the next thing happens by itself, ms since the epoch UTC; None if nothing will.

    Deadlines already past are not named: whoever waits has stepped `Tick` since.
    """
    found = []
    for operation in state.operations.values():
        if operation.state is OperationState.ANNOUNCED:
            found.append(operation.not_before_ms)
        elif operation.state is OperationState.RUNNING and not operation.alerted:
            found.append(operation.overdue_ms(policy.overdue_after_s))
    oldest_ms = state.oldest_poll_ms()
    if oldest_ms is not None:
        found.append(handlers.disabled_ms(oldest_ms, policy.disable_after_s))
    return min((at_ms for at_ms in found if at_ms > now_ms), default=None)


# --- what each stimulus does ---------------------------------------------------------------


def _act(draft: Draft, stimulus: Stimulus) -> tuple[int, ...]:  # noqa: C901, PLR0912
    """Do what a stimulus asks for; a flat table that the type checker keeps complete."""
    match stimulus:
        case stimuli.RequestMaintenance():
            return handlers.ask(draft, stimulus)
        case stimuli.Approve():
            return handlers.approve(draft, stimulus)
        case stimuli.Acknowledge():
            return handlers.acknowledge(draft, stimulus)
        case stimuli.Cancel():
            return handlers.cancel(draft, stimulus)
        case stimuli.Complete():
            return handlers.complete(draft, stimulus)
        case stimuli.Retry():
            return handlers.retry(draft, stimulus)
        case stimuli.Repair():
            return handlers.repair(draft, stimulus)
        case stimuli.DriverBegun():
            return handlers.begun(draft, stimulus)
        case stimuli.DriverDone():
            return handlers.done(draft, stimulus)
        case stimuli.DriverFailed():
            return handlers.broke(draft, stimulus)
        case stimuli.DriverAborted():
            return handlers.aborted(draft, stimulus)
        case stimuli.NoticeShown():
            return handlers.shown(draft, stimulus)
        case stimuli.NotShown():
            return handlers.not_shown(draft, stimulus)
        case stimuli.ClockMarked():
            return handlers.marked(draft, stimulus)
        case stimuli.Enable():
            return handlers.enable(draft, stimulus)
        case stimuli.GroupsPolled():
            return handlers.polled(draft, stimulus)
        case stimuli.ChangeTopology():
            return handlers.change(draft, stimulus)
        case stimuli.Tick():
            return handlers.tick(draft)
        case stimuli.Proceed():
            return handlers.proceed(draft, stimulus)
        case _:
            assert isinstance(stimulus, stimuli.Recover), stimulus
            return handlers.recover(draft)


# --- what follows from anything ------------------------------------------------------------


def _settle(draft: Draft) -> tuple[int, ...]:
    """Apply the joint rules until nothing more follows, or this is a portion. L-1, L-2, G-1.

    Returns:
        What a further step must look at; empty unless this one has moved all that it may.
    """
    running: admission.Disturbed | None = None
    moved = 0
    rest: tuple[int, ...] = ()
    for _ in range(ROUNDS_MAX):
        if moved >= PORTION_MAX:
            return (*rest, *sorted(draft.candidates))
        if draft.freed:
            draft.freed = False
            running = None
            announced, rest = _admit(draft, PORTION_MAX - moved)
            moved += announced
            draft.candidates.update(
                operation.number
                for operation in draft.operations()
                if operation.state is OperationState.ANNOUNCED
            )
        if not draft.candidates:
            return rest
        number = min(draft.candidates)
        draft.candidates.remove(number)
        operation = draft.operation(number)
        if operation is None or operation.state is not OperationState.ANNOUNCED:
            continue
        running = running or admission.running(draft.topology, draft.operations())
        reason = _may_start(draft, operation, running)
        if reason:
            running.add(draft.topology, transitions.start(draft, operation, reason))
            moved += 1
    raise AssertionError("the joint rules do not settle")  # pragma: no cover


def _admit(draft: Draft, at_most: int) -> tuple[int, tuple[int, ...]]:
    """Announce planned operations that nothing stands in the way of any more.

    Only routine work waits to be announced; other work is announced at once (N-2, N-3) and may
    have to wait before it starts.

    Returns:
        How many were announced, and those that were not looked at since these were enough.
    """
    planned = [o for o in draft.operations() if o.state is OperationState.PLANNED]
    if not planned:
        return 0, ()
    announced = 0
    disturbed = admission.announced(draft.topology, draft.operations())
    for place, operation in enumerate(planned):
        if announced >= at_most:
            return announced, tuple(each.number for each in planned[place:])
        if not operation.routine:
            transitions.announce(draft, operation)
        elif admission.obstacle(draft.topology, operation, disturbed) is None:
            disturbed.add(draft.topology, transitions.announce(draft, operation))
        else:
            continue
        announced += 1
    return announced, ()


def _may_start(draft: Draft, operation: Operation, running: admission.Disturbed) -> str:
    """Say why a announced operation starts now; empty if it does not."""
    if admission.obstacle(draft.topology, operation, running) is not None:
        return ""
    if operation.shown_ms and operation.not_before_ms <= draft.now_ms:
        return "NotBefore is reached"
    asked = [e for e in draft.events_of(operation) if draft.enabled(e.group)]
    if not asked:
        return "nobody is to be asked" if operation.asked_ms <= draft.now_ms else ""
    if not admission.approved_by_all(draft, operation):
        return ""
    return "" if admission.undecided_siblings(draft, operation) else "everybody approved"


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
                draft.put("document.updated", f"document {view.key} is at {incarnation}", after)
