"""Draws `docs/lifecycle.svg` from the tables of the two state machines.

This module defines the place of each state on the sheet. States without a place, and places without
a state, are errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from forewarn_core.fleet.lifecycle import EVENT_MOVES, OPERATION_MOVES, SHOWN_AS, EventState, Move
from forewarn_core.fleet.lifecycle import OperationState as OpState

BOX_WIDTH, BOX_HEIGHT = 132, 46
SHEET_WIDTH, SHEET_HEIGHT = 860, 560

Point = tuple[int, int]
Moves = Collection[tuple[tuple[Enum, Move], Enum]]

OPERATION_PLACES: dict[Enum, Point] = {
    OpState.PLANNED: (100, 120),
    OpState.ANNOUNCED: (320, 120),
    OpState.RUNNING: (540, 120),
    OpState.SUCCEEDED: (760, 85),
    OpState.FAILED: (760, 155),
    OpState.CANCELLED: (210, 215),
}
EVENT_PLACES: dict[Enum, Point] = {
    EventState.SCHEDULED: (100, 370),
    EventState.APPROVED: (320, 370),
    EventState.STARTED: (540, 370),
    EventState.COMPLETED: (760, 370),
    EventState.CANCELLED: (210, 470),
}
#: Moves whose arrows go around a state between their ends.
ARCS = {(OpState.PLANNED, OpState.RUNNING), (EventState.SCHEDULED, EventState.STARTED)}

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .head { font-size: 16px; font-weight: 600; text-anchor: start; }
  .note { font-size: 11px; fill: #59636e; }
  .left { text-anchor: start; }
  .box { fill: #ffffff; stroke: #59636e; stroke-width: 1.4; }
  .live { fill: #ddf4ff; stroke: #0969da; }
  .felt { fill: #fff1e5; stroke: #bc4c00; }
  .move { fill: none; stroke: #59636e; stroke-width: 1.4; marker-end: url(#tip); }
  .joint { fill: none; stroke: #bc4c00; stroke-width: 1.6; stroke-dasharray: 5 4; }
  .tip { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .note { fill: #9198a1; }
    .box { fill: #151b23; stroke: #9198a1; }
    .live { fill: #0c2d4d; stroke: #4493f8; }
    .felt { fill: #41230c; stroke: #f0883e; }
    .move { stroke: #9198a1; }
    .joint { stroke: #f0883e; }
    .tip { fill: #9198a1; }
  }
"""

SVG_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SHEET_WIDTH} {SHEET_HEIGHT}"
  role="img" aria-label="How an operation and its events move">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"
  orient="auto"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>"""


@dataclass(frozen=True)
class Arrow:
    """One line between two states, with all its moves."""

    start: Enum
    end: Enum
    label: str


def lifecycle_svg() -> str:
    """Return the diagram as SVG."""
    parts = [
        SVG_HEAD,
        f"<style>{STYLE}</style>",
        text((34, 34), "Operation: one disturbance of one host or VM", kind="head"),
        *_machine(OPERATION_MOVES.items(), OPERATION_PLACES),
        text((34, 288), "Event: what one group's VMs are shown of it", kind="head"),
        *_machine(EVENT_MOVES.items(), EVENT_PLACES),
        *_joint_rule(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _machine(moves: Moves, places: Mapping[Enum, Point]) -> list[str]:
    states = {state for (start, _), end in moves for state in (start, end)}
    assert states == set(places), "every state has a place, and no other"
    lines = [line for arrow in _arrows(moves) for line in _draw_arrow(arrow, places)]
    return lines + [_draw_state(state, place) for state, place in places.items()]


def _arrows(moves: Moves) -> list[Arrow]:
    labels: dict[tuple[Enum, Enum], list[str]] = {}
    for (start, move), end in moves:
        labels.setdefault((start, end), []).append(move.value)
    return [Arrow(start, end, " | ".join(words)) for (start, end), words in labels.items()]


def _draw_arrow(arrow: Arrow, places: Mapping[Enum, Point]) -> list[str]:
    (x1, y1), (x2, y2) = places[arrow.start], places[arrow.end]
    if (arrow.start, arrow.end) in ARCS:
        top = y1 - BOX_HEIGHT // 2
        path = f"M{x1} {top} C{x1 + 60} {top - 42} {x2 - 60} {top - 42} {x2} {top}"
        label = ((x1 + x2) // 2, top - 36)
    elif y2 - y1 > BOX_HEIGHT * 2:
        bottom, above = y1 + BOX_HEIGHT // 2, y2 - BOX_HEIGHT // 2
        aim = x2 + (18 if x1 > x2 else -18)
        path = f"M{x1} {bottom} L{aim} {above}"
        label = ((x1 + aim) // 2 + (30 if x1 > x2 else -30), (bottom + above) // 2 + 8)
    else:
        path = f"M{x1 + BOX_WIDTH // 2} {y1} L{x2 - BOX_WIDTH // 2} {y2}"
        label = ((x1 + x2) // 2, (y1 + y2) // 2 + (20 if y2 > y1 else -8))
    return [f'<path class="move" d="{path}"/>', text(label, arrow.label)]


def _draw_state(state: Enum, place: Point) -> str:
    x, y = place[0] - BOX_WIDTH // 2, place[1] - BOX_HEIGHT // 2
    kind = ""
    if state in {OpState.RUNNING, EventState.STARTED}:
        kind = " felt"
    elif state in {OpState.ANNOUNCED, EventState.SCHEDULED, EventState.APPROVED}:
        kind = " live"
    box = f'<rect class="box{kind}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
    if not isinstance(state, EventState):
        return f'{box} rx="8"/>{text((place[0], place[1] + 5), state.name)}'
    shown = f"shown as “{SHOWN_AS[state]}”" if state in SHOWN_AS else "no longer shown"
    above, below = (place[0], place[1] - 3), (place[0], place[1] + 14)
    return f'{box} rx="8"/>{text(above, state.name)}{text(below, shown, kind="note")}'


def _joint_rule() -> list[str]:
    (x, top), (_, below) = OPERATION_PLACES[OpState.RUNNING], EVENT_PLACES[EventState.STARTED]
    path = f"M{x} {top + BOX_HEIGHT // 2 + 4} L{x} {below - BOX_HEIGHT // 2 - 4}"
    return [
        f'<path class="joint" d="{path}"/>',
        text((x + 14, 222), "due: NotBefore is reached, or every", kind="note left"),
        text((x + 14, 238), "enabled group has approved its event;", kind="note left"),
        text((x + 14, 254), "all its events start together", kind="note left"),
        text((34, 545), "blue: announced, may still be cancelled", kind="note left"),
        text((324, 545), "orange: being felt by the VMs", kind="note left"),
    ]


def text(place: Point, words: str, kind: str = "") -> str:
    """Return a text element at a place."""
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{place[0]}" y="{place[1]}">{words}</text>'
