"""Routes of orders, work on many hosts that was asked for at once: reading and cancelling them.

They are placed by `POST /v1/operations`; how they are carried out is decided in the core.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import OperationState
from forewarn.core.order import Order
from forewarn.core.refusals import UnknownOrder
from forewarn.core.stimulus import CancelOrder
from forewarn.operator_api import request_forms as forms
from forewarn.operator_api.routes import ApiCall, ApiResponse, Route, listed
from forewarn.operator_api.schemas import TEXT, TIME, WHOLE, Member, ObjectSchema, words
from forewarn.store.orders import PAGE_MAX
from forewarn.validation.durations import written
from forewarn.validation.fields import Boolean, Integer
from forewarn.validation.forms import Field
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forewarn.store import Store
    from forewarn.validation.fields import Schema

_NUMBER = re.compile(r"(?i:order-)?([0-9]{1,15})")


@value
class OrderView:
    """An order, and how many of its operations are in each state."""

    order: Order
    states: Mapping[OperationState, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Where it stands, in a word."""
        if not self.order.live:
            return "ended"
        if self.order.cancelled_ms:
            return "cancelling"
        return "planning" if self.order.unplanned else "working"


ORDER: ObjectSchema[OrderView] = ObjectSchema(
    "Order",
    "Work on many hosts that was asked for at once. A time that has not come yet is null.",
    (
        Member("id", TEXT, lambda v: v.order.id, "Its name for people: order-12."),
        Member(
            "state",
            {"type": "string", "enum": ["planning", "working", "cancelling", "ended"]},
            lambda v: v.state,
            "planning: hosts are still to have their turn.",
        ),
        Member("cause", words(Cause), lambda v: v.order.cause.value),
        Member("impact", words(Impact), lambda v: v.order.impact.value),
        Member("source", words(Source), lambda v: v.order.source.value),
        Member("hosts", WHOLE, lambda v: v.order.hosts, "How many it names."),
        Member("unplanned", WHOLE, lambda v: v.order.unplanned, "Those still to have their turn."),
        Member("left_out", WHOLE, lambda v: v.order.left_out, "Impossible when their turn came."),
        Member(
            "operations",
            {"type": "object", "additionalProperties": WHOLE},
            lambda v: {each.value: v.states.get(each, 0) for each in OperationState},
            "How many of its operations are in each state.",
        ),
        Member("description", TEXT, lambda v: v.order.description),
        Member("duration_s", WHOLE, lambda v: v.order.duration_s, "0 none, -1 unknown."),
        Member("asked_not_before", TIME, lambda v: written(v.order.asked_ms)),
        Member("destination", TEXT, lambda v: v.order.destination),
        Member("created", TIME, lambda v: written(v.order.created_ms)),
        Member("cancelled", TIME, lambda v: written(v.order.cancelled_ms)),
        Member("ended", TIME, lambda v: written(v.order.ended_ms), "When nothing was left of it."),
        Member("reason", TEXT, lambda v: v.order.reason, "Why it was cancelled."),
        Member("actor", TEXT, lambda v: v.order.actor, "Who asked for it."),
    ),
)
_ONE: Schema = {
    "type": "object",
    "properties": {"order": ORDER.schema()},
    "required": ["order"],
    "additionalProperties": False,
}


def number_of_order(name: str) -> int:
    """Return the number that an order's name means: `order-12` or `12`.

    Raises:
        UnknownOrder: no order can have it.
    """
    matched = _NUMBER.fullmatch(name)
    if matched is None:
        raise UnknownOrder(name=name[:64])
    return int(matched[1])


async def _list(call: ApiCall) -> ApiResponse:
    limit, before = call.query.get("limit", PAGE_MAX), call.query.get("before", 0)
    wanted = call.query.get("live", False)

    def page(store: Store) -> tuple[list[OrderView], int | None]:
        found = store.orders.page(before, limit)
        views = [
            OrderView(each, store.orders.states(each.number))
            for each in found
            if each.live or not wanted
        ]
        return views, found[-1].number if len(found) == limit else None

    views, following = await call.control.look_up(page)
    return ApiResponse({"orders": ORDER.each(views), "next": following})


async def _get(call: ApiCall) -> ApiResponse:
    return _shown(await view_of_order(call, number_of_order(call.path["id"])))


async def _cancel(call: ApiCall) -> ApiResponse:
    number = number_of_order(call.path["id"])
    cancellation = CancelOrder(number, call.form.get("reason", ""))
    await call.control.submit(cancellation, call.actor)
    return _shown(await view_of_order(call, number))


async def view_of_order(call: ApiCall, number: int) -> OrderView:
    """Return an order, ended or not; costs its operations.

    Raises:
        UnknownOrder: there never was such an order.
    """

    def look(store: Store) -> OrderView | None:
        order = store.orders.get(number)
        return OrderView(order, store.orders.states(number)) if order else None

    view = await call.control.look_up(look)
    if view is None:
        raise UnknownOrder(name=f"order-{number}")
    return view


def _shown(view: OrderView) -> ApiResponse:
    return ApiResponse({"order": ORDER.of(view)})


def routes() -> tuple[Route, ...]:
    """Return the routes of orders."""
    return (
        Route(
            method="GET",
            path="/v1/orders",
            name="list_orders",
            summary="List orders of many hosts, newest first.",
            act=_list,
            query=(
                Field("live", Boolean(), "Only those of which something is left."),
                Field("before", Integer(1), "Only numbers below this one."),
                Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries (default: 100)."),
            ),
            answer=listed("orders", ORDER.schema(), paged="integer"),
        ),
        Route(
            method="GET",
            path="/v1/orders/{id}",
            name="get_order",
            summary="Read how far one order of many hosts is; costs its operations.",
            act=_get,
            answer=_ONE,
        ),
        Route(
            method="POST",
            path="/v1/orders/{id}/cancel",
            name="cancel_order",
            summary="Plan nothing more of it, and withdraw what has not started.",
            act=_cancel,
            form=forms.REASON,
            answer=_ONE,
        ),
    )
