"""What becomes of an order: it is accepted whole, its hosts have their turns, it ends.

Source: ADR 0040. Each host is checked when the order is accepted, and again when its turn comes:
what cannot be done any more by then is left out, and said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import admission, transitions
from forewarn.core import stimulus as stimuli
from forewarn.core.impact import SECOND_MS, TRAITS, Target
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.order import ORDER_TARGETS_MAX, Order, OrderHosts, digest_of
from forewarn.core.refusals import AlreadyOrdered, OperationInvalid, UnknownOrder, WrongState
from forewarn.core.stimulus import RequestMaintenance
from forewarn.errors import CallerError
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def check(draft: Draft, work: RequestMaintenance) -> None:
    """Refuse an order that could not be carried out whole as things are; writes nothing.

    Costs its hosts and the work on them.

    Raises:
        CallerError: as `admission.plan` does for fewer hosts, and `AlreadyOrdered`.
    """
    work = _check_whole(draft, work)
    _check_hosts(draft, work)


def act(draft: Draft, stimulus: stimuli.PlaceOrder | stimuli.CancelOrder) -> tuple[int, ...]:
    """Do what is asked for; return the order that it is about."""
    if isinstance(stimulus, stimuli.PlaceOrder):
        return place(draft, stimulus)
    return cancel(draft, stimulus)


def place(draft: Draft, placed: stimuli.PlaceOrder) -> tuple[int, ...]:
    """Accept an order: nothing is planned of it yet. Costs a look at the names of its hosts.

    Raises:
        CallerError: as `check`, which was done before where the order says so.
    """
    work = _check_whole(draft, placed.work)
    if not placed.checked:
        _check_hosts(draft, work)
    traits = TRAITS[work.cause]
    impact = work.impact or traits.impact
    text, duration_s = traits.shown(impact)
    order = Order(
        draft.next_number(),
        work.cause,
        impact,
        work.source or traits.source,
        len(work.targets),
        digest_of(work.targets),
        text if work.description is None else work.description,
        duration_s if work.duration_s is None else work.duration_s,
        work.not_before_ms,
        work.destination,
        draft.now_ms,
        draft.actor,
    )
    asked = f"{order.cause.value} of {order.hosts} hosts ({order.impact.value})"
    hosts = OrderHosts(order.number, work.targets)
    draft.put("order.accepted", f"{order.id}: {asked} is asked for", order, hosts)
    draft.later.append(order.number)
    return (order.number,)


def _check_whole(draft: Draft, work: RequestMaintenance) -> RequestMaintenance:
    """Check what concerns an order as a whole; return it with the cause it has in truth."""
    traits = TRAITS[work.cause]
    if traits.target is not Target.HOST:
        problem = "an order carried out in portions is of hosts"
        raise OperationInvalid(
            cause=work.cause.value, target=", ".join(work.targets[:3]), problem=problem
        )
    work = admission.check_ask(draft, work, ORDER_TARGETS_MAX)
    alike = [
        order
        for order in draft.orders.live()
        if order.cause is work.cause and order.hosts == len(work.targets) and not order.cancelled_ms
    ]
    digest = digest_of(work.targets) if alike else ""
    for order in alike:
        if order.digest == digest:
            raise AlreadyOrdered(order=order.id, cause=order.cause.value, count=order.hosts)
    return work


def _check_hosts(draft: Draft, work: RequestMaintenance) -> None:
    """Refuse what cannot be done to one of many hosts.

    Costs the hosts and the work on them: what they have in common is looked at once.
    """
    hosts = draft.topology.hosts
    alike = None
    for host in work.targets:
        if alike is None or host not in hosts:
            alike = admission.plan_target(draft, work, host, request=1, number=1)
        admission.check_target(draft, replace(alike, host=host), host)


def advance(draft: Draft, room: int) -> tuple[int, ...]:
    """Have the next hosts of orders have their turn, at most this many; costs them.

    Returns:
        Numbers of the orders that have more.
    """
    more = []
    for number in sorted(draft.due_orders):
        order = draft.orders.get(number)
        if order is None or not order.unplanned:
            continue
        portion = draft.orders.hosts(number).names[order.planned : order.planned + room]
        room -= len(portion)
        if portion:
            order = _turn(draft, order, portion)
        if order.unplanned:
            more.append(number)
    return tuple(more)


def _turn(draft: Draft, order: Order, portion: tuple[str, ...]) -> Order:
    """Plan work on some hosts; leave out where that is impossible by now."""
    found: list[Operation | str] = []
    for host in portion:
        try:
            found.append(_operation(draft, order, host))
        except CallerError as refusal:
            found.append(f"host {host} of {order.id} is left out: {refusal}")
    left_out = sum(isinstance(each, str) for each in found)
    further = replace(
        order, planned=order.planned + len(portion), left_out=order.left_out + left_out
    )
    changed: tuple[Order, ...] = (further,)  # written once, with the first of them
    for host, each in zip(portion, found, strict=True):
        if isinstance(each, str):
            draft.put("order.left-out", each, further, host=host)
        else:
            transitions.plan(draft, [each], changed)
        changed = ()
    if not further.unplanned:
        text = f"every host of {order.id} has had its turn"
        draft.remove("order.planned", text, draft.orders.hosts(order.number))
        draft.touched_orders.add(order.number)
    return further


def _operation(draft: Draft, order: Order, host: str) -> Operation:
    asked_ms = order.asked_ms
    if asked_ms:  # which may be nearer by now than the notice that is owed
        notice_ms = draft.policy.notice_s[order.impact] * SECOND_MS
        asked_ms = max(asked_ms, draft.now_ms + notice_ms)
    work = RequestMaintenance(
        cause=order.cause,
        targets=(host,),
        impact=order.impact,
        source=order.source,
        description=order.description,
        duration_s=order.duration_s,
        not_before_ms=asked_ms,
        destination=order.destination,
    )
    number = draft.changes.last_number + 1
    operation = admission.plan_target(draft, work, host, request=order.number, number=number)
    assert draft.next_number() == number, "the number of what is refused is not used up"
    return replace(operation, actor=order.actor)


def cancel(draft: Draft, word: stimuli.CancelOrder) -> tuple[int, ...]:
    """Plan nothing more of an order; withdraw what has not started, in portions. Source: L-3.

    None of it starts from now on. Costs a look-up for each of its operations.
    """
    order = draft.orders.get(word.order)
    if order is None:
        raise UnknownOrder(name=f"order-{word.order}")
    if order.cancelled_ms:
        raise WrongState(operation=order.id, state="cancelled", asked="cancelled")
    cancelled = replace(order, cancelled_ms=draft.now_ms, reason=word.reason)
    left = order.unplanned
    text = f"{order.id} is cancelled; {left} of its hosts had not had their turn"
    draft.put("order.cancelled", f"{text}: {word.reason}" if word.reason else text, cancelled)
    if left:
        text = f"{left} hosts of {order.id} will have no turn"
        draft.remove("order.hosts-dropped", text, draft.orders.hosts(order.number))
    draft.touched_orders.add(order.number)
    draft.later += draft.orders.operations(order.number)
    return (order.number,)


def withdrawn_because(draft: Draft, operation: Operation) -> str:
    """Say why work of an order must not start at all; empty if it may."""
    if operation.state is OperationState.RUNNING:
        return ""
    order = draft.orders.get(operation.request)
    if order is None or not order.cancelled_ms:
        return ""
    return f"{order.id} is cancelled" + (f": {order.reason}" if order.reason else "")


def conclude(draft: Draft) -> None:
    """End the orders of which nothing is left; costs what is drafted."""
    for number in sorted(draft.touched_orders):
        order = draft.orders.get(number)
        if order is None or order.unplanned or draft.orders.works(number):
            continue
        ended = replace(order, ended_ms=draft.now_ms)
        left_out = f", {order.left_out} of them left out" if order.left_out else ""
        text = f"{order.id} has ended: {order.planned} hosts had their turn{left_out}"
        draft.put("order.ended", text, ended)
